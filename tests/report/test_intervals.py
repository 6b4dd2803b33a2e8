"""Intervals over seeds and tasks, against what can be computed by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.made import outcome
from whale.events.types import Outcome
from whale.report.compare.intervals import estimate, paired_estimate
from whale.search.scoring import wilson


def run(*rewards: float) -> list[Outcome]:
    return [outcome(f"t{i}", reward) for i, reward in enumerate(rewards)]


def test_the_value_is_the_mean_over_runs_of_their_means_over_tasks() -> None:
    found = estimate([run(1, 0, 0, 0), run(1, 1)])
    assert found is not None
    assert found.value == pytest.approx((0.25 + 1.0) / 2)
    assert (found.seeds, found.tasks) == (2, 4)


def test_two_seeds_that_differ_in_nothing_but_the_seed_span_the_interval() -> None:
    """One of two seeds is drawn (n - 1 of n), so the 2.5 % quantile is the lower one and the 97.5 % the higher."""
    low, high = [outcome(f"t{i}", 0.25) for i in range(9)], [outcome(f"t{i}", 0.75) for i in range(9)]
    found = estimate([low, high])
    assert found is not None
    assert (found.low, found.value, found.high) == (0.25, 0.5, 0.75)


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
    assert (found.value, found.tasks) == (pytest.approx(1 / 3), 3)
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
    assert paired.high - paired.low < (alone.high - alone.low) / 3


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=5), min_size=1, max_size=4))
def test_the_same_runs_give_the_same_interval_around_their_mean(rewards: list[list[float]]) -> None:
    runs = [run(*of_run) for of_run in rewards]
    found = estimate(runs)
    assert found is not None
    assert found == estimate(runs)
    assert 0 <= found.low <= found.value + 1e-12
    assert found.value <= found.high + 1e-12 <= 1 + 1e-9
