"""What a run's held-out rollouts show beside success: by cycle, split and group of tasks, with intervals."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whale.alternation.decide import config_of
from whale.alternation.run_folder import RunFolder
from whale.alternation.started_in import run_domain
from whale.domains.base import Domain, Task
from whale.domains.groups import ALL, GroupFigures, figures
from whale.errors import WhaleError
from whale.events import types as ev
from whale.rollout.parquet import decode_trajectories
from whale.rollout.types import Trajectory
from whale.search.scoring import interval


@dataclass(frozen=True, slots=True)
class MetricsRow:
    """A pair (θ, h) on one group of held-out tasks."""

    split: str
    cycle: int
    harness: str
    weights: str
    group: str
    figures: GroupFigures
    low: float
    """95 % interval of the success, over tasks."""
    high: float
    metrics: Mapping[str, float]
    """Means of what verifier and domain measured, each over the rollouts that have it."""


def metrics_rows(folder: RunFolder) -> list[MetricsRow]:
    """All evaluations of a run, from its recorded rollouts: validation first, then the test.

    Raises WhaleError if the domain's data is not what the run began with.
    """
    state = folder.state()
    if not state.evaluations:
        return []
    config = config_of(state)
    domain = run_domain(folder, config)
    if domain.fingerprint() != state.data:
        raise WhaleError(f"{folder.name}: the data or code of domain {config.domain} is not what this run began with")
    tasks = {task.id: task for tasks_of in domain.splits().values() for task in tasks_of}
    recorded = _evaluation_rollouts(folder)
    rows = []
    for evaluated in sorted(state.evaluations, key=lambda e: (e.split == "test", e.cycle)):
        rollouts = recorded[evaluated.split, evaluated.tree, evaluated.weights]
        rows += [_row(evaluated, group, seen, domain, tasks) for group, seen in _grouped(rollouts, tasks).items()]
    return rows


Rollout = tuple[ev.Outcome, Trajectory]
"""What the log keeps of a rollout, and the whole of it."""


def _evaluation_rollouts(folder: RunFolder) -> dict[tuple[str, str, str], list[Rollout]]:
    """The recorded rollouts of each evaluated pair, by (split, tree, weights)."""
    result: dict[tuple[str, str, str], list[Rollout]] = defaultdict(list)
    trees: dict[str, str] = {}
    log = folder.open_log(readonly=True)
    try:
        for recorded in log.read():
            event = recorded.event
            if isinstance(event, ev.HarnessProposed):
                trees[event.candidate] = event.tree
            elif isinstance(event, ev.RolloutsRecorded) and event.purpose == "evaluate":
                key = (event.batch.split("/")[2], trees[event.candidate], event.weights)
                whole = decode_trajectories(folder.artifacts.get(event.artifact))
                result[key] += zip(event.outcomes, whole, strict=True)
    finally:
        log.close()
    return result


def _grouped(rollouts: Sequence[Rollout], tasks: Mapping[str, Task]) -> dict[str, list[Rollout]]:
    groups: dict[str, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        if group := tasks[rollout[0].task].group:
            groups[group].append(rollout)
    return {**dict(sorted(groups.items())), ALL: list(rollouts)}


def _row(
    evaluated: ev.Evaluated, group: str, seen: Sequence[Rollout], domain: Domain, tasks: Mapping[str, Task]
) -> MetricsRow:
    low, high = interval([outcome for outcome, _ in seen])
    observe = getattr(domain, "observe", None)
    measured: dict[str, list[float]] = defaultdict(list)
    trajectories = [trajectory for _, trajectory in seen]
    for trajectory in trajectories:
        found = dict(trajectory.metrics)
        if observe is not None:
            found |= observe(tasks[trajectory.task_id], trajectory)
        for name, value in found.items():
            measured[name].append(value)
    means = {name: sum(values) / len(values) for name, values in sorted(measured.items())}
    return MetricsRow(
        evaluated.split,
        evaluated.cycle,
        evaluated.candidate,
        evaluated.weights,
        group,
        figures(trajectories),
        low,
        high,
        means,
    )
