"""SearchQA's own figures: retrieval and extraction, and how much of a success is guessing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from whale.domains.base import Domain, Split, Task
from whale.domains.searchqa.domain import SearchQADomain, SearchQAOptions
from whale.domains.searchqa.figures import answer_bearing
from whale.rollout.types import Trajectory

RunTasks = Callable[[Domain, Sequence[Task]], Sequence[Trajectory]]
"""Runs one rollout a task under some harness and weights; the caller brings engine and sandbox."""
ALL = "all"


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """What happened to the rollouts of one group of tasks. All fields are counts of rollouts."""

    n: int
    passed: int
    formatted: int
    """With a well-formed answer tag."""
    truncated: int
    answer_bearing: int
    """Some passage that a search returned holds the answer (the paper's answer-bearing retrieval)."""
    extracted: int
    """Of the answer-bearing ones: passed (the paper's answer extraction)."""


@dataclass(frozen=True, slots=True)
class ControlReport:
    """The same tasks and harness, with their own passages and with another question's passages.

    A pass in `control` was guessed in the right format, so the gap between the two is what retrieval and
    reading bring.
    """

    own: Mapping[str, GroupCounts]
    control: Mapping[str, GroupCounts]


def count(domain: Domain, tasks: Sequence[Task], trajectories: Sequence[Trajectory]) -> dict[str, GroupCounts]:
    """Counts by group and over all ("all"); `trajectories` in any order, several a task are fine.

    Raises KeyError for a rollout of a task that is not in `tasks`.
    """
    by_id = {task.id: task for task in tasks}
    rows: dict[str, list[tuple[bool, bool, bool, bool]]] = {}
    for trajectory in trajectories:
        task = by_id[trajectory.task_id]
        row = (
            trajectory.reward >= 1.0,
            trajectory.metrics.get("format", 0.0) >= 1.0,
            trajectory.truncated,
            answer_bearing(domain, task, trajectory),
        )
        for group in (task.group, ALL):
            rows.setdefault(group, []).append(row)
    return {
        group: GroupCounts(
            n=len(seen),
            passed=sum(passed for passed, _, _, _ in seen),
            formatted=sum(formatted for _, formatted, _, _ in seen),
            truncated=sum(truncated for _, _, truncated, _ in seen),
            answer_bearing=sum(bearing for _, _, _, bearing in seen),
            extracted=sum(passed and bearing for passed, _, _, bearing in seen),
        )
        for group, seen in sorted(rows.items())
    }


def control_report(
    run: RunTasks,
    options: SearchQAOptions | None = None,
    split: Split = "validation",
    limit: int | None = None,
) -> ControlReport:
    """Run the first `limit` tasks of a split twice, with their own and with another question's passages.

    The caller's `run` decides on harness, weights and sampling; use the same seeds in both calls.
    """
    options = options or SearchQAOptions()
    figures = []
    for control in (False, True):
        domain = SearchQADomain(replace(options, control=control))
        tasks = domain.splits()[split][:limit]
        figures.append(count(domain, tasks, run(domain, tasks)))
    own, other = figures
    return ControlReport(own, other)
