"""A unified diff as lines to draw, unified or side by side. Pure; lines are made when they are looked at."""

import difflib
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from whale.tui.highlight import Painter
from whale.tui.text import Line, Span, clean, fit, measure

Kind = Literal["file", "meta", "hunk", "same", "added", "removed"]

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)")
LONGEST_WORD_DIFF = 400
"""Characters of a line up to which its changed words are marked."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a diff. Numbers are 0 where the line is not on that side."""

    kind: Kind
    text: str
    old: int = 0
    new: int = 0
    path: str = ""


@dataclass(frozen=True, slots=True)
class Diff:
    """A parsed diff."""

    lines: Sequence[DiffLine]
    files: tuple[int, ...]
    """Indices of the lines that begin a file."""
    hunks: tuple[int, ...]
    partner: "dict[int, int]" = field(default_factory=dict)
    """removed line -> the added line that stands in its place, and back."""

    @property
    def added(self) -> int:
        """How many lines came."""
        return sum(line.kind == "added" for line in self.lines)

    @property
    def removed(self) -> int:
        """How many lines went."""
        return sum(line.kind == "removed" for line in self.lines)


def parse(text: str) -> Diff:
    """Read what `git diff` prints; what is no diff becomes "meta" lines."""
    lines: list[DiffLine] = []
    files: list[int] = []
    hunks: list[int] = []
    partner: dict[int, int] = {}
    path, old, new = "", 0, 0
    in_hunk = False
    removed: list[int] = []
    added: list[int] = []

    def settle() -> None:
        for a, b in zip(removed, added, strict=False):
            partner[a], partner[b] = b, a
        removed.clear()
        added.clear()

    # Only "\n" ends a line: a harness may hold other separators.
    for raw in text.split("\n") if text else ():
        mark = raw[:1]
        if raw.startswith("diff --git "):
            settle()
            in_hunk = False
            path = raw.rpartition(" b/")[2]
            files.append(len(lines))
            lines.append(DiffLine("file", path, path=path))
        elif match := _HUNK.match(raw):
            settle()
            in_hunk = True
            old, new = int(match[1]), int(match[2])
            hunks.append(len(lines))
            lines.append(DiffLine("hunk", match[3], old, new, path))
        elif in_hunk and mark == "+":
            added.append(len(lines))
            lines.append(DiffLine("added", raw[1:], 0, new, path))
            new += 1
        elif in_hunk and mark == "-":
            if added:
                settle()
            removed.append(len(lines))
            lines.append(DiffLine("removed", raw[1:], old, 0, path))
            old += 1
        elif in_hunk and mark == " ":
            settle()
            lines.append(DiffLine("same", raw[1:], old, new, path))
            old, new = old + 1, new + 1
        elif raw.startswith(("index ", "--- ", "+++ ")) or not raw:
            continue
        else:
            lines.append(DiffLine("meta", raw, path=path))
    settle()
    return Diff(lines, tuple(files), tuple(hunks), partner)


def changed_words(text: str, other: str) -> list[tuple[int, int]]:
    """The pieces of `text` that `other` has not, as (start, end); none where too much differs to help."""
    if len(text) > LONGEST_WORD_DIFF or len(other) > LONGEST_WORD_DIFF:
        return []
    pattern = re.compile(r"\w+|\s+|.")
    mine, theirs = pattern.findall(text), pattern.findall(other)
    matcher = difflib.SequenceMatcher(None, mine, theirs, autojunk=False)
    if matcher.ratio() < 0.4:
        return []
    ends = [0]
    for word in mine:
        ends.append(ends[-1] + len(word))
    return [(ends[a], ends[b]) for op, a, b, _, _ in matcher.get_opcodes() if op in ("replace", "delete") and b > a]


def _overlay(parts: Line, pieces: Sequence[tuple[int, int]], role: str) -> Line:
    """The line with some pieces in another role."""
    result: list[Span] = []
    position = 0
    for text, own in parts:
        at = 0
        for start, end in pieces:
            a, b = max(start - position, at), min(end - position, len(text))
            if a < b:
                if a > at:
                    result.append(Span(text[at:a], own))
                result.append(Span(text[a:b], role))
                at = b
        if at < len(text):
            result.append(Span(text[at:], own))
        position += len(text)
    return tuple(result)


class _Drawn:
    """What both layouts share."""

    def __init__(self, diff: Diff, painter: "Callable[[str, str], Painter | None]") -> None:
        self.diff = diff
        self._painter = painter
        numbers = max((max(line.old, line.new) for line in diff.lines), default=0)
        self.gutter = max(3, len(str(numbers)))

    def content(self, index: int) -> Line:
        """A line's text with syntax and changed words."""
        line = self.diff.lines[index]
        side = "old" if line.kind == "removed" else "new"
        text = clean(line.text)
        painter = self._painter(line.path, side)
        parts: Line = (Span(text),)
        if painter is not None:
            parts = painter.line(line.old if side == "old" else line.new, text)
        other = self.diff.partner.get(index)
        if other is not None:
            words = changed_words(text, clean(self.diff.lines[other].text))
            parts = _overlay(parts, words, "added-word" if line.kind == "added" else "removed-word")
        return parts

    def heading(self, index: int) -> Line:
        """A file's, hunk's or other line across both sides."""
        line = self.diff.lines[index]
        if line.kind == "file":
            return (Span("━━ ", "file"), Span(line.text, "file"), Span(" " + "━" * 200, "file"))
        if line.kind == "hunk":
            return (Span(f"┄┄ line {line.old} → {line.new} ", "hunk"), Span(line.text, "hunk"))
        return (Span(line.text, "muted"),)


