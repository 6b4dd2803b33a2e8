"""LoRA (arXiv:2106.09685): instead of θ, two small matrices beside each chosen linear layer are trained.

    θ's weight = W + (alpha / rank) · B A,   A of rank × inputs, B of outputs × rank, B = 0 at the start

W is the base: the model that the run began with, frozen. PEFT puts the layers in and computes them. What others get
is θ, merged each time from the untouched base and the adapters.
"""

import contextlib
import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from whale.errors import UsageError

ALL_LINEAR = "all-linear"
_A, _B = "lora_A", "lora_B"
_ADAPTER = "default"
"""PEFT's name of a model's only adapter: part of its parameters' names, and of none in a file."""
_ROWS = 64
"""Of a weight merged at once on a CPU, so that they stay in its cache."""

Whole = Callable[[torch.Tensor], torch.Tensor]
"""A tensor as this process holds it -> the whole of it."""


@dataclass(frozen=True, slots=True)
class Lora:
    """What is trained beside the frozen base."""

    rank: int
    alpha: float = 0.0
    """0: twice the rank."""
    targets: str | tuple[str, ...] = ALL_LINEAR
    """Names of linear layers, such as q_proj; "all-linear": all but the output head."""
    seed: int = 0
    """Of A's first values."""

    @property
    def scale(self) -> float:
        """Alpha / rank."""
        return (self.alpha or 2.0 * self.rank) / self.rank

    def facts(self) -> dict[str, Any]:
        """What a checkpoint says of it: the seed is not needed to go on."""
        targets = self.targets if isinstance(self.targets, str) else sorted(self.targets)
        return {"rank": self.rank, "alpha": self.scale * self.rank, "targets": targets}


def require_peft() -> None:
    """Raise UsageError with the command that installs PEFT, where it is missing."""
    if importlib.util.find_spec("peft") is None:
        raise UsageError("weights.lora_rank needs the package peft: pip install 'whale-evolve[lora]'")


def require_targets(model: torch.nn.Module, lora: Lora) -> None:
    """Raise UsageError for a name that is no linear layer of the model; `model` may be on the meta device."""
    head = model.get_output_embeddings() if isinstance(model, PreTrainedModel) else None  # type: ignore[no-untyped-call]
    linear = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    inner = {name for name, module in linear.items() if module is not head}
    known = sorted({name.rpartition(".")[2] for name in inner})
    if not known:
        raise UsageError("weights.lora_rank: the model has no linear layers that an adapter fits")
    for target in () if isinstance(lora.targets, str) else lora.targets:
        fitting = {name for name, _ in model.named_modules() if name == target or name.endswith(f".{target}")}
        if not fitting or not fitting <= inner:
            raise UsageError(
                f"weights.lora_targets: {target!r} is no linear layer of the model; known there: {', '.join(known)}"
            )


def kind_of(facts: Mapping[str, Any]) -> str:
    """What `Lora.facts` say, in words."""
    targets = facts["targets"] if isinstance(facts["targets"], str) else ", ".join(facts["targets"])
    return f"LoRA of rank {facts['rank']}, alpha {facts['alpha']:g}, targets {targets}"


