"""log π of chosen tokens from hidden states, with gradients, without the logits of all places at once.

The logits of a micro-batch are its largest tensor by far: 8,192 places of a vocabulary of 151,936 in fp32 are
5 GB, and their gradient as much again. Here the head is applied to a chunk of places at a time, of which one
log-sum-exp a place is kept; the backward pass computes the chunk's logits again. That costs one more product
with the head, for the places that predict a trained token.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import linear

CHUNK = {"cpu": 2**24, "cuda": 2**27}
"""Logits at once: 64 MB of fp32 on a CPU, 512 MB on a GPU."""


@dataclass(frozen=True, slots=True)
class Targets:
    """T tokens and the places that predict them, by place. All on one device, equal places beside each other."""

    index_T: torch.Tensor
    """Each token's place among the P places."""
    token_T: torch.Tensor
    cuts: tuple[tuple[int, int, int, int], ...]
    """Chunks: (first place, end of places, first token, end of tokens)."""

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]], places: int, rows: int, device: torch.device) -> "Targets":
        """From (place, token) pairs, sorted by place, in chunks of `rows` places."""
        index, token = (torch.tensor(column, device=device) for column in zip(*pairs, strict=True))
        cuts = []
        for start in range(0, places, rows):
            stop = min(start + rows, places)
            cuts.append((start, stop, bisect_left(pairs, (start, -1)), bisect_left(pairs, (stop, -1))))
        return cls(index, token, tuple(cuts))


def rows_at_once(vocabulary: int, device: torch.device) -> int:
    """How many places a chunk has."""
    return max(1, CHUNK.get(device.type, CHUNK["cuda"]) // vocabulary)


def logprobs(logits_PV: torch.Tensor, targets: Targets) -> torch.Tensor:
    """Return log π of each target, fp32, from all logits at once: for heads that do more than one product."""
    fp32 = logits_PV.float()
    return fp32[targets.index_T, targets.token_T] - fp32.logsumexp(-1)[targets.index_T]


def chunked_logprobs(
    hidden_PH: torch.Tensor, weight_VH: torch.Tensor, targets: Targets, dtype: torch.dtype
) -> torch.Tensor:
    """Return log π of each target, fp32, under the logits hidden · weightᵀ, whose product is in `dtype`."""
    result: torch.Tensor = _Chunked.apply(hidden_PH, weight_VH, targets, dtype)  # type: ignore[no-untyped-call]
    return result


class _Chunked(torch.autograd.Function):
    """d log π_t / d logits = onehot(token) - softmax: all that the backward pass needs is one number a place."""

    @staticmethod
    def forward(
        ctx: Any, hidden_PH: torch.Tensor, weight_VH: torch.Tensor, targets: Targets, dtype: torch.dtype
    ) -> torch.Tensor:
        lse_P = hidden_PH.new_empty(len(hidden_PH), dtype=torch.float32)
        chosen_T = hidden_PH.new_empty(len(targets.index_T), dtype=torch.float32)
        hidden, weight = hidden_PH.to(dtype), weight_VH.to(dtype)
        for start, stop, first, end in targets.cuts:
            logits = linear(hidden[start:stop], weight).float()
            lse_P[start:stop] = logits.logsumexp(-1)
            chosen_T[first:end] = logits[targets.index_T[first:end] - start, targets.token_T[first:end]]
        ctx.save_for_backward(hidden_PH, weight_VH, lse_P)
        ctx.targets, ctx.dtype = targets, dtype
        return chosen_T - lse_P[targets.index_T]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient_T,) = gradients
        hidden_PH, weight_VH, lse_P = ctx.saved_tensors
        targets, dtype = ctx.targets, ctx.dtype
        need_hidden, need_weight = ctx.needs_input_grad[:2]
        hidden, weight = hidden_PH.to(dtype), weight_VH.to(dtype)
        grad_hidden = torch.empty_like(hidden_PH) if need_hidden else None
        grad_weight = torch.zeros_like(weight_VH) if need_weight else None  # fp32 sums, whatever the products are
        share_P = torch.zeros_like(lse_P).index_add_(0, targets.index_T, gradient_T)
        for start, stop, first, end in targets.cuts:
            logits = linear(hidden[start:stop], weight).float()
            change = logits.sub_(lse_P[start:stop, None]).exp_().mul_(-share_P[start:stop, None])
            # A place may predict one token twice, with two credits: accumulate.
            where = (targets.index_T[first:end] - start, targets.token_T[first:end])
            change = change.index_put_(where, gradient_T[first:end], accumulate=True).to(dtype)
            if grad_hidden is not None:
                grad_hidden[start:stop] = change @ weight
            if grad_weight is None:
                continue
            if dtype is grad_weight.dtype:
                grad_weight.addmm_(change.T, hidden[start:stop])
            else:
                grad_weight += change.T @ hidden[start:stop]
        return grad_hidden, grad_weight, None, None


@contextmanager
def replaced(head: torch.nn.Module, forward: Any) -> Iterator[None]:
    """Let `head` compute `forward(hidden)` for the block, from within the model's own forward pass.

    So its hooks run and its weight is in place, whoever shards or moves it; what the model does to its
    logits after the head is done to the result, which is for the caller to look out for.
    """
    head.forward = forward
    try:
        yield
    finally:
        del head.forward
