"""Which rank computes which samples of an update. Torch-free; every rank comes to the same answer by itself."""

from collections.abc import Sequence

from whale.weights.packing import shared_prefix
from whale.weights.types import Sample


def deal(samples: Sequence[Sample], ranks: int, shared: bool) -> list[list[Sample]]:
    """Cut an update's trained samples into one part a rank, the longest as short as it can be.

    With `shared`, a prefix that neighbours in a part have in common counts once, as a prefix tree computes it:
    parts are therefore cut from the sorted samples, never mixed. Where there are fewer samples than ranks, the
    last parts are empty.
    """
    trained = sorted((sample for sample in samples if sample.trained), key=_key)
    if not trained:
        return [[] for _ in range(ranks)]
    inputs = [_inputs(sample) for sample in trained]
    whole = [len(ids) for ids in inputs]
    fresh = [
        length - (shared_prefix(inputs[index - 1], inputs[index]) if shared and index else 0)
        for index, length in enumerate(whole)
    ]
    low, high = max(whole), sum(whole)
    while low < high:
        middle = (low + high) // 2
        if len(_cuts(whole, fresh, middle)) <= ranks:
            high = middle
        else:
            low = middle + 1
    starts = _cuts(whole, fresh, low)
    ends = [*starts[1:], len(trained)]
    parts = [trained[start:end] for start, end in zip(starts, ends, strict=True)]
    return parts + [[] for _ in range(ranks - len(parts))]


def _cuts(whole: Sequence[int], fresh: Sequence[int], limit: int) -> list[int]:
    """Where parts begin if each is filled up to `limit` tokens; the first of a part shares with none before it."""
    starts: list[int] = []
    filled = 0
    for index, length in enumerate(whole):
        if not starts or filled + fresh[index] > limit:
            starts.append(index)
            filled = length
        else:
            filled += fresh[index]
    return starts


def _inputs(sample: Sample) -> tuple[int, ...]:
    """What the model computes: the last trained token is only a target."""
    last = max(position for position, on in enumerate(sample.loss_mask) if on)
    return sample.token_ids[:last]


def _key(sample: Sample) -> tuple[object, ...]:
    return (sample.token_ids, sample.loss_mask, sample.advantage or 0.0, sample.logprobs)
