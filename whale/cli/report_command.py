"""`whale report`: compare runs, from their event logs alone."""

import sys
from collections.abc import Sequence
from pathlib import Path

from whale.cli.output import print_json, print_text, printable
from whale.errors import UsageError, WhaleError

FORMATS = ("text", "markdown", "html", "csv")


def report(
    words: Sequence[str],
    form: str,
    output: Path | None,
    json: bool,
    only: list[str] | None,
    against: str | None,
    runs: Path | None,
) -> None:
    """Print the tables, or write them to a file."""
    if form not in FORMATS:
        raise UsageError(f"unknown format {form}; there are {', '.join(FORMATS)}")
    if json and (output or form != "text"):
        raise UsageError("--json goes to stdout: leave --format and --output out")
    from whale.report.compare.report import tables
    from whale.report.compare.sources import find
    from whale.report.compare.systems import group

    found = find(words, runs)
    grouped = group(found.records, found.names)
    made = tables(grouped, only, against)
    notes = (*grouped.notes, *(f"{path}: nothing is recorded yet" for path in found.empty))
    from whale.report.compare import render

    if json:
        print_json(render.as_json(made, notes))
        return
    if form == "html":
        from whale.report.compare.page import as_html

        text = as_html(grouped, made, notes)
    elif form == "csv":
        text = render.as_csv(made)
        for note in notes:  # rows alone are data
            print(printable(note), file=sys.stderr)
    else:
        text = printable((render.as_markdown if form == "markdown" else render.as_text)(made, notes))
    if output is None:
        print_text(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WhaleError(f"{output}: cannot be written: {error.strerror or error}") from error
    print(f"wrote {output}: {len(found.records)} runs, {len(grouped.systems)} systems", file=sys.stderr)
