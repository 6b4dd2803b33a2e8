"""Databases in Lichess's own formats, on small local files."""

import csv
import io
import json
import random
from pathlib import Path

import chess
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whale.domains.base import SPLITS
from whale.domains.chess.database import Filter, game_of, puzzle_of, rows_of
from whale.domains.chess.domain import ChessDomain, ChessOptions, create
from whale.domains.chess.splits import split_of
from whale.errors import UsageError

COLUMNS = ("PuzzleId", "FEN", "Moves", "Rating", "RatingDeviation", "Popularity", "NbPlays", "Themes", "GameUrl",
           "OpeningTags")  # fmt: skip


def database(n: int = 120) -> list[dict[str, str]]:
    """Rows of ten columns, two of a game: positions at random, and any move of each side."""
    rows: list[dict[str, str]] = []
    rng = random.Random(5)
    while len(rows) < n:
        board = chess.Board(None)
        for square, mark in zip(rng.sample(range(64), 6), "KkRrNn", strict=True):
            board.set_piece_at(square, chess.Piece.from_symbol(mark))
        board.turn = chess.BLACK
        if not board.is_valid() or board.is_game_over():
            continue
        fen, moves = board.fen(), []
        for _ in range(2):
            moves.append(rng.choice(sorted(move.uci() for move in board.legal_moves) or [""]))
            if moves[-1]:
                board.push_uci(moves[-1])
        number = len(rows)
        row = {
            "PuzzleId": f"{number:05d}", "FEN": fen, "Moves": " ".join(moves), "Rating": str(600 + 10 * number),
            "RatingDeviation": "80", "Popularity": "90", "NbPlays": "100",
            "Themes": "advantage oneMove" if number % 2 else "crushing endgame oneMove",
            "GameUrl": f"https://lichess.org/{number // 2:08d}/black#60", "OpeningTags": "",
        }  # fmt: skip
        if all(moves):
            rows.append(row)
    return rows


