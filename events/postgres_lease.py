"""The single writer of a run in PostgreSQL: an advisory lock that lives exactly as long as its connection.

The kernel closes a dead process's connection at once, and the server then frees the lock. A machine that is
gone without a word is given up by both ends' keepalives after about half a minute (postgres_server.py).

The lease saves work; what keeps the history right is `append`'s expected version. So a runner asks `alive()`
at its safe points, before it pays for anything, and stops if the answer is no: the server was restarted or
out of reach, and another runner may have begun. What it appends in between meets the other one's events as
a VersionConflict.
"""

import os
import weakref
from contextlib import suppress
from hashlib import sha256
from threading import Lock
from types import TracebackType
from typing import NamedTuple, Self

from whale.events.log import LeaseHeld, LogError
from whale.events.postgres_driver import psycopg
from whale.events.postgres_server import Server, in_our_words
from whale.events.postgres_url import check_run

_GRACE = "1s"
"""How long a taker waits: the server needs a moment to notice a holder that was just killed."""

_OPEN: "weakref.WeakSet[PostgresLease]" = weakref.WeakSet()
_OF_A_PARENT: list[psycopg.Connection] = []
"""Connections that a fork left here. They are kept, so that nothing ever closes them in the parent's name."""


class Holder(NamedTuple):
    """The process that runs a run."""

    pid: int
    host: str
    """The name of its machine."""
    since: str
    """UTC, ISO 8601: when it connected."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


class PostgresLease:
    """`with PostgresLease(url, run) as lease:` be the run's only writer. Not to be entered twice at a time.

    It is held by a connection of its own, which must not go through a pooler that shares server connections
    between transactions. A forked child does not hold it.
    """

    def __init__(self, url: str, run: str) -> None:
        """Connects when it is entered or asked. Raises LogError for an address that is none."""
        self.run = check_run(run)
        self._server = Server(url, "runner")
        self._connection: psycopg.Connection | None = None
        self._asking = Lock()

    def __enter__(self) -> Self:
        """Take the lease.

        Raises:
            LeaseHeld: another process has it, with what is known about that one.
            LogError, LogUnavailable: the server cannot be used.
        """
        if self._connection is not None:
            raise LogError(f'run "{self.run}": this lease is taken already')
        connection = self._server.connect()
        try:
            with in_our_words(self._server.where):
                connection.execute(f"SET lock_timeout = '{_GRACE}'".encode())
                try:
                    connection.execute("SELECT pg_advisory_lock(%s)", (self._key(connection),))
                except psycopg.errors.LockNotAvailable:
                    raise LeaseHeld(self.run, str(self._holder(connection) or "another process")) from None
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        _OPEN.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""
        connection, self._connection = self._connection, None
        _OPEN.discard(self)
        if connection is not None:
            # Unlocked by hand, so that it is free when this returns; the end of the connection is noticed later.
            with suppress(psycopg.Error):
                connection.execute("SELECT pg_advisory_unlock_all()")
            connection.close()
        self._server.close()

    def alive(self) -> bool:
        """Whether the lease is still ours, asked of the server: a round trip, or half a minute at most."""
        connection = self._connection
        if connection is None:
            return False
        with self._asking:
            try:
                held = connection.execute(
                    _HOLDERS + " AND l.pid = pg_backend_pid()", _halves(self._key(connection))
                ).fetchone()
            except psycopg.Error:
                return False
            return held is not None

    def holder(self) -> Holder | None:
        """Who has the lease, for readers; None if it is free. Raises LogError, LogUnavailable."""
        return self._server.patiently(self._holder)

    def _holder(self, connection: psycopg.Connection) -> Holder | None:
        row = connection.execute(_HOLDERS, _halves(self._key(connection))).fetchone()
        if row is None:
            return None
        name, since = row
        words = (name or "").split(" ")
        pid, _, host = words[-1].partition("@")
        return Holder(int(pid) if pid.isdigit() else 0, host or "an unknown machine", since or "")

    def _key(self, connection: psycopg.Connection) -> int:
        """The lock's number: runs of the same name in two schemas are two runs."""
        row = connection.execute("SELECT current_schema()").fetchone()
        name = f"{row[0] if row else ''}\0{self.run}"
        return int.from_bytes(sha256(name.encode()).digest()[:8], signed=True)


_HOLDERS = (
    "SELECT a.application_name, to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') "
    "FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND l.granted "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND l.classid = %s::bigint::oid AND l.objid = %s::bigint::oid AND l.objsubid = 1"
)


def _halves(key: int) -> tuple[int, int]:
    """A lock's number as pg_locks shows it: two unsigned halves."""
    unsigned = key % 2**64
    return unsigned >> 32, unsigned & 0xFFFF_FFFF


def _let_go_in_child() -> None:
    """A forked child must not keep its parent's lease alive: it closes its copy of the socket, without a word."""
    for lease in list(_OPEN):
        connection, lease._connection = lease._connection, None
        if connection is not None and not connection.closed:
            _OF_A_PARENT.append(connection)
            with suppress(OSError, psycopg.Error):
                os.close(connection.fileno())


os.register_at_fork(after_in_child=_let_go_in_child)

__all__ = ["Holder", "PostgresLease"]
