"""The `scripted` proposer: plays proposals that were written beforehand, for tests and demonstrations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from whale.domains.places import place
from whale.errors import WhaleError
from whale.search.tree import check_tree
from whale.search.types import Archive, Proposal

Number = Annotated[int, msgspec.Meta(ge=1)]
Script = Mapping[tuple[int, int], Sequence[Proposal]]


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change of one file of the parent."""

    path: str
    old: str = ""
    """A text that stands in the file once; empty: the whole file, which need not be there."""
    new: str
    """What takes its place."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[[search.options.script]]: one proposal, as a harness folder or as edits of its parent."""

    cycle: Number
    iteration: Number
    files: str = ""
    """A folder with the whole harness."""
    edits: list[Edit] = []
    parent: str = ""
    """A candidate's id; empty: the phase's incoming harness."""
    title: str = ""
    hypothesis: str = ""
    axis: str = ""
    changes: str = ""


class ScriptedProposer:
    """Plays the script; an iteration that is not in it gets no proposal.

    A config gives a list of entries. Python may give `{(cycle, iteration): [Proposal, ...]}`. Raises ValueError for
    anything else, and for a folder that is not there.
    """

    name = "scripted"

    def __init__(self, script: Script | Sequence[Mapping[str, object]] | None = None) -> None:
        if not script:
            raise ValueError("it plays [[search.options.script]] entries with cycle, iteration, and files or edits")
        self._script: dict[tuple[int, int], tuple[Proposal | _Written, ...]] = {}
        if isinstance(script, Mapping) and all(_is_place(key) for key in script):
            self._script = {key: tuple(proposals) for key, proposals in script.items()}
            return
        for at, entry in enumerate(entries(script)):
            key = (entry.cycle, entry.iteration)
            self._script[key] = (*self._script.get(key, ()), _Written(f"script[{at}]", entry))

    def propose(self, archive: Archive, *, count: int, seed: int, cycle: int, iteration: int) -> Sequence[Proposal]:
        """The first `count` proposals of this iteration; the archive gives their parents, and nothing else."""
        written = self._script.get((cycle, iteration), ())[:count]
        return tuple(one if isinstance(one, Proposal) else one.proposal(archive) for one in written)


def _is_place(key: object) -> bool:
    return isinstance(key, tuple) and [type(part) for part in key] == [int, int]


def entries(script: object) -> list[Entry]:
    """The entries of a config's script. Raises ValueError, in one line, for what is none."""
    if not isinstance(script, list):
        raise ValueError(f"script must be a list of tables, [[search.options.script]], not {script!r:.60}")
    try:
        found = msgspec.convert(script, list[Entry])
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        raise ValueError(f"script{where.rstrip('`')}: {message[:1].lower()}{message[1:]}") from None
    for at, entry in enumerate(found):
        if bool(entry.files) == bool(entry.edits):
            raise ValueError(f"script[{at}]: give either files, a harness folder, or edits")
    return found


def harness_folder(path: Path) -> dict[str, bytes]:
    """The files below a folder; hidden ones and caches are left out. Raises ValueError where that is no harness."""
    files: dict[str, bytes] = {}
    if not path.is_dir():
        raise ValueError(f"there is no folder {path}")
    for file in sorted(path.rglob("*")):
        parts = file.relative_to(path).parts
        if any(part.startswith(".") or part == "__pycache__" for part in parts):
            continue
        if file.is_symlink():  # left out in silence, the harness would be another one
            raise ValueError(f"{file}: a harness holds plain files only, no links")
        if file.is_file():
            try:
                files["/".join(parts)] = file.read_bytes()
            except OSError as error:
                raise ValueError(f"{file}: cannot be read: {error.strerror or error}") from None
    problem = check_tree(files)
    if problem is not None or not files:
        raise ValueError(f"{path}: {problem or 'the folder is empty'}")
    return files


class _Written:
    """An entry whose folder is read: what is played later is what was there at the start."""

    def __init__(self, at: str, entry: Entry) -> None:
        self.at = at
        self.entry = entry
        self.files: dict[str, bytes] = {}
        if entry.files:
            try:
                self.files = harness_folder(place(entry.files, f"{at}.files in [search.options]").resolve())
            except ValueError as error:
                raise ValueError(f"{at}.files: {error}") from None

    def proposal(self, archive: Archive) -> Proposal:
        """The proposal, under a parent of this archive. Raises WhaleError where an edit does not fit the parent."""
        entry = self.entry
        wanted = entry.parent or archive.incoming
        parent = next((known for known in archive.entries if known.candidate == wanted), None)
        if parent is None:
            raise self._wrong(f"there is no candidate {wanted!r}")
        files = self.files or dict(parent.files)
        for edit in entry.edits:
            content = files.get(edit.path, b"").decode("utf-8", "replace")
            if edit.old and content.count(edit.old) != 1:
                found = f"{content.count(edit.old)} times" if edit.path in files else "nowhere: there is no such file"
                raise self._wrong(f"{edit.old!r:.80} stands in {edit.path} of {parent.candidate} {found}, not once")
            files[edit.path] = (content.replace(edit.old, edit.new) if edit.old else edit.new).encode()
        return Proposal(
            title=entry.title or Path(entry.files).name or f"edits of {parent.candidate}",
            hypothesis=entry.hypothesis,
            axis=entry.axis or "scripted",
            changes=entry.changes,
            parents=(parent.candidate,),
            files=files,
        )

    def _wrong(self, problem: str) -> WhaleError:
        return WhaleError(
            f"[search.options] {self.at}: {problem}; `whale fork RUN --set search.options.script=...` plays another"
        )
