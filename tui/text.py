"""Lines of text with roles: what every pure renderer returns, and what the line widget draws.

A role is what a piece of text *is* ("added", "muted", "accepted"); the theme says how that looks. So renderers
need no terminal, and no screen tells anything by colour alone.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from rich.cells import cell_len, set_cell_size

from whale.harness_repo import visible

ROLES = (
    "muted", "strong", "title", "accent", "good", "bad", "warn", "info",
    "added", "removed", "added-word", "removed-word", "hunk", "file",
    "keyword", "string", "comment", "number", "name", "operator",
    "system", "user", "assistant", "tool", "trained", "match", "key", "tab", "tab-current", "graph", "bar", "bar-empty",
)  # fmt: skip


class Span(NamedTuple):
    """A piece of a line in one role; "" is plain text."""

    text: str
    role: str = ""


Line = tuple[Span, ...]


class Lines(Protocol):
    """A list of lines that may be long: each is made when it is looked at."""

    def __len__(self) -> int:
        """How many lines there are."""
        ...

    def line(self, index: int, width: int) -> Line:
        """One line, for a view of `width` cells. It may be wider: the view scrolls sideways."""
        ...

    def text(self, index: int) -> str:
        """What a search looks at."""
        ...

    def key(self, index: int) -> object:
        """What the line stands for, so that a cursor stays on it while the list grows."""
        ...

    def find(self, key: object) -> int | None:
        """Where a key is now."""
        ...

    @property
    def width(self) -> int:
        """Cells of the widest line; 0 where lines are cut to the view."""
        ...


class FixedLines:
    """Lines that are all made already."""

    def __init__(self, lines: Sequence[Line], keys: Sequence[object] | None = None, *, width: int | None = None):
        """`keys`: one a line, or none. `width`: of the widest line; by default it is measured."""
        self._lines = lines
        self._keys = keys
        self._at = {key: i for i, key in reversed(list(enumerate(keys)))} if keys else {}
        self._width = max((measure(line) for line in lines), default=0) if width is None else width

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, index: int, width: int) -> Line:
        """See `Lines.line`."""
        return self._lines[index]

    def text(self, index: int) -> str:
        """See `Lines.text`."""
        return plain(self._lines[index])

    def key(self, index: int) -> object:
        """See `Lines.key`."""
        return self._keys[index] if self._keys else index

    def find(self, key: object) -> int | None:
        """See `Lines.find`."""
        if self._keys:
            return self._at.get(key)
        return key if isinstance(key, int) and key < len(self._lines) else None

    @property
    def width(self) -> int:
        """See `Lines.width`."""
        return self._width


NOTHING = FixedLines([])


def line(*parts: "str | Span | tuple[str, str]") -> Line:
    """A line of plain strings and (text, role) pairs."""
    return tuple(Span(part) if isinstance(part, str) else Span(*part) for part in parts)


def plain(parts: Line) -> str:
    """The text without roles."""
    return "".join(span.text for span in parts)


def measure(parts: Line) -> int:
    """Cells that the line takes."""
    return sum(cell_len(span.text) for span in parts)


def clean(text: str) -> str:
    """Text of a model, a proposer or a file as one line: nothing in it can steer a terminal or hide."""
    return visible(text.expandtabs(4), keep="") if not text.isprintable() else text


def clean_lines(text: str) -> list[str]:
    """The same for text of many lines."""
    return [clean(part) for part in text.replace("\r\n", "\n").split("\n")]


def fit(text: str, width: int) -> str:
    """Text in exactly `width` cells, cut with "…" if it is longer."""
    text = clean(text)
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + "…"


def cut(text: str, width: int) -> str:
    """Text in at most `width` cells."""
    text = clean(text)
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…"


def wrap(text: str, width: int, *, hanging: int = 0) -> list[str]:
    """Clean text in lines of at most `width` cells, broken at spaces where it can be; indentation is kept.

    `hanging`: cells by which lines after the first of a paragraph are indented.
    """
    width = max(width, 8)
    result: list[str] = []
    for paragraph in clean_lines(text):
        rest = paragraph
        indent = 0
        while True:
            room = width - indent
            if cell_len(rest) <= room:
                result.append(" " * indent + rest)
                break
            head = set_cell_size(rest, room).rstrip("\n")
            # set_cell_size may pad where a wide character does not fit.
            taken = len(head) if rest.startswith(head) else len(head) - 1
            space = rest.rfind(" ", 1, taken + 1)
            slash = rest.rfind("/", 1, taken)  # a path breaks between its parts
            at = next((place for place in (space, slash + 1) if place > room // 3), max(taken, 1))
            result.append(" " * indent + rest[:at].rstrip())
            rest = rest[at:].lstrip(" ")
            indent = hanging
    return result


def facts_table(rows: Iterable[tuple[str, Line]], *, label: int = 0) -> list[Line]:
    """Lines of "label  value", the labels muted and in one column."""
    shown = list(rows)
    column = label or max((cell_len(name) for name, _ in shown), default=0) + 2
    return [(Span(fit(name, column), "muted"), *value) for name, value in shown]


def thousands(number: float) -> str:
    """1234567 as 1.23M, so that counts keep a small column."""
    for limit, divisor, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(number) >= limit:
            return f"{number / divisor:.3g}{unit}"
    return f"{number:,.0f}"


def duration(seconds: float) -> str:
    """Seconds as 45 s, 3:20 min, 2:05 h or 3.1 d."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"
    if seconds < 86400 * 2:
        return f"{int(seconds) // 3600}:{int(seconds) % 3600 // 60:02d} h"
    return f"{seconds / 86400:.1f} d"


def share(value: float) -> str:
    """A rate in percent."""
    return f"{100 * value:.1f} %"


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 candidate, 2 candidates."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def money(dollars: float) -> str:
    """Dollars, with cents that show what little was paid."""
    return f"${dollars:.2f}" if dollars >= 0.995 or not dollars else f"${dollars:.4f}".rstrip("0").ljust(5, "0")
