"""The trained tokens of a micro-batch: a packed layout goes through the model once, terms of a loss come out."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from whale.errors import UsageError
from whale.weights import attention, head, layers
from whale.weights.packing import Layout, pack_rows, pack_trees
from whale.weights.types import Sample

Packing = Literal["auto", "tree", "rows"]
"""How samples share a micro-batch: a prefix tree, padded rows, or a tree if the model's layers allow it."""

_PROBE = (Sample((1, 2, 3, 4), (False, True, True, True)), Sample((1, 2, 5, 3), (False, True, True, True)))


def _branches(count: int, first: int) -> list[Sample]:
    """Up to 100 samples of the ids from `first` on, that make a tree of 8 to 9 nodes each."""
    return [
        Sample((first, first + 1 + number // 10, first + 1 + number % 10, *range(first, first + 8)), _TRAINED)
        for number in range(count)
    ]


_TRAINED = (False,) * 3 + (True,) * 8
_IDS = 11
_PLACES = 2048
_SIZES = (2, 20, 35)
"""Samples that a compiler is tried on: fewer than 128 nodes, than 256, than 384. A first size is compiled as it is, and
another makes sizes symbols: what fails at that should fail here, not in the middle of a run."""


@dataclass(frozen=True, slots=True)
class Terms:
    """A micro-batch's T trained tokens under the current weights, with gradients. All on one device."""

    chosen_T: torch.Tensor
    """Each token's logit, fp32."""
    lse_P: torch.Tensor
    """log Σ exp of each predictor's logits, fp32: a place may predict several tokens."""
    index_T: torch.Tensor
    """Each token's predictor."""
    weight_T: torch.Tensor
    """How many samples share the term."""
    advantage_T: torch.Tensor
    recorded_T: torch.Tensor
    """log π at sampling. Both fp32, and empty where the samples carry no advantage."""

    def logprobs_T(self) -> torch.Tensor:
        """Return log π(token | context), fp32."""
        return self.chosen_T - self.lse_P[self.index_T]


@dataclass(frozen=True, slots=True)
class Loss:
    """A micro-batch's share of a loss."""

    total: torch.Tensor
    """Scalar, summed over the tokens by weight; the trainer divides by the update's number of tokens."""
    sums: Mapping[str, float] = field(default_factory=dict)
    """Further figures, summed alike."""


LossFunction = Callable[[Terms], Loss]


def negative_log_likelihood(terms: Terms) -> Loss:
    """-Σ weight · log π(token | context): what RSFT minimises."""
    times_P = torch.zeros_like(terms.lse_P).index_add_(0, terms.index_T, terms.weight_T.float())
    return Loss((times_P * terms.lse_P).sum() - (terms.weight_T * terms.chosen_T).sum())


@dataclass(frozen=True, slots=True)
class _Trial:
    """What a compiler is tried by: one probe's loss, and each tensor's gradient at some places."""

    loss: float
    finite: bool
    """Whether all of the gradient is."""
    parts: Mapping[str, torch.Tensor]
    places: Mapping[str, torch.Tensor]


def _places(gradient_N: torch.Tensor) -> torch.Tensor:
    """Where a gradient is looked at: where it is largest, and evenly over the rest; of a table most rows have none."""
    largest = gradient_N.abs().topk(min(_PLACES, len(gradient_N))).indices
    step = max(1, len(gradient_N) // _PLACES)
    return torch.cat([largest, torch.arange(0, len(gradient_N), step, device=gradient_N.device)])


class Objective:
    """A model's log-probabilities over packed samples, at its current weights, with gradients."""

    def __init__(
        self,
        model: PreTrainedModel,
        dtype: torch.dtype,
        capacity: int,
        packing: Packing,
        recompute: bool = False,
        compile: bool = False,
    ) -> None:
        """Settle the packing of at most `capacity` tokens at once; a tree replaces the model's attention.

        `recompute`: activations inside a layer are computed again in the backward pass. `compile`: so are layers,
        and on CUDA a tree's attention, where it works; `notes` say what does not.
        """
        self._model = model
        self._device = next(model.parameters()).device
        self._dtype = dtype
        self._capacity = capacity
        # Queries an attention call: few large ones on a GPU; on a CPU small ones, which skip more pairs.
        self._block = 128 if self._device.type == "cpu" else 1024
        if model.config._attn_implementation == attention.NAME:
            model.set_attn_implementation("sdpa")  # another objective had it before
        self._most_places = head.most_places(model.config.get_text_config().vocab_size, self._device)
        # Of a model's layers, so that masks are there before a compiled layer asks for one.
        window = getattr(model.config.get_text_config(), "sliding_window", None)
        self._windows = {None, window} if isinstance(window, int) else {None}
        self.packing: Literal["tree", "rows"] = "rows"
        self.chunked = False
        """Whether the head is one product with nothing behind it: then it is applied in chunks where need be."""
        self.flex = False
        """Whether a tree's attention is torch's flex attention, compiled."""
        self.compiled = False
        """Whether the decoder layers are compiled."""
        self.notes: list[str] = []
        """Why something faster is not used here."""
        layers.arrange(model, recompute, False)
        self.chunked = self._head_is_plain()
        self.packing = self._choose(packing)
        if compile:
            # Both in one first: attention alone is compiled only if that is all that works.
            flexible = self.packing == "tree" and self._device.type == "cuda"
            self._go(((True, True), (True, False), (False, True)) if flexible else ((False, True),), recompute)

    def layouts(self, samples: Sequence[Sample]) -> Iterator[Layout]:
        """Cut samples into micro-batches that hold each trained token once."""
        pack = pack_trees if self.packing == "tree" else pack_rows
        return pack(samples, self._capacity)

    def terms(self, layout: Layout) -> Terms:
        """Return the trained tokens of a micro-batch."""
        weight = torch.tensor([weight for _, _, weight in layout.targets], device=self._device)
        advantage, recorded = (
            torch.tensor(column, dtype=torch.float32, device=self._device)
            for column in (zip(*layout.credits, strict=True) if layout.credits else ((), ()))
        )
        chosen, lse, index = self._scores(layout)
        return Terms(chosen, lse, index, weight, advantage, recorded)

    def loss(self, layout: Layout) -> torch.Tensor:
        """Return the scalar -Σ weight · log π(token | context) over a micro-batch, in fp32."""
        return negative_log_likelihood(self.terms(layout)).total

    @torch.no_grad()
    def logprobs(self, ids: Sequence[int]) -> list[float]:
        """Return log π(id_t | id_<t) for t >= 1: length len(ids) - 1."""
        if len(ids) < 2:
            return []
        (layout,) = self.layouts([Sample(tuple(ids), (False,) + (True,) * (len(ids) - 1))])
        # Not worth compiling a second time, without gradients.
        with torch.compiler.set_stance("force_eager") if self.compiled else contextlib.nullcontext():
            chosen, lse, index = self._scores(layout)
        values: list[float] = (chosen - lse[index]).tolist()
        return values

    def _scores(self, layout: Layout) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return each target's logit, each predictor's logsumexp, both fp32, and each target's predictor.

        The head is applied only where it is needed; in chunks, if it is plain and the logits are too many.
        """
        columns = sorted({column for _, column in layout.predictors})
        place = {column: index for index, column in enumerate(columns)}
        wanted = [row * len(columns) + place[column] for row, column in layout.predictors]
        pairs = [(index, token) for index, token, _ in layout.targets]
        targets = head.Targets.of(pairs, len(wanted), self._most_places, self._device)
        inputs, extra = self._tree(layout) if layout.ends else self._rows(layout)
        last: Any = self._model.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers'

        def needed(tensor: torch.Tensor) -> torch.Tensor:
            flat = tensor.flatten(0, 1)
            return flat if len(flat) == len(wanted) else flat.index_select(0, torch.tensor(wanted, device=self._device))

        def chunked(hidden: torch.Tensor) -> torch.Tensor:
            return torch.cat(head.in_chunks(needed(hidden), last.weight, targets, self._dtype))

        in_chunks = self.chunked and len(layout.rows) * len(columns) > self._most_places
        bf16 = self._dtype is not torch.float32
        with (
            torch.autocast(self._device.type, dtype=self._dtype) if bf16 else contextlib.nullcontext(),
            head.replaced(last, chunked) if in_chunks else contextlib.nullcontext(),
        ):
            output: torch.Tensor = self._model(
                input_ids=inputs,
                use_cache=False,
                logits_to_keep=torch.tensor(columns, device=self._device),
                **extra,
            ).logits
        if in_chunks:
            chosen, lse = output[: len(pairs)], output[len(pairs) :]
        else:
            chosen, lse = head.from_logits(needed(output), targets)
        return chosen, lse, targets.index_T

    def _tree(self, layout: Layout) -> tuple[torch.Tensor, dict[str, Any]]:
        if self.flex and torch.is_grad_enabled():
            tree = attention.Tree.flexible(layout, self._device, self._windows)
        else:
            tree = attention.Tree.of(layout, self._device, self._block)
        ids = layout.rows[0] + (0,) * (len(tree.ends) - layout.nodes)
        return torch.tensor([ids], device=self._device), {"position_ids": tree.depths[None], "tree": tree}

    def _rows(self, layout: Layout) -> tuple[torch.Tensor, dict[str, Any]]:
        width = max(map(len, layout.rows))
        inputs = torch.tensor([row + (0,) * (width - len(row)) for row in layout.rows], device=self._device)
        # By length, never by id: in many models the padding token is the end token, which is trained.
        lengths = torch.tensor([[len(row)] for row in layout.rows], device=self._device)
        return inputs, {"attention_mask": (torch.arange(width, device=self._device) < lengths).long()}

    def _go(self, ways: Sequence[tuple[bool, bool]], recompute: bool) -> bool:
        """Go the first of these ways, each (flex attention, compiled layers), that works; whether one does."""
        plain = functools.cache(self._plain_trials)
        return any(self._try(flex, compiled, recompute, plain) for flex, compiled in ways)

    def _plain_trials(self) -> "tuple[list[_Trial], list[_Trial]]":
        """The exact ones, in float32, and those of the plain way, by which each other way is measured."""
        if self._model.config.get_text_config().vocab_size < _IDS:
            raise ValueError(f"a vocabulary of less than {_IDS} ids is not tried")
        exact = self._trials(torch.float32, None)
        return exact, self._trials(self._dtype, exact)

    def _try(
        self,
        flex: bool,
        compiled: bool,
        recompute: bool,
        plain_trials: "Callable[[], tuple[list[_Trial], list[_Trial]]]",
    ) -> bool:
        """Go this way if losses and gradients of the probes stay what they were; else keep the reason."""
        name = " and ".join(["flex attention"] * flex + ["compiled layers"] * compiled)
        try:
            exact, plain = plain_trials()
            layers.arrange(self._model, recompute, compiled)
            self.flex, self.compiled = flex, compiled
            reason = self._difference(exact, plain, self._trials(self._dtype, exact))
            if reason is None:
                return True
        except Exception as error:  # compilers fail in many ways, and the slower way is always there
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        self._model.zero_grad(set_to_none=True)
        layers.arrange(self._model, recompute, False)
        self.flex = self.compiled = False
        self.notes.append(f"no {name}: {reason}")
        return False

    def _trials(self, dtype: torch.dtype, places: "Sequence[_Trial] | None") -> "list[_Trial]":
        """Loss and gradient of each probe in this number format, at the same places as in `places`.

        Of ordinary ids: gradients of special tokens, which often were never trained, are little but rounding in bf16.
        """
        first, own = (self._model.config.get_text_config().vocab_size - _IDS) // 2, self._dtype
        self._dtype, trials = dtype, []
        try:
            for at, count in enumerate(_SIZES):
                loss = 0.0
                for layout in self.layouts(_branches(count, first)):
                    part = self.loss(layout)
                    part.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                    loss += part.item()
                gradients = {name: p.grad.flatten() for name, p in self._model.named_parameters() if p.grad is not None}
                known = places[at].places if places else {name: _places(g) for name, g in gradients.items()}
                finite = all(bool(gradient.isfinite().all()) for gradient in gradients.values())
                parts = {name: gradients[name][where].float() for name, where in known.items() if name in gradients}
                trials.append(_Trial(loss, finite, parts, known))
                self._model.zero_grad(set_to_none=True)
        finally:
            self._dtype = own
        return trials

    def _difference(
        self, exact: "Sequence[_Trial]", plain: "Sequence[_Trial]", tried: "Sequence[_Trial]"
    ) -> str | None:
        """Why what was tried is not the plain way in other rounding, or None.

        Each tensor's gradient may be three times as far from the exact one (float32) as the plain way's, which has its
        format's rounding too, and a little more.
        """
        close, near = (1e-4, 1e-3) if self._dtype is torch.float32 else (2e-2, 5e-2)
        for size, one, two, three in zip(_SIZES, exact, plain, tried, strict=True):
            if not math.isclose(two.loss, three.loss, rel_tol=close):
                return f"a loss of {three.loss:.6g} instead of {two.loss:.6g}, {size} samples"
            if not three.finite or three.parts.keys() != one.parts.keys():
                return f"a gradient that is not finite, or missing, {size} samples"
            # What is nothing but rounding, such as a bias of keys, is measured by the others.
            least = 1e-5 * max(part.norm().item() for part in one.parts.values())
            for name, part in one.parts.items():
                off = (three.parts[name] - part).norm().item()
                if off > 3 * (two.parts[name] - part).norm().item() + near * part.norm().item() + least:
                    return f"the gradient of {name} is off by {off:.3g} of {part.norm().item():.3g}, {size} samples"
        return None

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

    def _head_is_plain(self) -> bool:
        """Whether the model hands on what its head gives: tried, for a model may scale or cap its logits."""
        last = self._model.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers'
        if type(last) is not torch.nn.Linear or last.bias is not None:
            return False
        usual = self._dtype, self._most_places
        self._dtype = torch.float32  # other products of the same numbers round alike
        whole = self._probe()
        self.chunked, self._most_places = True, 1
        try:
            return math.isclose(whole, self._probe(), rel_tol=1e-5)
        except (IndexError, RuntimeError, TypeError, ValueError):
            return False  # it does something that only logits have the shape for
        finally:
            self.chunked = False
            self._dtype, self._most_places = usual

    @torch.no_grad()
    def _probe(self) -> float:
        return sum(self.loss(layout).item() for layout in self.layouts(_PROBE))
