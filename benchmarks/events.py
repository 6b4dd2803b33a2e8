"""Our log beside the `eventsourcing` library's SQLite recorder: append and full replay, in one run, and ratios.

    pip install "whale-evolve[bench]"            # and [postgres] with pgserver for the PostgreSQL rows
    python benchmarks/events.py [--events 20000] [--repeats 5] [--folder DIR] [--postgres URL|no]

Same machine, same payloads (micro-batches of a run, about 445 bytes of JSON), both with `synchronous = FULL` in
WAL mode, repeats interleaved, a new database for each. Append: both start from the same typed events. Ours encodes
them canonically, checks that they read back equal, chains their hashes, and keeps them idempotent by key; the
recorder's are encoded by msgspec's plain encoder, the cheapest way there is, and given to `insert_events`. Replay:
both read every event in order, decode it to the same typed record by the same decoder, and fold it with the run's
own reducer (whale.alternation.state.reduce); ours checks every hash on the way. `read` is the same without the
fold, which costs both the same. `mapper` is the library's own way to write and read events (its JSON transcoder
and topics; then msgspec to the same typed record), for those who use it as it comes. With `--cpu`, CPU time is
measured instead: it leaves out the waiting for the disk, which costs all the same.

With `--floor` it prints instead what each of our guarantees costs an append, from the driver's bare insert up
(events_floor.py).

With `--events 1000000` the replay shows that memory is bounded: the replay's peak RSS is printed for a tenth of the
log and for all of it, without and with the fold (whose state holds a record for each optimiser step).
"""

import argparse
import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec

from whale.alternation.state import State, reduce
from whale.events import CODEC, EVENT_TYPES, EventLog, NewEvent, Recorded, SqliteLog, fold
from whale.events.types import CheckpointSaved, Event, Outcome, PhaseStarted, RolloutsRecorded, RunStarted, StepTrained

STEP = 64
"""Micro-batches a step of training."""


def history() -> Iterator[Event]:
    """A run that trains for ever: micro-batches, every 64 of them a step, every 16 steps a checkpoint."""
    digest = "0123456789abcdef" * 4
    yield RunStarted(name="bench", config={"seed": 0}, model=digest, data=digest, splits={"train": 100})
    yield PhaseStarted(cycle=1, phase="weight")
    step = 0
    while True:
        step += 1
        for batch in range(STEP):
            outcomes = [
                Outcome(
                    task=f"t{step}-{batch}", sample=i, reward=float(i % 2), status="ok", turns=2, generated=61 + i,
                    prompted=412 + batch, truncated=False, fabricated=False, metrics={},
                )
                for i in range(4)
            ]  # fmt: skip
            yield RolloutsRecorded(
                batch=f"c001/s{step:06d}/b{batch:03d}", purpose="train", candidate="c000-i00-m0",
                weights=digest[:32], artifact=digest, outcomes=outcomes,
            )  # fmt: skip
        yield StepTrained(
            cycle=1, step=step, rollouts=256, passed=128, kept=120, dropped={"truncated": 8}, trained_tokens=7000,
            updates=4, loss=0.5, weights=digest,
        )  # fmt: skip
        if step % 16 == 0:
            yield CheckpointSaved(
                checkpoint=f"c001-s{step:06d}", weights=digest, trainer=digest, cycle=1, step=step, phase_end=False
            )


def new_events(count: int) -> Iterator[NewEvent]:
    for (n, event), _ in zip(enumerate(history()), range(count), strict=False):
        yield NewEvent(event, f"run/{n}", {"seconds": 1.25, "tokens_per_second": 133.0})


def batched(events: Sequence[NewEvent], size: int) -> list[Sequence[NewEvent]]:
    return [events[i : i + size] for i in range(0, len(events), size)]


clock = time.perf_counter


def rate(count: int, work: Callable[[], object]) -> float:
    gc.collect()  # what somebody else left is not paid for here
    started = clock()
    work()
    return count / (clock() - started)


# --- ours ---


def append_ours(log: EventLog, events: Sequence[NewEvent], size: int) -> float:
    version = log.version("run")

    def work() -> None:
        for i, batch in enumerate(batches):
            log.append("run", batch, version + i * size)

    batches = batched(events, size)
    return rate(len(events), work)


def replay(read: Callable[[], Iterable[Any]], count: int) -> tuple[float, float]:
    """(events/s read, events/s read and folded)."""
    return rate(count, lambda: deque(read(), maxlen=0)), rate(count, lambda: fold(reduce, State(), read()))


# --- theirs ---


