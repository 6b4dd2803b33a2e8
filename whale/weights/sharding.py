"""One rank of a trainer whose parameters, gradients and optimiser are spread over several processes (FSDP2).

Each update's samples are dealt to the ranks, each rank packs and computes its own, and gradients are summed, never
averaged: with every micro-batch's loss divided by the update's number of tokens over all ranks, the sum is the
gradient of the equation, however the samples were dealt. A gather of parameters needs all ranks, so all make equally
many passes: a rank that has run out computes a short sample times 0.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from whale.weights.dealing import deal
from whale.weights.lora import Adapters
from whale.weights.sharded_state import ShardedState
from whale.weights.trainer import Trainer, require_finite
from whale.weights.types import Sample


class _Root(torch.nn.Module):
    """Runs whatever reads parameters: inside its forward pass those outside the layers are whole."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Callable[[], Any]) -> Any:
        return work()


class ShardedTrainer(Trainer):
    """A `Trainer` on one of the ranks of torch's default process group; all ranks call each method together.

    What is returned is of the whole and equal on all ranks, but θ and digests, which rank 0 alone gathers.
    Raises what `Trainer` does, on all ranks alike.
    """

    _state: ShardedState

    def _distribute(self) -> None:
        mesh = init_device_mesh(self.device.type, (dist.get_world_size(),))
        names = set(getattr(self.model, "_no_split_modules", None) or ())
        layers = [module for module in self.model.modules() if type(module).__name__ in names]
        sharded = [fully_shard(layer, mesh=mesh) for layer in layers]
        self._root: Any = fully_shard(_Root(self.model), mesh=mesh)
        for part in (*sharded, self._root):
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)  # gloo knows no other

    def _new_state(self, config: dict[str, Any], adapters: Adapters | None) -> ShardedState:
        return ShardedState(self.model, self._optimizer, config, adapters)

    def _of_all(self, digest: str) -> str:
        told = [digest]
        dist.broadcast_object_list(told, src=0, device=self.device)
        return told[0]

    def _accumulate(self, samples: Sequence[Sample], tokens: int, where: str) -> tuple[float, Mapping[str, float]]:
        parts = deal(samples, dist.get_world_size(), shared=self._objective.packing == "tree")
        layouts = list(self._objective.layouts(parts[dist.get_rank()]))
        shortest = min((sample for sample in samples if sample.trained), key=lambda sample: len(sample.token_ids))
        (idle,) = self._objective.layouts([shortest])
        passes = torch.tensor(len(layouts), device=self.device)
        dist.all_reduce(passes, dist.ReduceOp.MAX)
        sums: defaultdict[str, float] = defaultdict(float)
        for number in range(int(passes.item())):
            layout, share = (layouts[number], 1.0) if number < len(layouts) else (idle, 0.0)
            total, more = self._root(lambda layout=layout: self._terms(layout))
            part = total * (share / tokens)
            part.backward()
            sums["loss"] += part.item()
            for name, figure in more.items():
                sums[f"of {name}"] += share * figure
        # A loss that is not finite is only told of now: the others were waiting for this rank's gradients.
        names = sorted(sums)
        figures = torch.tensor([sums[name] for name in names], dtype=torch.float64, device=self.device)
        dist.all_reduce(figures)
        added = dict(zip(names, figures.tolist(), strict=True))
        loss = added.pop("loss")
        require_finite("loss", loss, where)
        return loss, {name.removeprefix("of "): figure for name, figure in added.items()}

    def _terms(self, layout: Any) -> tuple[torch.Tensor, Mapping[str, float]]:
        share = self._loss(self._objective.terms(layout))
        return share.total, share.sums

    def _whole(self, norm: torch.Tensor) -> torch.Tensor:
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def logprobs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Per sequence: log π(id_t | id_<t) for t >= 1, length len(ids) - 1; each rank computes all."""
        try:
            return [self._root(lambda ids=ids: self._objective.logprobs(ids)) for ids in sequences]
        finally:
            self._root.reshard()  # what the backward pass would have done
