"""Rows in and out of the SQLite file, in order, in pages, and with what is missing told from what is not there."""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

from whale.events.log import GENESIS, CorruptLog, Head, Row
from whale.events.sqlite_file import in_our_words
from whale.events.walk import walk as in_order
from whale.events.walk import walk_stream as stream_in_order

# data and meta as bytes: that is what is hashed and decoded.
_COLUMNS = ", ".join(f"CAST({c} AS BLOB)" if c in ("data", "meta") else f'"{c}"' for c in Row._fields)


def one(connection: sqlite3.Connection, sql: str, parameters: tuple[Any, ...] = ()) -> Any:
    """The first value of the first row of a query, or None."""
    row = connection.execute(sql, parameters).fetchone()
    return None if row is None else row[0]


def select(connection: sqlite3.Connection, where: str, parameters: tuple[Any, ...]) -> list[Row]:
    """The rows that a WHERE clause picks."""
    return [Row._make(values) for values in connection.execute(f"SELECT {_COLUMNS} FROM events {where}", parameters)]


_ROWS_A_STATEMENT = 100


def insert(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Write rows, many by one statement: each statement keeps a copy of the pages that it changes."""
    for i in range(0, len(rows), _ROWS_A_STATEMENT):
        part = rows[i : i + _ROWS_A_STATEMENT]
        connection.execute(_insert(len(part)), list(chain.from_iterable(map(_storable, part))))


def _storable(row: Row) -> tuple[Any, ...]:
    """As the driver takes it: text for data and meta, which as bytes would become BLOBs."""
    return (*row[:8], row.data.decode(), row.meta.decode(), *row[10:])


@cache
def _insert(count: int) -> str:
    names = ", ".join(f'"{c}"' for c in Row._fields)
    row = ", ".join("?" * len(Row._fields))
    return f"INSERT INTO events ({names}) VALUES " + ", ".join([f"({row})"] * count)


def version_of(connection: sqlite3.Connection, stream: str) -> int:
    """The stream's version; 0 for one that is not there."""
    newest: int | None = one(connection, "SELECT max(version) FROM events WHERE stream = ?", (stream,))
    return newest or 0


def head_of(connection: sqlite3.Connection) -> Head:
    """The newest event. Raises CorruptLog if the end was cut off: SQLite keeps the highest position.

    Rows above it were put there by another hand; the first that does not fit is for the reader to find.
    """
    row = connection.execute(
        "SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'events'), position, hash "
        "FROM (SELECT 1) LEFT JOIN (SELECT position, hash FROM events ORDER BY position DESC LIMIT 1)"
    ).fetchone()
    highest, position, hash_ = row[0] or 0, row[1] or 0, row[2] or GENESIS
    if highest > position:
        raise CorruptLog(position + 1, f"is missing: the log went up to {highest}, and its end was cut off")
    return Head(position, hash_)


def walk(path: Path, connection: sqlite3.Connection, after: int, end: int) -> Iterator[Row]:
    """All rows with after < position <= end, each checked to follow from the one before it."""
    return in_order(partial(_page, path, connection), after, end)


def _page(path: Path, connection: sqlite3.Connection, after: int, end: int, limit: int) -> list[Row]:
    try:
        with in_our_words(path):
            where = "WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
            return select(connection, where, (after, end, limit))
    except CorruptLog as error:
        if limit > 1:  # a row at a time, up to the one that cannot be read
            return _page(path, connection, after, end, 1)
        raise CorruptLog(after + 1, error.reason) from error


def walk_stream(path: Path, connection: sqlite3.Connection, stream: str, after: int, end: int) -> Iterator[Row]:
    """The stream's rows with after < position <= end, by the index on (stream, version)."""
    with in_our_words(path):
        before = after > 0 and one(
            connection,
            "SELECT version FROM events WHERE stream = ? AND position <= ? ORDER BY version DESC LIMIT 1",
            (stream, after),
        )

    def page(newest: int, limit: int) -> list[Row]:
        with in_our_words(path):
            where = "WHERE stream = ? AND version > ? ORDER BY version LIMIT ?"
            return select(connection, where, (stream, newest, limit))

    return stream_in_order(page, stream, before or 0, end)
