"""The event log: append-only, hash-chained, replayable.

    with SqliteLog("runs/demo/events.db") as log:
        log.append("run", [NewEvent(PauseRequested(by="me"), key="pause/1")], expected_version=0)
        state = fold(reducer, initial, log.read())

The stores in databases are imported when they are first asked for: they bring SQLAlchemy (half a second), and
much that deals in events never opens a log. PostgreSQL also needs the extra `postgres`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whale.events.codec import CODEC, Codec, canonical
from whale.events.fold import Reducer, facts, fold
from whale.events.log import (
    GENESIS,
    CorruptLog,
    EventLog,
    Head,
    InvalidEvent,
    KeyConflict,
    LeaseHeld,
    LogBusy,
    LogError,
    LogFull,
    LogUnavailable,
    NewEvent,
    Recorded,
    Row,
    UnknownEvent,
    VersionConflict,
)
from whale.events.memory import MemoryLog
from whale.events.types import EVENT_TYPES, Event
from whale.events.upcasters import UPCASTERS, Upcaster

if TYPE_CHECKING:
    from whale.events.postgres import PostgresLog
    from whale.events.postgres_lease import PostgresLease
    from whale.events.sqlite import SqliteLog

__all__ = [
    "CODEC",
    "EVENT_TYPES",
    "GENESIS",
    "UPCASTERS",
    "Codec",
    "CorruptLog",
    "Event",
    "EventLog",
    "Head",
    "InvalidEvent",
    "KeyConflict",
    "LeaseHeld",
    "LogBusy",
    "LogError",
    "LogFull",
    "LogUnavailable",
    "MemoryLog",
    "NewEvent",
    "PostgresLease",
    "PostgresLog",
    "Recorded",
    "Reducer",
    "Row",
    "SqliteLog",
    "UnknownEvent",
    "Upcaster",
    "VersionConflict",
    "canonical",
    "facts",
    "fold",
]


_LAZY = {
    "PostgresLease": "whale.events.postgres_lease",
    "PostgresLog": "whale.events.postgres",
    "SqliteLog": "whale.events.sqlite",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
