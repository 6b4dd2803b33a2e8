"""Late facts of a candidate as a Git note: one line for people, one line of JSON for programs.

A candidate is scored again under new weights, so a note keeps one record per weights' digest; the latest is
the note itself, the others are in its `earlier`. The event log is the authority: notes can be rebuilt.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from whale.harness_repo.errors import RepoError
from whale.harness_repo.message import one_line
from whale.harness_repo.objects import FILE_MODE, TREE_MODE, Kind, object_id, read_tree, tree_bytes

NOTES = "refs/notes/whale"

NOTE_LIMIT = 100_000
"""Bytes of one record as JSON."""

Get = Callable[[str], "_Stored | None"]


class _Stored(Protocol):
    @property
    def data(self) -> bytes: ...


def records(note: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """All records of a note, oldest first."""
    if note is None:
        return []
    latest = {key: value for key, value in note.items() if key != "earlier"}
    earlier = note.get("earlier", [])
    return [*(dict(r) for r in earlier if isinstance(r, Mapping)), latest]


def merge(note: Mapping[str, Any] | None, record: Mapping[str, Any]) -> dict[str, Any]:
    """`note` with `record` in it, in the place of the record under the same weights if there is one.

    The order of the calls does not matter as long as no two records share their weights.

    Raises:
        RepoError: the record does not go into JSON (not a number, too large).
    """
    added = _plain(record)
    kept = [r for r in records(note) if r.get("weights") != added.get("weights")]
    *earlier, latest = sorted([*kept, added], key=_when)
    return {**latest, "earlier": earlier} if earlier else latest


def union(notes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """One note with all records of several notes, one for each run and weights' digest.

    A record's `run` is the run that made it; one without is of the store's own run, and such records lead.
    Where a run has given two records under the same weights, the one with more rollouts is kept. The result
    depends neither on the order of the notes nor on how often one is given.

    Raises:
        ValueError: there is no record.
    """
    best: dict[tuple[str, str], tuple[tuple[float, str], dict[str, Any]]] = {}
    for note in notes:
        for record in records(note):
            key = (str(record.get("run", "")), str(record.get("weights", "")))
            rank = (_number(record.get("n")) or 0.0, json.dumps(record, sort_keys=True))
            if key not in best or best[key][0] < rank:
                best[key] = (rank, record)
    if not best:
        raise ValueError("there is no record to unite")
    *earlier, latest = sorted((record for _, record in best.values()), key=_leading)
    return {**latest, "earlier": earlier} if earlier else latest


def _leading(record: Mapping[str, Any]) -> tuple[bool, float, float, str, str]:
    run = str(record.get("run", ""))
    return (not run, *_when(record), run)


def render(note: Mapping[str, Any]) -> bytes:
    """The note's text."""
    data = json.dumps(note, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"{headline(note)}\n{data}\n".encode()


def parse(text: str) -> dict[str, Any] | None:
    """The note in a text that `render` made; None for anything else, such as a user's own note."""
    found = parse_all(text)
    return found[-1] if found else None


def parse_all(text: str) -> list[dict[str, Any]]:
    """All notes in a text, which may hold those of several notes refs."""
    found: list[dict[str, Any]] = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                note = msgspec.json.decode(line)
            except (ValueError, RecursionError):  # msgspec.DecodeError is a ValueError
                continue
            if isinstance(note, dict):
                found.append(note)
    return found


def headline(note: Mapping[str, Any]) -> str:
    """One line such as `score 0.125 [0.05, 0.28] n=24 weights 1a2b3c4d`."""
    score = score_text(note)
    if score is None:
        reason = one_line(str(note.get("reason") or ""), 100)
        return f"no score: {reason}" if reason else "no score"
    weights = f" weights {one_line(str(note['weights'])[:8], 8)}" if note.get("weights") else ""
    return f"score {score}{weights}"


def score_text(note: Mapping[str, Any]) -> str | None:
    """A score with its interval and n, such as `0.125 [0.05, 0.28] n=24`; None if there is no score."""
    score, low, high, n = [_number(note.get(key)) for key in ("score", "low", "high", "n")]
    if score is None:
        return None
    interval = f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else ""
    return f"{score:.3f}{interval}{'' if n is None else f' n={n:g}'}"


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:  # somebody else's note
        return None


def _when(record: Mapping[str, Any]) -> tuple[float, float, str]:
    return (
        _number(record.get("cycle")) or 0.0,
        _number(record.get("iteration")) or 0.0,
        str(record.get("weights", "")),
    )


def sound(note: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The records of somebody else's note that may stand in ours: plain JSON, finite, not too large."""
    kept = []
    for record in records(note):
        try:
            kept.append(_plain(record))
        except RepoError:
            continue
    return kept


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    def scalar(value: Any) -> Any:
        if isinstance(value, Mapping):
            return dict(value)
        if hasattr(value, "item"):  # a numpy scalar
            return value.item()
        raise TypeError(f"{type(value).__name__} does not go into JSON")

    try:
        text = json.dumps(dict(record), default=scalar, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RepoError(f"a note cannot hold this: {error}") from error
    if len(text) > NOTE_LIMIT:
        raise RepoError(f"a note has at most {NOTE_LIMIT:,} bytes, not {len(text):,}")
    plain: dict[str, Any] = json.loads(text)
    plain.pop("earlier", None)
    return plain


class NotesTree:
    """The tree behind `refs/notes/whale`: commit id -> blob, always as 2 + 38 hex digits.

    So one note rewrites two small trees, however many there are. Trees that git's own `git notes` laid out
    otherwise are read, and put into this layout by the first write.
    """

    def __init__(self, get: Get, tree: str | None) -> None:
        """`get` reads an object by id; `tree` is the tree there is."""
        self._get = get
        self._tree = tree
        self._root: dict[bytes, tuple[str, str]] = {}
        self._changed: dict[bytes, dict[bytes, tuple[str, str]]] = {}
        self._blobs: list[tuple[Kind, bytes]] = []
        if tree is not None:
            self._root = self._read(tree)
            if not all(mode == TREE_MODE and len(name) == 2 for name, (mode, _) in self._root.items()):
                self._lay_out_anew(tree)

    def _read(self, tree: str) -> dict[bytes, tuple[str, str]]:
        found = self._get(tree)
        if found is None:
            raise RepoError(f"refs/notes/whale: the tree {tree} is missing: rebuild the notes from the log")
        return read_tree(found.data)

    def _lay_out_anew(self, tree: str) -> None:
        self._root = {}
        for commit, blob in self._flat(tree, ""):
            self._folder(commit)[commit[2:].encode()] = (FILE_MODE, blob)

    def _flat(self, tree: str, prefix: str) -> Sequence[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for name, (mode, id_) in self._read(tree).items():
            path = prefix + name.decode("ascii", "replace")
            if mode == TREE_MODE and len(path) < 40:
                found += self._flat(id_, path)
            elif re.fullmatch(r"[0-9a-f]{40}", path):
                found.append((path, id_))
        return found

    def listed(self) -> dict[str, str]:
        """Commit -> blob of its note, as in the tree that was given."""
        return dict(self._flat(self._tree, "")) if self._tree else {}

    def _folder(self, commit: str) -> dict[bytes, tuple[str, str]]:
        name = commit[:2].encode()
        if name not in self._changed:
            self._changed[name] = self._read(self._root[name][1]) if name in self._root else {}
        return self._changed[name]

    def read(self, commit: str) -> dict[str, Any] | None:
        """The note of a commit."""
        entry = self._folder(commit).get(commit[2:].encode())
        found = self._get(entry[1]) if entry else None
        return parse(found.data.decode("utf-8", "replace")) if found else None

    def write(self, commit: str, note: Mapping[str, Any]) -> None:
        """Set the note of a commit."""
        data = render(note)
        self._blobs.append(("blob", data))
        self._folder(commit)[commit[2:].encode()] = (FILE_MODE, object_id("blob", data))

    def objects(self) -> tuple[str, list[tuple[Kind, bytes]]]:
        """The id of the tree after the writes, and the objects to store, parts before wholes."""
        root, trees = dict(self._root), list[tuple[Kind, bytes]]()
        for name, entries in self._changed.items():
            if entries:
                trees.append(("tree", tree_bytes(entries)))
                root[name] = (TREE_MODE, object_id("tree", trees[-1][1]))
        data = tree_bytes(root)
        return object_id("tree", data), [*self._blobs, *trees, ("tree", data)]
