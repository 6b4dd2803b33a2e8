"""Rows in and out of PostgreSQL: each function is one statement, and so one snapshot."""

from collections.abc import Sequence
from typing import Any

from whale.events.log import GENESIS, CorruptLog, Head, LogError, Row, as_row
from whale.events.postgres_driver import psycopg

_TYPES = ("bigint", "text", "bigint", "text", "text", "text", "text", "int", "text", "text", "text", "text")
_NAMES = ", ".join(f'"{name}"' for name in Row._fields)

# data and meta as bytes: that is what is hashed and decoded. The server gives UTF-8, whatever the session says.
_COLUMNS = ", ".join(f"convert_to({name}, 'UTF8')" if name in ("data", "meta") else f'"{name}"' for name in Row._fields)
# One statement a batch: the trigger that checks what is inserted runs once for all of its rows.
_INSERT = (
    f"INSERT INTO whale_events (run, {_NAMES}) SELECT %s, * FROM unnest("
    + ", ".join(f"%s::{kind}[]" for kind in _TYPES)
    + ")"
)
_NEWEST = "SELECT position, hash FROM whale_events WHERE run = %s ORDER BY position DESC LIMIT 1"


def select(connection: psycopg.Connection, where: str, parameters: Sequence[Any]) -> psycopg.Cursor[Any]:
    """A cursor over the rows that a WHERE clause picks; `rows_of` fetches them."""
    query = f"SELECT {_COLUMNS} FROM whale_events WHERE {where}"
    return connection.execute(query.encode(), parameters, binary=True)


def rows_of(cursor: psycopg.Cursor[Any]) -> list[Row]:
    """What a `select` found."""
    return list(map(as_row, cursor.fetchall()))


def insert(connection: psycopg.Connection, run: str, rows: Sequence[Row]) -> None:
    """Write rows after those that are there; the triggers see to it that they follow."""
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)]
    for at in (Row._fields.index("data"), Row._fields.index("meta")):
        columns[at] = [value.decode() for value in columns[at]]
    connection.execute(_INSERT.encode(), [run, *columns])


def move_head(connection: psycopg.Connection, run: str, head: Head) -> None:
    """Note the run's new head, and wake those who follow it; both take effect with the commit."""
    connection.execute("UPDATE whale_runs SET position = %s, hash = %s WHERE run = %s", (head.position, head.hash, run))
    connection.execute("SELECT pg_notify(%s, '')", (channel(run),))


def channel(run: str) -> str:
    """The LISTEN channel of a run: a name has at most 63 bytes, and a run's name may be longer."""
    from hashlib import sha256

    return f"whale_{sha256(run.encode()).hexdigest()[:32]}"


def lock_head(connection: psycopg.Connection, run: str) -> psycopg.Cursor[Any]:
    """Lock the run's row until the transaction ends; the cursor has its head.

    What the transaction reads in later statements is what the writer before it committed.
    """
    return connection.execute("SELECT position, hash FROM whale_runs WHERE run = %s FOR UPDATE", (run,))


def newest(connection: psycopg.Connection, run: str) -> psycopg.Cursor[Any]:
    """A cursor with position and hash of the newest row; nothing if there is none."""
    return connection.execute(_NEWEST, (run,))


def head_of(connection: psycopg.Connection, run: str) -> Head:
    """The newest event. Raises CorruptLog if the rows end elsewhere than the head says."""
    row = connection.execute(
        "SELECT r.position, r.hash, e.position, e.hash FROM whale_runs r LEFT JOIN LATERAL "
        "(SELECT position, hash FROM whale_events WHERE run = r.run ORDER BY position DESC LIMIT 1) e ON true "
        "WHERE r.run = %s",
        (run,),
    ).fetchone()
    return agreed(run, row and row[:2], row and row[2:])


def agreed(run: str, head: Any, newest_row: Any) -> Head:
    """The head, if it is the newest row's. Raises CorruptLog, or LogError if the run is not there."""
    if head is None:
        raise LogError(f'run "{run}" is not in this database any more')
    position, hash_ = head
    last, last_hash = (newest_row[0] or 0, newest_row[1] or GENESIS) if newest_row else (0, GENESIS)
    if last < position:
        raise CorruptLog(last + 1, f"is missing: the log went up to {position}, and its end was cut off")
    if last > position:
        raise CorruptLog(position + 1, f"was not written by a log: the run's head is at {position}")
    if hash_ != last_hash:
        raise CorruptLog(position, "is not the one that the run's head names")
    return Head(position, hash_)


def version_of(connection: psycopg.Connection, run: str, stream: str) -> psycopg.Cursor[Any]:
    """A cursor with the stream's version; 0 for one that is not there."""
    return connection.execute(
        "SELECT coalesce(max(version), 0) FROM whale_events WHERE run = %s AND stream = %s", (run, stream)
    )


def version_before(connection: psycopg.Connection, run: str, stream: str, position: int) -> int:
    """The version that the stream had at a position."""
    row = connection.execute(
        "SELECT version FROM whale_events WHERE run = %s AND stream = %s AND position <= %s "
        "ORDER BY version DESC LIMIT 1",
        (run, stream, position),
    ).fetchone()
    return row[0] if row else 0
