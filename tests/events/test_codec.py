"""Events over releases: old versions are brought up, later ones are refused by name."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from whale.events import (
    CODEC,
    EVENT_TYPES,
    GENESIS,
    Codec,
    CorruptLog,
    Event,
    Head,
    NewEvent,
    SqliteLog,
    UnknownEvent,
)
from whale.events.chain import EventIds, check, check_link, recorded
from whale.events.log import Row

SAMPLE = Path(__file__).parent / "samples" / "measured_v1.jsonl"
"""A log as a release wrote it whose `Measured` was at version 1: one row a line, the table's columns."""


class Measured(Event, frozen=True, kw_only=True):
    schema_version: ClassVar[int] = 3

    metres: float
    device: str


def _to_metres(data: dict[str, Any]) -> dict[str, Any]:
    return {"metres": data["centimetres"] / 100}


def _with_device(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "device": "unknown"}


MEASURED = Codec({"Measured": Measured}, {("Measured", 1): _to_metres, ("Measured", 2): _with_device})


def sample_rows() -> list[Row]:
    lines = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
    return [Row(**{**row, "data": row["data"].encode(), "meta": row["meta"].encode()}) for row in lines]


def an_earlier_release(field: str, kind: type) -> type[Event]:
    """`Measured` as version 1 of it was."""
    made: Any = msgspec.defstruct("Measured", [(field, kind)], bases=(Event,), frozen=True, kw_only=True)
    earlier: type[Event] = made
    return earlier


def test_a_stored_log_of_an_old_version_keeps_its_hashes_and_reads_as_todays_events() -> None:
    before = Head(0, GENESIS)
    for row in sample_rows():
        check(row)
        check_link(row, before.position, before.hash)
        before = Head(row.position, row.hash)
    assert before == Head(2, "2c6d5639ada501517b8b6052527322f72ebd08f4a4c3aae05fb36a0d34d6b8a7")
    events = [recorded(row, MEASURED).event for row in sample_rows()]
    assert events == [Measured(metres=1.5, device="unknown"), Measured(metres=0.25, device="unknown")]


def test_a_repeat_after_an_upgrade_is_still_a_repeat(path: Path) -> None:
    old_type = an_earlier_release("centimetres", int)
    with SqliteLog(path, codec=Codec({"Measured": old_type}, {})) as log:
        (first,) = log.append("run", [NewEvent(old_type(centimetres=150), "m/1")], 0)
    with SqliteLog(path, codec=MEASURED) as log:
        again = NewEvent(Measured(metres=1.5, device="unknown"), "m/1")
        (got,) = log.append("run", [again], 0)
        assert (got.position, got.hash) == (1, first.hash)
        assert got.event == again.event


def test_a_version_of_a_later_release_is_refused_by_name_but_can_be_verified(path: Path) -> None:
    with SqliteLog(path, codec=MEASURED) as log:
        log.append("run", [NewEvent(Measured(metres=1.0, device="d"), "m/1")], 0)
    old = an_earlier_release("metres", float)
    with SqliteLog(path, codec=Codec({"Measured": old}, {})) as log:
        with pytest.raises(UnknownEvent, match="Measured, schema version 3: this release knows it up to version 1"):
            list(log.read())
        assert log.verify().position == 1


def test_an_unknown_type_is_refused_by_name_but_can_be_verified(path: Path) -> None:
    with SqliteLog(path, codec=MEASURED) as log:
        log.append("run", [NewEvent(Measured(metres=1.0, device="d"), "m/1")], 0)
    with SqliteLog(path) as log:
        with pytest.raises(UnknownEvent, match="event 1: type Measured, schema version 3") as caught:
            list(log.read())
        assert (caught.value.type, caught.value.schema_version, caught.value.known) == ("Measured", 3, None)
        assert log.verify().position == 1


@pytest.mark.parametrize("data", [b'{"by":1}', b"{}x", b"[]", b'{"by":"a","more":1}', b'"\xff"'])
def test_data_that_does_not_fit_its_type_is_corrupt_at_its_position(data: bytes) -> None:
    with pytest.raises(CorruptLog, match="event 7") as caught:
        CODEC.decode("PauseRequested", 1, data, 7)
    assert caught.value.position == 7


def test_a_type_without_a_way_up_from_each_old_version_is_a_fault_of_the_release() -> None:
    with pytest.raises(ValueError, match="no upcaster from 2"):
        Codec({"Measured": Measured}, {("Measured", 1): _to_metres})


def test_every_event_of_this_release_is_stored_under_its_own_name() -> None:
    assert all(name == cls.__name__ for name, cls in EVENT_TYPES.items())


def test_ids_grow_also_when_the_clock_goes_back() -> None:
    new_ids, now = EventIds(), datetime(2030, 1, 1, tzinfo=UTC)
    clock = [now, now, now - timedelta(days=400), now - timedelta(days=1), now + timedelta(seconds=1)]
    ids = [i for at in clock for i in new_ids(at, 2)]
    assert ids == sorted(set(ids))
    assert all(len(i) == 36 and i[14] == "7" and i[19] in "89ab" for i in ids)
