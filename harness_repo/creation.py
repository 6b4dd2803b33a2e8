"""How a store comes into being: empty, or as a fork of another one. Complete, or not there at all."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from whale.harness_repo.cleanroom import CleanGit, shown
from whale.harness_repo.errors import RepoError
from whale.harness_repo.lineage import ACCEPTED, CANDIDATES, accepted_history

TAGS = "refs/tags/accepted/"
PENDING = "refs/whale/pending/"
"""Trees that are written and not yet committed, so that `git gc --prune=now` leaves them alone."""

_CONFIG = """\
[notes]
\tdisplayRef = refs/notes/whale*
[log]
\texcludeDecoration = refs/whale/
"""


def create(where: Path) -> None:
    """Make an empty store at `where`, which does not exist."""
    with _making(where):
        pass


def fork(
    source: CleanGit, where: Path, candidates: Iterable[str], acceptances: int, pending: Iterable[str] = ()
) -> None:
    """Make a store at `where` with a part of `source` (see `HarnessRepo.fork`)."""
    if where.exists():
        raise RepoError(f"{shown(where)} exists: name a new folder")
    refs: dict[str, str] = {}
    listed = source.run("for-each-ref", "--format=%(objectname) %(refname)", CANDIDATES, TAGS).decode()
    there = {ref: sha for sha, _, ref in (line.partition(" ") for line in listed.splitlines())}
    for candidate in candidates:
        if CANDIDATES + candidate not in there:
            raise RepoError(f"there is no candidate {candidate!r} in {shown(source.git_dir)}: it cannot be forked")
        refs[CANDIDATES + candidate] = there[CANDIDATES + candidate]
    history = accepted_history(source)
    if not 0 <= acceptances <= len(history):
        raise RepoError(f"{shown(source.git_dir)} has {len(history)} acceptances, not {acceptances}")
    kept = [acceptance.sha for acceptance in history[:acceptances]]
    if kept:
        refs[ACCEPTED] = kept[-1]
    taken = set(kept)
    refs |= {ref: sha for ref, sha in there.items() if ref.startswith(TAGS) and sha in taken}
    for tree in pending:
        found = source.get(f"{tree}^{{tree}}")
        if found is None:
            raise RepoError(f"the tree {tree} is missing from {shown(source.git_dir)}: it cannot be forked")
        refs[PENDING + found.id] = found.id
    with _making(where) as made:
        if refs:
            # Not `git fetch`: that starts a second git, which looks at the owner of the other store.
            wanted = "".join(f"{sha}\n" for sha in sorted(set(refs.values())))
            into = os.fspath(made / "objects" / "pack" / "pack")
            source.run("pack-objects", "--revs", "--delta-base-offset", "-q", into, stdin=wanted.encode())
            _write_refs(made, refs)


@contextmanager
def _making(where: Path) -> Iterator[Path]:
    """An empty store beside `where`, which gets its name at the end."""
    making = where.with_name(where.name + ".creating")
    shutil.rmtree(making, ignore_errors=True)
    CleanGit(making).run(
        "init", "--bare", "--quiet", "--template=", "--object-format=sha1", "--initial-branch=accepted"
    )
    with (making / "config").open("a") as config:
        config.write(_CONFIG)
    yield making
    making.rename(where)
    descriptor = os.open(where.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_refs(store: Path, refs: Mapping[str, str]) -> None:
    """All refs of a store that nobody sees yet, packed. Ten thousand loose ones would be as many fsyncs."""
    lines = [f"{refs[ref]} {ref}\n" for ref in sorted(refs, key=str.encode)]
    with (store / "packed-refs").open("w", encoding="utf-8", newline="\n") as file:
        file.write("# pack-refs with: peeled fully-peeled sorted \n" + "".join(lines))
        file.flush()
        os.fsync(file.fileno())
