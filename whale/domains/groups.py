"""Count recorded rollouts by group of tasks: what every domain reports."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from whale.domains.base import Task
from whale.rollout.types import Trajectory

ALL = "all"


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """What happened to the rollouts of one group of tasks."""

    n: int
    tasks: int
    passed: float
    """Sum of the rewards."""
    formatted: int
    """With an answer in the form that the verifier reads."""
    truncated: int
    failed: int
    """Ended by a failure of the harness's own."""
    fabricated: int
    """Of the passed ones: the answer stands in text that the harness wrote."""
    turns: float
    """Mean model calls of a rollout; likewise tokens (sampled) and tool calls."""
    tokens: float
    calls: float


def by_group(tasks: Sequence[Task], trajectories: Sequence[Trajectory]) -> dict[str, GroupFigures]:
    """Figures by group, and over all as "all"; `trajectories` in any order, several a task are fine.

    Raises KeyError for a rollout of a task that is not in `tasks`.
    """
    groups = {task.id: task.group for task in tasks}
    rows: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        group = groups[trajectory.task_id]
        rows[ALL].append(trajectory)
        if group:
            rows[group].append(trajectory)
    return {group: figures(seen) for group, seen in sorted(rows.items(), key=lambda item: (item[0] == ALL, item[0]))}


def figures(trajectories: Sequence[Trajectory]) -> GroupFigures:
    """The figures of these rollouts. Raises ValueError if there is none."""
    if not trajectories:
        raise ValueError("there is no rollout to count")
    n = len(trajectories)
    return GroupFigures(
        n=n,
        tasks=len({trajectory.task_id for trajectory in trajectories}),
        passed=math.fsum(trajectory.reward for trajectory in trajectories),
        formatted=sum(trajectory.metrics.get("format", 0.0) >= 1 for trajectory in trajectories),
        truncated=sum(trajectory.truncated for trajectory in trajectories),
        failed=sum(trajectory.status != "ok" for trajectory in trajectories),
        fabricated=sum(trajectory.fabricated for trajectory in trajectories),
        turns=sum(len(trajectory.turns) for trajectory in trajectories) / n,
        tokens=sum(trajectory.generated for trajectory in trajectories) / n,
        calls=sum(len(trajectory.calls) for trajectory in trajectories) / n,
    )
