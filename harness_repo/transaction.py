"""How anything gets into a store: objects by one git process, then refs by another one, all or none."""

from collections.abc import Iterable, Mapping, Sequence

from whale.harness_repo.cleanroom import CleanGit
from whale.harness_repo.errors import RefConflict, RepoError
from whale.harness_repo.objects import Kind, commit_bytes, object_id, pack

NOTHING = "0" * 40
"""The expected value of a ref that must not be there yet."""

ATTEMPTS = 8
"""Tries of a compare-and-swap that another writer may win."""

LOOSE_LIMIT = 1_000
"""Objects of one write that become loose ones; more (all notes, rebuilt) stay together as a pack."""

Moves = Mapping[str, tuple[str | None, str | None]]
"""Ref -> (its new value, None to delete it; the value it has now, None for any)."""


def store_objects(git: CleanGit, objects: Sequence[tuple[Kind, bytes]]) -> None:
    """Store objects; git checks each of them first. They show nowhere until a ref leads to them."""
    unique = dict.fromkeys(objects)
    many = len(unique) > LOOSE_LIMIT
    into = ("index-pack", "--stdin", "--strict") if many else ("unpack-objects", "-q", "--strict")
    git.run(*into, stdin=pack(unique))


def store_commit(
    git: CleanGit,
    tree: str,
    parents: Iterable[str],
    seconds: int,
    message: str,
    objects: Sequence[tuple[Kind, bytes]] = (),
) -> str:
    """Store a commit by the store's own identity, and `objects` with it; returns its id."""
    data = commit_bytes(tree, parents, seconds, message)
    store_objects(git, [*objects, ("commit", data)])
    return object_id("commit", data)


def move_refs(git: CleanGit, moves: Moves) -> None:
    """Set refs, all or none.

    Raises:
        RefConflict: a ref is not at the expected value.
    """
    if not moves:
        return
    commands = [
        " ".join(filter(None, ("update" if new else "delete", ref, new, old))) for ref, (new, old) in moves.items()
    ]
    try:
        git.transaction(commands)
    except RepoError as error:
        if "cannot lock ref" in str(error) and "File exists" not in str(error):
            raise RefConflict(str(error)) from error
        raise