class Adapters:
    """The adapters of a model, by the names that PEFT's files have, and θ as they make it."""

    def __init__(self, model: PreTrainedModel, lora: Lora) -> None:
        """Freeze the model and put the adapters in."""
        require_peft()
        require_targets(model, lora)
        from peft import LoraConfig, inject_adapter_in_model

        self._model = model
        self._lora = lora
        model.requires_grad_(False)
        chosen = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
        config = LoraConfig(
            r=lora.rank,
            lora_alpha=lora.scale * lora.rank,  # type: ignore[arg-type]  # PEFT only divides it
            target_modules=chosen,
            task_type="CAUSAL_LM",
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(lora.seed)
            inject_adapter_in_model(config, model)

    @contextlib.contextmanager
    @torch.no_grad()
    def begun(self) -> Iterator[None]:
        """B as after some training: while it is 0, A has no gradient that could be told right from wrong."""
        draw = torch.Generator().manual_seed(0)
        new = [parameter for name, parameter in self.parameters().items() if name.endswith(f".{_B}.weight")]
        for parameter in new:
            parameter.copy_(torch.randn(parameter.shape, generator=draw) / self._lora.rank)
        try:
            with torch.enable_grad():
                yield
        finally:
            for parameter in new:
                parameter.zero_()

    @property
    def facts(self) -> dict[str, Any]:
        """As `Lora.facts`."""
        return self._lora.facts()

    @property
    def kind(self) -> str:
        """As `kind_of`."""
        return kind_of(self.facts)

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """The adapters by name, as this process holds them."""
        return {_in_files(name): p for name, p in self._model.named_parameters() if _is_adapter(name)}

    def merged(self, whole: Whole) -> Iterator[tuple[str, torch.Tensor]]:
        """θ, a tensor at a time, by the base's own names; a name that is tied to a parameter is left out."""
        adapters = {name: parameter.detach() for name, parameter in self.parameters().items()}
        return _merged(self._base(), adapters, self._lora.scale, whole)

    def _base(self) -> Iterator[tuple[str, torch.Tensor]]:
        known = {name for name, _ in self._model.named_parameters(remove_duplicate=False)}
        for name, parameter in self._model.named_parameters():
            if not _is_adapter(name):
                yield name.replace(".base_layer.", "."), parameter.detach()
        for name, tensor in self._model.state_dict().items():
            if name not in known:
                yield name.replace(".base_layer.", "."), tensor


def _merged(
    base: Iterable[tuple[str, torch.Tensor]], adapters: Mapping[str, torch.Tensor], scale: float, whole: Whole
) -> Iterator[tuple[str, torch.Tensor]]:
    for name, held in base:
        module, _, what = name.rpartition(".")
        tensor = whole(held)
        if what == "weight" and f"{module}.{_A}.weight" in adapters:
            a, b = (whole(adapters[f"{module}.{kind}.weight"]) for kind in (_A, _B))
            tensor = merge(tensor, a, b, scale)
        yield name, tensor


@torch.no_grad()
def merge(base_OI: torch.Tensor, a_RI: torch.Tensor, b_OR: torch.Tensor, scale: float) -> torch.Tensor:
    """Return base + scale · B A: the same bits on each device, with any number of threads and ranks.

    A product of matrices sums in an order of its own on each machine; here it is one rank after the other, each a
    product and a sum that IEEE rounds. So a checkpoint's digest holds wherever a run goes on. Where nothing is added,
    -0.0 stays what it is: θ0 has its digest while B is 0.
    """
    result = torch.empty_like(base_OI)
    rows = _ROWS if base_OI.device.type == "cpu" else len(base_OI)
    for start in range(0, len(base_OI), rows):
        base, b = base_OI[start : start + rows], b_OR[start : start + rows]
        change = torch.zeros_like(base)
        product = torch.empty_like(base)
        for k in range(len(a_RI)):
            torch.mul(b[:, k, None], a_RI[k], out=product)
            change.add_(product)
        change.mul_(scale)
        torch.add(base, change, out=product)
        result[start : start + rows] = torch.where(change == 0, base, product)
    return result


def differing(
    theta: Mapping[str, torch.Tensor],
    base: Mapping[str, torch.Tensor],
    facts: Mapping[str, Any],
    adapters: Mapping[str, torch.Tensor],
) -> str | None:
    """Return the first weight that adapters on the base do not make, to the bit; None: `theta` is what they make.

    `facts` as `Lora.facts`. θ's digest is in the log, so this holds adapters to the log where nothing else does.
    """
    adapted = {name.replace(f".{_A}.", ".") for name in adapters if name.endswith(f".{_A}.weight")}
    for name in sorted((adapted - theta.keys()) | (theta.keys() - base.keys())):
        return name
    made = _merged(((name, base[name]) for name in theta), adapters, facts["alpha"] / facts["rank"], lambda held: held)
    return next((name for name, tensor in made if not torch.equal(theta[name], tensor)), None)


def write_peft(folder: Path, base: str, facts: Mapping[str, Any], adapters: Mapping[str, torch.Tensor]) -> None:
    """Write a checkpoint's adapters as PEFT's own folder: adapter_config.json and adapter_model.safetensors."""
    folder.mkdir()
    modules = sorted({name.rsplit(".", 2)[0] for name in adapters})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": facts["rank"],
        "lora_alpha": facts["alpha"],
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        "target_modules": modules,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    named = {f"base_model.model.{name}": tensor for name, tensor in adapters.items()}
    save_file(named, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def _is_adapter(name: str) -> bool:
    return f".{_A}.{_ADAPTER}." in name or f".{_B}.{_ADAPTER}." in name


def _in_files(name: str) -> str:
    return name.replace(f".{_ADAPTER}.weight", ".weight")
