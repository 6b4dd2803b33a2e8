"""The tables of docs/domains/chess.md: what the shipped puzzles are, and what one-line rules score on them.

    python -m whale.domains.chess.tables [docs/domains/chess.md]

Prints them, or writes them between the page's marks.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from whale.domains.base import SPLITS
from whale.domains.chess.board import legal_moves
from whale.domains.chess.domain import ChessDomain
from whale.domains.chess.rules import RULES

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
KINDS = ("mate", "capture", "check", "quiet")


def tables(domain: ChessDomain) -> str:
    """Both tables in Markdown."""
    splits = domain.splits()
    groups = sorted({task.group for split in SPLITS for task in splits[split]})
    contents = [["split", "puzzles", *groups, *KINDS, "legal moves (mean)"]]
    for split in SPLITS:
        tasks = splits[split]
        by_group = Counter(task.group for task in tasks)
        by_kind = Counter(kind for task in tasks for kind in KINDS if kind in task.private["themes"])
        moves = sum(len(legal_moves(task.public["fen"])) for task in tasks) / len(tasks)
        counts = [str(n) for n in (len(tasks), *(by_group[g] for g in groups), *(by_kind[k] for k in KINDS))]
        contents.append([split, *counts, f"{moves:.1f}"])
    scores = {split: domain.no_skill(split) for split in SPLITS}
    rules = [["rule", *SPLITS]]
    rules += [[rule, *(f"{100 * scores[split][rule]:.1f} %" for split in SPLITS)] for rule in RULES]
    return f"{_markdown(contents)}\n\n{_markdown(rules)}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def replaced(page: str, content: str) -> str:
    """The page with the tables between its marks. Raises ValueError where it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{content}\n{END}{after}"


def main() -> None:
    """Print, or write into the page that is named."""
    content = tables(ChessDomain())
    if len(sys.argv) > 1:
        page = Path(sys.argv[1])
        page.write_text(replaced(page.read_text(encoding="utf-8"), content), encoding="utf-8")
    else:
        print(content)


if __name__ == "__main__":
    main()
