"""95 % intervals over seeds and tasks together, by a seeded bootstrap.

Runs are crossed with tasks: all seeds of a system meet the same held-out tasks, and another experiment would have
other seeds and other tasks. So both are drawn again, independently (Owen's pigeonhole bootstrap, 2007): a task keeps
its draw in all seeds, a seed in all tasks. Seeds are few, and drawing n of n would make the interval too narrow by the
factor (n - 1)/n: n - 1 of n are drawn (Rao and Wu, 1988). With one seed the interval is over tasks alone.

Several rollouts of a task are one cluster. Where nothing varies (no rollout passed, or no task differs) a bootstrap
has no width: the interval is then the one that a single run has (Wilson's; Bonett and Price's for a difference).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whale.events.types import Outcome
from whale.search.scoring import Z95, wilson

RESAMPLES = 4000
_AT_A_TIME = 500
_SEED = 20070507

Measure = Callable[[Outcome], float | None]
"""What is measured of a rollout; None where it does not count."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over runs, each a mean over its tasks."""

    value: float
    low: float
    high: float
    seeds: int
    tasks: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Sums and numbers of rollouts, shape (runs, tasks) each; a task that a run has not met counts 0."""

    sums: NDArray[np.float64]
    numbers: NDArray[np.float64]


def reward(outcome: Outcome) -> float:
    """The verifier's."""
    return outcome.reward


def estimate(runs: Sequence[Sequence[Outcome]], measure: Measure = reward) -> Estimate | None:
    """The mean of a measure over runs and tasks; None where no rollout counts."""
    tables = [_by_task((outcome.task, measure(outcome)) for outcome in outcomes) for outcomes in runs]
    counts = _counts([table for table in tables if table])
    if counts is None:
        return None
    found = _bootstrap(counts)
    if found.high > found.low:
        return found
    # All runs and tasks agree: as many tasks, each seen once.
    low, high = wilson(min(1.0, max(0.0, found.value)) * found.tasks, found.tasks)
    return Estimate(found.value, min(low, found.value), max(high, found.value), found.seeds, found.tasks)


def paired_estimate(pairs: Sequence[tuple[Sequence[Outcome], Sequence[Outcome]]]) -> Estimate | None:
    """The difference after - before over runs and tasks, on the (task, sample) that both sides have.

    A pair is a run of each side with the same seed. None where they have no task in common.
    """
    tables = []
    for before, after in pairs:
        there = {(outcome.task, outcome.sample): outcome.reward for outcome in before}
        table = _by_task(
            (outcome.task, outcome.reward - there[outcome.task, outcome.sample])
            for outcome in after
            if (outcome.task, outcome.sample) in there
        )
        if table:
            tables.append(table)
    counts = _counts(tables)
    if counts is None:
        return None
    found = _bootstrap(counts)
    if found.high > found.low:
        return found
    n = found.tasks + 2
    mean = found.value * found.tasks / n
    half = Z95 * math.sqrt(((found.value**2 * found.tasks + 2) / n - mean * mean) / n)
    return Estimate(found.value, max(-1.0, mean - half), min(1.0, mean + half), found.seeds, found.tasks)


Table = Mapping[str, tuple[float, int]]


def _by_task(values: Iterable[tuple[str, float | None]]) -> dict[str, tuple[float, int]]:
    result: dict[str, tuple[float, int]] = {}
    for task, value in values:
        if value is not None:
            total, number = result.get(task, (0.0, 0))
            result[task] = (total + value, number + 1)
    return result


def _counts(tables: Sequence[Table]) -> Counts | None:
    tasks = sorted({task for table in tables for task in table})
    if not tasks:
        return None
    cells = np.array([[table.get(task, (0.0, 0)) for task in tasks] for table in tables], dtype=np.float64)
    return Counts(cells[:, :, 0], cells[:, :, 1])


def _bootstrap(counts: Counts) -> Estimate:
    seeds, tasks = counts.sums.shape
    rng = np.random.default_rng(_SEED)
    means = []
    for start in range(0, RESAMPLES, _AT_A_TIME):
        size = min(_AT_A_TIME, RESAMPLES - start)
        drawn_tasks = _drawn(rng, tasks, tasks, size)
        drawn_seeds = _drawn(rng, seeds, max(1, seeds - 1), size)
        numbers = drawn_tasks @ counts.numbers.T
        # A run none of whose tasks was drawn says nothing in this resample.
        weights = drawn_seeds * (numbers > 0)
        runs = np.divide(drawn_tasks @ counts.sums.T, numbers, out=np.zeros_like(numbers), where=numbers > 0)
        total = weights.sum(axis=1)
        means.append((runs * weights).sum(axis=1)[total > 0] / total[total > 0])
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    value = float(np.mean(counts.sums.sum(axis=1) / counts.numbers.sum(axis=1)))
    return Estimate(value, min(float(low), value), max(float(high), value), seeds, tasks)


def _drawn(rng: np.random.Generator, items: int, draws: int, size: int) -> NDArray[np.float64]:
    """How often each of `items` comes in `draws` draws with replacement, shape (size, items)."""
    drawn = rng.integers(0, items, (size, draws)) + items * np.arange(size)[:, None]
    return np.bincount(drawn.ravel(), minlength=size * items).reshape(size, items).astype(np.float64)
