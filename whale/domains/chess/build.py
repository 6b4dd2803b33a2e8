"""Make puzzles.csv anew: compose, prove, drop near-duplicates, and let no one-line rule solve a split.

    python -m whale.domains.chess.build --engine /usr/games/stockfish --draws 0:400000 --jobs 16 --out puzzles.csv

About one draw in 170 is a puzzle; a draw takes 3 ms of a core. `--draws` takes several ranges; `--raw FILE` writes all
puzzles found, unselected, and `--from FILE FILE ...` selects from such files. The engine is the one of Debian 12
(Stockfish 15.1): another one finds other puzzles. How many processes share the work changes nothing.
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from whale.domains.base import SPLITS
from whale.domains.chess.compose import puzzle_of_draw, themes
from whale.domains.chess.database import FIELDS, read_rows
from whale.domains.chess.puzzle import Puzzle
from whale.domains.chess.report import rule_score
from whale.domains.chess.rules import MAX_RULE_SCORE, RULES
from whale.domains.chess.splits import draw, split_of, without_duplicates

SEED = 1
DRAWS = (range(420_000),)
"""What the shipped file was made of."""
CHUNK = 1000
FAR_SQUARES = 6
"""Puzzles of different games differ on at least so many squares, mirror images included."""
MARGIN = 0.03
"""How far below MAX_RULE_SCORE the builder stays."""
MATE_SHARE = 0.3
"""Of a split's puzzles, at most so many are mates in one: they come up most often."""

Row = dict[str, str]


def balanced(puzzles: Sequence[Puzzle]) -> list[Puzzle]:
    """Drop puzzles that one-line rules solve until no rule solves too many of the rest."""
    kept = list(puzzles)
    scores = {puzzle.id: {name: rule_score(rule, puzzle) for name, rule in RULES.items()} for puzzle in kept}
    while kept:
        means = {name: sum(scores[puzzle.id][name] for puzzle in kept) / len(kept) for name in RULES}
        over = {name: mean - (MAX_RULE_SCORE - MARGIN) for name, mean in means.items()}
        if max(over.values()) <= 0:
            break
        # The puzzle that all the rules above the bound like most goes first.
        high = [name for name in RULES if over[name] > -MARGIN]
        worst = max(kept, key=lambda p: (sum(scores[p.id][name] for name in high), draw("drop", p.id)))
        kept.remove(worst)
    return kept


def fewer_mates(puzzles: Sequence[Puzzle]) -> list[Puzzle]:
    """Cut the mates in one to MATE_SHARE."""
    mates = sorted((p for p in puzzles if p.group == "mate-1"), key=lambda p: draw("mate", p.id))
    others = len(puzzles) - len(mates)
    kept = {p.id for p in mates[: int(others * MATE_SHARE / (1 - MATE_SHARE))]}
    return [p for p in puzzles if p.group != "mate-1" or p.id in kept]


def far_apart(puzzles: Sequence[Puzzle]) -> list[Puzzle]:
    """Drop puzzles that nearly repeat one of another game, the later one each time."""
    import numpy as np

    boards, mirrors = _arrays(puzzles)
    games = np.array([puzzle.game for puzzle in puzzles])
    kept: list[int] = []
    for index in range(len(puzzles)):
        others = np.array(kept, dtype=int)
        near = np.minimum((boards[others] != boards[index]).sum(axis=1), (boards[others] != mirrors[index]).sum(axis=1))
        if not np.any((near < FAR_SQUARES) & (games[others] != games[index])):
            kept.append(index)
    return [puzzles[index] for index in kept]


