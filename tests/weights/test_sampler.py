import math
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whale.errors import UsageError
from whale.weights.sampler import batches, bound, order, parse_epochs, slice_bounds, take

SIZES = st.integers(1, 60)
EPOCHS = st.fractions(min_value=Fraction(1, 50), max_value=3, max_denominator=50)


@given(st.integers(), st.integers(0, 50), st.integers(0, 60))
def test_each_epoch_is_a_permutation(seed: int, epoch: int, n: int) -> None:
    assert sorted(order(seed, epoch, n)) == list(range(n))


def test_the_order_is_the_same_on_every_machine() -> None:
    assert order(7, 0, 10) == [7, 3, 8, 0, 2, 1, 5, 9, 4, 6]


def test_epochs_and_seeds_are_shuffled_differently() -> None:
    orders = {tuple(order(seed, epoch, 30)) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


@given(st.integers(0, 9), SIZES, EPOCHS, st.integers(1, 12), st.integers(1, 20))
def test_no_question_is_skipped_or_repeated_in_any_epoch_across_phases(
    seed: int, n: int, epochs: Fraction, phases: int, size: int
) -> None:
    taken: list[int] = []
    for phase in range(phases):
        start, end = slice_bounds(n, epochs, phase)
        assert start == len(taken)
        for batch in batches(start, end, size):
            taken += take(seed, n, batch.start, batch.count)
    assert len(taken) == math.ceil(phases * epochs * n)
    for first in range(0, len(taken), n):
        epoch = Counter(taken[first : first + n])
        assert max(epoch.values()) == 1
        assert len(epoch) == n or first + n > len(taken)


@given(st.integers(0, 9), SIZES, st.integers(0, 200), st.integers(0, 200), st.integers(0, 200))
def test_what_a_position_holds_does_not_depend_on_where_batches_are_cut(
    seed: int, n: int, start: int, a: int, b: int
) -> None:
    whole = take(seed, n, start, a + b)
    assert whole == take(seed, n, start, a) + take(seed, n, start + a, b)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 40))
def test_batches_cover_their_slice_and_only_the_last_is_smaller(start: int, length: int, size: int) -> None:
    cut = list(batches(start, start + length, size))
    assert [p for b in cut for p in range(b.start, b.start + b.count)] == list(range(start, start + length))
    assert all(batch.count == size for batch in cut[:-1])
    assert all(0 < batch.count <= size for batch in cut)


def test_a_fraction_of_an_epoch_is_rounded_up_to_whole_questions() -> None:
    assert [slice_bounds(7, "0.2", phase) for phase in range(5)] == [(0, 2), (2, 3), (3, 5), (5, 6), (6, 7)]


def test_decimal_fractions_are_exact() -> None:
    # As floats, 3 * 0.1 * 10 is above 3 and would round up to 4.
    assert bound(10, "0.1", 3) == 3
    assert parse_epochs("0.6") == parse_epochs("3/5") == Fraction(3, 5)


@pytest.mark.parametrize("bad", [0.6, "six", 0, "-1", "1/0", "nan", True])
def test_what_is_not_an_exact_positive_number_of_epochs_is_refused_in_one_line(bad: object) -> None:
    with pytest.raises(UsageError) as caught:
        parse_epochs(bad)  # type: ignore[arg-type]  # what a config file may hold
    assert "epochs" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_split_is_refused_instead_of_looping_for_ever() -> None:
    with pytest.raises(UsageError, match="no questions"):
        take(0, 0, 0, 1)


def test_sampler_and_samples_import_no_torch() -> None:
    code = (
        "import sys, whale.weights.sampler, whale.weights.samples, whale.weights.packing\n"
        "sys.exit(bool({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
