"""The trainer that every weight method shares: one pass per step over the rollouts that a method kept.

Each optimiser update minimises, over its rollouts τ and the positions I(τ) that the model sampled,

    L(θ) = Σ_τ Σ_{t in I(τ)} ℓ(log π_θ(τ_t | τ_<t))  /  Σ_τ |I(τ)|

as one sum over one number of tokens, however the samples are packed and cut into micro-batches. ℓ is the
method's (`rsft`, `grpo`). θ and the optimiser's state are fp32; under bf16 the products are autocast. With LoRA the
update is the adapters' alone, and θ is what they make of the frozen base (`lora`).
"""

import contextlib
import hashlib
import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from whale.errors import UsageError, WhaleError
from whale.rollout.devices import resolve_device, resolve_dtype
from whale.rollout.models import float32_model
from whale.rollout.types import Engine
from whale.weights import digest, sync
from whale.weights.lora import Adapters, Lora
from whale.weights.objective import LossFunction, Objective, Packing, negative_log_likelihood
from whale.weights.rates import RateSchedule, rates
from whale.weights.state import TrainerState
from whale.weights.types import Sample, StepResult


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """Settings of the weight phase's optimiser and of how a step is computed."""

    lr: float = 3e-5
    rate_schedule: RateSchedule = "constant"
    """What becomes of `lr` from update to update; see `rates.rates`."""
    warmup_updates: int = 0
    decay_updates: int = 0
    decay_to: float = 0.1
    minibatch: int = 64
    """Rollouts per optimiser update."""
    micro_batch_tokens: int | None = None
    """Tokens computed at once (tree nodes): memory, never the result. None: 1,024 on CPU, 8,192 on a GPU."""
    weight_decay: float = 0.0
    grad_clip: float | None = 1.0
    """Largest gradient norm; None or 0 clips nothing."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the products. auto: bfloat16 on CUDA and on CPUs with bf16 instructions, else float32."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    device: str = "auto"
    threads: int | None = None
    """CPU threads of this process; part of what a digest depends on. None: torch's own choice."""
    seed: int = 0
    """Mixed into each step's shuffle of rollouts into updates."""
    packing: Packing = "auto"
    activation_checkpointing: bool = False
    """Compute each layer's activations again in the backward pass: less memory, about a third more time."""
    compile: bool = False
    """Compile the decoder layers, on CUDA with attention over the tree, where it works. Costs minutes at the start."""
    lora: Lora | None = None
    """Train adapters beside a frozen θ0; None: all of θ."""

    def __post_init__(self) -> None:
        """Reject what no step can run with."""
        sizes = (self.minibatch, self.micro_batch_tokens or 1, self.threads or 1)
        if not (self.lr >= 0 and math.isfinite(self.lr)) or min(sizes) < 1 or self.weight_decay < 0:
            raise UsageError(
                f"trainer: lr {self.lr}, weight_decay {self.weight_decay}, minibatch {self.minibatch}, "
                f"micro_batch_tokens {self.micro_batch_tokens}, threads {self.threads}: "
                "sizes start at 1, rates at 0"
            )
        if self.rate_schedule not in ("constant", "linear", "cosine") or not (
            self.warmup_updates >= 0
            and self.decay_updates >= (0 if self.rate_schedule == "constant" else 1)
            and 0 <= self.decay_to <= 1
        ):
            raise UsageError(
                f"trainer: rate_schedule {self.rate_schedule!r}, warmup_updates {self.warmup_updates}, "
                f"decay_updates {self.decay_updates}, decay_to {self.decay_to}: constant, linear or cosine; "
                "a decay takes at least 1 update, to a share from 0 to 1"
            )
        if self.dtype not in ("auto", "float32", "bfloat16") or self.packing not in ("auto", "tree", "rows"):
            raise UsageError(f"trainer: dtype {self.dtype!r} or packing {self.packing!r} is unknown")


