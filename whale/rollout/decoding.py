"""One micro-batch on the transformers engine: what to prefill, and the decode loop."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from whale.errors import WhaleError
from whale.rollout.kv import CachedPrefix, KVBlock, KVWindow, common_length, longest_prefix
from whale.rollout.stopping import StopScanner
from whale.rollout.token_sampling import next_tokens, uniforms
from whale.rollout.types import FinishReason, GenerateRequest, Generation

if TYPE_CHECKING:
    from whale.rollout.transformers_engine import TransformersEngine

_PREFILL_TOKENS = 1024
"""Tokens per prefill pass: enough for a full-speed product, little enough for its activations."""
_PREFILL_WIDTH = 512
"""Columns per prefill pass: bounds the mask of a long prompt."""
_SHARING_PAYS = 16
"""Tokens that a batch must have in common before they are worth a pass of their own."""


class ContextError(WhaleError):
    """A request is longer than the model's context."""

    def __init__(self, prompt: int, new: int, context: int) -> None:
        super().__init__(
            f"{prompt} prompt tokens and {new} new ones exceed the model's context of {context}: "
            "shorten the prompt or lower max_tokens"
        )


@dataclass(slots=True)
class _Row:
    """A request while it is decoded."""

    request: GenerateRequest
    prompt: int
    """Which of the batch's different prompts it has."""
    random: "np.ndarray[tuple[int], np.dtype[np.float64]]"
    scanner: StopScanner | None
    output: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: FinishReason | None = None


