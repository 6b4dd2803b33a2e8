"""From counted rollouts to a score with its uncertainty.

A score is a mean over tasks drawn from a distribution: it is never shown without n and an interval.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from whale.events.types import Outcome

Z95 = 1.959963984540054
"""The standard normal's 0.975 quantile."""


@dataclass(frozen=True, slots=True)
class Score:
    """The fields of `CandidateScored` that the outcomes decide."""

    n: int
    passed: float
    score: float
    low: float
    high: float
    mean_turns: float
    mean_tokens: float
    """Tokens sampled by the model per rollout."""
    fabricated: float
    """Share of passes whose answer stands in text that the harness wrote and no tool returned."""
    failures: dict[str, int] = field(default_factory=dict)
    """Rollouts that ended in a failure of the harness's own, by status."""


@dataclass(frozen=True, slots=True)
class PairedGain:
    """after - before on the same tasks, with a 95 % interval."""

    gain: float
    low: float
    high: float
    tasks: int


def wilson(passed: float, n: float) -> tuple[float, float]:
    """95 % Wilson score interval of a success rate (Wilson 1927), (0, 1) when nothing was counted.

    `passed` may be fractional: a sum of rewards in [0, 1]. Raises ValueError outside 0 <= passed <= n.
    """
    if n < 0 or not 0 <= passed <= n:
        raise ValueError(f"a success count must lie in 0..n: {passed} of {n}")
    if n == 0:
        return 0.0, 1.0
    rate, square = passed / n, Z95 * Z95
    centre = (rate + square / (2 * n)) / (1 + square / n)
    half = Z95 / (1 + square / n) * math.sqrt(rate * (1 - rate) / n + square / (4 * n * n))
    # At the ends the bound is exact; rounding would leave 1e-17 or 1 + 1e-16.
    low = 0.0 if passed == 0 else max(0.0, centre - half)
    high = 1.0 if passed == n else min(1.0, centre + half)
    return low, high


def summarise(outcomes: Sequence[Outcome]) -> Score:
    """Score counted rollouts; a harness's own failure counts in n with its reward, which is 0.

    Raises ValueError if there is none: no score is not a score of 0.
    """
    if not outcomes:
        raise ValueError("no outcome to score: a harness without rollouts has no score")
    n = len(outcomes)
    passed = math.fsum(outcome.reward for outcome in outcomes)
    low, high = interval(outcomes)
    passes = [outcome for outcome in outcomes if outcome.reward > 0]
    failures = Counter(outcome.status for outcome in outcomes if outcome.status != "ok")
    return Score(
        n=n,
        passed=passed,
        score=passed / n,
        low=low,
        high=high,
        mean_turns=sum(outcome.turns for outcome in outcomes) / n,
        mean_tokens=sum(outcome.generated for outcome in outcomes) / n,
        fabricated=sum(outcome.fabricated for outcome in passes) / len(passes) if passes else 0.0,
        failures=dict(sorted(failures.items())),
    )


def interval(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """95 % interval of the mean reward: Wilson's, with samples of one task counted as one cluster.

    Several rollouts of a task say less than as many tasks. With k > 1 rollouts a task the effective size is
    p(1-p) over the variance of the mean of task means, between the number of tasks and of rollouts.
    """
    n = len(outcomes)
    means = list(task_means(outcomes).values())
    tasks = len(means)
    rate = min(1.0, math.fsum(outcome.reward for outcome in outcomes) / n)
    size = float(n)
    if tasks < n:
        centre = math.fsum(means) / tasks
        spread = math.fsum((mean - centre) ** 2 for mean in means) / (tasks * max(1, tasks - 1))
        size = min(float(n), max(float(tasks), rate * (1 - rate) / spread)) if spread > 0 else float(tasks)
    return wilson(rate * size, size)


def task_means(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Mean reward per task, in order of first appearance."""
    rewards: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        rewards[outcome.task].append(outcome.reward)
    return {task: math.fsum(values) / len(values) for task, values in rewards.items()}


def mean_at(k: int, outcomes: Sequence[Outcome]) -> float:
    """mean@k: the mean success over exactly k rollouts per task. Raises ValueError if a task has not k."""
    counts = Counter(outcome.task for outcome in outcomes)
    wrong = [task for task, count in counts.items() if count != k]
    if not counts or wrong:
        raise ValueError(f"mean@{k} needs {k} rollouts of every task" + (f": {wrong[0]}" if wrong else ""))
    return math.fsum(outcome.reward for outcome in outcomes) / len(outcomes)


def paired_differences(before: Sequence[Outcome], after: Sequence[Outcome]) -> list[float]:
    """Return after - before per task, averaged over its samples, for the same (task, sample) on both sides.

    Raises ValueError if the two sides do not hold the same pairs, each once.
    """
    first = {(outcome.task, outcome.sample): outcome.reward for outcome in before}
    second = {(outcome.task, outcome.sample): outcome.reward for outcome in after}
    if len(first) != len(before) or len(second) != len(after) or first.keys() != second.keys():
        raise ValueError("a paired comparison needs the same (task, sample) once on both sides")
    if not first:
        raise ValueError("a paired comparison needs at least one task")
    by_task: dict[str, list[float]] = defaultdict(list)
    for key in first:
        by_task[key[0]].append(second[key] - first[key])
    return [math.fsum(values) / len(values) for values in by_task.values()]


def paired_interval(before: Sequence[Outcome], after: Sequence[Outcome]) -> PairedGain:
    """The gain with a 95 % interval over tasks: samples of one task are one cluster.

    Bonett and Price's adjusted Wald interval for paired proportions (2012), put for clusters: one pseudo-task
    of +1 and one of -1 are added, so that the interval keeps a width when no task, or one, differs.
    """
    differences = paired_differences(before, after)
    n = len(differences) + 2
    mean = math.fsum(differences) / n
    variance = (math.fsum(d * d for d in differences) + 2) / n - mean * mean
    half = Z95 * math.sqrt(variance / n)
    gain = math.fsum(differences) / len(differences)
    return PairedGain(gain, max(-1.0, mean - half), min(1.0, mean + half), len(differences))


def paired_bootstrap(
    before: Sequence[Outcome], after: Sequence[Outcome], *, seed: int = 0, resamples: int = 4000
) -> PairedGain:
    """The gain with a percentile bootstrap interval over tasks (95 %), the same for the same seed."""
    differences = np.asarray(paired_differences(before, after))
    rng = np.random.default_rng(seed)
    means = np.array(
        [differences[rng.integers(0, len(differences), len(differences))].mean() for _ in range(resamples)]
    )
    low, high = np.quantile(means, [0.025, 0.975])
    return PairedGain(float(differences.mean()), float(low), float(high), len(differences))