def as_csv(rows: list[dict[str, str]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    return database()


@pytest.fixture
def csv_file(tmp_path: Path, rows: list[dict[str, str]]) -> Path:
    path = tmp_path / "lichess_db_puzzle.csv"
    path.write_bytes(as_csv(rows))
    return path


def test_csv_zst_and_both_parquet_forms_hold_the_same_puzzles(
    tmp_path: Path, csv_file: Path, rows: list[dict[str, str]]
) -> None:
    packed = tmp_path / "lichess_db_puzzle.csv.zst"
    content = csv_file.read_bytes()
    # In two frames, as parallel compressors write them.
    frames = [pa.compress(part, codec="zstd", asbytes=True) for part in (content[:5000], content[5000:])]
    packed.write_bytes(b"".join(frames))
    older = tmp_path / "older.parquet"
    pq.write_table(pa.Table.from_pylist([{**row, "Rating": int(row["Rating"])} for row in rows]), older)
    hub = tmp_path / "hub" / "data"
    hub.mkdir(parents=True)
    newer = [
        {"PuzzleId": r["PuzzleId"], "GameId": game_of(r), "FEN": r["FEN"], "Moves": r["Moves"],
         "Rating": int(r["Rating"]), "Themes": r["Themes"].split(), "OpeningTags": []}
        for r in rows
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(newer[:30]), hub / "train-00000-of-00002.parquet")
    pq.write_table(pa.Table.from_pylist(newer[30:]), hub / "train-00001-of-00002.parquet")

    plain = [puzzle_of(row) for row in rows_of(str(csv_file))]
    assert len(plain) == len(rows)
    assert plain[3].rating == int(rows[3]["Rating"])
    for source in (packed, older, tmp_path / "hub"):
        assert [puzzle_of(row) for row in rows_of(str(source))] == plain, source


def test_the_opponents_first_move_is_made_and_the_solver_is_to_move(rows: list[dict[str, str]]) -> None:
    puzzle = puzzle_of(rows[0])
    assert rows[0]["FEN"].split()[1] == "b"
    assert puzzle.fen.split()[1] == "w"
    assert puzzle.line == (rows[0]["Moves"].split()[1],)


@pytest.mark.parametrize(
    ("row", "game"),
    [
        ({"GameUrl": "https://lichess.org/4MWQCxQ6/black#31"}, "4MWQCxQ6"),
        ({"GameUrl": "https://lichess.org/4MWQCxQ6#31"}, "4MWQCxQ6"),
        ({"GameUrl": "https://lichess.org/4MWQCxQ6/white"}, "4MWQCxQ6"),
        ({"GameId": "4MWQCxQ6"}, "4MWQCxQ6"),
        ({"GameUrl": "1-000042"}, "1-000042"),
    ],
)
def test_a_game_is_known_whichever_way_it_is_named(row: dict[str, str], game: str) -> None:
    assert game_of(row) == game


def test_splits_have_the_sizes_asked_for_and_share_no_game(csv_file: Path) -> None:
    domain = create({"source": str(csv_file), "weight": 15, "harness": 4, "validation": 5, "test": 6})
    sizes = {split: len(tasks) for split, tasks in domain.splits().items()}
    assert sizes == {"weight": 15, "harness": 4, "validation": 5, "test": 6}
    for split, tasks in domain.splits().items():
        assert all(split_of(task.private["game"]) == split for task in tasks)
    again = create({"source": str(csv_file), "weight": 15, "harness": 4, "validation": 5, "test": 6})
    assert again.fingerprint() == domain.fingerprint()
    other = create({"source": str(csv_file), "weight": 15, "harness": 4, "validation": 5, "test": 6, "seed": 1})
    assert other.fingerprint() != domain.fingerprint()


def test_a_smaller_size_is_a_part_of_a_larger_one(csv_file: Path) -> None:
    small = create({"source": str(csv_file), "weight": 5}).splits()["weight"]
    large = create({"source": str(csv_file), "weight": 15}).splits()["weight"]
    assert list(large[:5]) == list(small)


def test_filters_choose_by_rating_theme_and_length(csv_file: Path, rows: list[dict[str, str]]) -> None:
    assert Filter(max_plies=1).takes(rows[0])
    long = {**rows[0], "Moves": " ".join(["e2e4"] * 12)}
    assert not Filter(max_plies=9).takes(long)
    assert Filter(max_plies=11).takes(long)
    assert not Filter().takes({**rows[0], "Moves": rows[0]["Moves"].split()[0]}), "no move to find"
    assert not Filter().takes({**rows[0], "Moves": "a1a2 a2a3 a3a4"}), "the opponent has the last word"
    domain = create({"source": str(csv_file), "min_rating": 700, "max_rating": 1500, "themes": ["endgame"]})
    tasks = [task for split in SPLITS for task in domain.splits()[split]]
    assert tasks
    assert all("endgame" in task.private["themes"] for task in tasks)
    assert all(700 <= (domain.puzzle(task).rating or 0) <= 1500 for task in tasks)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (None, "curl -LO"),
        (b"a,b\n1,2\n", "it lacks the column PuzzleId"),
        (b"\xff\xfe\x00\x00", "cannot read|lacks the column"),
    ],
)
def test_what_is_no_database_is_said_in_one_line(tmp_path: Path, write: bytes | None, reason: str) -> None:
    path = tmp_path / "puzzles.csv"
    if write is not None:
        path.write_bytes(write)
    with pytest.raises(UsageError, match=reason) as caught:
        create({"source": str(path)})
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_broken_archive_or_another_format_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "p.csv.zst").write_bytes(b"no zst at all")
    (tmp_path / "p.json").write_text(json.dumps([]))
    (tmp_path / "p.parquet").write_bytes(b"PAR1")
    (tmp_path / "empty").mkdir()
    for name, reason in (("p.csv.zst", "cannot read"), ("p.json", "none of"), ("p.parquet", "cannot read"),
                         ("empty", "no .parquet file")):  # fmt: skip
        with pytest.raises(UsageError, match=reason) as caught:
            create({"source": str(tmp_path / name)})
        assert "\n" not in str(caught.value)


def test_a_damaged_row_names_its_puzzle(tmp_path: Path, rows: list[dict[str, str]]) -> None:
    path = tmp_path / "puzzles.csv"
    for damage in ({"Moves": "e2e4 e7e5"}, {"FEN": "8/8/8 w"}, {"Moves": rows[0]["Moves"].split()[0] + " a1a1"}):
        path.write_bytes(as_csv([{**rows[0], **damage, "PuzzleId": "broken"}]))
        with pytest.raises(UsageError, match="puzzle broken is damaged"):
            create({"source": str(path)})


def test_a_rating_that_is_no_number_names_its_puzzle(tmp_path: Path, rows: list[dict[str, str]]) -> None:
    path = tmp_path / "puzzles.csv"
    path.write_bytes(as_csv([{**rows[0], "Rating": "high"}]))
    for options in ({}, {"min_rating": 5}):
        with pytest.raises(UsageError, match="puzzle 00000: the rating 'high'"):
            create({"source": str(path), **options})


def test_options_that_leave_a_split_empty_are_refused(csv_file: Path) -> None:
    with pytest.raises(UsageError, match="leave no puzzle in the"):
        ChessDomain(ChessOptions(source=str(csv_file), min_rating=5000))


def test_a_missing_hub_package_gives_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(UsageError, match="pip install datasets"):
        create({"source": "hub:Lichess/chess-puzzles"})
