"""A trainer's state when each rank holds a part of every tensor: files and digests are of the whole.

What is saved does not know how many ranks there were, so a run goes on with another number of them.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from whale.weights.state import Copy, TrainerState, copied


class ShardedState(TrainerState):
    """A `TrainerState` over parameters that FSDP2 cut along their first dimension.

    All ranks call each method together. `weights` and `optimizer_tensors` gather: whole tensors in the CPU's
    memory on rank 0, nothing on the others. `copy` and `restore` are of a rank's own parts.
    """

    def weights(self) -> dict[str, torch.Tensor]:
        """Return θ by name, gathered; a name that is tied to a parameter is left out."""
        if self._adapters is None:
            return _gathered(self.held_weights().items())
        return _gathered(self._adapters.merged(_whole))

    def adapter_tensors(self) -> dict[str, torch.Tensor]:
        """Return the adapters by name, gathered."""
        return {} if self._adapters is None else _gathered(self.held_weights().items())

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """Return AdamW's state as "<parameter>/<what>", gathered; empty before the first update."""
        return _gathered(self.held_optimizer().items())

    def held_weights(self) -> dict[str, torch.Tensor]:
        """Return what is trained, θ or the adapters, by name as this rank holds it."""
        if self._adapters is not None:
            return {name: tensor.detach() for name, tensor in self._parameters.items()}
        known = dict(self._model.named_parameters(remove_duplicate=False))  # a sharded tensor has no address
        buffers = {name: tensor for name, tensor in self._model.state_dict().items() if name not in known}
        return {**{name: tensor.detach() for name, tensor in self._parameters.items()}, **buffers}

    def copy(self) -> Copy:
        """Copy this rank's parts, to where `copied` has room."""
        weights, optimizer = copied(_parts(self.held_weights()), _parts(self.held_optimizer()), self._size())
        return Copy(weights, optimizer, self.steps)

    def restore(self, copy: Copy) -> None:
        """Put this rank's parts back in place."""
        with torch.no_grad():
            for name, tensor in self.held_weights().items():
                _local(tensor).copy_(copy.weights[name])
        self._optimizer.state.clear()
        for name, tensor in copy.optimizer.items():
            parameter, what = name.rsplit("/", 1)
            on: Any = self._parameters[parameter]
            part = tensor.to(on.device, copy=True)
            if what != "step":
                part = DTensor.from_local(
                    part, on.device_mesh, on.placements, run_check=False, shape=on.shape, stride=on.stride()
                )
            self._optimizer.state[on][what] = part
        self.steps = copy.steps

    def take(self, copy: Copy) -> None:
        """Take over whole tensors, each rank its parts."""
        held = self.held_weights()
        weights = {name: _cut(tensor, held[name]) for name, tensor in copy.weights.items()}
        optimizer = {name: _cut(tensor, held[name.rpartition("/")[0]]) for name, tensor in copy.optimizer.items()}
        self.restore(Copy(weights, optimizer, copy.steps))

    def save(self, folder: Path, digests: Mapping[str, str]) -> None:
        """Write the files of a checkpoint from rank 0; all ranks gather."""
        weights, adapters, optimizer = self.weights(), self.adapter_tensors(), self.optimizer_tensors()
        if dist.get_rank() == 0:
            self._write(folder, weights, adapters, optimizer, digests)


def _gathered(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    first = dist.get_rank() == 0
    result = {}
    for name, tensor in tensors:  # one after the other: no device holds more than one whole tensor
        whole = _whole(tensor)
        if first:
            result[name] = whole.detach().to("cpu", copy=True).contiguous()
    return result


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _parts(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: _local(tensor) for name, tensor in tensors.items()}


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _cut(whole: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    if not isinstance(like, DTensor) or not whole.ndim:
        return whole
    parts = whole.chunk(dist.get_world_size())  # as FSDP2 cuts: the last parts may be short or missing
    rank = dist.get_rank()
    return parts[rank] if rank < len(parts) else whole[:0]
