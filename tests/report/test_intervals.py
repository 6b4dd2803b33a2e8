"""Intervals over seeds and tasks, against what can be computed by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]  # scipy ships no types

from tests.report.made import outcome
from whale.events.types import Outcome
from whale.report.compare.intervals import estimate, paired_bootstrap, paired_estimate, spread, t_quantile
from whale.search.scoring import interval, paired_interval, wilson


def run(*rewards: float) -> list[Outcome]:
    return [outcome(f"t{i}", reward) for i, reward in enumerate(rewards)]


def test_the_value_is_the_mean_over_runs_of_their_means_over_tasks() -> None:
    found = estimate([run(1, 0, 0, 0), run(1, 1)])
    assert found is not None
    assert found.value == pytest.approx((0.25 + 1.0) / 2)
    assert (found.seeds, found.tasks) == (2, 4)


def test_two_seeds_that_differ_say_little_of_others() -> None:
    """Means of 1/4 and 3/4 on tasks that do not differ: M_seeds = 9/8 over 18 values, a standard error of 1/4 with one
    degree of freedom, so Wilson's interval for n = (1/2)(1/2)/(1/16) = 4 with q = 12.706."""
    low, high = [outcome(f"t{i}", 0.25) for i in range(9)], [outcome(f"t{i}", 0.75) for i in range(9)]
    found = estimate([low, high])
    assert found is not None
    square = 12.7062**2
    half = 12.7062 / (1 + square / 4) * (0.25 / 4 + square / (4 * 16)) ** 0.5
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5 - half, 0.5 + half), abs=1e-4)


def test_the_variance_is_that_of_the_mean_squares_by_hand() -> None:
    """2 seeds × 2 tasks, 1 0 / 1 1: mean 3/4, seeds 1/2 and 1, tasks 1 and 1/2.
    M_seeds = 2 · 2 · (1/4)² = 1/4, M_tasks the same, the rest is 4 · (1/4)² = 1/4: V = 1/4 / 4."""
    found = spread(np.array([[1.0, 0.0], [1.0, 1.0]]))
    assert (found.variance, found.freedom) == (0.0625, 1.0)
    # With a third seed as the second: M_seeds = 2 (1/9 + 1/36 + 1/36) / 2 = 1/6, M_tasks = 3 · 2 (1/6)² = 1/6,
    # the rest (1/9 + 1/9 + 4/36 ...) is 1/6: seeds differ no more than chance.
    assert spread(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]])).variance == pytest.approx(1 / 36)


@pytest.mark.parametrize("freedom", [1.0, 1.4, 2.0, 3.7, 10.0, 100.0, 9999.0])
def test_the_t_quantile_is_scipys(freedom: float) -> None:
    assert t_quantile(freedom) == pytest.approx(float(stats.t.ppf(0.975, freedom)), rel=2e-5)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=40), st.integers(1, 3))
def test_one_seed_has_the_interval_of_a_single_run(rewards: list[float], samples: int) -> None:
    seen = [outcome(f"t{i // samples}", reward, sample=i % samples) for i, reward in enumerate(rewards)]
    seen = seen[: len(seen) // samples * samples] or seen[:1]
    found = estimate([seen])
    assert found is not None
    assert (found.low, found.high) == pytest.approx(interval(seen), abs=1e-9)


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=40))
def test_one_pair_has_the_interval_of_a_single_comparison(rewards: list[tuple[float, float]]) -> None:
    before, after = run(*(a for a, _ in rewards)), run(*(b for _, b in rewards))
    found, single = paired_estimate([(before, after)]), paired_interval(before, after)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((single.gain, single.low, single.high), abs=1e-9)


def test_the_bootstrap_draws_one_of_two_seeds() -> None:
    """Differences of 1/4 in one seed and 3/4 in the other, on all tasks: each resample is one of the two."""
    zero = [outcome(f"t{i}", 0.0) for i in range(9)]
    sides = [(zero, [outcome(f"t{i}", value) for i in range(9)]) for value in (0.25, 0.75)]
    found = paired_bootstrap(sides)
    assert found is not None
    assert (found.low, found.value, found.high) == (0.25, 0.5, 0.75)
    assert found == paired_bootstrap(sides)