class Theirs:
    """The library's SQLite recorder on a new file, as durable as ours."""

    def __init__(self, path: Path) -> None:
        from eventsourcing.persistence import StoredEvent
        from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

        self._datastore = SQLiteDatastore(str(path))
        self._recorder = SQLiteApplicationRecorder(self._datastore)
        self._recorder.create_table()
        with self._datastore.get_connection(commit=True) as connection:  # the pool's only one, which it then reuses
            cursor = connection.cursor()
            cursor.execute("PRAGMA synchronous = FULL")
            cursor.execute("PRAGMA journal_mode")
            assert cursor.fetchone()[0] == "wal"
        self._stored = StoredEvent
        self._run = uuid4()

    def append(self, events: Sequence[NewEvent], size: int) -> float:
        """Events a second, `size` of them in a transaction."""
        return rate(len(events), lambda: self.write(events, size))

    def write(self, events: Sequence[NewEvent], size: int) -> None:
        """Append the events."""
        encode = msgspec.json.Encoder().encode
        for i in range(0, len(events), size):
            stored = [
                self._stored(self._run, n, type(new.event).__name__, encode(new.event))
                for n, new in enumerate(events[i : i + size], i + 1)
            ]
            self._recorder.insert_events(stored)

    def read(self) -> Iterator["_Plain"]:
        """Every event, as the reducer takes it."""
        position = 0
        while page := self._recorder.select_notifications(position + 1, 500):
            for note in page:
                yield _Plain(CODEC.decode(note.topic, 1, note.state), "run", note.topic)
            position = page[-1].id

    def mapped(self, events: Sequence[NewEvent], size: int) -> tuple[float, float, float]:
        """Rates of append, read, and read and fold through the library's own mapper."""
        from eventsourcing.persistence import JSONTranscoder, Mapper

        mapper: Mapper[UUID] = Mapper(JSONTranscoder())
        facts = [
            Fact(self._run, n, type(new.event).__name__, msgspec.to_builtins(new.event))
            for n, new in enumerate(events, 1)
        ]

        def write() -> None:
            for i in range(0, len(facts), size):
                self._recorder.insert_events([mapper.to_stored_event(fact) for fact in facts[i : i + size]])

        def read() -> Iterator[_Plain]:
            position = 0
            while page := self._recorder.select_notifications(position + 1, 500):
                for note in page:
                    fact: Any = mapper.to_domain_event(note)
                    yield _Plain(msgspec.convert(fact.data, EVENT_TYPES[fact.kind]), "run", fact.kind)
                position = page[-1].id

        return rate(len(events), write), *replay(read, len(events))

    def close(self) -> None:
        """Close the file."""
        self._datastore.close()


class _Plain(msgspec.Struct, frozen=True):
    """What the reducer looks at."""

    event: Event
    stream: str
    key: str


@dataclass(frozen=True)
class Fact:
    """An event as the library's mapper stores one: its fields as JSON, its class as a topic."""

    originator_id: UUID
    originator_version: int
    kind: str
    data: dict[str, object]


# --- memory ---


