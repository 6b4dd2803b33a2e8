"""The log in memory: for tests and for trying a reducer. It stores bytes as the others do."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

from whale.events.chain import (
    Clock,
    EventIds,
    check,
    checked,
    prepare,
    recorded,
    recorded_before,
    seal,
    sealed,
    utc_now,
)
from whale.events.codec import CODEC, Codec
from whale.events.log import GENESIS, Head, LogError, NewEvent, Recorded, Row, VersionConflict


class MemoryLog:
    """An `EventLog` that ends with its process. Safe to use from several threads."""

    def __init__(self, *, codec: Codec = CODEC, clock: Clock = utc_now) -> None:
        self._codec, self._clock, self._new_ids = codec, clock, EventIds()
        self._rows: list[Row] = []
        self._streams: dict[str, dict[str, Row]] = {}
        self._changed = threading.Condition(threading.RLock())
        self._closed = False

    def append(self, stream: str, events: Sequence[NewEvent], expected_version: int | None) -> list[Recorded]:
        """See `EventLog.append`."""
        batch = prepare(stream, events, self._codec)
        with self._changed:
            self._open()
            if not batch:
                return []
            keys = self._streams.get(stream, {})
            rows = {p.key: keys[p.key] for p in batch if p.key in keys}
            repeat = recorded_before(stream, batch, rows, self._codec)
            if repeat is not None:
                return repeat
            if expected_version is not None and expected_version != len(keys):
                raise VersionConflict(stream, expected_version, len(keys))
            new = seal(stream, batch, len(keys), self.head(), self._clock(), self._new_ids)
            self._rows += new
            self._streams.setdefault(stream, {}).update({row.key: row for row in new})
            self._changed.notify_all()
        return sealed(new, batch)

    def read(self, after: int = 0, until: int | None = None, stream: str | None = None) -> Iterator[Recorded]:
        """See `EventLog.read`."""
        self._open()
        end = len(self._rows) if until is None else min(until, len(self._rows))
        for i in range(max(after, 0), end):
            if stream is None or self._rows[i].stream == stream:
                yield recorded(self._rows[i], self._codec)

    def rows(self, after: int = 0, until: int | None = None) -> Iterator[Row]:
        """See `EventLog.rows`."""
        self._open()
        end = len(self._rows) if until is None else min(until, len(self._rows))
        for i in range(max(after, 0), end):
            check(self._rows[i])
            yield self._rows[i]

    def restore(self, rows: Iterable[Row]) -> Head:
        """See `EventLog.restore`."""
        copied = list(checked(rows))
        with self._changed:
            self._open()
            if self._rows:
                raise LogError("only an empty log can take the events of another one")
            self._rows += copied
            for row in copied:
                self._streams.setdefault(row.stream, {})[row.key] = row
            self._changed.notify_all()
        return self.head()

    def head(self) -> Head:
        """See `EventLog.head`."""
        self._open()
        with self._changed:
            return Head(self._rows[-1].position, self._rows[-1].hash) if self._rows else Head(0, GENESIS)

    def version(self, stream: str) -> int:
        """See `EventLog.version`."""
        self._open()
        return len(self._streams.get(stream, {}))

    def find(self, key: str, stream: str) -> Recorded | None:
        """See `EventLog.find`."""
        self._open()
        row = self._streams.get(stream, {}).get(key)
        return None if row is None else recorded(row, self._codec)

    def tail(self, after: int, *, stop: Callable[[], bool], poll: float = 0.2) -> Iterator[Recorded]:
        """See `EventLog.tail`."""
        while True:
            stopping = stop()
            for event in self.read(after):
                after = event.position
                yield event
            if stopping:
                return
            with self._changed:
                if len(self._rows) <= after:
                    self._changed.wait(poll)

    def verify(self) -> Head:
        """See `EventLog.verify`."""
        self._open()
        end = Head(0, GENESIS)
        for row in checked(list(self._rows)):
            end = Head(row.position, row.hash)
        return end

    def close(self) -> None:
        """See `EventLog.close`."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> None:
        if self._closed:
            raise LogError("the log is closed")
