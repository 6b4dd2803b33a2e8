"""How a device's memory is shared between an engine's weights and cache and a trainer of the same model."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from whale.errors import WhaleError

_GIB = 1 << 30
_TRAINER_BYTES = 16
"""Of a parameter: fp32 weights, gradient and AdamW's two moments."""
_FROZEN_BYTES = 8
"""Of a parameter with LoRA: fp32 weights, and θ as it is merged for the engine."""
_ENGINE_ACTIVATIONS = 4 * _GIB
_CPU_CACHE = 2 * _GIB
_MOST = 64 * _GIB


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of one device. `share` is what vLLM may take of the whole device, cache and weights together."""

    total: int
    free: int
    engine_weights: int
    kv_bytes: int
    trainer: int
    share: float
    missing: int = 0
    """What all of it needs beyond what is free: only where the cache's size was given."""

    def __str__(self) -> str:
        """One line for a user."""
        parts = [
            (self.engine_weights, "engine weights"),
            (self.kv_bytes, "KV cache"),
            (self.trainer, "kept for the trainer"),
        ]
        told = ", ".join(f"{size / _GIB:.1f} GiB {what}" for size, what in parts if size)
        line = f"memory: {told}; {self.free / _GIB:.1f} of {self.total / _GIB:.1f} GiB were free"
        if not self.missing:
            return line
        smaller = ", spread the trainer over GPUs (weights.ranks), or train adapters (weights.lora_rank)"
        remedies = "lower engine.kv_gb" + (smaller if self.trainer else "")
        return f"{line}, {self.missing / _GIB:.1f} GiB too little: {remedies}"


def training_activations(parameters: int) -> int:
    """Bytes of a micro-batch of 8,192 tokens with its logits: 22 GiB were measured at 1.7B parameters."""
    return max(8 * _GIB, 14 * parameters)


def plan_memory(
    model: torch.nn.Module,
    dtype: torch.dtype,
    device: torch.device,
    kv_bytes: int = 0,
    *,
    trainer: bool = True,
    sharing: int = 1,
    lora_rank: int = 0,
) -> MemoryPlan:
    """Divide what is free. `kv_bytes` of 0: on a GPU half of what weights and trainer leave, at most 64 GiB.

    `trainer`: whether one of the same model comes to this device, with LoRA if `lora_rank` is not 0; `sharing`: how
    many such engines it has, which all start at once. `model` may be on the meta device. Raises WhaleError if nothing
    is left for a cache.
    """
    parameters = sum(parameter.numel() for parameter in model.parameters())
    weights = parameters * dtype.itemsize
    training = _trainer(model, parameters, lora_rank) if trainer else 0
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        training += training_activations(parameters) if trainer else 0
        rest = free - (weights + _ENGINE_ACTIVATIONS) * sharing - training
        kv = kv_bytes or min(rest // 2, _MOST) // sharing
        share = min(0.95, (weights + kv + _ENGINE_ACTIVATIONS) / total)
    else:
        free, total = _host_memory()
        rest = free - weights * sharing - training
        kv = kv_bytes or min(rest // 2 // sharing, _CPU_CACHE)
        share = 0.5  # vLLM's check of it is off where the cache's size is given
    if kv <= 0:
        wanted = ("an engine" if sharing == 1 else f"{sharing} engines") + (" and a trainer" if trainer else "")
        raise WhaleError(
            f"{device}: {free / _GIB:.1f} GiB are free; {wanted} of {parameters / 1e6:,.0f} million "
            f"parameters need {(free - rest) / _GIB:.1f} GiB beside a cache: free some memory, or set engine.kv_gb"
        )
    return MemoryPlan(total, free, weights, kv, training, share, max(0, kv * sharing - rest))


def _trainer(model: torch.nn.Module, parameters: int, lora_rank: int) -> int:
    if not lora_rank:
        return parameters * _TRAINER_BYTES
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    adapters = sum(lora_rank * (module.in_features + module.out_features) for module in linear)
    return parameters * _FROZEN_BYTES + adapters * _TRAINER_BYTES


def _host_memory() -> tuple[int, int]:
    """Free and whole memory of this machine in bytes."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = page * os.sysconf("SC_PHYS_PAGES")
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text("ascii").splitlines())
        return int(fields["MemAvailable"].split()[0]) << 10, total
    except (OSError, KeyError, ValueError):
        return page * os.sysconf("SC_AVPHYS_PAGES"), total
