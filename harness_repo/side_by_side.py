"""Two columns from a unified diff: a pure function from text to rows."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from rich.cells import cell_len, set_cell_size

from whale.harness_repo.message import visible

Mark = Literal[" ", "|", "<", ">", "#"]
"""Unchanged, changed, only left, only right, a heading; so that nothing is told by colour alone."""

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)")
_NUMBER = 5
"""Columns of a line number."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row on the screen. A heading has its text in `left`."""

    mark: Mark
    left: str
    right: str = ""

    @property
    def text(self) -> str:
        """The row as it is shown."""
        return self.left if self.mark == "#" else f"{self.left} {self.mark} {self.right}".rstrip()


def side_by_side(diff: str, width: int) -> Iterator[Row]:
    """The rows of a unified diff in `width` columns, 29 at least: old on the left, new on the right.

    Lines that are too long go on in the next row. Control characters are replaced; a tab is four columns.
    """
    cells = max((width - 3) // 2 - _NUMBER, 8)
    old = new = 0
    removed: list[str] = []
    added: list[str] = []

    def flush() -> Iterator[Row]:
        nonlocal old, new
        for left, right in zip_longest(removed, added):
            mark: Mark = "|" if left is not None and right is not None else "<" if right is None else ">"
            yield from _rows(mark, old, left, new, right, cells)
            old += left is not None
            new += right is not None
        removed.clear()
        added.clear()

    inside = False
    for line in diff.split("\n"):
        hunk = _HUNK.match(line)
        if hunk is None and inside and line[:1] in ("-", "+", " ", "\\"):
            if line.startswith("-"):
                if added:
                    yield from flush()
                removed.append(line[1:])
            elif line.startswith("+"):
                added.append(line[1:])
            elif line.startswith(" "):
                yield from flush()
                yield from _rows(" ", old, line[1:], new, line[1:], cells)
                old, new = old + 1, new + 1
            # "\ No newline at end of file" belongs to the line before: it is a difference of its own,
            # and is seen in the unified form.
            continue
        yield from flush()
        inside = hunk is not None
        if hunk:
            old, new = int(hunk[1]), int(hunk[2])
            yield Row("#", visible(f"@@ {old} → {new} @@{hunk[3]}", keep=""))
        elif line.startswith("diff "):
            yield Row("#", "")
            yield Row("#", visible(line, keep=""))
        elif line and not line.startswith(("index ", "--- ", "+++ ")):
            yield Row("#", visible(line, keep=""))
    yield from flush()


def _rows(mark: Mark, old: int, left: str | None, new: int, right: str | None, cells: int) -> Iterator[Row]:
    sides = zip_longest(_cells(old, left, cells), _cells(new, right, cells), fillvalue=" " * (_NUMBER + cells))
    for at, (before, after) in enumerate(sides):
        yield Row(mark if at == 0 or mark != " " else " ", before, after)


def _cells(number: int, text: str | None, cells: int) -> Iterator[str]:
    if text is None:
        return
    rest = visible(text.expandtabs(4), keep="")
    label = f"{number:>{_NUMBER - 1}} "
    while True:
        part = rest if rest.isascii() and len(rest) <= cells else _chop(rest, cells)
        yield label + set_cell_size(part, cells)
        rest, label = rest[len(part) :], " " * _NUMBER
        if not rest:
            return


def _chop(text: str, cells: int) -> str:
    """As many characters as fit, at least one."""
    size = min(len(text), cells)
    while size > 1 and cell_len(text[:size]) > cells:
        size -= 1
    return text[:size]
