"""What the shipped puzzles promise."""

import csv
from collections import Counter
from importlib.resources import files
from pathlib import Path

import chess
import numpy as np
import pytest

from whale.domains.base import SPLITS
from whale.domains.chess.board import after, canonical, legal_moves
from whale.domains.chess.build import FAR_SQUARES, balanced, far_apart
from whale.domains.chess.compose import mates_in_two, puzzle_of_draw
from whale.domains.chess.database import FIELDS
from whale.domains.chess.domain import ChessDomain
from whale.domains.chess.puzzle import Puzzle, positions, right_moves
from whale.domains.chess.report import rule_score
from whale.domains.chess.rules import MAX_RULE_SCORE, RULES
from whale.domains.chess.splits import split_of, without_duplicates
from whale.domains.chess.tables import replaced, tables

ROWS = list(
    csv.DictReader(files("whale.domains.chess").joinpath("puzzles.csv").read_text(encoding="utf-8").splitlines())
)


@pytest.fixture(scope="module")
def domain() -> ChessDomain:
    return ChessDomain()


@pytest.fixture(scope="module")
def puzzles(domain: ChessDomain) -> list[Puzzle]:
    return [domain.puzzle(task) for split in SPLITS for task in domain.splits()[split]]


def test_every_shipped_row_is_a_task_of_one_split(domain: ChessDomain) -> None:
    assert tuple(ROWS[0]) == FIELDS
    ids = [task.id for split in SPLITS for task in domain.splits()[split]]
    assert sorted(ids) == sorted(row["PuzzleId"] for row in ROWS)
    assert len(set(ids)) == len(ids)


def test_splits_share_no_game_no_position_and_no_near_duplicate(domain: ChessDomain, puzzles: list[Puzzle]) -> None:
    for split, tasks in domain.splits().items():
        assert all(split_of(task.private["game"]) == split for task in tasks)
    seen: dict[str, str] = {}
    for puzzle in puzzles:
        for fen in positions(puzzle):
            assert seen.setdefault(canonical(fen), puzzle.id) == puzzle.id
    assert far_apart(puzzles) == puzzles


def test_near_duplicates_and_mirror_images_are_found() -> None:
    fen = "r3k3/pp3ppp/8/3n4/8/2N5/PPP3PP/R3K2R w - - 0 1"
    near = "r3k3/pp3ppp/8/3n4/8/2N5/PPP3PP/R4K1R w - - 0 1"
    flipped = chess.Board(near).mirror().fen()
    mirrored = chess.Board(near).transform(chess.flip_horizontal).fen()
    one = Puzzle("1", "a", fen, ("c3d5",))
    for other in (near, flipped, mirrored):
        move = min(move.uci for move in legal_moves(other))
        assert far_apart([one, Puzzle("2", "b", other, (move,))]) == [one]
        same = Puzzle("2", "b", chess.Board(fen).mirror().fen(), (move,)) if other == flipped else None
        if same:
            assert canonical(same.fen) == canonical(fen)
    far = Puzzle("3", "c", "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1", ("e2e4",))
    assert far_apart([one, far]) == [one, far]
    again = Puzzle("4", "d", chess.Board(fen).mirror().fen(), ("c6d4",))
    kept = without_duplicates({"weight": [one], "harness": [], "validation": [], "test": [again]})
    assert (kept["weight"], kept["test"]) == ([], [again]), "what is measured keeps the position"


def test_no_one_line_rule_solves_a_split(domain: ChessDomain) -> None:
    for split in SPLITS:
        scores = domain.no_skill(split)
        assert scores["any legal move"] > 0.01, "training needs something to start from"
        worst = max(scores, key=lambda rule: scores[rule])
        assert scores[worst] <= MAX_RULE_SCORE, (split, worst, scores[worst])


def test_every_puzzle_has_wrong_captures_and_mates_have_wrong_checks(puzzles: list[Puzzle]) -> None:
    for puzzle in puzzles:
        moves = legal_moves(puzzle.fen)
        right = right_moves(puzzle.fen, puzzle.line[0])
        assert 8 <= len(moves) <= 30
        assert any(move.takes and move.uci not in right for move in moves), puzzle.id
        if puzzle.group == "mate-1":
            assert sum(move.check and move.uci not in right for move in moves) >= 2, puzzle.id


