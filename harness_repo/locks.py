"""Lock files that a killed git left behind.

Git's lock files outlive a SIGKILL and then refuse every later write. Whoever holds the run's lease may
remove those that no living process can own.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from whale.harness_repo.cleanroom import shown
from whale.harness_repo.errors import RepoError

_READERS = {
    b"cat-file",
    b"log",
    b"diff",
    b"show",
    b"rev-list",
    b"for-each-ref",
    b"fsck",
    b"ls-tree",
    b"blame",
}
_PROC = Path("/proc")
_OLD_ENOUGH = 10.0
"""Seconds after which a lock is stale where processes cannot be seen."""


def clear_stale_locks(store: Path, *, patience: float = 10.0) -> list[Path]:
    """Remove lock files of dead processes and return them. The caller must hold the run's lease.

    A git that still writes (an orphan of a killed runner ends by itself within moments; a user's `git gc`)
    is waited for, `patience` seconds at most.

    Raises:
        RepoError: a living process still holds a lock after that.
    """
    deadline = time.monotonic() + patience
    while True:
        locks = list(_locks(store))
        if not locks:
            return []
        holder = _holder(store, locks)
        if not holder:
            for lock in locks:
                lock.unlink(missing_ok=True)
            return locks
        if time.monotonic() >= deadline:
            raise RepoError(f"{shown(locks[0])} is held by {holder}: let it end, then try again")
        time.sleep(0.05)


def _locks(store: Path) -> Iterator[Path]:
    yield from store.glob("*.lock")
    yield from store.glob("packed-refs.new")
    for folder in ("refs", "objects/info", "objects/pack"):
        yield from (store / folder).rglob("*.lock")


def _holder(store: Path, locks: list[Path]) -> str:
    """Who may hold one of the locks, in words; nothing if nobody does."""
    if not _PROC.is_dir():
        newest = max((lock.stat().st_mtime for lock in locks if lock.exists()), default=0.0)
        return "a process that cannot be seen here" if abs(time.time() - newest) < _OLD_ENOUGH else ""
    place = store.resolve()
    held = {lock.resolve() for lock in locks}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid() and _holds(entry, place, held):
            return f"process {entry.name}"
    return ""


def _holds(process: Path, place: Path, held: set[Path]) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        writes = words[0].rpartition(b"/")[2].startswith(b"git") and not _READERS.intersection(words)
        # An `update-ref` of this process waits for our next request: its lease is ours.
        if writes and not (b"update-ref" in words and _parent(process) == os.getpid()):
            # Between closing its lock file and renaming it, git holds the lock with no open file.
            if any(word.removeprefix(b"--git-dir=").startswith(os.fsencode(place)) for word in words[1:]):
                return True
            if (process / "cwd").readlink().is_relative_to(place):
                return True
        return any(fd.readlink() in held for fd in (process / "fd").iterdir())
    except OSError:
        return False  # it ended meanwhile, or belongs to somebody else


def _parent(process: Path) -> int:
    # The second field is the program's name in brackets, with whatever is in it.
    return int((process / "stat").read_bytes().rpartition(b")")[2].split()[1])
