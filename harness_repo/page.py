"""The lineage as one HTML file: a pure function from entries and diffs to text.

It opens from disk and asks for nothing: no script, no font, no request (a content policy forbids them). All
that a proposer wrote is escaped by the template engine, and rid of what could hide or reorder text.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from whale.harness_repo.graph import sign_of, tree_rows
from whale.harness_repo.lineage import LineageEntry
from whale.harness_repo.message import visible
from whale.harness_repo.notes import records, score_text

PATCH_LIMIT = 100_000
"""Characters of a diff that the page shows."""

_WIDTH, _HEIGHT, _MARGIN = 900, 240, 36


class Point(NamedTuple):
    """A scored candidate in the chart; the accepted ones are joined by a line."""

    x: float
    y: float
    entry: LineageEntry
    score: str


def render_page(
    entries: Sequence[LineageEntry], patches: Mapping[str, str], *, run: str, accepted: str | None = None
) -> str:
    """The page.

    Args:
        entries: parents first.
        patches: candidate -> diff to its first parent; one that is missing is said to be left out.
        run: the run's name.
        accepted: the candidate that is accepted now.
    """
    from jinja2 import Environment  # 0.1 s that no other command needs

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["visible"] = visible
    folder = Path(__file__).parent
    points = list(_points(entries))
    return environment.from_string((folder / "page.html").read_text(encoding="utf-8")).render(
        style=(folder / "page.css").read_text(encoding="utf-8"),
        run=visible(run, keep=""),
        accepted=accepted,
        rows=[_row(prefix, entry, patches.get(entry.candidate)) for prefix, entry in tree_rows(entries)],
        count={"all": len(entries), "scored": len(points), "accepted": sum(e.accepted for e in entries)},
        points=points,
        steps=" ".join(f"{p.x:.1f},{p.y:.1f}" for p in sorted(points) if p.entry.accepted),
        ticks=[(value, _y(value)) for value in (0.0, 0.25, 0.5, 0.75, 1.0)],
        width=_WIDTH,
        height=_HEIGHT,
        margin=_MARGIN,
    )


def _row(prefix: str, entry: LineageEntry, patch: str | None) -> dict[str, Any]:
    history = records(entry.note)
    return {
        "prefix": prefix,
        "sign": sign_of(entry),
        "entry": entry,
        "score": score_text(entry.note or {}) or "",
        "scores": [(score_text(r) or f"no score {r.get('reason', '')}", r) for r in reversed(history)],
        "patch": None if patch is None else list(_lines(patch)),
    }


def _lines(patch: str) -> Iterator[tuple[str, str]]:
    """(class, text) of each line of a diff. The first column says the same as the colour."""
    for line in patch[:PATCH_LIMIT].rstrip("\n").split("\n"):
        if line.startswith(("diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "similarity", "rename")):
            kind = "meta"
        else:
            kind = {"+": "add", "-": "del", "@": "hunk"}.get(line[:1], "")
        yield kind, visible(line, keep="\t")
    if len(patch) > PATCH_LIMIT:
        yield "meta", f"({len(patch) - PATCH_LIMIT:,} more characters are left out)"


def _points(entries: Sequence[LineageEntry]) -> Iterator[Point]:
    scored = [
        (at, e, score) for at, e in enumerate(entries) if isinstance(score := (e.note or {}).get("score"), int | float)
    ]
    step = (_WIDTH - 2 * _MARGIN) / max(len(entries) - 1, 1)
    for at, entry, score in scored:
        yield Point(_MARGIN + at * step, _y(float(score)), entry, score_text(entry.note or {}) or "")


def _y(score: float) -> float:
    """Rewards are from 0 to 1; what is outside stands at the edge."""
    return _HEIGHT - _MARGIN - min(max(score, 0.0), 1.0) * (_HEIGHT - 2 * _MARGIN)
