"""What every store of the log must do, as a pytest suite.

class TestMyLog(EventLogContract):
    @pytest.fixture
    def log(self) -> Iterator[EventLog]:
        with MyLog() as log:
            yield log
"""

import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from whale.events.chain import digest
from whale.events.codec import canonical
from whale.events.fold import fold
from whale.events.log import (
    GENESIS,
    CorruptLog,
    EventLog,
    Head,
    InvalidEvent,
    KeyConflict,
    LogError,
    NewEvent,
    Recorded,
    Row,
    UnknownEvent,
    VersionConflict,
)
from whale.events.memory import MemoryLog
from whale.events.types import Event, ExtendRequested, PauseRequested, RunStarted, StepTrained


def new(n: int, key: str | None = None, **meta: Any) -> NewEvent:
    """An event whose data is the number, under a key of that number."""
    return NewEvent(ExtendRequested(cycles=n), key=f"extend/{n}" if key is None else key, meta=meta)


def new_batch(*numbers: int) -> list[NewEvent]:
    """Several of them."""
    return [new(n) for n in numbers]


def numbers(recorded: Iterator[Recorded] | list[Recorded]) -> list[int]:
    """The numbers that the events hold."""
    return [r.event.cycles for r in recorded if isinstance(r.event, ExtendRequested)]


def step(**changes: Any) -> StepTrained:
    """A training step, with some fields changed."""
    fields: dict[str, Any] = {
        "cycle": 1, "step": 1, "rollouts": 8, "passed": 2, "kept": 2, "dropped": {}, "trained_tokens": 40,
        "updates": 1, "loss": 0.5, "weights": "w",
    }  # fmt: skip
    return StepTrained(**fields | changes)


class Stranger(Event, frozen=True, kw_only=True):
    """An event that no log was told of."""


