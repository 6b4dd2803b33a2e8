"""Properties of any history: what is read is what was appended, and no changed byte goes unseen."""

import secrets
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count as count_up
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from whale.events import (
    CODEC,
    GENESIS,
    CorruptLog,
    EventLog,
    KeyConflict,
    LogError,
    MemoryLog,
    NewEvent,
    PostgresLog,
    Recorded,
    SqliteLog,
    VersionConflict,
    canonical,
    facts,
    fold,
)
from whale.events.chain import digest
from whale.events.log import Row
from whale.events.sqlite_file import TRIGGERS
from whale.events.types import (
    Event,
    ExtendRequested,
    IterationCompleted,
    Outcome,
    PauseRequested,
    RolloutsRecorded,
    RunStarted,
    StepTrained,
)

text = st.text(max_size=12)
finite = st.floats(allow_nan=False, allow_infinity=False)
count = st.integers(0, 10**6)
json_value: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | finite | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
counts = st.dictionaries(text, count, max_size=2)
json_object = st.dictionaries(text, json_value, max_size=3)
outcomes = st.builds(
    Outcome, task=text, sample=count, reward=finite, status=text, turns=count, generated=count,
    prompted=count, truncated=st.booleans(), fabricated=st.booleans(),
    metrics=st.dictionaries(text, finite, max_size=2),
)  # fmt: skip
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(PauseRequested, by=text),
    st.builds(ExtendRequested, cycles=count),
    st.builds(
        RunStarted, name=text, config=json_object, model=text, data=text, splits=counts,
    ),
    st.builds(
        RolloutsRecorded, batch=text, purpose=st.sampled_from(["train", "score"]), candidate=text,
        weights=text, artifact=text, outcomes=st.lists(outcomes, max_size=3),
    ),
    st.builds(
        StepTrained, cycle=count, step=count, rollouts=count, passed=count, kept=count, dropped=counts,
        trained_tokens=count, updates=count, loss=st.none() | finite, weights=text,
    ),
    st.builds(
        IterationCompleted, cycle=count, iteration=count, best=text, best_score=finite, note=text,
        outcomes=st.dictionaries(text, text, max_size=2),
    ),
)  # fmt: skip
streams = st.sampled_from(["run", "control"])
keys = st.integers(0, 8).map(lambda n: f"key/{n}")
new_events = st.builds(NewEvent, event=events, key=keys, meta=json_object)
batches = st.lists(new_events, min_size=1, max_size=4, unique_by=lambda new: new.key)


MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # durability is not what is tested here


@contextmanager
def fresh_sqlite() -> Iterator[SqliteLog]:
    # Not tmp_path: hypothesis runs many examples in one test.
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, SqliteLog(Path(folder) / "events.db") as log:
        yield log


def count_events(state: dict[str, int], recorded: Recorded) -> dict[str, int]:
    return {**state, recorded.type: state.get(recorded.type, 0) + 1}


@given(events)
def test_any_event_comes_back_equal_from_bytes_that_do_not_change(event: Event) -> None:
    encoded = CODEC.encode(event)
    back = CODEC.decode(encoded.type, encoded.schema_version, encoded.data)
    assert back == event == encoded.event
    assert CODEC.encode(back).data == encoded.data


@given(json_object)
def test_canonical_json_does_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    assert canonical(dict(reversed(value.items()))) == canonical(value)


