"""Layouts of samples in micro-batches that compute every shared prefix once. Torch-free.

The rollouts of a batch share most of their tokens: the system prompt and worked examples with all others,
the question with the rollouts of the same question. `pack_trees` merges the samples of a micro-batch in a
prefix tree: a node is a token in its context, so equal contexts are one node. In depth-first order

    node:   0 1 2 3 4 5        of the samples  a b c d
    token:  a b c d e f                        a b c e
    end:    6 5 5 4 5 6                        a f

a node's descendants are the interval [node, end), node j is an ancestor of node i exactly if j <= i < end[j],
and a node's position is its depth. A transformer whose attention follows that relation computes for each
node what it would compute in the sample on its own, so the loss and its gradient are the same.

`pack_rows` is the plain layout, one sample a row, for models whose layers do more than attend (state-space
layers, for example).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from whale.weights.types import Sample


@dataclass(frozen=True, slots=True)
class Layout:
    """One micro-batch: rows of input tokens, and the terms of the loss.

    A term is weight · f(log π(token | predictors[index])); a predictor is a place (row, column). Samples share a
    term if they have the same token in the same context, and the same credit for it.
    """

    rows: tuple[tuple[int, ...], ...]
    """Input tokens; a tree is one row. Rows may differ in length."""
    depths: tuple[int, ...]
    """Tree: each node's position in its sample. Empty for rows, where it is the column."""
    ends: tuple[int, ...]
    """Tree: each node's end of descendants, exclusive. Empty for rows."""
    predictors: tuple[tuple[int, int], ...]
    """Places that predict a trained token, in (row, column) order, each once."""
    targets: tuple[tuple[int, int, int], ...]
    """(index into predictors, token id, weight): the weight counts the samples that share this term."""
    credits: tuple[tuple[float, ...], ...] = ()
    """Per target (advantage, recorded logprob); empty where the samples carry none."""

    @property
    def nodes(self) -> int:
        """Number of tokens that the model computes, padding left out."""
        return sum(map(len, self.rows))

    @property
    def trained(self) -> int:
        """Σ|I(τ)| over the samples inside."""
        return sum(weight for _, _, weight in self.targets)


@dataclass(frozen=True, slots=True)
class _Path:
    """A sample cut after its last trained token, which is only a target: nothing follows from it."""

    inputs: tuple[int, ...]
    trained: tuple[tuple[int, int, tuple[float, ...]], ...]
    """(position of the predicting token, trained token, its credit)."""


def _paths(samples: Sequence[Sample]) -> list[_Path]:
    paths = []
    for sample in samples:
        trained = tuple((t - 1, sample.token_ids[t], _credit(sample, t)) for t, on in enumerate(sample.loss_mask) if on)
        if trained:
            paths.append(_Path(sample.token_ids[: trained[-1][0] + 1], trained))
    return paths


def _credit(sample: Sample, position: int) -> tuple[float, ...]:
    return () if sample.advantage is None else (sample.advantage, sample.logprobs[position])


def pack_trees(samples: Sequence[Sample], capacity: int) -> Iterator[Layout]:
    """Yield trees of at most `capacity` nodes that hold all trained tokens; masked-out samples vanish.

    A single sample longer than `capacity` is a tree of its own. The result depends on the samples as a
    multiset, not on their order.
    """
    # In sorted order the predecessor shares the longest prefix with each path, so one look back suffices.
    paths = sorted(_paths(samples), key=lambda path: (path.inputs, path.trained))
    chosen: list[_Path] = []
    nodes = 0
    for path in paths:
        fresh = len(path.inputs) - (shared_prefix(chosen[-1].inputs, path.inputs) if chosen else 0)
        if chosen and nodes + fresh > capacity:
            yield _tree(chosen)
            chosen, nodes, fresh = [], 0, len(path.inputs)
        chosen.append(path)
        nodes += fresh
    if chosen:
        yield _tree(chosen)


def shared_prefix(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Return how many tokens two sequences have in common before they part."""
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return min(len(a), len(b))


def _tree(paths: Sequence[_Path]) -> Layout:
    tokens: list[int] = []
    depths: list[int] = []
    ends: list[int] = []
    terms: Counter[tuple[int, int, tuple[float, ...]]] = Counter()
    nodes: list[int] = []  # of the current path, by depth
    previous: tuple[int, ...] = ()
    for path in paths:
        shared = shared_prefix(previous, path.inputs)
        for node in nodes[shared:]:
            ends[node] = len(tokens)
        del nodes[shared:]
        for depth in range(shared, len(path.inputs)):
            nodes.append(len(tokens))
            tokens.append(path.inputs[depth])
            depths.append(depth)
            ends.append(0)
        terms.update((nodes[position], token, credit) for position, token, credit in path.trained)
        previous = path.inputs
    for node in nodes:
        ends[node] = len(tokens)
    predictors = sorted({node for node, _, _ in terms})
    counted = sorted(terms.items())
    index = {node: i for i, node in enumerate(predictors)}
    return Layout(
        rows=(tuple(tokens),),
        depths=tuple(depths),
        ends=tuple(ends),
        predictors=tuple((0, node) for node in predictors),
        targets=tuple((index[node], token, weight) for (node, token, _), weight in counted),
        credits=_credits([credit for (_, _, credit), _ in counted]),
    )


def _credits(credits: Sequence[tuple[float, ...]]) -> tuple[tuple[float, ...], ...]:
    return tuple(credits) if any(credits) else ()


def pack_rows(samples: Sequence[Sample], capacity: int) -> Iterator[Layout]:
    """Yield padded micro-batches of at most `capacity` tokens, padding counted; similar lengths together.

    A single sample longer than `capacity` is a micro-batch of its own.
    """
    chosen: list[_Path] = []
    for path in sorted(_paths(samples), key=lambda path: (len(path.inputs), path.inputs, path.trained)):
        if chosen and len(path.inputs) * (len(chosen) + 1) > capacity:
            yield _rows(chosen)
            chosen = []
        chosen.append(path)
    if chosen:
        yield _rows(chosen)


def _rows(paths: Sequence[_Path]) -> Layout:
    places = [(row, *term) for row, path in enumerate(paths) for term in path.trained]
    return Layout(
        rows=tuple(path.inputs for path in paths),
        depths=(),
        ends=(),
        predictors=tuple((row, position) for row, position, _, _ in places),
        targets=tuple((index, token, 1) for index, (_, _, token, _) in enumerate(places)),
        credits=_credits([credit for _, _, _, credit in places]),
    )
