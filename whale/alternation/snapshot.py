"""A run's state as a file, so that a long log need not be folded anew for each look. A cache: delete it.

A snapshot names the event that it holds the state of, by position and hash; one that fits no event of the
log, or that another release of the fold wrote, is not read. What must be certain (`whale replay`, a starting
runner) folds the whole log.
"""

import functools
import hashlib
import os
import zlib
from pathlib import Path
from typing import Any

import msgspec

from whale.alternation import frozen_map, state
from whale.alternation.frozen_map import FrozenMap
from whale.alternation.state import Candidate, State
from whale.events import EventLog, Recorded
from whale.events import types as ev

FILE = "state.snapshot"
EVERY = 5_000
"""Events after the newest snapshot from which a reader writes another one."""


class _Snapshot(msgspec.Struct, frozen=True):
    fold: str
    position: int
    hash: str
    state: msgspec.Raw


@functools.cache
def fold_version() -> str:
    """Digest of the code that folds: a snapshot of another fold is none."""
    digest = hashlib.sha256()
    for module in (state, ev, frozen_map):
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()


def write(folder: Path, at: Recorded, value: State) -> bool:
    """Keep the state after the event; whether it was kept. A cache that cannot be written is no fault."""
    if value.requests:  # events of any type; a moment without any comes soon
        return False
    raw = msgspec.json.encode(value, enc_hook=_plain)
    content = zlib.compress(
        msgspec.json.encode(_Snapshot(fold_version(), at.position, at.hash, msgspec.Raw(raw))), level=1
    )
    temporary = folder / f".{FILE}.{os.getpid()}.tmp"
    try:
        temporary.write_bytes(content)
        temporary.replace(folder / FILE)
    except OSError:
        temporary.unlink(missing_ok=True)
        return False
    return True


def read(folder: Path, log: EventLog, until: int | None = None) -> tuple[int, State]:
    """(position, state) of the snapshot if it fits the log and is not later than `until`; else (0, State())."""
    nothing = (0, State())
    try:
        kept = msgspec.json.decode(zlib.decompress((folder / FILE).read_bytes()), type=_Snapshot)
        if kept.fold != fold_version() or (until is not None and kept.position > until):
            return nothing
        row = next(iter(log.rows(after=kept.position - 1, until=kept.position)), None)
        if row is None or row.hash != kept.hash:
            return nothing
        return kept.position, msgspec.json.decode(kept.state, type=State, dec_hook=_decode)
    except (OSError, zlib.error, msgspec.DecodeError, ValueError, TypeError):
        return nothing


def _plain(value: Any) -> Any:
    if isinstance(value, FrozenMap):
        return dict(value)
    raise NotImplementedError(f"{type(value)} has no JSON form")


def _decode(kind: type, value: Any) -> Any:
    origin = getattr(kind, "__origin__", kind)
    if origin is FrozenMap:
        return FrozenMap({key: msgspec.convert(entry, Candidate) for key, entry in value.items()})
    raise NotImplementedError(f"{kind} has no JSON form")