class EventLogContract:
    """Subclass it and give it a `log`: an empty one for each test."""

    @pytest.fixture
    def log(self) -> Iterator[EventLog]:
        """An empty log, closed after the test."""
        raise NotImplementedError

    # --- append and read ---

    def test_an_empty_log_has_the_genesis_head_and_nothing_to_read(self, log: EventLog) -> None:
        """The state before the first event."""
        assert log.head() == log.verify() == Head(0, GENESIS)
        assert list(log.read()) == []
        assert log.version("run") == 0
        assert log.find("any", "run") is None
        assert log.append("run", [], 0) == []

    def test_a_read_gives_back_what_append_returned(self, log: EventLog) -> None:
        """The return value is the record, envelope and all."""
        first = log.append("run", new_batch(1, 2), 0)
        second = log.append("control", [new(3, cost=1.5)], None)
        assert list(log.read()) == first + second
        assert second[0].meta == {"cost": 1.5}
        assert second[0].type == "ExtendRequested"
        assert log.find("extend/3", "control") == second[0]
        assert log.find("extend/3", "run") is None

    def test_positions_are_gapless_over_streams_and_versions_within_each(self, log: EventLog) -> None:
        """One order for all; one count for each."""
        log.append("run", new_batch(1, 2), 0)
        log.append("control", new_batch(3), None)
        log.append("run", new_batch(4), 2)
        got = [(r.position, r.stream, r.version) for r in log.read()]
        assert got == [(1, "run", 1), (2, "run", 2), (3, "control", 1), (4, "run", 3)]
        assert (log.version("run"), log.version("control"), log.head().position) == (3, 1, 4)

    def test_a_read_can_be_cut_to_a_range_and_a_stream(self, log: EventLog) -> None:
        """`after` is exclusive, `until` inclusive, both in global positions."""
        for n in range(1, 9):
            log.append("run" if n % 2 else "control", new_batch(n), None)
        assert numbers(log.read(after=3)) == [4, 5, 6, 7, 8]
        assert numbers(log.read(until=3)) == [1, 2, 3]
        assert numbers(log.read(after=3, until=5)) == [4, 5]
        assert numbers(log.read(stream="control")) == [2, 4, 6, 8]
        assert numbers(log.read(after=2, until=7, stream="control")) == [4, 6]
        assert numbers(log.read(after=4, stream="run")) == [5, 7]
        assert numbers(log.read(after=8)) == numbers(log.read(after=99)) == numbers(log.read(until=0)) == []
        assert numbers(log.read(stream="no such stream")) == []

    def test_a_read_ends_at_the_head_it_began_with(self, log: EventLog) -> None:
        """A reader that appends for each event it reads comes to an end."""
        log.append("run", new_batch(1, 2), 0)
        seen = []
        for event in log.read():
            seen.append(event.position)
            log.append("control", [new(100 + event.position)], None)
        assert seen == [1, 2]
        assert log.head().position == 4

    def test_a_fold_of_a_prefix_and_the_rest_is_the_fold_of_all(self, log: EventLog) -> None:
        """So any state can be a snapshot."""
        log.append("run", new_batch(*range(1, 8)), 0)

        def weigh(state: int, recorded: Recorded) -> int:
            return state * 31 + numbers([recorded])[0]

        whole = fold(weigh, 0, log.read())
        for cut in range(8):
            assert fold(weigh, fold(weigh, 0, log.read(until=cut)), log.read(after=cut)) == whole

    # --- expected version ---

    def test_a_stale_expected_version_is_refused_and_nothing_is_written(self, log: EventLog) -> None:
        """The one who was second must read and decide again."""
        log.append("run", new_batch(1), 0)
        with pytest.raises(VersionConflict) as caught:
            log.append("run", new_batch(2, 3), 0)
        assert (caught.value.stream, caught.value.expected, caught.value.actual) == ("run", 0, 1)
        assert log.head().position == 1
        with pytest.raises(VersionConflict):
            log.append("run", new_batch(2), 2)
        assert numbers(log.append("run", new_batch(2), 1)) == [2]

    def test_another_streams_events_do_not_move_the_expected_version(self, log: EventLog) -> None:
        """A pause from the CLI never collides with the runner."""
        log.append("run", new_batch(1), 0)
        log.append("control", new_batch(2), None)
        assert log.append("run", new_batch(3), 1)[0].version == 2

    # --- idempotence ---

    def test_a_repeated_batch_returns_the_recorded_events_whatever_version_it_expects(self, log: EventLog) -> None:
        """A crash between the append and its use costs nothing."""
        first = log.append("run", [new(1, at="first"), new(2)], 0)
        log.append("run", new_batch(3), 2)
        for expected in (0, 2, 3, 77, None):
            assert log.append("run", [new(1, at="second"), new(2)], expected) == first
        assert log.head().position == 3

    def test_a_repeat_is_known_by_equal_data_not_by_equal_types_of_number(self, log: EventLog) -> None:
        """An int in a float's place is the same fact, also in a process that computed it otherwise."""
        first = log.append("run", [NewEvent(step(loss=2), key="step")], 0)
        assert log.append("run", [NewEvent(step(loss=2.0), key="step")], 0) == first

    def test_the_same_key_with_other_data_is_a_conflict(self, log: EventLog) -> None:
        """Two facts cannot have one key; the log says which event has it."""
        log.append("run", new_batch(1), 0)
        with pytest.raises(KeyConflict, match="event 1 has this key") as caught:
            log.append("run", [new(2, key="extend/1")], 1)
        assert (caught.value.stream, caught.value.key) == ("run", "extend/1")
        with pytest.raises(KeyConflict):
            log.append("run", [NewEvent(PauseRequested(), key="extend/1")], 1)
        assert log.head().position == 1

    def test_a_batch_that_is_recorded_in_part_is_a_conflict(self, log: EventLog) -> None:
        """A batch was written whole, so half of one is another batch."""
        log.append("run", new_batch(1), 0)
        for batch in (new_batch(1, 2), new_batch(2, 1)):
            with pytest.raises(KeyConflict, match="batches are whole"):
                log.append("run", batch, None)
        assert log.head().position == 1

    def test_a_key_twice_in_a_batch_is_a_conflict(self, log: EventLog) -> None:
        """Even with the same data: the caller counts on two events."""
        with pytest.raises(KeyConflict, match="twice"):
            log.append("run", new_batch(1, 1), 0)
        assert log.head().position == 0

    def test_two_streams_may_use_the_same_key(self, log: EventLog) -> None:
        """A key is unique in its stream."""
        log.append("run", new_batch(1), 0)
        log.append("control", new_batch(1), 0)
        assert log.head().position == 2

    # --- what can be written ---

    @pytest.mark.parametrize("loss", [float("nan"), float("inf"), "0.5", 10**400, object()])
    def test_an_event_that_would_not_come_back_is_refused(self, log: EventLog, loss: object) -> None:
        """Better no event than one that no reader can decode, or that says null where it was NaN."""
        with pytest.raises(InvalidEvent, match="StepTrained"):
            log.append("run", [new(1), NewEvent(step(loss=loss), key="step")], 0)
        assert log.head().position == 0

    @pytest.mark.parametrize("value", [float("nan"), {1: "int key"}, "\ud800", {"set"}, b"\xff"])
    def test_free_form_data_that_json_would_change_is_refused(self, log: EventLog, value: object) -> None:
        """Also where the field's type is Any."""
        event = RunStarted(name="r", config={"a": [value]}, model="m", data="d", splits={})
        with pytest.raises(InvalidEvent):
            log.append("run", [NewEvent(event, key="run")], 0)
        assert log.head().position == 0

    def test_a_tuple_in_free_form_data_comes_back_as_a_list(self, log: EventLog) -> None:
        """The one change that JSON makes and that is no surprise."""
        event = RunStarted(name="r", config={"a": (1, (2.5,))}, model="m", data="d", splits={})
        (got,) = log.append("run", [NewEvent(event, key="run")], 0)
        assert isinstance(got.event, RunStarted)
        assert got.event.config == {"a": [1, [2.5]]}
        assert log.append("run", [NewEvent(event, key="run")], 0) == [got]

    def test_an_event_of_a_type_that_the_log_was_not_told_of_is_refused(self, log: EventLog) -> None:
        """No reader could decode it."""
        with pytest.raises(UnknownEvent, match="Stranger"):
            log.append("run", [NewEvent(Stranger(), key="stranger")], 0)

    @pytest.mark.parametrize("name", ["", "a\nb", "a\x00b", "\ud800"])
    def test_a_stream_or_key_that_is_not_plain_text_is_refused(self, log: EventLog, name: str) -> None:
        """Names are shown in terminals and stored in databases with other ideas of text."""
        with pytest.raises(InvalidEvent):
            log.append("run", [new(1, key=name)], 0)
        with pytest.raises(InvalidEvent):
            log.append(name, new_batch(1), 0)

    def test_numbers_of_array_libraries_are_written_as_numbers(self, log: EventLog) -> None:
        """In meta and in data: a metric comes from numpy more often than not."""
        numpy = pytest.importorskip("numpy")
        event = step(loss=numpy.float64(0.25), trained_tokens=numpy.int64(7))
        meta = {"rate": numpy.float32(0.5), "n": numpy.int64(3), "ok": numpy.bool_(True)}
        log.append("run", [NewEvent(event, key="step", meta=meta)], 0)
        (got,) = log.read()
        assert got.event == step(loss=0.25, trained_tokens=7)
        assert got.meta == {"rate": 0.5, "n": 3, "ok": True}

    def test_any_text_comes_back_as_it_was(self, log: EventLog) -> None:
        """Quotes, NUL, line separators, the last code point."""
        text = "\"'\\\x00\x1b[31m\u2028é𝕏\U0010ffff\ufffe"
        log.append("run", [NewEvent(PauseRequested(by=text), key="é/𝕏", meta={text: text})], 0)
        (got,) = log.read()
        assert (got.event, got.key, got.meta) == (PauseRequested(by=text), "é/𝕏", {text: text})

    # --- the chain ---

    def test_each_hash_covers_its_envelope_and_the_hash_before(self, log: EventLog) -> None:
        """Anybody can compute the chain anew from what a reader gets."""
        log.append("run", new_batch(1, 2), 0)
        log.append("control", [new(3, cost=0.1)], None)
        previous = GENESIS
        for r in log.read():
            assert r.prev_hash == previous
            row = Row(
                r.position, r.stream, r.version, r.key, r.event_id, r.at, r.type, r.event.schema_version,
                canonical(r.event), canonical(r.meta), r.prev_hash, "",
            )  # fmt: skip
            previous = digest(row)
            assert r.hash == previous
        assert log.verify() == log.head() == Head(3, previous)

    def test_event_ids_are_unique_and_ordered_and_times_are_utc(self, log: EventLog) -> None:
        """What the envelope's other fields promise."""
        log.append("run", new_batch(*range(50)), 0)
        log.append("run", new_batch(50), 50)
        events = list(log.read())
        ids = [e.event_id for e in events]
        assert ids == sorted(set(ids))
        assert all(e.at.endswith("Z") and datetime.fromisoformat(e.at) for e in events)

    # --- tail ---

    def test_a_tail_yields_what_was_recorded_before_stop_said_yes(self, log: EventLog) -> None:
        """With a `stop` that is true at once, it is a read."""
        log.append("run", new_batch(1, 2, 3), 0)
        assert numbers(log.tail(1, stop=lambda: True)) == [2, 3]

    def test_a_tail_sees_each_event_of_a_writing_thread_once_and_in_order(self, log: EventLog) -> None:
        """Nothing is skipped or repeated, whatever the batches."""

        def write() -> None:
            for n in range(0, 60, 3):
                log.append("run" if n % 2 else "control", new_batch(n, n + 1, n + 2), None)

        writer = threading.Thread(target=write)
        writer.start()
        seen = list(log.tail(0, stop=lambda: not writer.is_alive(), poll=0.005))
        writer.join()
        assert [e.position for e in seen] == list(range(1, 61))
        assert numbers(seen) == list(range(60))

    def test_threads_that_append_to_one_log_lose_and_double_nothing(self, log: EventLog) -> None:
        """A batch stays together, too."""

        def write(first: int) -> None:
            for n in range(first, first + 20, 2):
                log.append("run", new_batch(n, n + 1), None)

        threads = [threading.Thread(target=write, args=(base,)) for base in (0, 100, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        got = numbers(log.read())
        assert sorted(got) == [base + i for base in (0, 100, 200) for i in range(20)]
        assert all(odd == even + 1 for even, odd in zip(got[::2], got[1::2], strict=True))
        assert log.verify().position == 60

    # --- copies ---

    def test_a_restored_prefix_is_the_same_log_up_to_there(self, log: EventLog) -> None:
        """Positions, ids, times, hashes; and it goes on from there."""
        source = MemoryLog()
        source.append("run", new_batch(1, 2), 0)
        source.append("control", [new(3, cost=0.1)], None)
        source.append("run", new_batch(4), 2)
        assert log.restore(source.rows(until=3)) == Head(3, list(source.rows())[2].hash)
        assert list(log.read()) == list(source.read(until=3))
        assert list(log.rows()) == list(source.rows(until=3))
        assert (log.version("run"), log.version("control")) == (2, 1)
        (again,) = log.append("run", new_batch(5), 2)
        assert again.position == 4
        assert log.verify().position == 4

    def test_only_an_empty_log_can_be_restored_into(self, log: EventLog) -> None:
        """Nothing is mixed."""
        source = MemoryLog()
        source.append("run", new_batch(1), 0)
        log.append("run", new_batch(2), 0)
        with pytest.raises(LogError, match="empty"):
            log.restore(source.rows())
        assert numbers(log.read()) == [2]

    @pytest.mark.parametrize("fault", ["changed", "missing", "reordered"])
    def test_rows_that_break_the_chain_are_not_restored(self, log: EventLog, fault: str) -> None:
        """Not one of them."""
        source = MemoryLog()
        source.append("run", new_batch(*range(5)), 0)
        rows = list(source.rows())
        if fault == "changed":
            rows[2] = rows[2]._replace(key="other")
        elif fault == "missing":
            del rows[2]
        else:
            rows[2], rows[3] = rows[3], rows[2]
        with pytest.raises(CorruptLog) as raised:
            log.restore(rows)
        assert raised.value.position == 3
        assert log.head() == Head(0, GENESIS)

    # --- end ---

    def test_a_closed_log_says_so(self, log: EventLog) -> None:
        """And is closed only once."""
        log.close()
        log.close()
        with pytest.raises(LogError, match="closed"):
            log.append("run", new_batch(1), 0)
        with pytest.raises(LogError, match="closed"):
            list(log.read())
