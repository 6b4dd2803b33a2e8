"""Checkpoints: folders named by id that are complete or absent.

A checkpoint is written in a temporary folder beside its place, each file and the folder are flushed to disk,
and one rename makes it visible. What a killed process leaves behind is a folder under another name, which no
reader looks at and `clean` removes.
"""

import errno
import json
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError

from whale.errors import CorruptLogError, UsageError, WhaleError
from whale.weights import digest, state

_TEMPORARY = ".tmp-"


class Saveable(Protocol):
    """What can be checkpointed: `trainer.Trainer`."""

    def checkpoint_bytes(self) -> int:
        """About what `save` writes."""
        ...

    def save(self, folder: Path) -> Mapping[str, str]:
        """Write all files into an empty folder and return the digests."""
        ...


class CheckpointStore:
    """The checkpoints of one run, in one folder, with one writer at a time."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, checkpoint: str) -> Path:
        """Return where `checkpoint` lies or would lie. Raises UsageError for an id that is no plain name."""
        if not checkpoint or checkpoint.startswith(".") or Path(checkpoint).name != checkpoint:
            raise UsageError(f"{checkpoint!r} is not a checkpoint's name")
        return self.folder / checkpoint

    def exists(self, checkpoint: str) -> bool:
        """Whether the checkpoint is there, which means complete."""
        return (self.path(checkpoint) / state.SUMMARY).is_file()

    def ids(self) -> list[str]:
        """Return the complete checkpoints, sorted."""
        if not self.folder.is_dir():
            return []
        return sorted(p.name for p in self.folder.iterdir() if p.name[0] != "." and self.exists(p.name))

    def save(self, checkpoint: str, trainer: Saveable) -> dict[str, str]:
        """Write `checkpoint`, replacing one of the same id; return {"weights", "trainer"} digests.

        When this returns, the checkpoint survives a power cut. Raises WhaleError in one line if there is no
        room or the folder cannot be written; then nothing is left behind and an older one of this id stays.
        """
        place = self.path(checkpoint)
        temporary = self.folder / f"{_TEMPORARY}{checkpoint}-{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._require_room(checkpoint, trainer)
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            digests = dict(trainer.save(temporary))
            for file in temporary.iterdir():
                _flush(file)
            _flush(temporary)
            self._put(temporary, place)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise WhaleError(
                f"checkpoint {checkpoint} not saved in {self.folder}: {_reason(error)}. "
                "Make room or choose another place, then `whale resume`"
            ) from error
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return digests

    def _put(self, temporary: Path, place: Path) -> None:
        # A folder cannot be renamed onto one that has content. Between the two renames the id is absent,
        # never half: the run then trains that step again.
        old = self.folder / f"{_TEMPORARY}{place.name}-{os.getpid()}-old"
        if place.exists():
            shutil.rmtree(old, ignore_errors=True)
            place.rename(old)
        temporary.rename(place)
        _flush(self.folder)
        shutil.rmtree(old, ignore_errors=True)

    def _require_room(self, checkpoint: str, trainer: Saveable) -> None:
        need = trainer.checkpoint_bytes() + 2**20
        free = shutil.disk_usage(self.folder).free
        if free < need:
            raise OSError(errno.ENOSPC, f"no space: it needs {need / 2**20:,.0f} MiB, {free / 2**20:,.0f} MiB are free")

    def open(self, checkpoint: str) -> Path:
        """Return the folder of a complete checkpoint, for `Trainer.load`. Raises WhaleError if absent."""
        place = self.path(checkpoint)
        if not self.exists(checkpoint):
            known = ", ".join(self.ids()[-3:]) or "none"
            raise WhaleError(f"checkpoint {checkpoint} is not in {self.folder} (newest there: {known})")
        return place

    def weights_of(self, checkpoint: str) -> dict[str, torch.Tensor]:
        """Return θ by name on the CPU, for an engine, without building a trainer."""
        return state.read_tensors(self.open(checkpoint) / state.WEIGHTS)

    def digests(self, checkpoint: str) -> dict[str, str]:
        """Return the digests written at saving, unchecked."""
        return dict(state.read_summary(self.open(checkpoint))["digests"])

    def verify(self, checkpoint: str, weights: str, trainer: str | None = None) -> bool:
        """Recompute the digests from the files and compare them with those that the log names.

        Returns whether the optimiser's state was covered too: False if it was pruned or `trainer` is None.
        Raises CorruptLogError if a digest differs, WhaleError if the checkpoint is absent or unreadable.
        """
        folder = self.open(checkpoint)
        found = digest.weights_digest(self.weights_of(checkpoint))
        if found != weights:
            raise CorruptLogError(f"{folder / state.WEIGHTS}: its digest is {found[:12]}, the log says {weights[:12]}")
        if trainer is None:
            return False
        summary = state.read_summary(folder)
        if not summary["optimizer"]:
            return False
        adapters = state.read_tensors(folder / state.ADAPTER) if summary.get("lora") else {}
        found = digest.trainer_digest(found, {**adapters, **state.read_tensors(folder / state.OPTIMIZER)})
        if found != trainer:
            file = f"{folder / state.OPTIMIZER}{f' or {state.ADAPTER}' if adapters else ''}"
            raise CorruptLogError(f"{file}: the digest is {found[:12]}, the log says {trainer[:12]}")
        return True

    def prune(self, keep: Collection[str], optimizer_for: Collection[str] | None = None) -> list[str]:
        """Remove all checkpoints but `keep`, and return what was removed.

        With `optimizer_for`, kept ones outside it lose the optimiser's state, two thirds of their size: they
        still serve engines, and training can no longer go on from them.
        """
        removed = [checkpoint for checkpoint in self.ids() if checkpoint not in keep]
        for checkpoint in removed:
            # Renamed first, so that a kill in the middle leaves no half checkpoint under its name.
            doomed = self.folder / f"{_TEMPORARY}{checkpoint}-{os.getpid()}-pruned"
            self.path(checkpoint).rename(doomed)
            shutil.rmtree(doomed)
        if optimizer_for is not None:
            for checkpoint in self.ids():
                if checkpoint not in optimizer_for:
                    self._drop_optimizer(self.path(checkpoint))
        return removed

    def _drop_optimizer(self, folder: Path) -> None:
        summary = state.read_summary(folder)
        if summary["optimizer"]:
            # The note comes first: a kill in between leaves a file too many, never a note that lies.
            note = folder / f"{_TEMPORARY}{state.SUMMARY}"
            note.write_text(json.dumps({**summary, "optimizer": False}, indent=1, sort_keys=True) + "\n")
            _flush(note)
            note.replace(folder / state.SUMMARY)
            _flush(folder)
        (folder / state.OPTIMIZER).unlink(missing_ok=True)

    def clean(self) -> list[str]:
        """Remove what killed processes left behind; return its names. Call it while nobody saves."""
        left = sorted(self.folder.glob(f"{_TEMPORARY}*")) if self.folder.is_dir() else []
        for folder in left:
            shutil.rmtree(folder)
        return [folder.name for folder in left]


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
