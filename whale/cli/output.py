"""What goes to stdout: data, as tables for people or JSON for programs. Progress goes to stderr."""

import json
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if code not in (9, 10)}
# Bidirectional controls can show text in another order than it has.
ESCAPES |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)}


_UNSAFE = re.compile("[" + "".join(map(re.escape, map(chr, ESCAPES))) + "\ud800-\udfff]")


def printable(text: str) -> str:
    """Text of a model or proposer, made safe for a terminal: control characters become visible escapes."""
    if not _UNSAFE.search(text):  # the quick way: megabytes of harmless text
        return text
    return text.translate(ESCAPES).encode("utf-8", "backslashreplace").decode("utf-8")


def console() -> "Console":
    """Stdout. Rich honours NO_COLOR and drops colour when it is not a terminal."""
    from rich.console import Console

    # A pipe has no width: lines are for programs then, and are not folded.
    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=200)


def print_json(value: Any) -> None:
    """One JSON document."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=not _utf8())
    sys.stdout.write("\n")


def print_json_line(value: Any) -> None:
    """One JSON document on one line, for streams."""
    sys.stdout.write(json.dumps(value, separators=(",", ":"), ensure_ascii=not _utf8()) + "\n")


def print_text(text: str) -> None:
    """Untrusted text, as it is but for its control characters."""
    sys.stdout.write(printable(text).rstrip("\n") + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """A plain table. Cells may hold untrusted text."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, title=title or None, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console().print(table)


def _utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
