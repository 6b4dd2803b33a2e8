"""Rows in and out of the SQLite file, in order, in pages, and with what is missing told from what is not there."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from whale.events.log import GENESIS, CorruptLog, Head, Row, as_row
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
    return list(map(as_row, connection.execute(f"SELECT {_COLUMNS} FROM events {where}", parameters)))


_KEYS_A_QUERY = 500


def with_keys(connection: sqlite3.Connection, stream: str, keys: Sequence[str]) -> dict[str, Row]:
    """Those of the stream's rows that have one of the keys, by key."""
    found: dict[str, Row] = {}
    for i in range(0, len(keys), _KEYS_A_QUERY):
        some = keys[i : i + _KEYS_A_QUERY]
        where = f"WHERE stream = ? AND key IN ({', '.join('?' * len(some))})"
        found.update((row.key, row) for row in select(connection, where, (stream, *some)))
    return found


# FAIL: see the triggers. Without it SQLite would keep a way back from each row, and the transaction is one already.
_INSERT = "INSERT OR FAIL INTO events ({}) VALUES ({})".format(
    ", ".join(f'"{c}"' for c in Row._fields), ", ".join("?" * len(Row._fields))
)


def insert(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Write rows, in a transaction that is rolled back if one of them is refused (sqlite3.IntegrityError)."""
    # Text for data and meta, which as bytes would become BLOBs.
    connection.executemany(
        _INSERT,
        (
            (position, stream, version, key, event_id, at, type_, schema_version, data.decode(), meta.decode(), *hashes)
            for position, stream, version, key, event_id, at, type_, schema_version, data, meta, *hashes in rows
        ),
    )


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