def peak_megabytes() -> float:
    # Not getrusage: a child's ru_maxrss begins at what its parent had when it forked, which hides everything below.
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def replay_in_own_process(path: Path, until: int, folding: bool) -> tuple[float, float]:
    """(events/s, growth of the peak RSS in MB) of one replay in a fresh process."""
    done = subprocess.run(
        [sys.executable, __file__, "--replay", str(path), "--until", str(until), *(["--fold"] if folding else [])],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    speed, growth = done.stdout.split()
    return float(speed), float(growth)


def replay_here(path: Path, until: int, folding: bool) -> None:
    def count(seen: int, _: Recorded) -> int:
        return seen + 1

    with SqliteLog(path, readonly=True) as log:
        fold(reduce, State(), log.read(until=200))
        before = peak_megabytes()
        started = time.perf_counter()
        if folding:
            fold(reduce, State(), log.read(until=until))
        else:
            assert fold(count, 0, log.read(until=until)) == until
        print(until / (time.perf_counter() - started), peak_megabytes() - before)


# --- the run ---


def spread(rates: list[float]) -> str:
    return f"{statistics.median(rates):10,.0f}/s  ({min(rates):,.0f} to {max(rates):,.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=20_000, help="events to replay, and to append 100 at a time")
    parser.add_argument("--singles", type=int, default=300, help="events to append one at a time")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of the comparison; 0: memory only")
    parser.add_argument("--folder", type=Path, help="where the databases are made: the disk that is measured")
    parser.add_argument("--postgres", default="auto", help="URL of a database for throw-away runs; no; auto: pgserver")
    parser.add_argument("--cpu", action="store_true", help="time the process's CPU: for a machine that is not quiet")
    parser.add_argument("--floor", action="store_true", help="what each guarantee costs an append, and nothing else")
    parser.add_argument("--replay", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--fold", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cpu:
        global clock
        clock = time.process_time
    if options.replay:
        replay_here(options.replay, options.until, options.fold)
        return
    if options.floor:
        from events_floor import floors  # this file's neighbour

        events = list(new_events(options.events))
        floors(events, options.repeats, options.folder, partial(recorder_alone, events))
        return
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="whale-bench-") as folder:
        if options.repeats:
            compare(Path(folder), min(options.events, 100_000), options.singles, options.repeats, options.postgres)
        memory(Path(folder), options.events)


def compare(folder: Path, count: int, singles: int, repeats: int, postgres: str) -> None:
    events = list(new_events(count))
    size = sum(len(CODEC.encode(new.event).data) for new in events) / count
    print(f"{count:,} events, {size:.0f} bytes of data on average; {repeats} interleaved repeats: median (spread)\n")
    rates: dict[str, dict[str, list[float]]] = {"append 1": {}, "append 100": {}, "read": {}, "replay": {}}

    def note(who: str, **values: float) -> None:
        for what, value in values.items():
            rates[what.replace("_", " ")].setdefault(who, []).append(value)

    with postgres_url(postgres) as url:
        turns: list[Callable[[Path, Sequence[NewEvent], int], Turn]] = [
            partial(ours, None),
            recorder,
            mapper,
            *([partial(ours, url)] if url else []),
        ]
        for repeat in range(repeats + 1):
            for turn in turns[repeat % len(turns) :] + turns[: repeat % len(turns)]:  # nobody is always the first
                who, values = turn(folder, events, singles)
                if repeat:  # the first round warms up
                    note(who, **values)
                for path in folder.iterdir():
                    path.unlink()
    for what, contenders in rates.items():
        print(what)
        for who, measured in contenders.items():
            print(f"  {who:24s}{spread(measured)}")
        for peer in ("recorder", "recorder, mapper"):
            if peer in contenders:
                pairs = [a / b for a, b in zip(contenders["ours, SQLite"], contenders[peer], strict=True)]
                print(f"  ours / {peer:17s}{statistics.median(pairs):10.2f}    ({min(pairs):.2f} to {max(pairs):.2f})")
        print()


Turn = tuple[str, dict[str, float]]


def ours(url: str | None, folder: Path, events: Sequence[NewEvent], singles: int) -> Turn:
    with fresh(url, folder) as log:
        one = append_ours(log, events[:singles], 1)
    with fresh(url, folder) as log:
        hundred = append_ours(log, events, 100)
        read, folded = replay(log.read, len(events))
    who = f"ours, {'PostgreSQL' if url else 'SQLite'}"
    return who, {"append_1": one, "append_100": hundred, "read": read, "replay": folded}


def fresh(url: str | None, folder: Path) -> EventLog:
    if url is None:
        return SqliteLog(folder / f"{uuid4()}.db")
    from whale.events import PostgresLog

    return PostgresLog(url, f"bench {uuid4()}")


def recorder(folder: Path, events: Sequence[NewEvent], singles: int) -> Turn:
    theirs = Theirs(folder / "one.db")
    one = theirs.append(events[:singles], 1)
    theirs.close()
    theirs = Theirs(folder / "hundred.db")
    hundred = theirs.append(events, 100)
    read, folded = replay(theirs.read, len(events))
    theirs.close()
    return "recorder", {"append_1": one, "append_100": hundred, "read": read, "replay": folded}


@contextmanager
def recorder_alone(events: Sequence[NewEvent], path: Path) -> Iterator[Callable[[], None]]:
    """The recorder's append, for `--floor`."""
    with closing(Theirs(path)) as theirs:
        yield lambda: theirs.write(events, 100)


def mapper(folder: Path, events: Sequence[NewEvent], singles: int) -> Turn:
    theirs = Theirs(folder / "mapped.db")
    hundred, read, folded = theirs.mapped(events, 100)
    theirs.close()
    return "recorder, mapper", {"append_100": hundred, "read": read, "replay": folded}


class postgres_url:
    """The address of a database to use, or None."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted

    def __enter__(self) -> str | None:
        self._server = None
        if self._wanted != "auto":
            return None if self._wanted == "no" else self._wanted
        sys.path.insert(0, str(Path(__file__).parent.parent))  # the tests' throw-away server
        try:
            from tests.events.postgres_server import LocalServer
        except ImportError as error:
            print(f"no PostgreSQL here ({error}): give --postgres URL", file=sys.stderr)
            return None
        self._server = LocalServer()
        return self._server.database()

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()


def memory(folder: Path, count: int) -> None:
    path = folder / "large.db"
    with SqliteLog(path) as log:
        version, batch = 0, []
        for new in new_events(count):
            batch.append(new)
            if len(batch) == 1000:
                version = log.append("run", batch, version)[-1].version
                batch = []
        if batch:
            log.append("run", batch, version)
    print("replay in a process of its own, every hash checked: events/s, growth of the peak RSS")
    for until in (count // 10, count):
        for folding in (False, True):
            speed, growth = replay_in_own_process(path, until, folding)
            print(f"  {until:10,} events, {'folded ' if folding else 'counted'}  {speed:10,.0f}/s  {growth:6.1f} MB")


if __name__ == "__main__":
    main()
