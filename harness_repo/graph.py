"""The lineage as text: a pure function from entries to lines."""

from collections.abc import Iterator, Sequence

from whale.harness_repo.lineage import LineageEntry
from whale.harness_repo.message import one_line
from whale.harness_repo.notes import headline, score_text

DEEPEST = 24
"""Generations that are indented; deeper ones stay at this column and say their depth."""

_SIGNS = {"accepted": "◆", "scored": "○", "unscored": "·", "tee": "├─", "end": "└─", "bar": "│ "}
_ASCII = {"accepted": "*", "scored": "o", "unscored": ".", "tee": "|-", "end": "`-", "bar": "| "}


def render_lineage(entries: Sequence[LineageEntry], *, width: int | None = None, ascii_only: bool = False) -> str:
    """A tree, one line a candidate: sign, id, score with interval and n, acceptances, title.

    A candidate stands below its first parent; a crossover names the other one (`+ id`). ◆ is accepted, or
    once was; ○ is scored; · has no score. Candidates whose first parent is not among `entries` are roots.
    Lines are cut at `width` characters. Nothing depends on colour.
    """
    signs = _ASCII if ascii_only else _SIGNS
    rows = list(tree_rows(entries, ascii_only=ascii_only))
    stems = [f"{prefix}{sign_of(entry, ascii_only=ascii_only)} {entry.candidate}" for prefix, entry in rows]
    column = max(map(len, stems), default=0)
    lines = []
    for stem, (_, entry) in zip(stems, rows, strict=True):
        line = f"{stem:<{column}}  {'  '.join(_columns(entry))}".rstrip()
        if ascii_only:
            line = line.encode("ascii", "replace").decode()
        lines.append(line if width is None or len(line) <= width else line[: max(width - 1, 0)] + signs_cut(signs))
    return "\n".join(lines)


def tree_rows(entries: Sequence[LineageEntry], *, ascii_only: bool = False) -> Iterator[tuple[str, LineageEntry]]:
    """Each candidate with the branches that stand before it, below its first parent."""
    known = {entry.candidate for entry in entries}
    children: dict[str, list[LineageEntry]] = {}
    roots: list[LineageEntry] = []
    for entry in entries:
        if entry.parents and entry.parents[0] in known and entry.parents[0] != entry.candidate:
            children.setdefault(entry.parents[0], []).append(entry)
        else:
            roots.append(entry)
    return _rows(roots, children, _ASCII if ascii_only else _SIGNS)


def signs_cut(signs: dict[str, str]) -> str:
    """The sign that a line was cut."""
    return ">" if signs is _ASCII else "…"


def _rows(
    roots: Sequence[LineageEntry], children: dict[str, list[LineageEntry]], signs: dict[str, str]
) -> Iterator[tuple[str, LineageEntry]]:
    """Depth first, without recursion: a lineage may be thousands of generations deep."""
    stack = [("", "", 0, root) for root in reversed(roots)]
    while stack:
        prefix, below, depth, entry = stack.pop()
        yield prefix, entry
        born = children.get(entry.candidate, [])
        for child in reversed(born):
            last = child is born[-1]
            if depth >= DEEPEST:
                stack.append((f"{below}({depth + 1}) ", below, depth + 1, child))
            else:
                turn, further = (signs["end"], "  ") if last else (signs["tee"], signs["bar"])
                stack.append((below + turn, below + further, depth + 1, child))


def sign_of(entry: LineageEntry, *, ascii_only: bool = False) -> str:
    """◆ is accepted, or once was; ○ is scored; · has no score."""
    signs = _ASCII if ascii_only else _SIGNS
    if entry.accepted:
        return signs["accepted"]
    return signs["scored" if (entry.note or {}).get("score") is not None else "unscored"]


def _columns(entry: LineageEntry) -> Iterator[str]:
    if entry.note is not None:
        score = score_text(entry.note) or headline(entry.note)
        # Scores of two cycles were made under other weights: they do not compare.
        yield score + (f" c{entry.note['cycle']}" if "cycle" in entry.note else "")
    if entry.accepted:
        yield "accepted " + ", ".join(f"#{serial}" for serial in entry.serials)
    if len(entry.parents) > 1:
        yield "+ " + ", ".join(entry.parents[1:])
    if entry.title:
        yield one_line(entry.title, 100)
