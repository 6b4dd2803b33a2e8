"""The loss of a micro-batch: a packed layout goes through the model once, terms come out."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from whale.errors import UsageError
from whale.weights import attention
from whale.weights.packing import Layout, pack_rows, pack_trees
from whale.weights.types import Sample

Packing = Literal["auto", "tree", "rows"]
"""How samples share a micro-batch: a prefix tree, padded rows, or a tree if the model's layers allow it."""

_PROBE = (Sample((1, 2, 3, 4), (False, True, True, True)), Sample((1, 2, 5, 3), (False, True, True, True)))


class Objective:
    """-Σ weight · log π(token | context) of a model, at its current weights, with gradients."""

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype, capacity: int, packing: Packing) -> None:
        """Settle the packing of at most `capacity` tokens at once; a tree replaces the model's attention."""
        self._model = model
        self._device = next(model.parameters()).device
        self._dtype = dtype
        self._capacity = capacity
        # Queries an attention call: few large ones on a GPU; on a CPU small ones, which skip more pairs.
        self._block = 128 if self._device.type == "cpu" else 1024
        if model.config._attn_implementation == attention.NAME:
            model.set_attn_implementation("sdpa")  # another objective had it before
        self.packing = self._choose(packing)

    def layouts(self, samples: Sequence[Sample]) -> Iterator[Layout]:
        """Cut samples into micro-batches that hold each trained token once."""
        pack = pack_trees if self.packing == "tree" else pack_rows
        return pack(samples, self._capacity)

    def loss(self, layout: Layout) -> torch.Tensor:
        """Return the scalar -Σ weight · log π(token | context) over a micro-batch, in fp32."""
        logits = self._logits(layout)
        index, token, weight = (
            torch.tensor(column, device=self._device) for column in zip(*layout.targets, strict=True)
        )
        # One logsumexp a predictor, whichever and however many tokens it predicts.
        times = torch.zeros(len(logits), device=self._device).index_add_(0, index, weight.float())
        return (times * logits.logsumexp(-1)).sum() - (weight * logits[index, token]).sum()

    @torch.no_grad()
    def logprobs(self, ids: Sequence[int]) -> list[float]:
        """Return log π(id_t | id_<t) for t >= 1: length len(ids) - 1."""
        if len(ids) < 2:
            return []
        (layout,) = self.layouts([Sample(tuple(ids), (False,) + (True,) * (len(ids) - 1))])
        chosen = self._logits(layout).log_softmax(-1)
        values: list[float] = chosen.gather(1, torch.tensor(ids[1:], device=self._device)[:, None])[:, 0].tolist()
        return values

    def _logits(self, layout: Layout) -> torch.Tensor:
        """Return fp32 logits [predictors, vocabulary]: the head is applied only where they are needed."""
        columns = sorted({column for _, column in layout.predictors})
        inputs, extra = self._tree(layout) if layout.ends else self._rows(layout)
        bf16 = self._dtype is not torch.float32
        with torch.autocast(self._device.type, dtype=self._dtype) if bf16 else contextlib.nullcontext():
            logits = self._model(
                input_ids=inputs,
                use_cache=False,
                logits_to_keep=torch.tensor(columns, device=self._device),
                **extra,
            ).logits.flatten(0, 1)
        place = {column: index for index, column in enumerate(columns)}
        wanted = [row * len(columns) + place[column] for row, column in layout.predictors]
        if len(wanted) < len(logits):
            logits = logits.index_select(0, torch.tensor(wanted, device=self._device))
        fp32: torch.Tensor = logits.float()
        return fp32

    def _tree(self, layout: Layout) -> tuple[torch.Tensor, dict[str, Any]]:
        tree = attention.Tree.of(layout, self._device, self._block)
        return torch.tensor(layout.rows, device=self._device), {
            "position_ids": tree.depths[None],
            "tree": tree,
        }

    def _rows(self, layout: Layout) -> tuple[torch.Tensor, dict[str, Any]]:
        width = max(map(len, layout.rows))
        inputs = torch.tensor([row + (0,) * (width - len(row)) for row in layout.rows], device=self._device)
        # By length, never by id: in many models the padding token is the end token, which is trained.
        lengths = torch.tensor([[len(row)] for row in layout.rows], device=self._device)
        return inputs, {"attention_mask": (torch.arange(width, device=self._device) < lengths).long()}

    def _choose(self, packing: Packing) -> Literal["tree", "rows"]:
        if packing == "rows":
            return "rows"
        if self._tree_fits():
            return "tree"
        if packing == "tree":
            raise UsageError(f'packing = "tree" does not fit {self._model.config.model_type}: use "auto" or "rows"')
        return "rows"

    def _tree_fits(self) -> bool:
        """Whether each layer only attends: told by the config where it tells, then tried on two samples."""
        kinds = set(getattr(self._model.config, "layer_types", None) or ["full_attention"])
        if not kinds <= {"full_attention", "sliding_attention"}:
            return False
        usual = self._model.config._attn_implementation
        self.packing = "rows"
        alone = self._probe()
        self.packing = "tree"
        try:
            attention.register()
            self._model.set_attn_implementation(attention.NAME)
            tolerance = 1e-4 if self._dtype is torch.float32 else 2e-2
            if math.isclose(alone, self._probe(), rel_tol=tolerance):
                return True
        except (NotImplementedError, ValueError, TypeError):
            pass  # the model has an attention of its own, or does not hand the tree on
        self._model.set_attn_implementation(usual)
        return False

    @torch.no_grad()
    def _probe(self) -> float:
        return sum(self.loss(layout).item() for layout in self.layouts(_PROBE))
