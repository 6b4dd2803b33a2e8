"""The log in PostgreSQL: many runs in one database, one writer at a time in each, readers that never wait.

A position is taken from the run's row in `whale_runs`, which is locked until the commit. So positions appear
in the order in which they are taken: a reader that has seen one has seen all before it. (A sequence would
give them out before the commit, and a reader could pass one by that comes later.)
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC
from itertools import islice
from time import sleep
from types import TracebackType
from typing import NamedTuple, Self

from whale.events import postgres_rows as stored
from whale.events.chain import (
    Clock,
    EventIds,
    Prepared,
    check,
    check_json,
    checked,
    prepare,
    recorded,
    recorded_before,
    seal,
    sealed,
    utc_now,
)
from whale.events.codec import CODEC, Codec
from whale.events.log import GENESIS, CorruptLog, Head, LogError, NewEvent, Recorded, Row, VersionConflict
from whale.events.postgres_driver import psycopg, sql
from whale.events.postgres_schema import check_place, create, guarded, look
from whale.events.postgres_server import Server
from whale.events.postgres_url import check_run
from whale.events.walk import walk, walk_stream

_ROWS_AN_INSERT = 1_000


class RunEntry(NamedTuple):
    """A run of a database."""

    name: str
    position: int
    """The newest position; 0 for a run without events."""
    created: str
    """UTC, ISO 8601."""


def runs(url: str) -> list[RunEntry]:
    """The runs of a database, oldest first. Raises LogError, LogUnavailable, CorruptLog."""
    server = Server(url, "list", readonly=True)
    try:
        return server.once(lambda connection: _runs(server.where, connection))
    finally:
        server.close()


def _runs(where: str, connection: psycopg.Connection) -> list[RunEntry]:
    place = look(connection)
    check_place(where, place)
    if not place.made:
        return []
    found = connection.execute("SELECT run, position, created FROM whale_runs ORDER BY created, run").fetchall()
    return [RunEntry(*row) for row in found]


class PostgresLog:
    """An `EventLog` in a database. Threads may share it; a process that forks must open its own.

    Attributes:
        warning: why the place is unsafe for a log, in one line; None if nothing is known against it.
    """

    def __init__(
        self,
        url: str,
        run: str,
        readonly: bool = False,
        *,
        codec: Codec = CODEC,
        clock: Clock = utc_now,
        busy_timeout: float = 60.0,
    ) -> None:
        """Open the run's log, or make it if there is none (unless `readonly`), and the tables with it.

        `url`: postgresql+psycopg://…, without a password. `busy_timeout`: seconds to wait for another process's
        append, and for a server that goes away while the log is open; opening never waits for a server.

        Raises LogError (the address, the login, the database, permissions, no such run), LogUnavailable,
        CorruptLog (the tables are not ours).
        """
        self.run = check_run(run)
        self._codec, self._clock, self._new_ids = codec, clock, EventIds()
        self._readonly, self._closed = readonly, False
        self._server = Server(url, "log", readonly=readonly, patience=busy_timeout)
        self.where = f'{self._server.where}, run "{run}"'
        self.warning: str | None = None
        try:
            self._server.once(self._begin)
        except BaseException:
            self.close()
            raise

    def _begin(self, connection: psycopg.Connection) -> None:
        place = look(connection)
        check_place(self._server.where, place)
        if place.fsync != "on":
            self.warning = (
                f"{self._server.where} runs with fsync = off: a crash of its machine can lose or damage what was "
                "acknowledged. Set it to on"
            )
        if not place.made:
            if self._readonly:
                raise LogError(f"{self._server.where}: there is no event log in this database")
            if place.schema is None:
                raise LogError(f"{self._server.where}: no schema of the search_path exists; make one, or name one")
            create(connection, place.schema)
        known = connection.execute("SELECT 1 FROM whale_runs WHERE run = %s", (self.run,)).fetchone()
        if known is None:
            if self._readonly:
                names = ", ".join(entry.name for entry in _runs(self._server.where, connection)) or "none"
                raise LogError(f'{self._server.where}: there is no run "{self.run}" here; there are: {names}')
            now = self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            connection.execute(
                "INSERT INTO whale_runs (run, created, position, hash) VALUES (%s, %s, 0, %s) ON CONFLICT DO NOTHING",
                (self.run, now, GENESIS),
            )
        stored.head_of(connection, self.run)

    # --- writing ---

    def append(self, stream: str, events: Sequence[NewEvent], expected_version: int | None) -> list[Recorded]:
        """See `EventLog.append`.

        If the server goes away in the middle, the batch is appended again when it is back (until
        `busy_timeout`): where it had been recorded, the keys show it.
        """
        self._writable()
        batch = prepare(stream, events, self._codec)
        if not batch:
            return []
        return self._server.patiently(lambda connection: self._append(connection, stream, batch, expected_version))

    def _append(
        self, connection: psycopg.Connection, stream: str, batch: list[Prepared], expected_version: int | None
    ) -> list[Recorded]:
        keys = [p.key for p in batch]
        with connection.transaction():
            with connection.pipeline():  # four questions in one round trip; the lock comes first
                lock = stored.lock_head(connection, self.run)
                last = stored.newest(connection, self.run)
                same = stored.select(connection, "run = %s AND stream = %s AND key = ANY(%s)", (self.run, stream, keys))
                count = stored.version_of(connection, self.run, stream)
                head = stored.agreed(self.run, lock.fetchone(), last.fetchone())
                rows = {row.key: row for row in stored.rows_of(same)}
                (version,) = count.fetchone() or (0,)
            repeat = recorded_before(stream, batch, rows, self._codec)
            if repeat is not None:
                return repeat
            if expected_version is not None and expected_version != version:
                raise VersionConflict(stream, expected_version, version)
            new = seal(stream, batch, version, head, self._clock(), self._new_ids)
            with connection.pipeline():
                for i in range(0, len(new), _ROWS_AN_INSERT):
                    stored.insert(connection, self.run, new[i : i + _ROWS_AN_INSERT])
                stored.move_head(connection, self.run, Head(new[-1].position, new[-1].hash))
        return sealed(new, batch)

    def restore(self, rows: Iterable[Row]) -> Head:
        """See `EventLog.restore`. Not repeated if the server goes away: LogUnavailable."""
        self._writable()
        source = checked(rows)
        return self._server.once(lambda connection: self._restore(connection, source))

    def _restore(self, connection: psycopg.Connection, source: Iterator[Row]) -> Head:
        with connection.transaction():
            lock = stored.lock_head(connection, self.run)
            head = stored.agreed(self.run, lock.fetchone(), stored.newest(connection, self.run).fetchone())
            if head.position:
                raise LogError(f"{self.where}: only an empty log can take the events of another one")
            while page := list(islice(source, _ROWS_AN_INSERT)):
                stored.insert(connection, self.run, page)
                head = Head(page[-1].position, page[-1].hash)
            if head.position:
                stored.move_head(connection, self.run, head)
        return head

    # --- reading ---

    def read(self, after: int = 0, until: int | None = None, stream: str | None = None) -> Iterator[Recorded]:
        """See `EventLog.read`."""
        head = self.head().position
        end = head if until is None else min(until, head)
        rows = walk(self._page, after, end) if stream is None else self._stream(stream, after, end)
        for row in rows:
            yield recorded(row, self._codec)

    def rows(self, after: int = 0, until: int | None = None) -> Iterator[Row]:
        """See `EventLog.rows`."""
        head = self.head().position
        for row in walk(self._page, after, head if until is None else min(until, head)):
            check(row)
            yield row

    def head(self) -> Head:
        """See `EventLog.head`."""
        self._open()
        return self._server.patiently(lambda connection: stored.head_of(connection, self.run))

    def version(self, stream: str) -> int:
        """See `EventLog.version`."""
        self._open()
        if not stream.isprintable():  # no such text is in the log, and PostgreSQL takes no NUL
            return 0
        row = self._server.patiently(lambda c: stored.version_of(c, self.run, stream).fetchone())
        return row[0] if row else 0

    def find(self, key: str, stream: str) -> Recorded | None:
        """See `EventLog.find`."""
        self._open()
        if not key.isprintable() or not stream.isprintable():
            return None
        rows = self._select("run = %s AND stream = %s AND key = %s", (self.run, stream, key))
        return recorded(rows[0], self._codec) if rows else None

    def tail(self, after: int, *, stop: Callable[[], bool], poll: float = 0.2) -> Iterator[Recorded]:
        """See `EventLog.tail`. Woken by the appends; it looks every `poll` seconds all the same.

        A connection that is lost is made anew: nothing is skipped or repeated, because what is looked for is
        always what comes after the last position that was yielded.
        """
        bell: psycopg.Connection | None = None
        try:
            while True:
                self._open()
                stopping = stop()
                if bell is None:
                    bell = self._bell()
                for event in self.read(after):
                    after = event.position
                    yield event
                if stopping:
                    return
                if bell is None or not _rung(bell, poll):
                    bell = None
                    sleep(poll)
        finally:
            if bell is not None:
                bell.close()

    def verify(self) -> Head:
        """See `EventLog.verify`. Checks the run's head and the append-only triggers too."""
        self._open()
        ends = "SELECT min(position), coalesce(max(position), 0) FROM whale_events WHERE run = %s"
        first, last = self._server.patiently(lambda c: c.execute(ends, (self.run,)).fetchone()) or (None, 0)
        if first is not None and first < 1:
            raise CorruptLog(first, "was not written by a log: positions begin at 1")
        end = Head(0, GENESIS)
        for row in walk(self._page, 0, last):
            check(row)
            check_json(row)
            end = Head(row.position, row.hash)
        self.head()
        if not self._server.patiently(guarded):
            raise CorruptLog(None, "the triggers that keep it append-only are not as they were made")
        return end

    def _page(self, after: int, end: int, limit: int) -> list[Row]:
        where = "run = %s AND position > %s AND position <= %s ORDER BY position LIMIT %s"
        return self._select(where, (self.run, after, end, limit))

    def _stream(self, stream: str, after: int, end: int) -> Iterator[Row]:
        if not stream.isprintable():
            return iter(())

        def page(newest: int, limit: int) -> list[Row]:
            where = "run = %s AND stream = %s AND version > %s ORDER BY version LIMIT %s"
            return self._select(where, (self.run, stream, newest, limit))

        before = self._server.patiently(lambda c: stored.version_before(c, self.run, stream, after)) if after > 0 else 0
        return walk_stream(page, stream, before, end)

    def _select(self, where: str, parameters: Sequence[object]) -> list[Row]:
        self._open()
        return self._server.patiently(lambda c: stored.rows_of(stored.select(c, where, parameters)))

    def _bell(self) -> psycopg.Connection | None:
        """A connection that is told of the run's appends; None where there can be none: polling is behind it."""
        connection = None
        try:
            connection = self._server.connect()
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(stored.channel(self.run))))
        except (psycopg.Error, LogError):  # away, or a standby; the next look says what is the matter
            if connection is not None:
                connection.close()
            return None
        return connection

    # --- end ---

    def close(self) -> None:
        """See `EventLog.close`."""
        self._closed = True
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> None:
        if self._closed:
            raise LogError(f"{self.where}: the log is closed")

    def _writable(self) -> None:
        self._open()
        if self._readonly:
            raise LogError(f"{self.where} is open for reading only")


def _rung(bell: psycopg.Connection, poll: float) -> bool:
    """Wait for an append, `poll` seconds at most; False if the connection is lost."""
    try:
        for _ in bell.notifies(timeout=poll, stop_after=1):
            pass
    except psycopg.Error:
        bell.close()
        return False
    return True