def test_mates_are_proved_by_trying_every_move(puzzles: list[Puzzle]) -> None:
    mates = [puzzle for puzzle in puzzles if puzzle.group == "mate-1"]
    assert mates
    for puzzle in mates[:200]:
        board = chess.Board(puzzle.fen)
        found = set()
        for move in list(board.legal_moves):
            board.push(move)
            if board.is_checkmate():
                found.add(move.uci())
            board.pop()
        assert found == right_moves(puzzle.fen, puzzle.line[0])
        assert len(found) <= 2
    longer = [puzzle for puzzle in puzzles if puzzle.group == "mate-2"]
    for puzzle in longer[:3]:
        assert mates_in_two(puzzle.fen) == [puzzle.line[0]], "only one move forces mate"


def test_where_no_mate_is_right_none_is_there(puzzles: list[Puzzle]) -> None:
    """A puzzle's best move is no matter of taste: mate at once would be better than any line."""
    for puzzle in puzzles:
        if puzzle.group != "mate-1":
            assert not any(move.mate for move in legal_moves(puzzle.fen)), puzzle.id


def test_there_are_several_kinds_of_puzzles_in_every_split(domain: ChessDomain) -> None:
    for split in SPLITS:
        tasks = domain.splits()[split]
        kinds = Counter(theme for task in tasks for theme in ("mate", "capture", "check", "quiet")
                        if theme in task.private["themes"])  # fmt: skip
        assert all(kinds[kind] >= 0.06 * len(tasks) for kind in ("mate", "capture", "check", "quiet")), (split, kinds)
        assert kinds["capture"] <= 0.7 * len(tasks)
        assert any(len(task.private["line"]) > 1 for task in tasks), "one in which the opponent answers"


def test_the_builder_makes_the_shipped_mates_again() -> None:
    """Mates need no engine, so that a machine without one can check the recipe."""

    class NoEngine:
        def analyse(self, *arguments: object, **named: object) -> object:
            raise AssertionError("a mate needs no engine")

    mates = [row for row in ROWS if "mate-1" in row["Themes"].split()][:25]
    for row in mates:
        seed, _, number = row["PuzzleId"].partition("-")
        found = puzzle_of_draw(NoEngine(), int(seed), int(number))  # type: ignore[arg-type]
        assert found is not None
        assert (found.before, f"{found.opponent} {found.puzzle.line[0]}") == (row["FEN"], row["Moves"])


def test_selection_drops_what_rules_solve_and_nothing_else(domain: ChessDomain, puzzles: list[Puzzle]) -> None:
    for split in SPLITS:
        own = [domain.puzzle(task) for task in domain.splits()[split]]
        assert balanced(own) == own
    easy = [puzzle for puzzle in puzzles if rule_score(RULES["take the most valuable piece"], puzzle) == 1]
    others = [puzzle for puzzle in puzzles if puzzle not in easy]
    assert balanced(easy) == [], "alone they are all solved"
    mixed = balanced([*others[:40], *easy])
    assert all(puzzle in mixed for puzzle in others[:5])
    assert len([puzzle for puzzle in mixed if puzzle in easy]) <= 0.25 * len(mixed)


def test_the_docs_show_the_shipped_puzzles(domain: ChessDomain) -> None:
    page = (Path(__file__).parents[2] / "docs" / "domains" / "chess.md").read_text(encoding="utf-8")
    assert replaced(page, tables(domain)) == page, "run: python -m whale.domains.chess.tables docs/domains/chess.md"


def test_rows_follow_the_database_format() -> None:
    for row in ROWS:
        fen = row["FEN"]
        for move in row["Moves"].split():
            fen = after(fen, move)
        assert len(row["Moves"].split()) % 2 == 0
    assert FAR_SQUARES > 4, "two positions one move apart are near-duplicates"
    assert np.unique([row["PuzzleId"] for row in ROWS]).size == len(ROWS)