class TransformersSession:
    """A micro-batch: prefixes are shared, and turns continue, inside it only."""

    def __init__(self, engine: "TransformersEngine") -> None:
        self._engine = engine
        self._blocks: list[KVBlock] = []
        self._closed = False
        self.prefilled = 0
        """Prompt tokens computed so far, padding included; the rest came from the cache."""

    def close(self) -> None:
        """Free the KV. A closed session generates no more."""
        self._blocks.clear()
        self._closed = True

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """Sample all requests together; results in request order.

        Raises ContextError before anything is computed if a request does not fit, WhaleError if the weights
        give no finite distribution, RuntimeError after `close` or a weight update.
        """
        if self._closed:
            raise RuntimeError("the session is closed: open a new one after a weight update")
        for request in requests:
            if len(request.prompt_ids) + request.max_tokens > self._engine.context_length:
                raise ContextError(len(request.prompt_ids), request.max_tokens, self._engine.context_length)
        results: list[Generation] = []
        with self._engine.computing():
            for part in _parts(requests, self._engine.kv_bytes // self._engine.kv_shape.token_bytes):
                try:
                    results.extend(self._generate(part))
                except FloatingPointError as error:
                    raise WhaleError(
                        f"{error} under weights {self._engine.weights_version[:12]}: "
                        "go back to an earlier checkpoint, or lower the learning rate"
                    ) from None
        return results

    def _generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        prompts = list(dict.fromkeys(request.prompt_ids for request in requests))
        index = {prompt: i for i, prompt in enumerate(prompts)}
        rows = [self._row(request, index[request.prompt_ids]) for request in requests]
        width = max(map(len, prompts))
        columns = width + max(request.max_tokens for request in requests) - 1
        self._share(prompts)
        cached = [longest_prefix(self._blocks, prompt) for prompt in prompts]
        # By what is left to compute, so that a padded pass wastes little; stable, so that it is reproducible.
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]) - _length(cached[i]))
        block = KVBlock(self._engine.kv_shape, len(rows), columns)
        logits_UV = self._prefill(block, [prompts[i] for i in order], [cached[i] for i in order], width)
        # Rows in the order of the block: first one for each prompt, then the copies.
        place = {i: at for at, i in enumerate(order)}
        first: dict[int, _Row] = {}
        copies = [row for row in rows if first.setdefault(row.prompt, row) is not row]
        live = [first[i] for i in order] + copies
        for at, row in enumerate(copies, len(order)):
            block.copy_row(place[row.prompt], at, width)
        for at, row in enumerate(live):
            block.tokens[at] = row.request.prompt_ids
        self._decode(block, live, logits_UV[[place[row.prompt] for row in live]], width)
        self._keep(block)
        return [Generation(tuple(row.output), tuple(row.logprobs), row.finish or "length") for row in rows]

    def _row(self, request: GenerateRequest, prompt: int) -> _Row:
        scanner = StopScanner(self._engine.chat, request.stop) if request.stop else None
        return _Row(request, prompt, uniforms(request.seed, request.max_tokens), scanner)

    def _share(self, prompts: Sequence[tuple[int, ...]]) -> None:
        """Compute what all prompts begin with once, unless that is cached or too short to pay."""
        if len(prompts) < 2:
            return
        # The common prefix of all is that of the first and the last in lexical order.
        low, high = min(prompts), max(prompts)
        common = min(common_length(low, high), min(map(len, prompts)) - 1)
        prefix = low[:common]
        known = [_length(longest_prefix(self._blocks, prompt)) for prompt in prompts]
        if sum(max(0, common - length) for length in known) < common + _SHARING_PAYS:
            return
        block = KVBlock(self._engine.kv_shape, 1, common)
        self._prefill(block, [prefix], [longest_prefix(self._blocks, prefix)], common)
        block.tokens[0] = prefix
        self._blocks.append(block)

    def _prefill(
        self,
        block: KVBlock,
        prompts: Sequence[tuple[int, ...]],
        cached: Sequence[CachedPrefix | None],
        end: int,
    ) -> Tensor:
        """Fill the first rows of `block` up to column `end`; return the last tokens' logits (rows, V)."""
        for row, (prompt, prefix) in enumerate(zip(prompts, cached, strict=True)):
            block.start[row] = end - len(prompt)
            if prefix is not None:
                block.copy_prefix(row, prefix)
        todo = [len(prompt) - _length(prefix) for prompt, prefix in zip(prompts, cached, strict=True)]
        window = KVWindow(block)
        logits = []
        for first, last in _passes(todo):
            # Aligned right, a row with less to do computes some of its cached tokens again: same values.
            for begin, stop in _pieces(end - max(todo[first:last]), end):
                piece = self._forward(block, window, prompts, slice(first, last), slice(begin, stop), end)
            logits.append(piece)
        return torch.cat(logits)

    def _forward(
        self,
        block: KVBlock,
        window: KVWindow,
        prompts: Sequence[tuple[int, ...]],
        rows: slice,
        columns: slice,
        end: int,
    ) -> Tensor:
        """Compute some columns of some rows; return the last column's logits (rows, V)."""
        device = self._engine.device
        ids = [
            [
                prompt[column - end + len(prompt)] if column >= end - len(prompt) else prompt[0]
                for column in range(columns.start, columns.stop)
            ]
            for prompt in prompts[rows]
        ]
        start_B = torch.tensor(block.start[rows], device=device)
        query_Q = torch.arange(columns.start, columns.stop, device=device)
        key_L = torch.arange(columns.stop, device=device)
        causal_QL = key_L <= query_Q[:, None]
        # Padding sees itself, as a row of a softmax must not be empty.
        mask = causal_QL & (key_L >= start_B[:, None])[:, None] | (key_L == query_Q[:, None])
        positions_BQ = (query_Q - start_B[:, None]).clamp(min=0)
        window.look_at(rows, columns)
        self.prefilled += len(ids) * len(ids[0])
        return self._engine.forward(torch.tensor(ids, device=device), mask[:, None], positions_BQ, window, keep=1)[
            :, -1
        ]

    def _decode(self, block: KVBlock, live: list[_Row], logits_RV: Tensor, column: int) -> None:
        """Sample until every row has finished; `live` follows the block's rows."""
        window = KVWindow(block)
        mask = _padding_mask(block, self._engine.dtype, self._engine.device)
        while True:
            self._sample(live, logits_RV)
            for at, row in enumerate(live):
                if row.finish is not None:
                    block.tokens[at] = (*row.request.prompt_ids, *row.output[:-1])
            live = self._drop_finished(block, mask, live, column)
            if not live:
                return
            rows = slice(0, len(live))
            window.look_at(rows, slice(column, column + 1))
            last_B1 = [[row.output[-1]] for row in live]
            position_B1 = [[column - start] for start in block.start[rows]]
            logits_RV = self._engine.forward(
                torch.tensor(last_B1, device=self._engine.device),
                None if mask is None else mask[rows, :, :, : column + 1],
                torch.tensor(position_B1, device=self._engine.device),
                window,
                keep=1,
            )[:, -1]
            column += 1

    def _sample(self, live: Sequence[_Row], logits_RV: Tensor) -> None:
        """Append one token to every live row, and decide whether it ends there."""
        step = len(live[0].output)
        temperature = [row.request.temperature for row in live]
        uniform = [row.random[step] for row in live]
        ids, logprobs = next_tokens(
            logits_RV,
            torch.tensor(temperature, dtype=torch.float32, device=logits_RV.device),
            torch.tensor(uniform, dtype=torch.float64, device=logits_RV.device),
        )
        for row, token, logprob in zip(live, ids.tolist(), logprobs.tolist(), strict=True):
            row.output.append(token)
            row.logprobs.append(logprob)
            # Never short-circuit the scanner: it has to see every token.
            stopped = row.scanner.push(token) if row.scanner else False
            if stopped or token in self._engine.stop_ids:
                row.finish = "stop"
            elif len(row.output) == row.request.max_tokens:
                row.finish = "length"

    @staticmethod
    def _drop_finished(block: KVBlock, mask: Tensor | None, live: list[_Row], column: int) -> list[_Row]:
        """Move the rows that go on to the front of the block; return them in its order."""
        going = sum(row.finish is None for row in live)
        holes = [at for at in range(going) if live[at].finish is not None]
        movers = [at for at in range(going, len(live)) if live[at].finish is None]
        for hole, mover in zip(holes, movers, strict=True):
            # A swap, not an overwrite: a finished row's KV is what the next turn continues from.
            block.swap(hole, mover, column)
            live[hole], live[mover] = live[mover], live[hole]
            if mask is not None:
                mask[[hole, mover]] = mask[[mover, hole]]
        return live[:going]

    def _keep(self, block: KVBlock) -> None:
        """Keep the newest blocks within the engine's bound."""
        self._blocks.append(block)
        held = sum(kept.nbytes for kept in self._blocks)
        while held > self._engine.kv_bytes and self._blocks:
            held -= self._blocks.pop(0).nbytes