_MARKS = {"added": "+", "removed": "-", "same": " "}


class UnifiedLines(_Drawn):
    """One column: old number, new number, sign, text."""

    def __len__(self) -> int:
        return len(self.diff.lines)

    def line(self, index: int, width: int) -> Line:
        """See `Lines.line`."""
        line = self.diff.lines[index]
        if line.kind not in _MARKS:
            return self.heading(index)
        role = line.kind if line.kind != "same" else ""
        old, new = (str(n) if n else "" for n in (line.old, line.new))
        gutter = Span(f"{old:>{self.gutter}} {new:>{self.gutter}} ", "muted")
        return (gutter, Span(f"{_MARKS[line.kind]} ", role), *_tinted(self.content(index), role))

    def text(self, index: int) -> str:
        """See `Lines.text`."""
        line = self.diff.lines[index]
        return _MARKS.get(line.kind, "") + line.text

    def key(self, index: int) -> object:
        """See `Lines.key`."""
        return index

    def find(self, key: object) -> int | None:
        """See `Lines.find`."""
        return key if isinstance(key, int) and key < len(self) else None

    @property
    def width(self) -> int:
        """See `Lines.width`."""
        longest = max((len(line.text) for line in self.diff.lines if line.kind in _MARKS), default=0)
        return 2 * self.gutter + 4 + longest


def _tinted(parts: Line, role: str) -> Line:
    """A changed line's pieces on its ground; syntax keeps its colours there."""
    if not role:
        return parts
    return tuple(Span(text, own if own.endswith("-word") else f"{role}|{own}" if own else role) for text, own in parts)


class SideBySideLines(_Drawn):
    """Two columns, removed lines left of those that came in their place."""

    def __init__(self, diff: Diff, painter: "Callable[[str, str], Painter | None]") -> None:
        super().__init__(diff, painter)
        self.shift = 0
        """Cells by which both sides are scrolled to the right."""
        self.rows: list[tuple[int | None, int | None]] = []
        i, lines = 0, diff.lines
        while i < len(lines):
            if lines[i].kind in ("removed", "added"):
                start = i
                while i < len(lines) and lines[i].kind == "removed":
                    i += 1
                middle = i
                while i < len(lines) and lines[i].kind == "added":
                    i += 1
                for k in range(max(middle - start, i - middle)):
                    left = start + k if start + k < middle else None
                    right = middle + k if middle + k < i else None
                    self.rows.append((left, right))
            else:
                self.rows.append((i, i))
                i += 1
        self._firsts = [left if left is not None else right or 0 for left, right in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def line(self, index: int, width: int) -> Line:
        """See `Lines.line`."""
        left, right = self.rows[index]
        if left is not None and self.diff.lines[left].kind not in _MARKS:
            return self.heading(left)
        half = (width - 1) // 2
        return (*self._half(left, half, "old"), Span("│", "muted"), *self._half(right, width - 1 - half, "new"))

    def _half(self, index: int | None, width: int, side: str) -> Line:
        if index is None:
            return (Span("╱" * width, "bar-empty"),)
        line = self.diff.lines[index]
        role = line.kind if line.kind != "same" else ""
        number = line.old if side == "old" else line.new
        head = f"{number:>{self.gutter}} {_MARKS[line.kind]} "
        parts = _tinted(_shifted(self.content(index), self.shift), role)
        return (Span(head, role or "muted"), *_exactly(parts, width - len(head), role))

    def text(self, index: int) -> str:
        """See `Lines.text`."""
        return "\n".join(self.diff.lines[i].text for i in dict.fromkeys(self.rows[index]) if i is not None)

    def key(self, index: int) -> object:
        """The index in the diff, so that both layouts mean the same place."""
        return self._firsts[index]

    def find(self, key: object) -> int | None:
        """See `Lines.find`."""
        if not isinstance(key, int) or not self.rows:
            return None
        low = bisect_right(self._firsts, key) - 1
        window = range(max(0, low - 2), min(len(self.rows), low + 3))
        return next((i for i in window if key in self.rows[i]), max(0, low))

    @property
    def width(self) -> int:
        """Cut to the view."""
        return 0


def _shifted(parts: Line, cells: int) -> Line:
    """The line without its first cells."""
    result: list[Span] = []
    for text, own in parts:
        taken = min(cells, len(text))
        cells -= taken
        if taken < len(text):
            result.append(Span(text[taken:], own))
    return tuple(result)


def _exactly(parts: Line, width: int, role: str) -> Line:
    """The line in exactly `width` cells."""
    size = measure(parts)
    if size <= width:
        return (*parts, Span(" " * (width - size), role))
    result: list[Span] = []
    room = width
    for text, own in parts:
        cells = measure((Span(text),))
        if cells < room:
            result.append(Span(text, own))
            room -= cells
        else:
            result.append(Span(fit(text + " " * 2, room) if cells > room else fit(text, room), own))
            break
    return tuple(result)
