import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest  # type: ignore[import-untyped]  # scipy ships no types

from whale.events.types import Outcome
from whale.search.scoring import interval, mean_at, paired_bootstrap, paired_interval, summarise, wilson


def outcome(task: str, reward: float, sample: int = 0, status: str = "ok", **more: object) -> Outcome:
    fields = {"turns": 2, "generated": 10, "prompted": 50, "truncated": False, "fabricated": False} | more
    return Outcome(task, sample, reward, status, **fields)  # type: ignore[arg-type]  # a test's shorthand


@given(st.integers(1, 2000), st.data())
def test_the_wilson_interval_is_scipys(n: int, data: st.DataObject) -> None:
    passed = data.draw(st.integers(0, n))
    expected = binomtest(passed, n).proportion_ci(0.95, method="wilson")
    low, high = wilson(passed, n)
    assert math.isclose(low, expected.low, abs_tol=1e-9) and math.isclose(high, expected.high, abs_tol=1e-9)
    assert 0 <= low <= passed / n <= high <= 1


def test_without_rollouts_nothing_is_known() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="no outcome"):
        summarise([])
    with pytest.raises(ValueError, match=r"0\.\.n"):
        wilson(3, 2)


def test_a_harness_failure_counts_in_n_and_is_named() -> None:
    score = summarise(
        [
            outcome("a", 1.0, fabricated=True),
            outcome("b", 1.0),
            outcome("c", 0.0, status="raised", turns=0, generated=0),
            outcome("d", 0.0, fabricated=True),
        ]
    )
    assert (score.n, score.passed, score.score) == (4, 2.0, 0.5)
    assert score.failures == {"raised": 1}
    assert score.mean_turns == 1.5 and score.mean_tokens == 7.5
    assert score.fabricated == 0.5, "the share is one of passes"
    assert score.low < 0.5 < score.high


def test_mean_at_k_needs_k_rollouts_of_every_task() -> None:
    rows = [outcome("a", 1.0, s) for s in range(2)] + [outcome("b", 0.0, s) for s in range(2)]
    assert mean_at(2, rows) == 0.5
    with pytest.raises(ValueError, match="mean@2"):
        mean_at(2, rows[:-1])


def test_a_paired_comparison_refuses_other_tasks_and_repeats() -> None:
    with pytest.raises(ValueError, match="same"):
        paired_interval([outcome("a", 1.0)], [outcome("b", 1.0)])
    with pytest.raises(ValueError, match="same"):
        paired_interval([outcome("a", 1.0)] * 2, [outcome("a", 1.0)] * 2)


def test_no_difference_still_has_an_interval_with_a_width() -> None:
    rows = [outcome(f"t{i}", float(i % 2)) for i in range(20)]
    gain = paired_interval(rows, rows)
    assert gain.gain == 0 and gain.low < 0 < gain.high


def simulate(rng: np.random.Generator, tasks: int, samples: int, gain: float) -> tuple[list[Outcome], list[Outcome]]:
    """Task difficulties shared by both sides, so that the true mean gain is exactly `gain`."""
    before, after = [], []
    for task in range(tasks):
        rate = rng.uniform(0.0, 1.0 - gain)
        for sample in range(samples):
            before.append(outcome(f"t{task}", float(rng.random() < rate), sample))
            after.append(outcome(f"t{task}", float(rng.random() < rate + gain), sample))
    return before, after


@pytest.mark.parametrize(("tasks", "samples", "gain"), [(40, 1, 0.1), (60, 4, 0.2), (30, 1, 0.0)])
def test_the_paired_interval_covers_the_true_gain(tasks: int, samples: int, gain: float) -> None:
    rng = np.random.default_rng(tasks)
    runs = 400
    covered = 0
    for _ in range(runs):
        interval = paired_interval(*simulate(rng, tasks, samples, gain))
        covered += interval.low <= gain <= interval.high
    # 95 % of 400 with a binomial standard error of 1.1 points; adjusted intervals err on the wide side.
    assert 0.92 <= covered / runs <= 0.995


def test_the_bootstrap_agrees_with_the_closed_form_and_repeats_itself() -> None:
    before, after = simulate(np.random.default_rng(1), 150, 2, 0.15)
    closed = paired_interval(before, after)
    first = paired_bootstrap(before, after, seed=3, resamples=1500)
    assert first == paired_bootstrap(before, after, seed=3, resamples=1500)
    assert first.gain == pytest.approx(closed.gain)
    assert first.low == pytest.approx(closed.low, abs=0.03) and first.high == pytest.approx(closed.high, abs=0.03)


def test_samples_of_one_task_count_as_one_cluster() -> None:
    same = [outcome(task, float(task in "ab"), s) for task in "abcd" for s in range(8)]
    score = summarise(same)
    assert score.n == 32
    assert (score.low, score.high) == pytest.approx(wilson(2, 4)), "eight equal samples say what one says"
    apart = [outcome(task, float(s % 2), s) for task in "abcd" for s in range(8)]
    low, high = interval(apart)
    assert high - low < score.high - score.low or (low, high) == pytest.approx(wilson(2, 4))


def test_the_clustered_interval_covers_the_mean_success() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        rates = rng.beta(0.8, 1.6, size=60)
        rows = [outcome(f"t{t}", float(rng.random() < rate), s) for t, rate in enumerate(rates) for s in range(8)]
        low, high = interval(rows)
        covered += low <= 0.8 / 2.4 <= high
    assert 0.92 <= covered / 400 <= 0.99
