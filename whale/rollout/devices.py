"""Which device and which floating kind a config value means on this machine."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from whale.errors import UsageError


def resolve_device(name: str) -> torch.device:
    """Return the device of a config value; UsageError if it is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"unknown device {name!r}: use auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device {name!r} is not available here: use auto or cpu")
    return device


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that a process started here would see, each as CUDA_VISIBLE_DEVICES names it."""
    count = torch.cuda.device_count()
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return tuple(named[:count] or map(str, range(count)))


def replica_devices(replicas: int, device: str) -> list[str]:
    """For each of an engine's replicas the GPU that it is to see, as CUDA_VISIBLE_DEVICES names it; on the CPU "".

    Replica i has GPU i; where there are fewer GPUs they are dealt again from the first on, and shared. Raises
    UsageError where one of them is named.
    """
    kind = resolve_device(device).type
    if replicas == 1 or kind != "cuda":
        return [""] * replicas
    if ":" in device:
        raise UsageError(f'engine.device = "{device}" with engine.replicas = {replicas}: give "cuda"')
    return list(itertools.islice(itertools.cycle(visible_gpus()), replicas))


def sharing_note(devices: Sequence[str]) -> str | None:
    """What to tell of replicas on these devices, if some share a GPU and NVIDIA's MPS, which lets them, is not found.

    It is found by the control pipe in its folder: `CUDA_MPS_PIPE_DIRECTORY`, /tmp/nvidia-mps by default.
    """
    most = max(devices.count(device) for device in devices) if all(devices) else 1
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps")
    if most == 1 or (folder / "control").exists():
        return None
    return f"{most} replicas share a GPU and take turns: no MPS is in {folder} (`nvidia-cuda-mps-control -d`)"


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the floating kind of a config value ("auto", "float32", "bfloat16")."""
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if name in kinds:
        return kinds[name]
    if name != "auto":
        raise UsageError(f"unknown dtype {name!r}: use auto, float32 or bfloat16")
    if device.type == "cpu" and not _cpu_multiplies_bfloat16():
        return torch.float32
    return torch.bfloat16


def _cpu_multiplies_bfloat16() -> bool:
    """Whether bfloat16 has instructions of its own; emulated, it is ten times slower than float32."""
    try:
        return bool({"avx512_bf16", "amx_bf16"} & set(Path("/proc/cpuinfo").read_text().split()))
    except OSError:
        return False