def _length(prefix: CachedPrefix | None) -> int:
    return prefix.length if prefix else 0


def _parts(requests: Sequence[GenerateRequest], tokens: int) -> list[Sequence[GenerateRequest]]:
    """Split a call whose KV would exceed `tokens`, in order; a single request is never split."""
    parts: list[Sequence[GenerateRequest]] = []
    first, width, new = 0, 0, 0
    for at, request in enumerate(requests):
        wider, newer = max(width, len(request.prompt_ids)), max(new, request.max_tokens)
        if at > first and (at - first + 1) * (wider + newer) > tokens:
            parts.append(requests[first:at])
            first, wider, newer = at, len(request.prompt_ids), request.max_tokens
        width, new = wider, newer
    return [*parts, requests[first:]] if requests else []


def _passes(todo: Sequence[int]) -> list[tuple[int, int]]:
    """Group rows, ascending in what they have to do, into padded passes of bounded size."""
    passes: list[tuple[int, int]] = []
    first = 0
    for at, tokens in enumerate(todo):
        if at > first and (at - first + 1) * min(tokens, _PREFILL_WIDTH) > _PREFILL_TOKENS:
            passes.append((first, at))
            first = at
    return [*passes, (first, len(todo))]


def _pieces(begin: int, end: int) -> list[tuple[int, int]]:
    """Cut a range of columns into pieces of bounded width."""
    return [(at, min(at + _PREFILL_WIDTH, end)) for at in range(begin, end, _PREFILL_WIDTH)]


def _padding_mask(block: KVBlock, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    """Additive mask (rows, 1, 1, columns) of the left padding; None if there is none."""
    if not any(block.start):
        return None
    columns = torch.arange(block.data.shape[4], device=device)
    hidden = columns < torch.tensor(block.start, device=device)[:, None]
    return torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill(hidden, -torch.inf)[:, None, None]
