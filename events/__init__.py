"""The event log: append-only, hash-chained, replayable.

    with SqliteLog("runs/demo/events.db") as log:
        log.append("run", [NewEvent(PauseRequested(by="me"), key="pause/1")], expected_version=0)
        state = fold(reducer, initial, log.read())

The SQLite store is imported when it is first asked for: it brings SQLAlchemy (half a second), and much that
deals in events never opens a log.
"""

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
    LogBusy,
    LogError,
    LogFull,
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
    "LogBusy",
    "LogError",
    "LogFull",
    "MemoryLog",
    "NewEvent",
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


def __getattr__(name: str) -> Any:
    if name == "SqliteLog":
        from whale.events.sqlite import SqliteLog

        return SqliteLog
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
