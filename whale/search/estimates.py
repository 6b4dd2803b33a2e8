"""What two scorings of harnesses on the same tasks say: gains, noise, and what the best of many is worth.

A scoring is a vector: the mean reward per task, in the phase's fixed order of tasks.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from whale.events.types import Outcome
from whale.search.scoring import PairedGain, task_means

Scoring = NDArray[np.float64]
"""Mean reward per task, shape (tasks,), in the order in which a phase's candidates all meet them."""

BROKEN = 3.0
"""Noise SDs under the median below which a score says nothing of the spread near the top."""


def scoring(outcomes: Sequence[Outcome]) -> Scoring:
    """The vector of one scoring's outcomes."""
    return np.array(list(task_means(outcomes).values()), dtype=np.float64)


def quantile(tail: float) -> float:
    """The standard normal's upper `tail` quantile: 1.645 for 0.05."""
    return NormalDist().inv_cdf(1 - tail)


def paired_gain(before: Scoring, after: Scoring, alpha: float) -> PairedGain:
    """Gain of `after` over `before` on the same tasks; each bound is wrong with probability `alpha`.

    Bonett and Price's adjusted Wald interval for paired proportions (2012), put for clusters: one pseudo-task of
    +1 and one of -1 are added, so that the interval keeps a width when no task, or one, differs. Raises
    ValueError for vectors of different tasks, or none.
    """
    if before.shape != after.shape or not before.size:
        raise ValueError(f"a paired comparison needs the same tasks on both sides: {before.size} and {after.size}")
    differences = after - before
    n = before.size + 2
    mean = float(differences.sum()) / n
    variance = (float(differences @ differences) + 2) / n - mean * mean
    half = quantile(alpha) * math.sqrt(variance / n)
    return PairedGain(float(differences.mean()), max(-1.0, mean - half), min(1.0, mean + half), before.size)


def chance_to_lead(partial: Scoring, leader: Scoring) -> float:
    """The predictive probability that a scoring, known on its first tasks alone, ends above the leader's full one.

    The leader's rewards are known, on the tasks to come as well: they predict the candidate's there by a regression on
    the tasks that both have met (a control variate), so that only the candidate's own noise is left. Two pseudo-tasks,
    each passed by one of the two, keep a width where nothing differs. The probability is a martingale under its model:
    of the candidates that are left below γ, at most a share γ would have ended above, however often one looks.
    """
    n, tasks = partial.size, leader.size
    left = tasks - n
    x, y = np.append(leader[:n], (1.0, 0.0)), np.append(partial, (0.0, 1.0))
    dx, dy = x - x.mean(), y - y.mean()
    spread = float(dx @ dx)
    slope = min(1.0, max(0.0, float(dx @ dy) / spread))
    shift = float(leader[n:].mean() - x.mean())
    rest = dy - slope * dx
    expected = float(partial.sum()) + left * (float(y.mean()) + slope * shift)
    variance = float(rest @ rest) / n * (left + left * left * (1 / (n + 2) + shift * shift / spread))
    return 1 - NormalDist().cdf((float(leader.sum()) - expected) / math.sqrt(variance))


def noise_sd(first: Scoring, second: Scoring) -> float:
    """The noise floor: SD of one score, from two scorings of one harness on the same tasks.

    For each task E(a - b)² = 2 σ², whatever the task's own success rate is.
    """
    differences = first - second
    return math.sqrt(float(differences @ differences) / 2) / differences.size


def binomial_sd(scores: Sequence[float], rollouts: int) -> float:
    """The noise of a score where none was measured: that of `rollouts` independent draws, an upper bound."""
    rate = min(1.0, max(0.0, float(np.mean(scores))))
    return math.sqrt(max(rate * (1 - rate), 1 / (4 * rollouts)) / rollouts)


def shrinkage(scores: Sequence[float], noise: float) -> float:
    """How much of a difference among these scores is real: τ² / (τ² + σ²), 0 where noise explains all of it.

    Empirical Bayes for the winner's curse: the best of many scores is expected at its share of the distance.
    Scores far under the median are broken harnesses and are left out.
    """
    values = np.asarray(scores, dtype=np.float64)
    values = values[values >= np.median(values) - BROKEN * noise] if values.size else values
    if values.size < 2 or noise <= 0:
        return 1.0 if noise <= 0 else 0.0
    spread = float(values.var(ddof=1))
    return max(0.0, spread - noise * noise) / spread if spread > 0 else 0.0
