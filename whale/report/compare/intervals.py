"""95 % intervals over seeds and tasks together.

Runs are crossed with tasks: all seeds of a system meet the same held-out tasks, and another experiment would have
other seeds and other tasks. The variance of the mean is therefore that of a two-way random model, from the mean
squares of seeds, tasks and what is left (method of moments), and its degrees of freedom are Satterthwaite's (1946):
where seeds differ more than chance makes them, two or three of them say little, and the interval is wide.

A rate gets Wilson's interval with the sample size that has this variance, as a single run's rate does
(`whale.search.scoring.interval`, to which it comes down with one seed); a difference gets Bonett and Price's, with one
pseudo-task of +1 and one of -1. Several rollouts of a task are one cluster. Nothing here is random but the bootstrap,
whose seed is fixed.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whale.events.types import Outcome
from whale.search.scoring import Z95

RESAMPLES = 4000
_AT_A_TIME = 500
_BOOTSTRAP_SEED = 20070507
_ANGLES = 20_001

Matrix = NDArray[np.float64]
"""Shape (seeds, tasks)."""
Measure = Callable[[Outcome], float | None]
"""What is measured of a rollout, in [0, 1]; None where it does not count."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over runs, each a mean over its tasks."""

    value: float
    low: float
    high: float
    seeds: int
    tasks: int


@dataclass(frozen=True, slots=True)
class Spread:
    """The variance of a mean over seeds and tasks, and how well it is known."""

    variance: float
    freedom: float
    """Degrees of freedom; infinite with one seed, where the interval is over tasks alone."""


def reward(outcome: Outcome) -> float:
    """The verifier's."""
    return outcome.reward


def estimate(runs: Sequence[Sequence[Outcome]], measure: Measure = reward) -> Estimate | None:
    """The mean of a measure over runs and tasks; None where no rollout counts."""
    tables = [_by_task((outcome.task, measure(outcome)) for outcome in outcomes) for outcomes in runs]
    cells = _cells([table for table in tables if table])
    if cells is None:
        return None
    values, rollouts = cells
    seeds, tasks = values.shape
    rate = min(1.0, max(0.0, float(values.mean())))
    found = spread(values)
    # The size of a sample of independent rollouts whose rate would be known as well.
    size = min(rate * (1 - rate) / found.variance, rollouts) if found.variance > 0 else tasks
    size = max(size, tasks) if seeds == 1 else size
    q = t_quantile(found.freedom)
    square = q * q
    centre = (rate + square / (2 * size)) / (1 + square / size)
    half = q / (1 + square / size) * math.sqrt(rate * (1 - rate) / size + square / (4 * size * size))
    low = 0.0 if rate == 0 else max(0.0, centre - half)
    high = 1.0 if rate == 1 else min(1.0, centre + half)
    return Estimate(rate, min(low, rate), max(high, rate), seeds, tasks)


Pairs = Sequence[tuple[Sequence[Outcome], Sequence[Outcome]]]
"""Runs of two sides with the same seed: (before, after)."""


def paired_estimate(pairs: Pairs) -> Estimate | None:
    """The difference after - before over runs and tasks, on the (task, sample) that both sides have.

    None where they have no task in common.
    """
    values = paired_matrix(pairs)
    if values is None:
        return None
    seeds, tasks = values.shape
    difference = float(values.mean())
    padded = np.hstack([values, np.ones((seeds, 1)), -np.ones((seeds, 1))])
    found, mean = spread(padded), float(padded.mean())
    variance = found.variance * ((tasks + 1) / (tasks + 2) if seeds == 1 else 1.0)  # as paired_interval has it
    half = t_quantile(found.freedom) * math.sqrt(variance)
    return Estimate(difference, max(-1.0, mean - half), min(1.0, mean + half), seeds, tasks)


def paired_bootstrap(pairs: Pairs) -> Estimate | None:
    """The same difference with a percentile bootstrap interval: seeds and tasks drawn again, crossed (Owen, 2007).

    A task keeps its draw in all seeds. Of n seeds n - 1 are drawn, or the spread between a few of them would be too
    small by (n - 1)/n (Rao and Wu, 1988).
    """
    values = paired_matrix(pairs)
    if values is None:
        return None
    seeds, tasks = values.shape
    rng = np.random.default_rng(_BOOTSTRAP_SEED)
    means = []
    for start in range(0, RESAMPLES, _AT_A_TIME):
        size = min(_AT_A_TIME, RESAMPLES - start)
        drawn_tasks, drawn_seeds = _drawn(rng, tasks, tasks, size), _drawn(rng, seeds, max(1, seeds - 1), size)
        means.append(((drawn_tasks @ values.T) * drawn_seeds).sum(axis=1) / (tasks * max(1, seeds - 1)))
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return Estimate(float(values.mean()), float(low), float(high), seeds, tasks)