class Trainer:
    """Owns θ (fp32) and AdamW's state. On a CPU, equal inputs and threads give equal digests."""

    def __init__(
        self,
        model: str | Path | PreTrainedModel,
        config: TrainerConfig = TrainerConfig(),
        loss: LossFunction = negative_log_likelihood,
    ) -> None:
        """Load the model folder `model`, or take over a model that is already built (it is modified)."""
        self.config = config
        self._loss = loss
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        self.device = resolve_device(config.device)
        self.dtype = resolve_dtype(config.dtype, self.device)
        self.model = _model(model)
        adapters = Adapters(self.model, config.lora) if config.lora else None
        self.model.to(device=self.device, dtype=torch.float32)  # type: ignore[call-arg]  # behind a decorator
        self.model.train(False)  # no dropout: the equation has none
        if adapters is None:
            self.model.requires_grad_(True)
        capacity = config.micro_batch_tokens or (1024 if self.device.type == "cpu" else 8192)
        with adapters.begun() if adapters and config.compile else contextlib.nullcontext():
            self._objective = Objective(
                self.model, self.dtype, capacity, config.packing, config.activation_checkpointing, config.compile
            )
        self._distribute()
        self._optimizer = torch.optim.AdamW(
            [parameter for parameter in self.model.parameters() if parameter.requires_grad],
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
            fused=self.device.type in ("cpu", "cuda"),
        )
        self._rate = rates(
            config.lr, config.rate_schedule, config.warmup_updates, config.decay_updates, config.decay_to
        )
        self._state = self._new_state(dict(_plain(config)), adapters)
        self._weights_digest: tuple[str, list[int]] | None = None
        """Of θ as it is, with how often each tensor had been changed by then."""

    def _distribute(self) -> None:
        """Nothing: one process holds all. `sharding.ShardedTrainer` cuts the parameters here."""

    def _new_state(self, config: dict[str, Any], adapters: Adapters | None) -> TrainerState:
        return TrainerState(self.model, self._optimizer, config, adapters)

    @property
    def steps(self) -> int:
        """Steps that this trainer's state has been through, those without an update included."""
        return self._state.steps

    def notes(self) -> list[str]:
        """Return why something faster that was asked for is not used."""
        return list(self._objective.notes)

    def step(self, rollouts: Sequence[Sequence[Sample]], seed: int, label: str | None = None) -> StepResult:
        """Do one pass over the kept rollouts, ⌈kept / minibatch⌉ updates, each over its own tokens.

        `rollouts` holds each rollout's samples; `seed` shuffles them into updates. Where nothing is
        trained (no rollouts, all masked) no optimiser step is made. Raises WhaleError, with θ and the
        optimiser as they were before the step, for a loss or gradient that is not finite and for samples
        that the model cannot take; it names `label` (or the step's number).
        """
        label = label or f"step {self._state.steps + 1}"
        self._weights_digest = None
        self._check(rollouts, label)
        order = list(range(len(rollouts)))
        random.Random(hashlib.sha256(f"whale/rsft/{self.config.seed}/{seed}".encode()).digest()).shuffle(order)
        size = self.config.minibatch
        updates = [
            [sample for index in order[start : start + size] for sample in rollouts[index]]
            for start in range(0, len(order), size)
        ]
        updates = [update for update in updates if any(sample.trained for sample in update)]
        if not updates:
            self._state.steps += 1
            return StepResult(None, 0, 0, None)
        # A later update may fail after an earlier one has changed θ: then all of the step is undone.
        before = self._state.copy() if len(updates) > 1 else None
        made = self._state.updates() if self._rate else 0
        rate: float | None = None
        losses: list[float] = []
        norms: list[float] = []
        sums: defaultdict[str, float] = defaultdict(float)
        trained = [sum(sample.trained for sample in update) for update in updates]
        try:
            for number, (update, tokens) in enumerate(zip(updates, trained, strict=True), start=1):
                where = f"{label}, update {number} of {len(updates)}"
                loss, norm, more = self._gradient(update, tokens, where)
                losses.append(loss)
                for name, value in more.items():
                    sums[name] += value
                norms.append(norm)
                if self._rate:
                    rate = self._rate(made + number - 1)
                    for group in self._optimizer.param_groups:
                        group["lr"] = rate
                self._optimizer.step()
                self._optimizer.zero_grad(set_to_none=True)
        except BaseException:
            self._optimizer.zero_grad(set_to_none=True)
            if before is not None:
                self._state.restore(before)
            raise
        self._state.steps += 1
        total = sum(trained)
        mean = sum(loss * tokens for loss, tokens in zip(losses, trained, strict=True)) / total
        metrics = {name: sums[name] / total for name in sorted(sums)}
        return StepResult(mean, total, len(updates), max(norms), metrics, rate)

    def _gradient(self, samples: Sequence[Sample], tokens: int, where: str) -> tuple[float, float, Mapping[str, float]]:
        """Leave the gradient of L in the parameters, clipped; return L, the norm before clipping, the loss's sums."""
        loss, sums = self._accumulate(samples, tokens, where)
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        norm = self._whole(torch.nn.utils.get_total_norm(gradients))
        value = norm.item()
        require_finite("gradient's norm", value, where)
        if self.config.grad_clip:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.config.grad_clip, norm)
        return loss, value, sums

    def _accumulate(self, samples: Sequence[Sample], tokens: int, where: str) -> tuple[float, Mapping[str, float]]:
        """Add the gradient of L over all micro-batches; return L and the loss's sums."""
        loss = 0.0
        sums: defaultdict[str, float] = defaultdict(float)
        for layout in self._objective.layouts(samples):
            share = self._loss(self._objective.terms(layout))
            part = share.total / tokens
            value = part.item()
            require_finite("loss", value, where)
            part.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            loss += value
            for name, figure in share.sums.items():
                sums[name] += figure
        return loss, sums

    def _whole(self, norm: torch.Tensor) -> torch.Tensor:
        return norm

    def _check(self, rollouts: Sequence[Sequence[Sample]], label: str) -> None:
        vocabulary = self.model.get_input_embeddings().weight.shape[0]  # type: ignore[index]  # an Embedding
        context: int | None = getattr(self.model.config, "max_position_embeddings", None)
        for sample in (sample for samples in rollouts for sample in samples):
            if context is not None and len(sample.token_ids) > context:
                raise WhaleError(f"{label}: a sample has {len(sample.token_ids)} tokens, the model takes {context}")
            if sample.token_ids and not 0 <= min(sample.token_ids) <= max(sample.token_ids) < vocabulary:
                raise WhaleError(f"{label}: a sample has token ids outside the model's {vocabulary}: another model's?")

    def logprobs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Per sequence: log π(id_t | id_<t) for t >= 1, length len(ids) - 1."""
        return [self._objective.logprobs(ids) for ids in sequences]

    def check_engine(self, engine: Engine, sequences: Sequence[Sequence[int]], tolerance: float) -> float:
        """Compare the engine with this trainer's weights; see `whale.weights.sync.check_engine`."""
        return sync.check_engine(engine, sequences, self.logprobs(sequences), tolerance)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return θ by name, on its device; a tied output head is left out. Not copied, but where LoRA merges it."""
        return self._state.weights()

    def weights_digest(self) -> str:
        """Return the digest of θ (`digest.weights_digest`), computed once a θ; a write through `.data` goes unseen."""
        changes = self._state.changes()
        if self._weights_digest is None or self._weights_digest[1] != changes:
            self._weights_digest = digest.weights_digest(self.state_dict()), changes
        return self._weights_digest[0]

    def trainer_digest(self) -> str:
        """Return the digest of θ and of what makes up the trainer besides: the optimiser's state, adapters."""
        return digest.trainer_digest(self.weights_digest(), self._state.beside_weights())

    def go_on_from(self, other: "Trainer") -> None:
        """Take over another trainer's θ, optimiser and step count, its settings and loss aside."""
        if self.config.lora != other.config.lora:
            raise WhaleError(f"a trainer of {self._state.kind} cannot go on from one of {other._state.kind}")
        self._weights_digest = None
        self._state.restore(other._state.copy())

    def checkpoint_bytes(self) -> int:
        """Return how many bytes `save` writes, about: θ, adapters, and AdamW's two moments of what is trained."""
        numbers = [(parameter.numel(), parameter.requires_grad) for parameter in self.model.parameters()]
        return 4 * sum(number * (3 if trained else 1) for number, trained in numbers)

    def save(self, folder: str | Path) -> Mapping[str, str]:
        """Write θ, the optimiser's state and a summary into `folder`; return {"weights", "trainer"} digests.

        Not atomic by itself: `checkpoints.CheckpointStore.save` is.
        """
        weights = self.weights_digest()
        trainer = digest.trainer_digest(weights, self._state.beside_weights())
        digests = {"weights": weights, "trainer": trainer}
        self._state.save(Path(folder), digests)
        return digests

    def load(self, folder: str | Path) -> None:
        """Take over the state saved in `folder`, learning rate and other settings aside.

        Raises WhaleError if it is of another model or of other adapters, incomplete, or without the optimiser's
        state; then nothing has changed.
        """
        self._weights_digest = None
        before = self._state.copy() if self.config.lora else None
        saved = self._state.load(Path(folder))
        if before is not None and self._of_all(self.weights_digest()) != saved:
            # Adapters fit any base of the same shape; what they make of it does not.
            self._weights_digest = None
            self._state.restore(before)
            raise WhaleError(
                f"{folder}: its adapters do not make its weights: they belong to another base than the model loaded "
                "here, or are damaged"
            )

    def _of_all(self, digest: str) -> str:
        """The digest of the whole, on each rank."""
        return digest


def require_finite(what: str, value: float, where: str) -> None:
    """Raise the WhaleError of a step whose loss or gradient is not finite."""
    if not math.isfinite(value):
        raise WhaleError(f"{where}: the {what} is {value}; weights unchanged. Try a smaller lr or float32")


def _plain(config: TrainerConfig) -> Iterator[tuple[str, Any]]:
    for name in TrainerConfig.__slots__:
        value = getattr(config, name)
        if isinstance(value, Lora):
            value = asdict(value)
        yield name, list(value) if isinstance(value, tuple) else value


def _model(model: str | Path | PreTrainedModel) -> PreTrainedModel:
    if isinstance(model, PreTrainedModel):
        return model
    if not (Path(model) / "config.json").is_file():
        raise WhaleError(f"{model}: no model folder (config.json is missing)")
    loaded: PreTrainedModel = float32_model(model)
    return loaded
