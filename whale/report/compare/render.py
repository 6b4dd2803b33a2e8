"""Tables as text, Markdown, CSV and JSON. Pure functions: the same tables give the same bytes."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.cells import cell_len

from whale.report.compare.layout import COLUMNS, Figure, Table


def as_text(tables: Sequence[Table], notes: Sequence[str] = ()) -> str:
    """Plain columns, for a terminal or a log."""
    parts = [_text(table) for table in tables]
    return "\n\n".join([*parts, "\n".join(notes)] if notes else parts) + "\n"


def _text(table: Table) -> str:
    if not table.rows:
        return f"{table.title}: nothing to show"
    lines = [table.columns, *table.rows]
    widths = [max(cell_len(line[column]) for line in lines) for column in range(len(table.columns))]
    body = [
        "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([table.title, *body, *(f"  {note}" for note in table.notes)])


def as_markdown(tables: Sequence[Table], notes: Sequence[str] = ()) -> str:
    """GitHub's tables."""
    parts = [_markdown(table) for table in tables]
    parts += ["\n".join(f"- {_cell(note)}" for note in notes)] if notes else []
    return "\n\n".join(parts) + "\n"


def _markdown(table: Table) -> str:
    rows = [table.columns, ("---",) * len(table.columns), *table.rows]
    lines = ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    notes = [f"- {_cell(note)}" for note in table.notes]
    return "\n".join([f"### {table.title}", "", *lines, *([""] if notes else []), *notes])


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def as_csv(tables: Sequence[Table]) -> str:
    """One long table: a line for each figure, with full precision."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for table in tables:
        for figure in table.figures:
            values = asdict(figure)
            writer.writerow(["" if values[name] is None else _plain(values[name]) for name in COLUMNS])
    return out.getvalue()


def as_json(tables: Sequence[Table], notes: Sequence[str] = ()) -> dict[str, Any]:
    """The same figures as objects, by table."""
    return {
        "tables": {table.name: [_record(figure) for figure in table.figures] for table in tables},
        "notes": [*notes],
    }


def _record(figure: Figure) -> dict[str, Any]:
    values = asdict(figure)
    return {name: values[name] for name in COLUMNS if name != "table"}


def _plain(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
