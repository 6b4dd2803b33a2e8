"""A trainer's state: θ, AdamW's moments and the step count; in memory, and as the files of a checkpoint.

With LoRA it is the adapters instead of θ, which a checkpoint has too, merged: whoever reads θ need not know.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from whale.errors import WhaleError
from whale.rollout.memory_plan import training_activations
from whale.weights.lora import Adapters, kind_of

WEIGHTS = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
ADAPTER = "adapter.safetensors"
SUMMARY = "trainer.json"
FORMAT = 1
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Copy:
    """What `restore` goes back to."""

    weights: Mapping[str, torch.Tensor]
    """θ, or the adapters."""
    optimizer: Mapping[str, torch.Tensor]
    steps: int


class TrainerState:
    """A view on a model and its AdamW, by parameter name."""

    def __init__(
        self,
        model: PreTrainedModel,
        optimizer: torch.optim.AdamW,
        config: dict[str, Any],
        adapters: Adapters | None = None,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._config = config
        self._adapters = adapters
        # A tied tensor appears once.
        self._parameters = dict(model.named_parameters()) if adapters is None else adapters.parameters()
        self.steps = 0

    def weights(self) -> dict[str, torch.Tensor]:
        """Return θ by name; a name that is tied to a parameter is left out. Not copied, but where it is merged."""
        if self._adapters is None:
            return self.held_weights()
        return dict(self._adapters.merged(lambda tensor: tensor))

    @property
    def kind(self) -> str:
        """What is trained, for errors."""
        return "all of θ" if self._adapters is None else self._adapters.kind

    def changes(self) -> list[int]:
        """How often each held tensor has been changed in place: of equal lists θ is the same."""
        return [tensor._version for tensor in self.held_weights().values()]

    def beside_weights(self) -> dict[str, torch.Tensor]:
        """Return what goes on from here besides θ, by name: the optimiser's tensors, and the adapters."""
        return {**self.adapter_tensors(), **self.optimizer_tensors()}

    def adapter_tensors(self) -> dict[str, torch.Tensor]:
        """Return the adapters by name, not copied; empty where all of θ is trained."""
        return {} if self._adapters is None else self.held_weights()

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """Return AdamW's state as "<parameter>/<what>", not copied; empty before the first update."""
        return self.held_optimizer()

    def held_weights(self) -> dict[str, torch.Tensor]:
        """Return what is trained, θ or the adapters, by name as this process holds it."""
        if self._adapters is not None:
            return {name: tensor.detach() for name, tensor in self._parameters.items()}
        known = {tensor.data_ptr() for tensor in self._parameters.values()}
        buffers = {
            name: tensor
            for name, tensor in self._model.state_dict().items()
            if name not in self._parameters and tensor.data_ptr() not in known
        }
        return {**{name: tensor.detach() for name, tensor in self._parameters.items()}, **buffers}

    def held_optimizer(self) -> dict[str, torch.Tensor]:
        """Return AdamW's state as this process holds it."""
        return {
            f"{name}/{what}": tensor
            for name, parameter in self._parameters.items()
            for what, tensor in self._optimizer.state.get(parameter, {}).items()
        }

    def updates(self) -> int:
        """Return how many optimiser updates have made this state: AdamW's own count, which is in every checkpoint."""
        counts = [state["step"] for state in self._optimizer.state.values() if "step" in state]
        return int(torch.stack(counts).max().item()) if counts else 0  # a tensor may be without a gradient in some

    def copy(self) -> Copy:
        """Copy the state, to where `copied` has room."""
        weights, optimizer = copied(self.held_weights(), self.held_optimizer(), self._size())
        return Copy(weights, optimizer, self.steps)

    def restore(self, copy: Copy) -> None:
        """Put the state back in place; the tensors of the model stay the same objects."""
        with torch.no_grad():
            for name, tensor in self.held_weights().items():
                tensor.copy_(copy.weights[name])
        self._optimizer.state.clear()
        for name, tensor in copy.optimizer.items():
            parameter, what = name.rsplit("/", 1)
            on = self._parameters[parameter]
            # AdamW counts steps on the CPU unless it is fused on a GPU.
            device = torch.device("cpu") if what == "step" and on.device.type == "cpu" else on.device
            self._optimizer.state[on][what] = tensor.to(device, copy=True)
        self.steps = copy.steps

    def take(self, copy: Copy) -> None:
        """Take over what was read from a checkpoint."""
        self.restore(copy)

    def save(self, folder: Path, digests: Mapping[str, str]) -> None:
        """Write the files, and the model's config.json so that transformers can load the folder."""
        self._write(folder, self.weights(), self.adapter_tensors(), self.optimizer_tensors(), digests)

    def _write(
        self,
        folder: Path,
        weights: dict[str, torch.Tensor],
        adapters: dict[str, torch.Tensor],
        optimizer: dict[str, torch.Tensor],
        digests: Mapping[str, str],
    ) -> None:
        summary = {
            "format": FORMAT,
            "steps": self.steps,
            "digests": dict(digests),
            "optimizer": True,
            "config": self._config,
        }
        if self._adapters is not None:
            summary["lora"] = self._adapters.facts
            save_file(adapters, folder / ADAPTER, metadata={"format": "pt"})
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
        save_file(optimizer, folder / OPTIMIZER)
        self._model.config.save_pretrained(folder)
        (folder / SUMMARY).write_text(json.dumps(summary, indent=1, sort_keys=True) + "\n")

    def load(self, folder: Path) -> str:
        """Read the files, check them against the model, then take them over; return θ's digest when it was saved.

        Raises WhaleError.
        """
        summary = read_summary(folder)
        if not summary["optimizer"]:
            raise WhaleError(f"{folder}: the optimiser's state was pruned; training can only go on from a newer one")
        if summary.get("lora") != (self._adapters.facts if self._adapters else None):
            theirs = kind_of(summary["lora"]) if summary.get("lora") else "all of θ"
            raise WhaleError(f"{folder} is of a trainer of {theirs}; this one is of {self.kind}")
        weights = read_tensors(folder / (ADAPTER if self._adapters else WEIGHTS))
        copy = Copy(weights, read_tensors(folder / OPTIMIZER), int(summary["steps"]))
        self._require_same_shapes(folder, copy)
        self.take(copy)
        return str(summary["digests"]["weights"])

    def _size(self) -> int:
        return sum(parameter.numel() for parameter in self._model.parameters())

    def _require_same_shapes(self, folder: Path, copy: Copy) -> None:
        ours = {name: tuple(tensor.shape) for name, tensor in self.held_weights().items()}
        theirs = {name: tuple(tensor.shape) for name, tensor in copy.weights.items()}
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name):
                there, here = theirs.get(name, "missing"), ours.get(name, "missing")
                raise WhaleError(f"{folder} is of another model: {name} is {there} there and {here} in the one loaded")
        for name, tensor in copy.optimizer.items():
            parameter, _, what = name.rpartition("/")
            shape = () if what == "step" else ours.get(parameter)
            if parameter not in self._parameters or tuple(tensor.shape) != shape:
                raise WhaleError(f"{folder / OPTIMIZER} is of another model: {name} has shape {tuple(tensor.shape)}")


