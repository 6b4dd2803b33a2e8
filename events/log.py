"""The log's contract: what is appended, what comes back, and how it fails.

A store (memory.py, sqlite.py, postgres.py) implements `EventLog` and passes the suite in contract.py. Two promises hold
for each: what was acknowledged is there for ever, in one gapless order; and what a reader gets is what was
written, byte for byte, or an error that names the position.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, cast

import msgspec

from whale.events.types import Event

GENESIS = "0" * 64
"""The hash before the first event, and the head's hash in an empty log."""


class NewEvent(msgspec.Struct, frozen=True):
    """An event to append, and the key that makes its append repeatable."""

    event: Event
    key: str
    """Unique in its stream and derived from what the event is about (run/phase/step/kind/index)."""
    meta: Mapping[str, Any] = {}
    """Time, cost, rates, commit ids: what two equal runs may differ in. JSON has no NaN or infinity: null."""


class Recorded(msgspec.Struct, frozen=True):
    """An event in the log, with its envelope."""

    position: int
    """1, 2, 3, … over all streams, without a gap."""
    stream: str
    version: int
    """1, 2, 3, … within the stream, without a gap."""
    key: str
    event_id: str
    """A UUID version 7, ordered by time."""
    at: str
    """UTC, ISO 8601 with microseconds. Only the position gives the order: clocks go backwards."""
    event: Event
    meta: dict[str, Any]
    prev_hash: str
    hash: str

    @property
    def type(self) -> str:
        """Name of the event's type."""
        return type(self.event).__name__


class Row(NamedTuple):
    """One event as it is stored: the table's columns, in order."""

    position: int
    stream: str
    version: int
    key: str
    event_id: str
    at: str
    type: str
    schema_version: int
    data: bytes
    meta: bytes
    prev_hash: str
    hash: str


as_row = cast(Callable[[Iterable[Any]], Row], partial(tuple.__new__, Row))
"""A row of values that are as many as its fields: `Row._make` at a third of its cost, because it does not count."""


class Head(msgspec.Struct, frozen=True):
    """The newest position (0 in an empty log) and its hash, which vouches for all before it."""

    position: int
    hash: str


class LogError(Exception):
    """The log could not do what was asked; nothing of it was written (but see LogUnavailable)."""


class VersionConflict(LogError):
    """Another writer appended to the stream first."""

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        super().__init__(
            f'stream "{stream}" is at version {actual}, not {expected}: another writer was first; '
            "read what is new and decide again"
        )
        self.stream, self.expected, self.actual = stream, expected, actual


class KeyConflict(LogError):
    """The key is taken by another fact, or only a part of the batch is recorded."""

    def __init__(self, stream: str, key: str, reason: str) -> None:
        super().__init__(f'stream "{stream}", key "{key}": {reason}')
        self.stream, self.key, self.reason = stream, key, reason


class CorruptLog(LogError):
    """The log is not what was written. `position` is the first bad event, or None for the file as a whole."""

    def __init__(self, position: int | None, reason: str) -> None:
        super().__init__(reason if position is None else f"event {position}: {reason}")
        self.position, self.reason = position, reason


class UnknownEvent(LogError):
    """The event's type, or its version, is one that this release does not know."""

    def __init__(self, type_name: str, schema_version: int, known: int | None, position: int | None = None) -> None:
        where = "" if position is None else f"event {position}: "
        have = "does not know this type" if known is None else f"knows it up to version {known}"
        super().__init__(
            f"{where}type {type_name}, schema version {schema_version}: this release {have}; "
            "open the log with the release that wrote it, or a later one"
        )
        self.type, self.schema_version, self.known = type_name, schema_version, known
        self.position = position


class InvalidEvent(LogError):
    """The event cannot be written so that a reader gets the same back."""


class LogFull(LogError):
    """No space is left. The append was rolled back; the same append works once there is room."""


class LogBusy(LogError):
    """Another process held the write lock for longer than the timeout."""


class LogUnavailable(LogError):
    """The server of the log cannot be reached, or went away in the middle.

    The one error after which an append may be recorded all the same: the answer was lost. The same append
    again is safe, because a batch that is recorded comes back as it is.
    """


class LeaseHeld(LogError):
    """Another process is the run's single writer. `holder` says who, as far as it is known."""

    def __init__(self, run: str, holder: str) -> None:
        super().__init__(f'run "{run}" is run by {holder}; wait for its end, or stop it')
        self.run, self.holder = run, holder


class EventLog(Protocol):
    """One run's history."""

    def append(self, stream: str, events: Sequence[NewEvent], expected_version: int | None) -> list[Recorded]:
        """Record the events as one batch: all of them durable, or none.

        `expected_version` is the stream's version that the caller decided on (0: still empty); None takes
        any, for streams in which nobody decides on what is there. A batch whose keys are recorded already
        with the same data (type, schema version, fields; not meta) is a repeat after a crash: the recorded
        events come back, whatever `expected_version` says, and nothing is written.

        Raises:
            VersionConflict: the stream has moved on.
            KeyConflict: a key is recorded with other data, twice in the batch, or only for a part of it.
            InvalidEvent, UnknownEvent: an event that a reader could not get back.
            LogFull, LogBusy: no room, or the write lock was held for too long.
            LogUnavailable: the server went away; append the same again, it is recorded once.
        """
        ...

    def read(self, after: int = 0, until: int | None = None, stream: str | None = None) -> Iterator[Recorded]:
        """Events with after < position <= until, in order, up to the head at the first step.

        Each event's hash is checked, and without `stream` also that none is missing: CorruptLog names the
        first bad one. UnknownEvent for a type or version of a later release.
        """
        ...

    def rows(self, after: int = 0, until: int | None = None) -> Iterator[Row]:
        """What `read` gives, as it is stored and checked in the same way, but not decoded: what a copy takes."""
        ...

    def restore(self, rows: Iterable[Row]) -> Head:
        """Write stored rows into this log, which must be empty, as they are: all of them, or none.

        So a copy, whole or a prefix, has the same positions, ids, times and hashes as the log that it comes
        from, in whatever kind of store.

        Raises:
            CorruptLog: a row does not follow from the one before, or is not what was hashed.
            LogError: the log is not empty.
            LogFull, LogBusy: as for `append`.
        """
        ...

    def head(self) -> Head:
        """The newest event's position and hash."""
        ...

    def version(self, stream: str) -> int:
        """The stream's version: how many events it has."""
        ...

    def find(self, key: str, stream: str) -> Recorded | None:
        """The event with this key, if it is recorded."""
        ...

    def tail(self, after: int, *, stop: Callable[[], bool], poll: float = 0.2) -> Iterator[Recorded]:
        """Events after a position as they come, each once and in order, until `stop()` is true.

        `stop` is asked before each look, at least every `poll` seconds: all that was recorded before it
        said yes is still yielded.
        """
        ...

    def verify(self) -> Head:
        """Check every byte of every event against the chain; CorruptLog names the first bad position.

        The head that comes back vouches for the whole log: compare it with a hash kept elsewhere to see
        that nobody has rewritten the log from some position on, chain and all.
        """
        ...

    def close(self) -> None:
        """Release files and connections; the log cannot be used afterwards."""
        ...

    def __enter__(self) -> Self:
        """Return the log itself."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the log."""
        ...
