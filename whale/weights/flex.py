"""Tree attention as one fused kernel on a GPU: torch's flex attention, told which blocks of pairs there are.

A block of 128 queries by 128 keys in which no query has a key as its ancestor is skipped, forward and backward.
"""

from collections.abc import Callable

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

BLOCK = 128
"""A tree's nodes are padded to a multiple of it."""

Relation = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(batch, head, query, key) -> may the query see the key?"""

_compiled = torch.compile(flex_attention)


def relation(depths: torch.Tensor, ends: torch.Tensor, window: int | None) -> Relation:
    """Whether a key is the query's ancestor or itself, and fewer than `window` tokens back."""

    def sees(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (key <= query) & (query < ends[key])

    if window is None:
        return sees
    reach = window

    def sees_near(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (key <= query) & (query < ends[key]) & (depths[query] - depths[key] < reach)

    return sees_near


def block_mask(depths: torch.Tensor, ends: torch.Tensor, window: int | None) -> BlockMask:
    """The blocks of a tree of N nodes, N a multiple of `BLOCK`."""
    nodes = len(ends)
    return create_block_mask(
        relation(depths, ends, window), None, None, nodes, nodes, device=ends.device, BLOCK_SIZE=BLOCK
    )


def padding(nodes: int) -> int:
    """How many nodes are missing to a multiple of `BLOCK`."""
    return -nodes % BLOCK


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: BlockMask, scaling: float | None
) -> torch.Tensor:
    """Shapes: query [1, H, N, D], key and value [1, H_kv, N, D]; gives [1, H, N, D]."""
    shared = query.shape[1] // key.shape[1]
    if shared & (shared - 1):  # the kernel shares a key head by 1, 2, 4, … query heads
        key, value = (tensor.repeat_interleave(shared, dim=1) for tensor in (key, value))
    # On its own it would compute the whole matrix; inside a compiled layer it is fused there.
    attention = flex_attention if torch.compiler.is_compiling() or query.device.type == "cpu" else _compiled
    output: torch.Tensor = attention(
        query.to(value.dtype),
        key.to(value.dtype),
        value,
        block_mask=mask,
        scale=scaling,
        enable_gqa=key.shape[1] != query.shape[1],
    )
    return output
