"""What of a run's files nothing needs any more, and what can go for room. The log and Git's refs are never touched.

A run needs: every artifact that its log names (replay, fork, resume, metrics), the checkpoint of each phase's end
(the pairs) and the newest one (resume). The rest is left over from killed processes, or can be made again.
"""

import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State
from whale.events import types as ev

OPTIMIZER = "optimizer.safetensors"
YOUNG_SECONDS = 3600.0
"""An artifact comes before the event that names it: a young one may be of a request that is being made."""

Kind = Literal["left over", "unnamed artifact", "old checkpoint", "cache", "optimiser state"]
_CACHES = ("state.snapshot", "views.db", "views.db-wal", "views.db-shm", "tensorboard")


@dataclass(frozen=True, slots=True)
class Item:
    """A file or folder that may go."""

    path: Path
    bytes: int
    kind: Kind
    why: str


@dataclass(frozen=True, slots=True)
class Collection:
    """What goes, what could go besides, and how large the run's folder is."""

    goes: tuple[Item, ...]
    could: tuple[Item, ...]
    """Optimiser states that were asked to stay."""
    before: int

    @property
    def after(self) -> int:
        """Bytes of the folder once all that goes is gone."""
        return self.before - sum(item.bytes for item in self.goes)


def collection(
    folder: RunFolder,
    state: State,
    named: Iterable[str],
    *,
    keep_bytes: int | None = None,
    drop_optimizers: bool = False,
    now: float | None = None,
) -> Collection:
    """Decide what goes. `named` are all artifacts that the log names; the caller holds the run's lease.

    What nothing needs always goes. Caches go while the folder is larger than `keep_bytes`, and then, with
    `drop_optimizers`, the optimiser's states of older phase ends, the oldest first: all, where there is no quota.
    """
    before = size(folder.path)
    goes = [*_left_over(folder), *_unnamed(folder, set(named), time.time() if now is None else now)]
    goes += _old_checkpoints(folder, state)
    spare = _optimizers(folder, state)
    if keep_bytes is None:
        goes += spare if drop_optimizers else []
    else:
        for item in [*_caches(folder), *(spare if drop_optimizers else [])]:
            if before - sum(gone.bytes for gone in goes) > keep_bytes:
                goes.append(item)
    return Collection(tuple(goes), tuple(item for item in spare if item not in goes), before)


def collect(folder: RunFolder, items: Sequence[Item]) -> None:
    """Remove them. A kill in the middle leaves no half checkpoint under its name."""
    from whale.weights.checkpoints import CheckpointStore

    store = CheckpointStore(folder.checkpoints)
    there = set(store.ids())
    doomed = {item.path.name for item in items if item.kind == "old checkpoint"}
    bare = {item.path.parent.name for item in items if item.kind == "optimiser state"}
    store.prune(there - doomed, there - doomed - bare)
    for item in items:
        if item.path.is_dir():
            shutil.rmtree(item.path, ignore_errors=True)
        else:
            item.path.unlink(missing_ok=True)


def size(folder: Path) -> int:
    """Bytes of all files below a folder; a file that vanishes meanwhile counts nothing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_size if path.is_file() and not path.is_symlink() else 0
        except OSError:
            continue
    return total


def kept_checkpoints(state: State) -> list[ev.CheckpointSaved]:
    """Those that a run keeps: each phase's last one, and the newest."""
    return [c for c in state.checkpoints.values() if c.phase_end or c.checkpoint == state.checkpoint]


def _left_over(folder: RunFolder) -> list[Item]:
    found = [*folder.checkpoints.glob(".tmp-*"), *folder.artifacts.folder.glob("*/.*.tmp"), *folder.path.glob(".*.tmp")]
    return [Item(path, _bytes(path), "left over", "half-written by a process that was killed") for path in found]


def _unnamed(folder: RunFolder, named: set[str], now: float) -> list[Item]:
    why = "no event names it"
    paths = (path for path in folder.artifacts.folder.glob("??/*") if path.name[0] != "." and path.name not in named)
    return [
        Item(path, _bytes(path), "unnamed artifact", why)
        for path in sorted(paths)
        if now - path.stat().st_mtime > YOUNG_SECONDS
    ]


def _old_checkpoints(folder: RunFolder, state: State) -> list[Item]:
    kept = {saved.checkpoint for saved in kept_checkpoints(state)}
    paths = (path for path in folder.checkpoints.glob("[!.]*") if path.is_dir() and path.name not in kept)
    why = "from inside a phase, and a newer one is there"
    return [Item(path, _bytes(path), "old checkpoint", why) for path in sorted(paths)]


def _caches(folder: RunFolder) -> list[Item]:
    paths = (folder.path / name for name in _CACHES)
    return [Item(path, _bytes(path), "cache", "made again when it is asked for") for path in paths if path.exists()]


def _optimizers(folder: RunFolder, state: State) -> list[Item]:
    """Older phase ends' AdamW moments: two thirds of a checkpoint. The newest one's is what resume trains on with."""
    older = [saved.checkpoint for saved in kept_checkpoints(state) if saved.checkpoint != state.checkpoint]
    paths = [folder.checkpoints / name / OPTIMIZER for name in older]
    why = "a fork from there can no longer train on; the pair itself stays"
    return [Item(path, _bytes(path), "optimiser state", why) for path in paths if path.is_file()]


def _bytes(path: Path) -> int:
    return size(path) if path.is_dir() else path.lstat().st_size
