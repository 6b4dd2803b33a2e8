"""The verdict on synthetic outcomes: it names a side only with reason, and its thresholds are the frozen ones."""

from typing import get_args

import numpy as np
import pytest

from benchmarks.diagnose import lifted, sampled
from whale.diagnosis import verdict
from whale.diagnosis.verdict import Side, judge, suggestion
from whale.events.types import Outcome


def outcomes(passes: list[int]) -> list[Outcome]:
    return [Outcome(str(i), 0, float(p), "ok", 1, 1, 1, False, False) for i, p in enumerate(passes)]


def test_the_side_that_gained_more_is_named_and_figures_go_with_it() -> None:
    before, better, same = [0] * 40, [1] * 30 + [0] * 10, [1] * 2 + [0] * 38
    found = judge(outcomes(before), outcomes(better), outcomes(same))
    assert (found.side, found.harness.gain, found.weights.gain) == ("harness", 0.75, 0.05)
    assert found.difference.low > 0
    mirrored = judge(outcomes(before), outcomes(same), outcomes(better))
    assert mirrored.side == "weights"
    assert (mirrored.difference.low, mirrored.difference.high) == (-found.difference.high, -found.difference.low)


def test_two_sides_that_gain_alike_or_nothing_are_undecided_and_it_says_which() -> None:
    before, up = [0] * 40, [1] * 20 + [0] * 20
    both = judge(outcomes(before), outcomes(up), outcomes(up))
    assert (both.side, "search and training gained" in both.reason) == ("undecided", True)
    none = judge(outcomes(before), outcomes(before), outcomes(before))
    assert (none.side, "neither" in none.reason) == ("undecided", True)


def test_a_side_that_only_loses_less_is_not_named() -> None:
    before, worse, same = [1] * 40, [0] * 40, [1] * 40
    assert judge(outcomes(before), outcomes(same), outcomes(worse)).side == "undecided"


@pytest.mark.parametrize("gain", [0.0, 0.2])
def test_equal_sides_are_told_apart_as_seldom_as_the_threshold_says(gain: float) -> None:
    rng = np.random.default_rng(7)
    named = 0
    for _ in range(600):
        rates = rng.beta(1, 3, 128)
        three = [sampled(r, rng) for r in (rates, lifted(rates, gain, rng), lifted(rates, gain, rng))]
        named += judge(*three).side != "undecided"
    # Of 600 draws at a rate of 5 %, more than 46 come in one of a thousand samples.
    assert named <= 46
    assert verdict.WRONG == 0.05


def test_a_large_gain_is_seen_at_the_default_size() -> None:
    rng = np.random.default_rng(8)
    seen = 0
    for _ in range(200):
        rates = rng.beta(1, 3, 128)
        three = [sampled(r, rng) for r in (rates, lifted(rates, 0.3, rng), lifted(rates, 0.0, rng))]
        seen += judge(*three).side == "harness"
    assert seen >= 190


def test_every_verdict_has_settings_that_a_config_takes() -> None:
    from whale.config import apply_overrides, config_from

    for side in get_args(Side):
        words, settings = suggestion(side)
        assert words
        config_from(apply_overrides({}, list(settings)), "test")