def _arrays(puzzles: Sequence[Puzzle]) -> "tuple[np.ndarray, np.ndarray]":  # type: ignore[name-defined]  # noqa: F821
    """64 squares of each puzzle with the side to move as White, and the same with its files reversed."""
    import numpy as np

    rows = []
    for puzzle in puzzles:
        placement, turn = puzzle.fen.split()[:2]
        ranks = ["".join("." * int(c) if c.isdigit() else c for c in rank) for rank in placement.split("/")]
        if turn == "b":
            ranks = [rank.swapcase() for rank in reversed(ranks)]
        rows.append([ord(c) for rank in ranks for c in rank])
    boards = np.array(rows, dtype=np.uint8).reshape(len(puzzles), 64)
    return boards, boards.reshape(-1, 8, 8)[:, :, ::-1].reshape(-1, 64)


def found(engine: str, first: int, end: int) -> list[Row]:
    """The rows of draws `first` to `end` - 1, in order."""
    import chess.engine

    rows = []
    with chess.engine.SimpleEngine.popen_uci(engine) as judge:
        judge.configure({"Threads": 1, "Hash": 16})
        for number in range(first, end):
            position = puzzle_of_draw(judge, SEED, number)
            if position is not None:
                puzzle = position.puzzle
                rows.append(
                    {
                        "PuzzleId": puzzle.id,
                        "FEN": position.before,
                        "Moves": " ".join((position.opponent, *puzzle.line)),
                        "Themes": " ".join((*themes(puzzle), puzzle.group)),
                        "GameUrl": puzzle.game,
                    }
                )
    return rows


def found_by_all(engine: str, ranges: Sequence[range], jobs: int) -> Iterator[Row]:
    """The rows of these draws, in order, found by several processes."""
    chunks = [(r.start + i, min(r.start + i + CHUNK, r.stop)) for r in ranges for i in range(0, len(r), CHUNK)]
    with ProcessPoolExecutor(jobs) as pool:
        for (first, end), rows in zip(chunks, pool.map(partial(_found, engine), chunks), strict=True):
            print(f"draws {first} to {end - 1}: {len(rows)} puzzles", file=sys.stderr, flush=True)
            yield from rows


def _found(engine: str, chunk: tuple[int, int]) -> list[Row]:
    return found(engine, *chunk)


def select(rows: Sequence[Row]) -> list[Row]:
    """The rows that are shipped: near-duplicates and what simple rules solve are left out, split by split."""
    by_id = {row["PuzzleId"]: row for row in rows}
    puzzles = far_apart([puzzle for _, puzzle in read_rows(rows)])
    groups = without_duplicates({split: [p for p in puzzles if split_of(p.game) == split] for split in SPLITS})
    kept = [puzzle for split in SPLITS for puzzle in balanced(fewer_mates(groups[split]))]
    return [by_id[puzzle.id] for puzzle in sorted(kept, key=lambda puzzle: puzzle.id)]


def read(path: Path) -> list[Row]:
    """The rows of a file that `write` wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(rows: Iterable[Row], path: Path) -> None:
    """A CSV file in the database's own format."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow(row)


def _range(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end))


def main() -> None:
    """Build from the command line."""
    parser = argparse.ArgumentParser(description="Make the embedded chess puzzles anew.")
    parser.add_argument("--engine", default="/usr/games/stockfish", help="a UCI engine")
    parser.add_argument("--draws", type=_range, nargs="+", metavar="FIRST:END", default=list(DRAWS))
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with an engine of its own")
    parser.add_argument("--raw", type=Path, help="write all puzzles found, and stop there")
    parser.add_argument("--from", dest="sources", type=Path, nargs="+", help="files that --raw wrote")
    parser.add_argument("--out", type=Path, default=Path("puzzles.csv"))
    options = parser.parse_args()
    rows: Iterable[Row]
    if options.sources:
        rows = [row for path in options.sources for row in read(path)]
    else:
        rows = found_by_all(options.engine, options.draws, options.jobs)
    if options.raw:
        write(rows, options.raw)
        return
    rows = sorted(rows, key=lambda row: row["PuzzleId"])
    kept = select(rows)
    write(kept, options.out)
    print(f"{len(kept)} of {len(rows)} puzzles -> {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
