"""Which files of the user's own a search stands on, and their digests: with other ones it is another search."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from whale.config import SearchConfig
from whale.domains.places import place
from whale.errors import ConflictError, UsageError
from whale.own_code import is_own, own_file
from whale.search.agentic.proposers import shipped_skill
from whale.search.scripted import entries, harness_folder
from whale.search.tree import digest

_CODE = ("space", "proposer", "acceptance")
_TEXTS = ("system", "skill", "template")
"""Options of the proposers with a model that name a text."""


def named_files(search: SearchConfig) -> Iterator[tuple[str, Path]]:
    """(key, file or folder) for all that a [search] table names: code, texts, a script's harness folders.

    Raises UsageError for a script that is none.
    """
    for key in _CODE:
        if is_own(getattr(search, key)):
            yield f"search.{key}", own_file(getattr(search, key), f"{key} {getattr(search, key)!r} in [search]")
    if is_own(search.proposer):
        return  # what its options mean is its own matter
    for key in _TEXTS:
        text = search.options.get(key)
        if isinstance(text, str) and text and not (key == "skill" and shipped_skill(text)):
            yield f"search.options.{key}", place(text, f"{key} in [search.options]").resolve()
    if search.proposer == "scripted":
        try:
            script = entries(search.options.get("script"))
        except ValueError as error:
            raise UsageError(f"bad options for the proposer 'scripted' in [search]: {error}") from None
        for at, entry in enumerate(script):
            if entry.files:
                key = f"script[{at}].files"
                yield f"search.options.{key}", place(entry.files, f"{key} in [search.options]").resolve()


def pinned(search: SearchConfig) -> dict[str, str]:
    """Key -> digest of what it names; "" where nothing can be read."""
    return {key: _digest(path) for key, path in named_files(search)}


def require_pinned(search: SearchConfig, recorded: Mapping[str, str], run: str) -> None:
    """Check that what the run began with is still there. Keys that an older log does not know are not asked for.

    Raises ConflictError for the first file that is another one now, or gone.
    """
    for key, path in named_files(search):
        now = _digest(path)
        if recorded.get(key, now) != now:
            is_what = "has changed since this run began" if now else "is not there, or cannot be read, any more"
            raise ConflictError(
                f"{path} ({key}) {is_what}: bring back what it was, or go on with it as another run by "
                f"`whale fork {run}`"
            )


def _digest(path: Path) -> str:
    try:
        return digest(harness_folder(path)) if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return ""
