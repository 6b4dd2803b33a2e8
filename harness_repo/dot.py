"""The lineage in Graphviz's language: a pure function from entries to text."""

from collections.abc import Sequence

from whale.harness_repo.lineage import LineageEntry
from whale.harness_repo.message import one_line, visible
from whale.harness_repo.notes import score_text


def render_dot(entries: Sequence[LineageEntry]) -> str:
    """A graph of candidates, parents above children; accepted ones have a double border, unscored ones dots."""
    known = {entry.candidate for entry in entries}
    lines = ["digraph lineage {", '  node [shape=box, fontname="sans-serif"];']
    for entry in entries:
        score = score_text(entry.note or {})
        label = [entry.candidate, score or "no score", *([one_line(entry.title, 40)] if entry.title else [])]
        style = ", peripheries=2" if entry.accepted else "" if score else ", style=dotted"
        lines.append(f"  {_quoted(entry.candidate)} [label={_quoted(*label)}{style}];")
    for entry in entries:
        for at, parent in enumerate(entry.parents):
            if parent in known:
                style = " [style=dashed]" if at else ""
                lines.append(f"  {_quoted(parent)} -> {_quoted(entry.candidate)}{style};")
    return "\n".join([*lines, "}"])


def _quoted(*parts: str) -> str:
    escaped = (visible(part, keep="").replace("\\", "\\\\").replace('"', '\\"') for part in parts)
    return '"' + "\\n".join(escaped) + '"'
