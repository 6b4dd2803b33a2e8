"""Keys and values of a micro-batch: preallocated, right-aligned, and searchable by token prefix."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache

ATTENTION = "whale_grouped"
"""The name under which `grouped_attention` is registered with transformers."""


@dataclass(frozen=True, slots=True)
class KVShape:
    """What one token costs: layers, key-value heads, head size, and the tensors' kind."""

    layers: int
    heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's keys and values over all layers."""
        return self.layers * 2 * self.heads * self.head_dim * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class CachedPrefix:
    """The first `length` tokens of a row of a block."""

    block: "KVBlock"
    row: int
    length: int


class KVBlock:
    """KV of `rows` sequences in one tensor (layer, key|value, row, head, column, dim).

    Sequences are right-aligned, row r beginning at column `start[r]`: all rows then write a decoded token to
    the same column, and attention reads a view without copying. `tokens[r]` are the ids that stand there.
    """

    def __init__(self, shape: KVShape, rows: int, columns: int) -> None:
        # Zeros, not empty: masked columns still take part in a product by 0, and 0 * NaN is NaN.
        self.data = torch.zeros(
            (shape.layers, 2, rows, shape.heads, columns, shape.head_dim),
            dtype=shape.dtype,
            device=shape.device,
        )
        self.start = [columns] * rows
        self.tokens: list[tuple[int, ...]] = [()] * rows

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.data.nbytes

    def copy_prefix(self, row: int, prefix: CachedPrefix) -> None:
        """Copy a cached prefix to the beginning of `row` (whose `start` is set)."""
        to, of = self.start[row], prefix.block.start[prefix.row]
        self.data[:, :, row, :, to : to + prefix.length].copy_(
            prefix.block.data[:, :, prefix.row, :, of : of + prefix.length]
        )

    def copy_row(self, source: int, row: int, end: int) -> None:
        """Make `row` begin as `source` does, up to column `end`."""
        start = self.start[row] = self.start[source]
        self.data[:, :, row, :, start:end] = self.data[:, :, source, :, start:end]

    def swap(self, a: int, b: int, end: int) -> None:
        """Exchange two rows up to column `end`."""
        start = min(self.start[a], self.start[b])
        held = self.data[:, :, a, :, start:end].clone()
        self.data[:, :, a, :, start:end] = self.data[:, :, b, :, start:end]
        self.data[:, :, b, :, start:end] = held
        self.start[a], self.start[b] = self.start[b], self.start[a]
        self.tokens[a], self.tokens[b] = self.tokens[b], self.tokens[a]


def longest_prefix(blocks: Sequence[KVBlock], ids: tuple[int, ...]) -> CachedPrefix | None:
    """Return the longest cached prefix of `ids`, leaving at least one id to compute; the newest on a tie."""
    best: CachedPrefix | None = None
    for block in reversed(blocks):
        for row, tokens in enumerate(block.tokens):
            beat = best.length + 1 if best else 1
            limit = min(len(tokens), len(ids) - 1)
            # Most rows fail this cheap comparison, and only the better ones are measured.
            if limit >= beat and tokens[:beat] == ids[:beat]:
                best = CachedPrefix(block, row, common_length(tokens[:limit], ids[:limit]))
    return best


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix of two id sequences."""
    limit = min(len(a), len(b))
    differs = np.flatnonzero(np.asarray(a[:limit]) != np.asarray(b[:limit]))
    return int(differs[0]) if differs.size else limit


class KVWindow(Cache):
    """Lets a transformers model write to, and read, some rows and columns of a block."""

    def __init__(self, block: KVBlock) -> None:
        super().__init__(layers=[])
        self._block = block
        self._rows = slice(0, 0)
        self._columns = slice(0, 0)

    def look_at(self, rows: slice, columns: slice) -> None:
        """Set which rows take part and which columns the next forward pass computes."""
        self._rows, self._columns = rows, columns

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the new columns; return all columns up to them, as views."""
        keys, values = self._block.data[layer_idx, :, self._rows]
        keys[:, :, self._columns] = key_states
        values[:, :, self._columns] = value_states
        end = self._columns.stop
        return keys[:, :, :end], values[:, :, :end]


def grouped_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Grouped-query attention that never repeats keys: a group's heads become queries of one KV head.

    query (B, heads, Q, D), key and value (B, kv_heads, L, D), attention_mask (B, 1, Q, L) or None, which
    means plain causal attention without padding, the last query seeing all keys.
    """
    if kwargs.get("softcap") or kwargs.get("s_aux") is not None:
        raise NotImplementedError("attention with soft-capping or sinks")
    batch, heads, length, dim = query.shape
    groups = heads // key.shape[1]
    if attention_mask is None and length > 1:
        shape = (length, key.shape[2])
        causal = torch.ones(shape, dtype=torch.bool, device=query.device).tril(shape[1] - length)
        attention_mask = causal[None, None]
    if attention_mask is not None and length > 1 and groups > 1:
        attention_mask = attention_mask.repeat(1, 1, groups, 1)
    output = torch.nn.functional.scaled_dot_product_attention(
        query.reshape(batch, key.shape[1], groups * length, dim),
        key,
        value,
        attn_mask=attention_mask,
        scale=scaling,
    )
    # Some CUDA kernels return a strided output.
    return output.reshape(batch, heads, length, -1).transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, grouped_attention)