class LogAgainstModel(RuleBasedStateMachine):
    """Appends, repeats, forks and reopens in any order on each store, compared with a plain list."""

    url: str | None = None
    """A PostgreSQL database; without one, the machine runs on the other stores."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY)
        self.names = count_up()
        self.name = ""
        self.logs: dict[str, EventLog] = {}
        self.model: list[tuple[str, str, Event]] = []
        self.begin()

    def begin(self) -> None:
        """An empty log on each store."""
        self.name = f"{secrets.token_hex(4)}-{next(self.names)}"
        self.logs = {"memory": MemoryLog(), "sqlite": SqliteLog(Path(self.folder.name) / self.name)}
        if self.url is not None:
            self.logs["postgres"] = PostgresLog(self.url, self.name)

    def teardown(self) -> None:
        for log in self.logs.values():
            log.close()
        self.folder.cleanup()

    def versions(self, stream: str) -> int:
        return sum(s == stream for s, _, _ in self.model)

    @rule(stream=streams, batch=batches, offset=st.sampled_from([None, 0, 0, 0, 1, -1]))
    def append(self, stream: str, batch: list[NewEvent], offset: int | None) -> None:
        there = {key: event for s, key, event in self.model if s == stream}
        fresh = [new for new in batch if new.key not in there]
        expected = None if offset is None else self.versions(stream) + offset
        error: type[Exception] | None = None
        other_data = any(new.key in there and there[new.key] != new.event for new in batch)
        if other_data or 0 < len(fresh) < len(batch):
            error = KeyConflict
        elif fresh and offset not in (None, 0):
            error = VersionConflict
        for log in self.logs.values():
            if error is not None:
                with pytest.raises(error):
                    log.append(stream, batch, expected)
            else:
                got = log.append(stream, batch, expected)
                assert [(r.stream, r.key, r.event) for r in got] == [(stream, n.key, n.event) for n in batch]
        if error is None:
            self.model += [(stream, new.key, new.event) for new in fresh]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        stream, key, event = data.draw(st.sampled_from(self.model))
        for log in self.logs.values():
            (got,) = log.append(stream, [NewEvent(event, key)], data.draw(st.integers(0, 9)))
            assert got == log.find(key, stream)

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        """Go on in a copy of a prefix, each store taking it from another one; the origin stays as it was."""
        at = data.draw(st.integers(0, len(self.model)))
        origins = self.logs
        before = {name: list(log.rows()) for name, log in origins.items()}
        self.begin()
        for (_, origin), log in zip(origins.items(), reversed(self.logs.values()), strict=True):
            head = log.restore(origin.rows(until=at))
            assert list(log.rows()) == list(origin.rows(until=at))
            assert head == log.head() == log.verify()
        self.model = self.model[:at]
        for name, origin in origins.items():
            assert list(origin.rows()) == before[name]
            origin.close()

    @precondition(lambda self: self.model)
    @rule()
    def restore_into_what_is_not_empty(self) -> None:
        for log in self.logs.values():
            with pytest.raises(LogError, match="empty"):
                log.restore(log.rows())

    @rule()
    def reopen(self) -> None:
        self.logs["sqlite"].close()
        self.logs["sqlite"] = SqliteLog(Path(self.folder.name) / self.name)
        if self.url is not None:
            self.logs["postgres"].close()
            self.logs["postgres"] = PostgresLog(self.url, self.name)

    @invariant()
    def all_read_as_the_model(self) -> None:
        for log in self.logs.values():
            got = list(log.read())
            assert [(r.stream, r.key, r.event) for r in got] == self.model
            assert [r.position for r in got] == list(range(1, len(got) + 1))
            assert log.head().position == log.verify().position == len(got)
            assert list(log.tail(0, stop=lambda: True)) == got
            for stream in ("run", "control"):
                assert log.version(stream) == self.versions(stream)
                assert list(log.read(stream=stream)) == [r for r in got if r.stream == stream]
        first, *others = [facts(log.read()) for log in self.logs.values()]
        assert all(other == first for other in others)
        nothing: dict[str, int] = {}
        folded = [fold(count_events, nothing, log.read()) for log in self.logs.values()]
        assert all(state == folded[0] for state in folded)


def test_any_sequence_of_appends_and_forks_leaves_the_stores_as_the_model_says() -> None:
    run_state_machine_as_test(
        LogAgainstModel,
        settings=settings(max_examples=12, stateful_step_count=12, deadline=None),
    )


def test_any_sequence_of_appends_and_forks_leaves_postgres_as_the_model_says(shared_url: str) -> None:
    class WithPostgres(LogAgainstModel):
        url = shared_url

    run_state_machine_as_test(
        WithPostgres,
        settings=settings(
            max_examples=6, stateful_step_count=8, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@given(st.lists(batches, max_size=4), st.integers(0, 16))
@settings(max_examples=25, deadline=None)
def test_a_fold_of_any_prefix_goes_on_to_the_fold_of_all(history: list[list[NewEvent]], cut: int) -> None:
    with MemoryLog() as log:
        for i, batch in enumerate(history):
            log.append("run", [NewEvent(n.event, f"{i}/{n.key}", n.meta) for n in batch], None)
        nothing: dict[str, int] = {}
        whole = fold(count_events, nothing, log.read())
        part = fold(count_events, nothing, log.read(until=cut))
        assert fold(count_events, part, log.read(after=cut)) == whole
        assert nothing == {}
        assert sum(whole.values()) == log.head().position


def tampered(log: SqliteLog, *statements: tuple[str, tuple[Any, ...]]) -> None:
    """What somebody with the sqlite3 shell can do who knows about the triggers."""
    with closing(sqlite3.connect(log.path)) as raw, raw:
        for name in TRIGGERS:
            raw.execute(f"DROP TRIGGER IF EXISTS {name}")
        for sql, parameters in statements:
            raw.execute(sql, parameters)


def filled(log: SqliteLog, n: int = 6) -> None:
    for i in range(1, n + 1):
        log.append("run", [NewEvent(ExtendRequested(cycles=i), f"k/{i}", {"cost": i / 8})], None)


def changed(value: object, draw: Callable[[st.SearchStrategy[int]], int]) -> object:
    """The value with one byte (of a text) or one bit (of a number) changed."""
    if isinstance(value, int):
        return value ^ (1 << draw(st.integers(0, 40)))
    raw = bytearray(str(value).encode())
    at = draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << draw(st.integers(0, 6))  # stays ASCII
    return raw.decode()


@given(st.data())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.data_too_large])
def test_one_changed_byte_in_any_column_is_found_at_its_position(data: st.DataObject) -> None:
    with fresh_sqlite() as log:
        filled(log)
        position = data.draw(st.integers(1, 6))
        column = data.draw(st.sampled_from([c for c in Row._fields if c != "position"]))
        with closing(sqlite3.connect(log.path)) as raw:
            (old,) = raw.execute(f"SELECT {column} FROM events WHERE position = ?", (position,)).fetchone()
        new = changed(old, data.draw)
        try:
            tampered(log, (f"UPDATE events SET {column} = ? WHERE position = ?", (new, position)))
        except sqlite3.IntegrityError:
            return  # the change collided with another row's unique value: SQLite itself refused it
        for look in (log.verify, lambda: list(log.read())):
            with pytest.raises(CorruptLog) as caught:
                look()
            assert caught.value.position == position
        assert [r.position for r in log.read(until=position - 1)] == list(range(1, position))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_byte_changed_in_the_file_is_found_or_changes_nothing(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "events.db"
        with SqliteLog(path) as log:
            filled(log, 12)
            before = list(log.read())
        raw = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(raw)
        try:
            with SqliteLog(path, readonly=True) as log:
                log.verify()
                assert list(log.read()) == before
                assert all(log.find(r.key, "run") == r for r in before)
        except LogError as error:
            # A later layout is not told from a damaged one: both are refused.
            assert isinstance(error, CorruptLog) or "layout" in str(error)


def test_a_byte_that_makes_the_schema_no_utf8_is_corrupt() -> None:
    # SQLite quotes the damage in its message, and the driver then fails to decode the message.
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "events.db"
        with SqliteLog(path) as log:
            filled(log)
        path.write_bytes(path.read_bytes().replace(b"AUTOINCREMENT", b"A\x92TOINCREMENT"))
        for readonly in (True, False):
            with pytest.raises(CorruptLog, match="damaged"):
                SqliteLog(path, readonly=readonly)


def test_a_byte_that_makes_a_text_no_utf8_is_found_at_its_position() -> None:
    with fresh_sqlite() as log:
        filled(log)
        tampered(log, ("UPDATE events SET key = CAST(x'6bff' AS TEXT) WHERE position = 4", ()))
        for look in (log.verify, lambda: list(log.read())):
            with pytest.raises(CorruptLog) as caught:
                look()
            assert caught.value.position == 4


def test_a_column_set_to_another_type_or_null_is_found_at_its_position() -> None:
    for column in ("stream", "at", "type", "schema_version", "version", "prev_hash", "hash", "key"):
        for value in (b"\x00", 1.5, "x"):
            with fresh_sqlite() as log:
                filled(log)
                tampered(log, (f"UPDATE events SET {column} = ? WHERE position = 3", (value,)))
                with pytest.raises(CorruptLog) as caught:
                    log.verify()
                assert caught.value.position == 3


@pytest.mark.parametrize(("removed", "named"), [(1, 1), (3, 3), (6, 6)])
def test_a_removed_row_is_found_also_the_last(removed: int, named: int) -> None:
    with fresh_sqlite() as log:
        filled(log)
        tampered(log, ("DELETE FROM events WHERE position = ?", (removed,)))
        with pytest.raises(CorruptLog, match="missing") as caught:
            log.verify()
        assert caught.value.position == named
        with pytest.raises(CorruptLog):
            list(log.read())


def test_nothing_is_appended_where_the_end_was_cut_off() -> None:
    # It would take the lost events' positions, and hide the loss.
    with fresh_sqlite() as log:
        filled(log)
        tampered(log, ("DELETE FROM events WHERE position > 4", ()))
        with pytest.raises(CorruptLog, match="event 5: is missing"):
            log.append("run", [NewEvent(PauseRequested(), "pause")], None)


def test_two_rows_that_change_places_are_found() -> None:
    with fresh_sqlite() as log:
        filled(log)
        move = "UPDATE events SET position = ? WHERE position = ?"
        tampered(log, (move, (99, 3)), (move, (3, 4)), (move, (4, 99)))
        with pytest.raises(CorruptLog) as caught:
            log.verify()
        assert caught.value.position == 3


@pytest.mark.parametrize("position", [-1, 0, 4])
def test_an_inserted_row_is_found(position: int) -> None:
    with fresh_sqlite() as log:
        filled(log)
        copy = "SELECT ?, stream, 77, 'k/77', 'id', at, type, schema_version, data, meta, prev_hash, hash"
        move = "UPDATE events SET position = ? WHERE position = ?"
        room = [(move, (n + 1, n)) for n in range(6, position - 1, -1)] if position > 0 else []
        tampered(log, *room, (f"INSERT INTO events {copy} FROM events WHERE position = 2", (position,)))
        with pytest.raises(CorruptLog) as caught:
            log.verify()
        assert caught.value.position == position


def test_text_moved_between_data_and_meta_under_the_same_hash_is_found() -> None:
    # The envelope holds data and meta as their stored bytes: these two rows have the same envelope bytes.
    long = '{"a":1,"event_id":"e","key":"k","meta":{}}'
    row = Row(1, "run", 1, "K", "E", "t", "T", 1, long.encode(), b"{}", GENESIS, "")
    moved = row._replace(data=b'{"a":1', event_id="e", key="k", meta=b'{}},"event_id":"E","key":"K","meta":{}')
    assert digest(row) == digest(moved)
    with fresh_sqlite() as log:
        filled(log, 1)
        columns = ", ".join(f"{c} = ?" for c in Row._fields)
        values = (*moved[:8], moved.data.decode(), moved.meta.decode(), GENESIS, digest(moved))
        tampered(log, (f"UPDATE events SET {columns}", values))
        with pytest.raises(CorruptLog, match="not JSON") as caught:
            log.verify()
        assert caught.value.position == 1
