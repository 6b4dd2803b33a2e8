"""Rows out of the SQLite file, in order, in pages, and with what is missing told from what is not there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from whale.events.chain import Row, check_link
from whale.events.log import GENESIS, CorruptLog, Head
from whale.events.sqlite_file import in_our_words

_PAGE = 500
"""Rows a query. Between pages a reader holds no snapshot, so that the WAL file can be reset meanwhile."""

# data and meta as bytes: that is what is hashed and decoded.
_COLUMNS = ", ".join(f"CAST({c} AS BLOB)" if c in ("data", "meta") else f'"{c}"' for c in Row._fields)


def one(connection: Connection, sql: str, parameters: tuple[Any, ...] = ()) -> Any:
    """The first value of the first row of a query, or None."""
    return connection.exec_driver_sql(sql, parameters).scalar()


def select(connection: Connection, where: str, parameters: tuple[Any, ...]) -> list[Row]:
    """The rows that a WHERE clause picks."""
    result = connection.exec_driver_sql(f"SELECT {_COLUMNS} FROM events {where}", parameters)
    return [Row(*values) for values in result]


def version_of(connection: Connection, stream: str) -> int:
    """The stream's version; 0 for one that is not there."""
    newest: int | None = one(connection, "SELECT max(version) FROM events WHERE stream = ?", (stream,))
    return newest or 0


def head_of(connection: Connection) -> Head:
    """The newest event. Raises CorruptLog if the end was cut off: SQLite keeps the highest position."""
    row = connection.exec_driver_sql(
        "SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'events'), position, hash "
        "FROM (SELECT 1) LEFT JOIN (SELECT position, hash FROM events ORDER BY position DESC LIMIT 1)"
    ).one()
    highest, position, hash_ = row[0] or 0, row[1] or 0, row[2] or GENESIS
    if highest != position:
        raise CorruptLog(position + 1, f"is missing: the log went up to {highest}, and its end was cut off")
    return Head(position, hash_)


def walk(path: Path, connection: Connection, after: int, end: int) -> Iterator[Row]:
    """All rows with after < position <= end, each checked to follow from the one before it."""
    after = max(after, 0)
    if after >= end:
        return
    position, hash_ = after, GENESIS
    if after:
        rows = _page(path, connection, after - 1, after, 1)
        if not rows:
            raise CorruptLog(after, "is missing")
        hash_ = rows[0].hash
    while position < end:
        rows = _page(path, connection, position, end, _PAGE)
        if not rows:
            raise CorruptLog(position + 1, "is missing")
        for row in rows:
            check_link(row, position, hash_)
            position, hash_ = row.position, row.hash
            yield row


def _page(path: Path, connection: Connection, after: int, end: int, limit: int) -> list[Row]:
    try:
        with in_our_words(path):
            where = "WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
            return select(connection, where, (after, end, limit))
    except CorruptLog as error:
        if limit > 1:  # a row at a time, up to the one that cannot be read
            return _page(path, connection, after, end, 1)
        raise CorruptLog(after + 1, error.reason) from error


def walk_stream(path: Path, connection: Connection, stream: str, after: int, end: int) -> Iterator[Row]:
    """The stream's rows with after < position <= end, by the index on (stream, version)."""
    with in_our_words(path):
        before = after > 0 and one(
            connection,
            "SELECT version FROM events WHERE stream = ? AND position <= ? ORDER BY version DESC LIMIT 1",
            (stream, after),
        )
    newest: int = before or 0
    while True:
        with in_our_words(path):
            where = "WHERE stream = ? AND version > ? ORDER BY version LIMIT ?"
            rows = select(connection, where, (stream, newest, _PAGE))
        for row in rows:
            if row.position > end:
                return
            if row.version != newest + 1:
                raise CorruptLog(row.position, f'has version {row.version} in "{stream}", after {newest}')
            newest = row.version
            yield row
        if len(rows) < _PAGE:
            return
