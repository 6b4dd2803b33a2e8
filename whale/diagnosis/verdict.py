"""From a probe's outcomes to a verdict. Pure; its thresholds were set on synthetic tasks (benchmarks/diagnose.py)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from whale.events.types import Outcome
from whale.search.scoring import PairedGain, paired_differences, paired_interval

Side = Literal["harness", "weights", "undecided"]
WRONG = 0.05
"""At most so often a side is named where the two gain the same, or the other one gains more: two-sided."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a probe says."""

    side: Side
    """The bottleneck: the side whose short phase gained more for the same rollouts."""
    harness: PairedGain
    weights: PairedGain
    """Each side's gain over the pair as it was, 95 %."""
    difference: PairedGain
    """Harness minus weights on the same tasks and seeds; its bounds are those that decide."""
    reason: str


def judge(before: Sequence[Outcome], harness: Sequence[Outcome], weights: Sequence[Outcome]) -> Verdict:
    """Compare the pair after a short search and after a short training, with each other and with what it was.

    All three are outcomes on the same (task, sample) pairs. A side is named if the whole interval of the difference is
    on its side, and that side itself has gained.
    """
    gain_h, gain_w = paired_interval(before, harness), paired_interval(before, weights)
    difference = _interval(paired_differences(weights, harness), WRONG)
    if difference.low > 0 and gain_h.gain > 0:
        return Verdict("harness", gain_h, gain_w, difference, "a short search gained more than a short training")
    if difference.high < 0 and gain_w.gain > 0:
        return Verdict("weights", gain_h, gain_w, difference, "a short training gained more than a short search")
    moved = [name for name, gain in (("search", gain_h), ("training", gain_w)) if gain.low > 0]
    if moved:
        reason = f"{' and '.join(moved)} gained, and the two cannot be told apart at this size"
    else:
        reason = "neither side's gain can be told from zero at this size"
    return Verdict("undecided", gain_h, gain_w, difference, reason)


def _interval(differences: Sequence[float], alpha: float) -> PairedGain:
    """Bonett and Price's adjusted Wald interval, as `paired_interval`, at another level."""
    n = len(differences) + 2
    mean = math.fsum(differences) / n
    variance = (math.fsum(d * d for d in differences) + 2) / n - mean * mean
    half = NormalDist().inv_cdf(1 - alpha / 2) * math.sqrt(variance / n)
    gain = math.fsum(differences) / len(differences)
    return PairedGain(gain, max(-1.0, mean - half), min(1.0, mean + half), len(differences))


def suggestion(side: Side) -> tuple[str, tuple[str, ...]]:
    """What to run next: in words, and as settings for `--set`.

    The fixed settings are those of the method's published ablation that did well for a domain of that kind.
    """
    if side == "harness":
        words = "short weight phases and a full search, (E, I) = (0.2, 6): the search finds more for its rollouts"
        return words, ("schedule.kind=fixed", "schedule.epochs=0.2", "schedule.iterations=6")
    if side == "weights":
        words = "longer weight phases, (E, I) = (0.6, 6): the search becomes worth its rollouts as the weights move"
        return words, ("schedule.kind=fixed", "schedule.epochs=0.6", "schedule.iterations=6")
    return "adaptive: each side goes on while it gains", ("schedule.kind=adaptive",)
