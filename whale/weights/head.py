"""What log π of chosen tokens is made of, with gradients, without more logits at once than fit in a bound.

    log π(token | context) = logit(token) - logsumexp(logits)

The logits of a micro-batch can be its largest tensor by far: 8,192 places of a vocabulary of 151,936 in fp32 are
5 GB, and their gradient as much again. One rule: logits that fit in `LOGITS` are kept for the backward pass, as
any model's are. Beyond it the head is applied to a chunk of places at a time, of which one logsumexp a place is
kept; the backward pass computes the chunk's logits again. That costs one more product with the head, for the
places that predict a trained token.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import linear

LOGITS = {"cpu": 2**26, "cuda": 2**27}
"""Most logits at once: 256 MiB of fp32 on a CPU, 512 MiB on a GPU."""


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


def most_places(vocabulary: int, device: torch.device) -> int:
    """How many places' logits are computed at once at most."""
    return max(1, LOGITS.get(device.type, LOGITS["cuda"]) // vocabulary)


def from_logits(logits_PV: torch.Tensor, targets: Targets) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each target's logit [T] and each place's logsumexp [P], fp32, from the logits of all places."""
    fp32 = logits_PV.float()
    return fp32[targets.index_T, targets.token_T], fp32.logsumexp(-1)


def in_chunks(
    hidden_PH: torch.Tensor, weight_VH: torch.Tensor, targets: Targets, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the same under the logits hidden · weightᵀ, whose product is in `dtype`, a chunk at a time."""
    result: tuple[torch.Tensor, torch.Tensor]
    result = _Chunked.apply(hidden_PH, weight_VH, targets, dtype)  # type: ignore[no-untyped-call]
    return result


class _Chunked(torch.autograd.Function):
    """d logit(token) / d logits = onehot(token); d logsumexp / d logits = softmax = exp(logits - logsumexp)."""

    @staticmethod
    def forward(
        ctx: Any, hidden_PH: torch.Tensor, weight_VH: torch.Tensor, targets: Targets, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        lse_P = hidden_PH.new_empty(len(hidden_PH), dtype=torch.float32)
        chosen_T = hidden_PH.new_empty(len(targets.index_T), dtype=torch.float32)
        hidden, weight = hidden_PH.to(dtype), weight_VH.to(dtype)
        for start, stop, first, end in targets.cuts:
            logits = linear(hidden[start:stop], weight).float()
            lse_P[start:stop] = logits.logsumexp(-1)
            chosen_T[first:end] = logits[targets.index_T[first:end] - start, targets.token_T[first:end]]
        ctx.save_for_backward(hidden_PH, weight_VH, lse_P)
        ctx.targets, ctx.dtype = targets, dtype
        return chosen_T, lse_P

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        chosen_gradient_T, lse_gradient_P = gradients
        hidden_PH, weight_VH, lse_P = ctx.saved_tensors
        targets, dtype = ctx.targets, ctx.dtype
        need_hidden, need_weight = ctx.needs_input_grad[:2]
        hidden, weight = hidden_PH.to(dtype), weight_VH.to(dtype)
        grad_hidden = torch.empty_like(hidden_PH) if need_hidden else None
        grad_weight = torch.zeros_like(weight_VH) if need_weight else None  # fp32 sums, whatever the products are
        for start, stop, first, end in targets.cuts:
            logits = linear(hidden[start:stop], weight).float()
            change = logits.sub_(lse_P[start:stop, None]).exp_().mul_(lse_gradient_P[start:stop, None])
            # A place may predict one token twice, with two credits: accumulate.
            where = (targets.index_T[first:end] - start, targets.token_T[first:end])
            change = change.index_put_(where, chosen_gradient_T[first:end], accumulate=True).to(dtype)
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