def spread(values: Matrix) -> Spread:
    """The variance of the mean of all values, with seeds and tasks both drawn at random.

    With mean squares M of seeds, tasks and the rest, the variance is (M_tasks + max(0, M_seeds - M_rest)) / (S T).
    """
    seeds, tasks = values.shape
    if tasks == 1 and seeds == 1:
        return Spread(0.0, math.inf)
    mean = values.mean()
    of_seeds, of_tasks = values.mean(axis=1) - mean, values.mean(axis=0) - mean
    rest = values - mean - of_seeds[:, None] - of_tasks[None, :]
    m_tasks = seeds * float(of_tasks @ of_tasks) / max(1, tasks - 1)
    if seeds == 1:
        return Spread(m_tasks / tasks, math.inf)
    m_seeds = tasks * float(of_seeds @ of_seeds) / (seeds - 1)
    m_rest = float((rest * rest).sum()) / ((seeds - 1) * max(1, tasks - 1))
    total = m_tasks + max(0.0, m_seeds - m_rest)
    parts = [(m_tasks, tasks - 1)]
    if m_seeds > m_rest:
        parts += [(m_seeds, seeds - 1), (m_rest, (seeds - 1) * (tasks - 1))]
    known = math.fsum(square * square / freedom for square, freedom in parts if square > 0 and freedom > 0)
    return Spread(total / (seeds * tasks), total * total / known if known > 0 else math.inf)


def t_quantile(freedom: float) -> float:
    """Student's t at 0.975, for any real number of degrees of freedom from 1 on.

    With t = √f tan φ the density is proportional to cos^(f - 1) φ, which a fine grid of angles integrates.
    """
    if freedom > 10_000:
        return Z95
    angles = np.linspace(0.0, math.pi / 2, _ANGLES)
    density = np.cos(angles) ** (max(1.0, freedom) - 1)
    area = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return math.sqrt(max(1.0, freedom)) * math.tan(float(np.interp(0.95 * area[-1], area, angles)))


def _by_task(values: Iterable[tuple[str, float | None]]) -> dict[str, tuple[float, int]]:
    """Sum and number of what counts, by task."""
    result: dict[str, tuple[float, int]] = {}
    for task, value in values:
        if value is not None:
            total, number = result.get(task, (0.0, 0))
            result[task] = (total + value, number + 1)
    return result


def _cells(tables: Sequence[Mapping[str, tuple[float, int]]]) -> tuple[Matrix, int] | None:
    """A value for each seed and task, and the number of rollouts; a seed's mean is that of its rollouts.

    Where all tasks have as many rollouts it is the task's mean. Else it is the value that a ratio of sums has for
    this purpose (linearised): a task that a run has not met stands at the run's mean.
    """
    tasks = sorted({task for table in tables for task in table})
    if not tasks:
        return None
    cells = np.array([[table.get(task, (0.0, 0)) for task in tasks] for table in tables], dtype=np.float64)
    sums, numbers = cells[:, :, 0], cells[:, :, 1]
    of_run = numbers.sum(axis=1, keepdims=True)
    means = sums.sum(axis=1, keepdims=True) / of_run
    return means + len(tasks) * (sums - means * numbers) / of_run, int(numbers.sum())


def paired_matrix(pairs: Pairs) -> Matrix | None:
    """The differences after - before by seed and task, on the (task, sample) that both sides have; None without any."""
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
    cells = _cells(tables)
    return None if cells is None else cells[0]


def _drawn(rng: np.random.Generator, items: int, draws: int, size: int) -> Matrix:
    """How often each of `items` comes in `draws` draws with replacement, shape (size, items)."""
    drawn = rng.integers(0, items, (size, draws)) + items * np.arange(size)[:, None]
    return np.bincount(drawn.ravel(), minlength=size * items).reshape(size, items).astype(np.float64)
