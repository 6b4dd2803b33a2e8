"""Keeping a store small: thousands of loose objects and refs into one pack and one file."""

from dataclasses import dataclass

from whale.harness_repo.cleanroom import CleanGit


@dataclass(frozen=True, slots=True)
class StoreSize:
    """What a store takes on disk."""

    loose: int
    """Loose objects."""
    packed: int
    """Objects in packs."""
    bytes: int
    """All objects, in bytes of disk."""


def size(git: CleanGit) -> StoreSize:
    """What the objects of a store take, as git counts it."""
    out = git.run("count-objects", "-v").decode()
    counts = {key: int(value) for key, _, value in (line.partition(": ") for line in out.splitlines()) if value}
    kib = counts["size"] + counts["size-pack"] + counts["size-garbage"]
    return StoreSize(loose=counts["count"], packed=counts["in-pack"], bytes=1024 * kib)


def pack(git: CleanGit, *, expire: str) -> None:
    """Pack objects and refs, and drop what nothing leads to and is older than `expire` (git's date syntax)."""
    git.run("pack-refs", "--all")
    # What a writer has stored and not yet led a ref to is young: it stays as loose objects.
    git.run("repack", "-A", "-d", "-q", f"--unpack-unreachable={expire}")
    git.run("prune", f"--expire={expire}")
