"""Digests of weights and of a trainer's whole state: equal exactly if every bit that matters is."""

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import torch

_INPUT, _OUTPUT = "embed_tokens.weight", "lm_head.weight"


def weights_digest(state_dict: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 (hex) over the sorted names, dtypes, shapes and bytes of `state_dict`.

    An output head tied to the input embedding counts once, as the embedding: a state dict digests the same
    whether it lists both names or one of them. Tensors on any device; on the CPU nothing is copied.
    """
    return _combine(_canonical(_hashes(state_dict)))


def trainer_digest(weights: str, optimizer: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 (hex) over a weights digest and the optimiser's tensors by name."""
    return _combine({"weights": weights, **{f"optimizer.{k}": v for k, v in _hashes(optimizer).items()}})


def _canonical(hashes: dict[str, str]) -> dict[str, str]:
    output = next((name for name in hashes if name.endswith(_OUTPUT)), None)
    if output is None:
        return hashes
    embedding = next((name for name in hashes if name.endswith(_INPUT)), None)
    rest = {name: value for name, value in hashes.items() if name != output}
    if embedding is None:
        return {**rest, f"model.{_INPUT}": hashes[output]}
    return rest if hashes[embedding] == hashes[output] else hashes


def _hashes(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    # hashlib drops the interpreter lock on large buffers, so threads hash in parallel.
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(tensors, pool.map(_hash, tensors.values()), strict=True))


def _hash(tensor: torch.Tensor) -> str:
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    digest.update(memoryview(flat.numpy()))  # type: ignore[arg-type]  # an array of bytes is a buffer
    return digest.hexdigest()


def _combine(hashes: Mapping[str, str]) -> str:
    lines = (f"{name} {hashes[name]}\n" for name in sorted(hashes))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