def copied(
    weights: Mapping[str, torch.Tensor], optimizer: Mapping[str, torch.Tensor], parameters: int
) -> list[dict[str, torch.Tensor]]:
    """Copies of both: on a GPU that has room for the step beside them there, else in the CPU's memory.

    `parameters`: the model's, trained or not; its activations need room too.

    Through the CPU all of it crosses the bus at each step, and what is freed stays with the process in pieces.
    """
    groups = (weights, optimizer)
    device = next((t.device for group in groups for t in group.values() if t.device.type == "cuda"), CPU)

    def on(place: torch.device) -> list[dict[str, torch.Tensor]]:
        return [{name: tensor.to(place, copy=True) for name, tensor in group.items()} for group in groups]

    sizes = [sum(t.numel() * t.element_size() for t in group.values()) for group in groups]
    if has_room(device, sizes[0], sizes[1], parameters):
        with contextlib.suppress(torch.OutOfMemoryError):  # what is free may be in pieces
            return on(device)
    return on(CPU)


def has_room(device: torch.device, weights: int, optimizer: int, parameters: int) -> bool:
    """Whether a GPU has room for a copy of so many bytes, and for the step: gradients, first moments, activations."""
    if device.type != "cuda":
        return False
    coming = weights + max(0, 2 * weights - optimizer) + training_activations(parameters)
    return torch.cuda.mem_get_info(device)[0] >= weights + optimizer + coming


def read_summary(folder: Path) -> dict[str, Any]:
    """Return trainer.json's content. Raises WhaleError if it is missing or not what this version writes."""
    path = folder / SUMMARY
    try:
        summary = json.loads(path.read_text())
        if summary["format"] != FORMAT:
            raise WhaleError(f"{path}: checkpoint format {summary['format']}, this version reads {FORMAT}")
        if not {"steps", "digests", "optimizer"} <= summary.keys():
            raise KeyError("a field is missing")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WhaleError(f"{folder}: no complete checkpoint ({SUMMARY}: {error})") from error
    return dict(summary)


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return a safetensors file's tensors on the CPU. Raises WhaleError naming the file."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise WhaleError(f"{path}: cannot be read: {error}") from error
