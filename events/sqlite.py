"""The log in a SQLite file: WAL, one writer at a time, any number of readers that never wait for it."""

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import Engine

from whale.events.chain import (
    Clock,
    EventIds,
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
from whale.events.filesystem import network_filesystem
from whale.events.log import (
    GENESIS,
    CorruptLog,
    Head,
    LogError,
    LogFull,
    NewEvent,
    Recorded,
    Row,
    VersionConflict,
)
from whale.events.sqlite_file import (
    APPLICATION_ID,
    LAYOUT,
    TRIGGERS,
    ReadSource,
    borrowed,
    create,
    in_our_words,
    transaction,
    writer,
)
from whale.events.sqlite_rows import head_of, insert, one, select, version_of, walk, walk_stream, with_keys

_ROWS_AN_INSERT = 1_000


class SqliteLog:
    """An `EventLog` in one file. Threads may share it; a process that forks must open its own.

    Attributes:
        warning: why the place is unsafe for a database, in one line; None if nothing is known against it.
    """

    def __init__(
        self,
        path: Path | str,
        readonly: bool = False,
        *,
        codec: Codec = CODEC,
        clock: Clock = utc_now,
        busy_timeout: float = 60.0,
    ) -> None:
        """Open the log, or make it if there is none (unless `readonly`).

        `busy_timeout`: seconds to wait for another process's append.

        Raises LogError (no log there, no permission), LogFull, CorruptLog (it is not a log, or damaged).
        """
        self.path = Path(path)
        self._codec, self._clock, self._new_ids = codec, clock, EventIds()
        self._closed = False
        if not self.path.exists():
            if readonly:
                raise LogError(f"{self.path}: there is no event log here")
            self._create()
        network = network_filesystem(self.path)
        self.warning = network and (
            f"{self.path} is on a network file system ({network}), where locks are unreliable: "
            "two writers can damage it. Keep the run on a local disk"
        )
        self._source = ReadSource(self.path, busy_timeout)
        self._writer: Engine | None = None
        try:
            self._check_layout()
            if not readonly:
                # SQLite opens a file without write permission all the same, and fails at the first append.
                if not os.access(self.path, os.W_OK):
                    raise LogError(f"{self.path}: no permission to write to this event log")
                self._writer = writer(self.path, busy_timeout)
                with in_our_words(self.path), borrowed(self._writer):
                    pass  # connecting alone shows permissions
        except BaseException:
            self.close()
            raise

    def _create(self) -> None:
        try:
            with in_our_words(self.path):
                create(self.path)
        except OSError as error:
            kind = LogFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else LogError
            raise kind(f"{self.path}: cannot make an event log here: {error.strerror or error}") from error

    def _check_layout(self) -> None:
        with in_our_words(self.path), borrowed(self._source.engine) as connection:
            application = one(connection, "PRAGMA application_id")
            layout = one(connection, "PRAGMA user_version")
        if application != APPLICATION_ID:
            raise CorruptLog(None, f"{self.path} is not an event log")
        if layout != LAYOUT:
            raise LogError(f"{self.path} has layout {layout}; this release knows layout {LAYOUT}")
        self.head()  # the table is there and can be read

    def append(self, stream: str, events: Sequence[NewEvent], expected_version: int | None) -> list[Recorded]:
        """See `EventLog.append`."""
        self._open()
        if self._writer is None:
            raise LogError(f"{self.path} is open for reading only")
        batch = prepare(stream, events, self._codec)
        if not batch:
            return []
        with in_our_words(self.path):
            try:
                with transaction(self._writer) as connection:
                    version = version_of(connection, stream)
                    if expected_version is not None and expected_version != version:
                        raise VersionConflict(stream, expected_version, version)
                    new = seal(stream, batch, version, head_of(connection), self._clock(), self._new_ids)
                    insert(connection, new)
                return sealed(new, batch)
            except (VersionConflict, sqlite3.IntegrityError):
                # Perhaps a repeat. The table refuses a key that is there, so nobody asks for the keys of a batch
                # that is new, as nearly all are; and what is recorded stays, so the lock is not needed to look.
                with borrowed(self._writer) as connection:
                    rows = with_keys(connection, stream, [p.key for p in batch])
                repeat = recorded_before(stream, batch, rows, self._codec)
                if repeat is None:
                    raise
                return repeat

    def read(self, after: int = 0, until: int | None = None, stream: str | None = None) -> Iterator[Recorded]:
        """See `EventLog.read`."""
        self._open()
        with borrowed(self._source.engine) as connection:
            with in_our_words(self.path):
                head = head_of(connection).position
            end = head if until is None else min(until, head)
            if stream is None:
                rows = walk(self.path, connection, after, end)
            else:
                rows = walk_stream(self.path, connection, stream, after, end)
            for row in rows:
                yield recorded(row, self._codec)

    def rows(self, after: int = 0, until: int | None = None) -> Iterator[Row]:
        """See `EventLog.rows`."""
        self._open()
        with borrowed(self._source.engine) as connection:
            with in_our_words(self.path):
                head = head_of(connection).position
            for row in walk(self.path, connection, after, head if until is None else min(until, head)):
                check(row)
                yield row

    def restore(self, rows: Iterable[Row]) -> Head:
        """See `EventLog.restore`."""
        self._open()
        if self._writer is None:
            raise LogError(f"{self.path} is open for reading only")
        source = checked(rows)
        with in_our_words(self.path), transaction(self._writer) as connection:
            if head_of(connection).position:
                raise LogError(f"{self.path}: only an empty log can take the events of another one")
            while page := list(islice(source, _ROWS_AN_INSERT)):
                insert(connection, page)
            return head_of(connection)

    def head(self) -> Head:
        """See `EventLog.head`."""
        self._open()
        with in_our_words(self.path), borrowed(self._source.engine) as connection:
            return head_of(connection)

    def version(self, stream: str) -> int:
        """See `EventLog.version`."""
        self._open()
        with in_our_words(self.path), borrowed(self._source.engine) as connection:
            return version_of(connection, stream)

    def find(self, key: str, stream: str) -> Recorded | None:
        """See `EventLog.find`."""
        self._open()
        with in_our_words(self.path), borrowed(self._source.engine) as connection:
            rows = select(connection, "WHERE stream = ? AND key = ?", (stream, key))
        return recorded(rows[0], self._codec) if rows else None

    def tail(self, after: int, *, stop: Callable[[], bool], poll: float = 0.2) -> Iterator[Recorded]:
        """See `EventLog.tail`. Costs one PRAGMA a poll while nothing happens."""
        seen: int | None = None
        while True:
            stopping = stop()
            with borrowed(self._source.engine) as connection:
                while True:
                    self._open()
                    # Asked before looking: what is committed while we look changes it again.
                    with in_our_words(self.path):
                        version = one(connection, "PRAGMA data_version")
                    idle = version == seen and not self._source.frozen
                    if not idle:
                        seen = version
                        with in_our_words(self.path):
                            end = head_of(connection).position
                        for row in walk(self.path, connection, after, end):
                            yield recorded(row, self._codec)
                            after = row.position
                    if stopping:
                        return
                    if idle or self._source.frozen:
                        time.sleep(poll)
                    if self._source.frozen:
                        break
                    stopping = stop()
            self._source.engine.dispose()  # a frozen picture: take a new one

    def verify(self) -> Head:
        """See `EventLog.verify`. Checks the file's own structure and the append-only triggers too."""
        self._open()
        with borrowed(self._source.engine) as connection:
            with in_our_words(self.path):
                first = one(connection, "SELECT min(position) FROM events")
            if first is not None and first < 1:
                raise CorruptLog(first, "was not written by a log: positions begin at 1")
            with in_our_words(self.path):
                last = one(connection, "SELECT max(position) FROM events") or 0
            end = Head(0, GENESIS)
            for row in walk(self.path, connection, 0, last):
                check(row)
                check_json(row)
                end = Head(row.position, row.hash)
            with in_our_words(self.path):
                head_of(connection)
                highest = one(connection, "SELECT seq FROM sqlite_sequence WHERE name = 'events'") or 0
                other = one(
                    connection, "SELECT min(position) FROM events WHERE typeof(data) || typeof(meta) != 'texttext'"
                )
                fault = one(connection, "PRAGMA integrity_check(1)")
                made = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
                triggers = {row[0]: row[1] for row in made}
            if fault != "ok":
                raise CorruptLog(_row_named_in(fault), f"{self.path} is damaged: {fault}")
            if highest != end.position:
                raise CorruptLog(None, f"the log itself went up to {highest}, and holds {end.position} events")
            if other is not None:
                raise CorruptLog(other, "is not stored as text")
            if triggers != TRIGGERS:
                raise CorruptLog(None, "the triggers that keep it append-only are not as they were made")
        return end

    def close(self) -> None:
        """See `EventLog.close`."""
        self._closed = True
        self._source.close()
        if self._writer is not None:
            self._writer.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> None:
        if self._closed:
            raise LogError(f"{self.path}: the log is closed")


def _row_named_in(fault: str) -> int | None:
    """The position in integrity_check's "row 3 missing from index …"."""
    words = fault.split()
    return int(words[1]) if len(words) > 1 and words[0] == "row" and words[1].isdigit() else None
