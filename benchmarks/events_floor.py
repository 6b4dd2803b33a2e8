"""What each promise of the event log costs an append of 100: `python benchmarks/events.py --floor`.

The same events, already encoded and sealed, go into SQLite by the driver alone, first into a table like the
recorder's of the `eventsourcing` library, then with one of our guarantees more each time; then come our whole
`append` and the recorder's `insert_events`, which encode too. All of them take turns, so that what else the machine
does falls on all alike, and each is given in microseconds of CPU and of time an event.
"""

import gc
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from whale.events import CODEC, GENESIS, Head, NewEvent, SqliteLog
from whale.events.chain import EventIds, prepare, seal, sealed
from whale.events.log import Row
from whale.events.sqlite_file import TRIGGERS, create
from whale.events.sqlite_rows import insert

BATCH = 100

Appender = Callable[[], None]
Contender = Callable[[Path], AbstractContextManager[Appender]]

_THEIR_TABLE = (
    "CREATE TABLE stored_events (originator_id TEXT, originator_version INTEGER, topic TEXT, state BLOB, "
    "PRIMARY KEY (originator_id, originator_version))"
)


def _batches(events: Sequence[NewEvent]) -> list[Sequence[NewEvent]]:
    return [events[i : i + BATCH] for i in range(0, len(events), BATCH)]


def sealed_rows(events: Sequence[NewEvent]) -> list[list[Row]]:
    """The rows of an append of all the events, by batch."""
    rows: list[list[Row]] = []
    head, new_ids = Head(0, GENESIS), EventIds()
    for batch in _batches(events):
        rows.append(seal("run", prepare("run", batch, CODEC), head.position, head, datetime.now(UTC), new_ids))
        head = Head(rows[-1][-1].position, rows[-1][-1].hash)
    return rows


def _durable(path: Path) -> sqlite3.Connection:
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA journal_mode = WAL")
    raw.execute("PRAGMA synchronous = FULL")
    return raw


@contextmanager
def their_table(rows: list[list[Row]], path: Path) -> Iterator[Appender]:
    """Four columns and one index."""
    with closing(_durable(path)) as raw:
        raw.execute(_THEIR_TABLE)

        def work() -> None:
            for batch in rows:
                raw.execute("BEGIN")
                for row in batch:
                    values = ("0123456789abcdef" * 2, row.version, row.type, row.data)
                    raw.execute("INSERT INTO stored_events VALUES (?, ?, ?, ?)", values)
                raw.execute("COMMIT")

        yield work


@contextmanager
def our_table(rows: list[list[Row]], indexes: int, guarded: bool, path: Path) -> Iterator[Appender]:
    """Our columns; the unique indexes on (stream, version) and (stream, key); the trigger against REPLACE."""
    create(path)
    with closing(_durable(path)) as raw:
        raw.execute("PRAGMA cache_size = -16000")
        if not guarded:
            for name in TRIGGERS:
                raw.execute(f"DROP TRIGGER {name}")
        if indexes < 2:  # an index of a constraint cannot be dropped: the table again, without
            (columns,) = raw.execute("SELECT sql FROM sqlite_master WHERE name = 'events'").fetchone()
            plain = "".join(line for line in columns.splitlines(True) if "UNIQUE" not in line)
            raw.execute("DROP TABLE events")
            raw.execute(plain.rstrip().removesuffix(")").rstrip().rstrip(",") + ")")
            if indexes:
                raw.execute("CREATE UNIQUE INDEX of_keys ON events (stream, key)")

        def work() -> None:
            for batch in rows:
                raw.execute("BEGIN IMMEDIATE")
                insert(raw, batch)
                raw.execute("COMMIT")

        yield work


@contextmanager
def our_append(events: Sequence[NewEvent], path: Path) -> Iterator[Appender]:
    """All of it."""
    with SqliteLog(path) as log:

        def work() -> None:
            for n, batch in enumerate(_batches(events)):
                log.append("run", batch, n * BATCH)

        yield work


@contextmanager
def in_memory(work: Appender, _: Path) -> Iterator[Appender]:
    """A part that writes nothing."""
    yield work


def floors(events: Sequence[NewEvent], repeats: int, folder: Path | None, recorder: Contender | None) -> None:
    """Print the table; `recorder` is the peer's own append."""
    batches = _batches(events)
    rows = sealed_rows(events)
    encoded = [prepare("run", batch, CODEC) for batch in batches]
    new_ids, now, head = EventIds(), datetime.now(UTC), Head(0, GENESIS)

    def encode() -> None:
        for batch in batches:
            prepare("run", batch, CODEC)

    def chain() -> None:
        for batch in encoded:
            seal("run", batch, 0, head, now, new_ids)

    def give_back() -> None:
        for written, batch in zip(rows, encoded, strict=True):
            sealed(written, batch)

    contenders: dict[str, Contender] = {
        "recorder's table, driver alone": partial(their_table, rows),
        "our columns, no index": partial(our_table, rows, 0, False),
        "+ unique key": partial(our_table, rows, 1, False),
        "+ unique version": partial(our_table, rows, 2, False),
        "+ triggers: append-only": partial(our_table, rows, 2, True),
        "encode, read back, compare": partial(in_memory, encode),
        "ids and hash chain": partial(in_memory, chain),
        "the records that come back": partial(in_memory, give_back),
        "ours, all of it": partial(our_append, events),
    }
    if recorder is not None:
        contenders["recorder, all of it"] = recorder
    names = list(contenders)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for repeat in range(repeats + 1):
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            with (
                tempfile.TemporaryDirectory(dir=folder, prefix="whale-bench-") as place,
                contenders[name](Path(place) / "events.db") as work,
            ):
                gc.collect()
                cpu, wall = time.process_time(), time.perf_counter()
                work()
                spent = time.process_time() - cpu, time.perf_counter() - wall
            if repeat:  # the first round warms up
                taken[name].append((spent[0] / len(events) * 1e6, spent[1] / len(events) * 1e6))
    print(
        f"{len(events):,} events, {BATCH} in a transaction, {repeats} interleaved repeats: µs an event, median (least)"
    )
    print(f"  {'':32s}{'CPU':>18s}{'time':>20s}")
    for name, pairs in taken.items():
        columns = "".join(f"{statistics.median(c):12.1f} ({min(c):5.1f})" for c in zip(*pairs, strict=True))
        print(f"  {name:32s}{columns}")
