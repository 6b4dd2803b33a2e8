"""Rows of a puzzle database in Lichess's format: a CSV file, plain or zst, Parquet files, or the hub.

A row's FEN is the position *before* the opponent's move, and the first of its Moves is that move. The hub's data set
has a GameId and lists where the CSV file has a GameUrl and words; both are read.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from whale.domains.chess.board import after
from whale.domains.chess.puzzle import Puzzle, positions
from whale.domains.places import place
from whale.errors import UsageError

FIELDS = ("PuzzleId", "FEN", "Moves", "Themes", "GameUrl")
"""What is needed of a row; Rating is used where it is there."""
HUB = "hub:"
WHERE = "https://database.lichess.org/lichess_db_puzzle.csv.zst"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows of a database are used."""

    max_plies: int = 9
    """Of the line, the solver's moves and the opponent's replies counted."""
    min_rating: int | None = None
    max_rating: int | None = None
    themes: tuple[str, ...] = ()
    """A puzzle needs one of these; empty takes all."""

    def takes(self, row: Row) -> bool:
        """Whether a row passes. Cheap: a whole database goes through here."""
        plies = len(_words(row["Moves"])) - 1
        if plies < 1 or plies > self.max_plies or plies % 2 != 1:
            return False
        rating = _rating(row)
        if self.min_rating is not None and (rating is None or rating < self.min_rating):
            return False
        if self.max_rating is not None and (rating is None or rating > self.max_rating):
            return False
        return not self.themes or not set(self.themes).isdisjoint(_words(row["Themes"]))


def rows_of(source: str) -> Iterator[Row]:
    """The rows of a file, a folder of Parquet files, or "hub:OWNER/NAME". Raises UsageError for what is not there."""
    if source.startswith(HUB):
        yield from _checked(_hub_rows(source.removeprefix(HUB)), source)
        return
    path = place(source, "chess: source")
    if path.is_dir():
        files = sorted(path.rglob("*.parquet"))
        if not files:
            raise UsageError(f"chess: there is no .parquet file in {path}")
    elif path.is_file():
        files = [path]
    else:
        raise UsageError(f"chess: there is no puzzle database at {path}; get it with: curl -LO {WHERE}")
    for file in files:
        yield from _checked(_file_rows(file), str(file))


def _file_rows(path: Path) -> Iterator[Row]:
    if path.suffix == ".parquet":
        yield from _parquet_rows(path)
    elif path.suffix in (".csv", ".zst"):
        with _text(path) as file:
            yield from csv.DictReader(file)
    else:
        raise UsageError(f"chess: {path.name} is none of .csv, .csv.zst and .parquet")


@contextmanager
def _text(path: Path) -> Iterator[IO[str]]:
    if path.suffix != ".zst":
        with path.open(encoding="utf-8", newline="") as file:
            yield file
        return
    import pyarrow as pa

    with pa.input_stream(str(path), compression="zstd") as stream:
        yield io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8", newline="")


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        columns = [name for name in file.schema_arrow.names if name in {*FIELDS, "GameId", "Rating"}]
        for batch in file.iter_batches(batch_size=4096, columns=columns, use_threads=False):
            yield from batch.to_pylist()


def _hub_rows(name: str) -> Iterator[Row]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise UsageError("chess: the hub needs the datasets package: pip install datasets") from None
    try:
        yield from load_dataset(name, split="train", streaming=True)
    except Exception as error:  # the library raises most of Python's own kinds
        raise UsageError(
            f"chess: cannot read {name} from the hub: {_one_line(error)}; or take the file: curl -LO {WHERE}"
        ) from error


def _checked(rows: Iterable[Row], source: str) -> Iterator[Row]:
    """The rows, after a look at the first one's columns; reading errors become one line."""
    try:
        for number, row in enumerate(rows):
            if number == 0:
                lacks = [name for name in FIELDS if name not in row and not (name == "GameUrl" and "GameId" in row)]
                if lacks:
                    raise UsageError(f"chess: {source} is no puzzle database, it lacks the column {lacks[0]}")
            yield row
    except (OSError, ValueError, csv.Error) as error:  # Arrow's own are ValueErrors, and so is text that is no UTF-8
        raise UsageError(f"chess: cannot read {source}: {_one_line(error)}") from error


def game_of(row: Row) -> str:
    """The game that a row is from: its GameId, or its GameUrl without the move and the colour."""
    if row.get("GameId"):
        return str(row["GameId"])
    url = str(row["GameUrl"]).partition("#")[0].rstrip("/")
    return url.removesuffix("/black").removesuffix("/white").rpartition("/")[2]


def puzzle_of(row: Row) -> Puzzle:
    """The puzzle of a row, its line proved legal. Raises UsageError that names the puzzle."""
    first, *line = _words(row["Moves"])
    try:
        puzzle = Puzzle(
            id=str(row["PuzzleId"]),
            game=game_of(row),
            fen=after(str(row["FEN"]), first),
            line=tuple(line),
            themes=tuple(_words(row["Themes"])),
            rating=_rating(row),
        )
        positions(puzzle)
    except ValueError as error:
        raise UsageError(f"chess: puzzle {row['PuzzleId']} is damaged: {_one_line(error)}") from error
    return puzzle


def read_rows(rows: Iterable[Row]) -> Iterator[tuple[Row, Puzzle]]:
    """Each row with its puzzle."""
    return ((row, puzzle_of(row)) for row in rows)


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list | tuple) else str(value or "").split()


def _rating(row: Row) -> int | None:
    value = row.get("Rating")
    if value in (None, ""):
        return None
    try:
        return int(str(value))
    except ValueError:
        raise UsageError(f"chess: puzzle {row['PuzzleId']}: the rating {value!r} is no whole number") from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