def test_with_many_seeds_and_tasks_the_bootstrap_agrees_with_the_closed_form() -> None:
    rng = np.random.default_rng(3)
    sides = []
    for shift in rng.normal(0.1, 0.05, 12):
        before = (rng.random(150) < 0.4).astype(float)
        after = (rng.random(150) < 0.4 + shift).astype(float)
        sides.append((run(*before), run(*after)))
    closed, drawn = paired_estimate(sides), paired_bootstrap(sides)
    assert closed is not None
    assert drawn is not None
    assert (drawn.low, drawn.high) == pytest.approx((closed.low, closed.high), abs=0.03)


def test_copies_of_a_run_say_no_more_than_the_run() -> None:
    """Tasks are crossed with seeds: ten seeds that met the same tasks with the same rewards are no new tasks."""
    one = run(*[1, 0, 0, 1, 0, 0, 0, 1] * 8)
    alone, many = estimate([one]), estimate([one] * 10)
    assert alone is not None
    assert many is not None
    assert many.high - many.low == pytest.approx(alone.high - alone.low, rel=0.1)


def test_samples_of_a_task_are_one_cluster() -> None:
    once = run(*[1, 0] * 16)
    eight_times = [outcome(o.task, o.reward, sample) for o in once for sample in range(8)]
    assert estimate([once]) == estimate([eight_times])


def test_with_no_pass_at_all_the_interval_is_that_of_as_many_tasks() -> None:
    found = estimate([run(*[0] * 20)])
    assert found is not None
    assert (found.low, found.high) == wilson(0, 20)


def test_what_does_not_count_leaves_a_run_or_all_of_them_out() -> None:
    def only_passed(seen: Outcome) -> float | None:
        return float(seen.truncated) if seen.reward else None

    found = estimate([run(0, 0), run(1, 0)], only_passed)
    assert found is not None
    assert found.seeds == 1
    assert estimate([run(0, 0)], only_passed) is None
    assert estimate([]) is None


def test_a_difference_is_taken_on_the_tasks_and_samples_that_both_sides_have() -> None:
    before, after = run(0, 0, 1, 1), [*run(1, 0, 1), outcome("new", 0.0), outcome("t0", 0.0, sample=1)]
    found = paired_estimate([(before, after)])
    assert found is not None
    assert found.value == pytest.approx(1 / 3)
    assert found.tasks == 3
    assert paired_estimate([(before, [outcome("new", 1.0)])]) is None


def test_a_pair_that_differs_nowhere_keeps_the_width_of_a_single_runs_interval() -> None:
    """Bonett and Price for 8 tasks and no difference: ± 1.96 √((2/10)/10)."""
    found = paired_estimate([(run(*[1, 0] * 4), run(*[1, 0] * 4))])
    assert found is not None
    assert found.high == pytest.approx(1.959964 * (0.2 / 10) ** 0.5)
    assert found.low == -found.high


def test_pairing_takes_out_what_the_tasks_share() -> None:
    hard_and_easy = [1, 1, 1, 0, 0, 0] * 10
    before = run(*hard_and_easy)
    after = run(*[1, *hard_and_easy[1:-1], 1])
    paired, alone = paired_estimate([(before, after)]), estimate([after])
    assert paired is not None
    assert alone is not None
    assert paired.high - paired.low < (alone.high - alone.low) / 2


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=5), min_size=1, max_size=4))
def test_the_same_runs_give_the_same_interval_around_their_mean(rewards: list[list[float]]) -> None:
    runs = [run(*of_run) for of_run in rewards]
    found = estimate(runs)
    assert found is not None
    assert found == estimate(runs)
    assert 0 <= found.low <= found.value + 1e-12
    assert found.value <= found.high + 1e-12 <= 1 + 1e-9
