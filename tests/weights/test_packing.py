from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whale.weights.attention import Tree
from whale.weights.packing import Layout, pack_rows, pack_trees
from whale.weights.types import Sample


@st.composite
def sample_sets(draw: st.DrawFn) -> list[Sample]:
    """Samples over three token ids: shared prefixes, duplicates and masked-out ones are common."""
    samples = []
    for _ in range(draw(st.integers(0, 8))):
        ids = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=9)))
        mask = draw(st.lists(st.booleans(), min_size=len(ids) - 1, max_size=len(ids) - 1))
        samples.append(Sample(ids, (False, *mask)))
    return samples


def context(layout: Layout, row: int, column: int) -> tuple[int, ...]:
    tokens = layout.rows[row]
    if not layout.ends:
        return tokens[: column + 1]
    return tuple(tokens[j] for j in range(column + 1) if layout.ends[j] > column)


def terms(layouts: list[Layout]) -> Counter[tuple[tuple[int, ...], int]]:
    found: Counter[tuple[tuple[int, ...], int]] = Counter()
    for layout in layouts:
        for index, token, weight in layout.targets:
            found[context(layout, *layout.predictors[index]), token] += weight
    return found


def expected(samples: list[Sample]) -> Counter[tuple[tuple[int, ...], int]]:
    return Counter(
        (sample.token_ids[:t], sample.token_ids[t]) for sample in samples for t, on in enumerate(sample.loss_mask) if on
    )


@given(sample_sets(), st.integers(1, 30))
def test_both_layouts_hold_each_trained_token_once_under_its_own_context(samples: list[Sample], capacity: int) -> None:
    assert terms(list(pack_trees(samples, capacity))) == expected(samples)
    assert terms(list(pack_rows(samples, capacity))) == expected(samples)


@given(sample_sets(), st.integers(1, 30))
def test_a_tree_has_each_context_once_and_keeps_to_its_capacity(samples: list[Sample], capacity: int) -> None:
    for layout in pack_trees(samples, capacity):
        contexts = [context(layout, 0, node) for node in range(layout.nodes)]
        assert len(set(contexts)) == len(contexts)
        assert layout.depths == tuple(len(c) - 1 for c in contexts)
        assert layout.nodes <= max(capacity, *(len(c) for c in contexts))
        assert len(set(layout.predictors)) == len(layout.predictors)


@given(sample_sets(), st.integers(1, 30), st.randoms())
def test_the_order_of_the_samples_does_not_change_the_layout(
    samples: list[Sample], capacity: int, random: object
) -> None:
    shuffled = samples.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    assert list(pack_trees(shuffled, capacity)) == list(pack_trees(samples, capacity))
    assert list(pack_rows(shuffled, capacity)) == list(pack_rows(samples, capacity))


def test_tokens_after_the_last_trained_one_are_not_computed() -> None:
    (layout,) = pack_trees([Sample((1, 2, 3, 4, 5), (False, False, True, False, False))], 99)
    assert layout.rows == ((1, 2),)
    assert layout.targets == ((0, 3, 1),)


def test_rollouts_of_one_question_pay_for_it_once() -> None:
    shared = tuple(range(10, 100))
    samples = [Sample((*shared, 1, answer, 2), (False,) * 91 + (True, True)) for answer in range(3, 8)]
    (layout,) = pack_trees(samples, 1000)
    assert layout.nodes == 90 + 1 + 5


@given(sample_sets(), st.integers(1, 6), st.one_of(st.none(), st.integers(1, 4)))
def test_attention_reaches_exactly_the_ancestors_whatever_the_block_size(
    samples: list[Sample], block: int, window: int | None
) -> None:
    for layout in pack_trees(samples, 40):
        tree = Tree.of(layout, torch.device("cpu"), block)
        reached = {
            (query, int(key))
            for part in tree.blocks(window)
            for query in range(part.start, part.stop)
            for key, on in zip(part.keys, part.mask[query - part.start], strict=True)
            if on
        }
        assert reached == {
            (query, key)
            for query in range(layout.nodes)
            for key in range(query + 1)
            if layout.ends[key] > query and (window is None or layout.depths[query] - layout.depths[key] < window)
        }


@given(sample_sets(), st.integers(1, 30), st.lists(st.sampled_from([-1.0, 1.0]), min_size=8, max_size=8))
def test_samples_share_a_term_only_if_they_have_the_same_credit_for_it(
    samples: list[Sample], capacity: int, advantages: list[float]
) -> None:
    rated = [
        Sample(s.token_ids, s.loss_mask, advantage, tuple(-float(t % 2) for t in range(len(s.token_ids))))
        for s, advantage in zip(samples, advantages, strict=False)
    ]
    wanted = Counter(
        (s.token_ids[:t], s.token_ids[t], (s.advantage, s.logprobs[t]))
        for s in rated
        for t, on in enumerate(s.loss_mask)
        if on
    )
    for pack in (pack_trees, pack_rows):
        found: Counter[object] = Counter()
        for layout in pack(rated, capacity):
            for (index, token, weight), credit in zip(layout.targets, layout.credits, strict=True):
                found[context(layout, *layout.predictors[index]), token, credit] += weight
        assert found == wanted
        assert not any(layout.credits for layout in pack(samples, capacity))


@pytest.mark.parametrize("logprobs, advantage", [((), 1.0), ((0.0, -1.0), None), ((0.0,), 1.0)])
def test_logprobs_come_with_an_advantage_one_per_token(logprobs: tuple[float, ...], advantage: float | None) -> None:
    with pytest.raises(ValueError, match="one per token"):
        Sample((1, 2), (False, True), advantage, logprobs)
