"""What a superuser does who knows about the triggers is found, and its position named."""

from collections.abc import Iterator

import pytest

from tests.events.postgres_server import TestServer
from whale.events import CorruptLog, NewEvent, PostgresLog
from whale.events.log import Row
from whale.events.types import ExtendRequested, PauseRequested

COLUMNS = ", ".join(Row._fields)


@pytest.fixture
def log(url: str) -> Iterator[PostgresLog]:
    with PostgresLog(url, "demo", busy_timeout=5) as log:
        for i in range(1, 7):
            log.append("run", [NewEvent(ExtendRequested(cycles=i), f"k/{i}", {"cost": i / 8})], None)
        yield log


def tampered(server: TestServer, url: str, *statements: str) -> None:
    with server.connect(url) as connection:
        for table in ("whale_events", "whale_runs"):
            connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL".encode())
        for statement in statements:
            connection.execute(statement.encode())
        connection.execute("ALTER TABLE whale_runs ENABLE ALWAYS TRIGGER whale_runs_grow")
        connection.execute("ALTER TABLE whale_runs ENABLE ALWAYS TRIGGER whale_runs_kept")
        for name in ("fixed", "kept", "follow"):
            connection.execute(f"ALTER TABLE whale_events ENABLE ALWAYS TRIGGER whale_events_{name}".encode())


def found_at(log: PostgresLog) -> int | None:
    with pytest.raises(CorruptLog) as caught:
        log.verify()
    with pytest.raises(CorruptLog):
        list(log.read())
    return caught.value.position


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("stream", "'other'"),
        ("version", "version + 100"),
        ("key", "'k/30'"),
        ("event_id", "'0'"),
        ("at", "'2000-01-01T00:00:00.000000Z'"),
        ("type", "'StopRequested'"),
        ("schema_version", "2"),
        ("data", "'{\"cycles\":30}'"),
        ("data", "data || ' '"),
        ("meta", "'{}'"),
        ("prev_hash", "repeat('0', 64)"),
        ("hash", "repeat('0', 64)"),
    ],
)
def test_a_changed_row_is_found_at_its_position(
    log: PostgresLog, server: TestServer, url: str, column: str, value: str
) -> None:
    tampered(server, url, f"UPDATE whale_events SET {column} = {value} WHERE position = 3")
    assert found_at(log) == 3
    assert [r.position for r in log.read(until=2)] == [1, 2]


@pytest.mark.parametrize("removed", [1, 3, 6])
def test_a_removed_row_is_found_also_the_last(log: PostgresLog, server: TestServer, url: str, removed: int) -> None:
    tampered(server, url, f"DELETE FROM whale_events WHERE position = {removed}")
    assert found_at(log) == removed


def test_nothing_is_appended_where_the_end_was_cut_off(log: PostgresLog, server: TestServer, url: str) -> None:
    tampered(server, url, "DELETE FROM whale_events WHERE position > 4")
    with pytest.raises(CorruptLog, match="event 5: is missing"):
        log.append("run", [NewEvent(PauseRequested(), "pause")], None)
    with pytest.raises(CorruptLog, match="event 5: is missing"):
        PostgresLog(url, "demo")


def test_two_rows_that_change_places_are_found(log: PostgresLog, server: TestServer, url: str) -> None:
    move = "UPDATE whale_events SET position = {} WHERE position = {}"
    tampered(server, url, move.format(99, 3), move.format(3, 4), move.format(4, 99))
    assert found_at(log) == 3


@pytest.mark.parametrize("position", [-1, 0, 4, 7])
def test_an_inserted_row_is_found(log: PostgresLog, server: TestServer, url: str, position: int) -> None:
    room = [
        f"UPDATE whale_events SET position = {n + 1} WHERE position = {n}"
        for n in range(6, position - 1, -1)
        if position > 0
    ]
    copy = (
        f"INSERT INTO whale_events (run, {COLUMNS}) SELECT run, {position}, stream, 77, 'k/77', 'id', at, type, "
        "schema_version, data, meta, prev_hash, hash FROM whale_events WHERE position = 2"
    )
    tampered(server, url, *room, copy)
    with pytest.raises(CorruptLog) as caught:
        log.verify()
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("change", "position"),
    [("position = 5", 6), ("position = 9", 7), ("hash = repeat('1', 64)", 6), ("position = 0", 1)],
)
def test_a_head_that_is_not_the_newest_rows_is_found_and_nothing_is_appended(
    log: PostgresLog, server: TestServer, url: str, change: str, position: int
) -> None:
    tampered(server, url, f"UPDATE whale_runs SET {change}")
    assert found_at(log) == position
    with pytest.raises(CorruptLog) as caught:
        log.append("run", [NewEvent(PauseRequested(), "pause")], None)
    assert caught.value.position == position


def test_a_run_that_was_removed_is_said(log: PostgresLog, server: TestServer, url: str) -> None:
    tampered(server, url, "DELETE FROM whale_events", "DELETE FROM whale_runs")
    with pytest.raises(Exception, match="not in this database any more"):
        log.verify()


def test_text_moved_between_data_and_meta_under_the_same_hash_is_found(
    log: PostgresLog, server: TestServer, url: str
) -> None:
    # Both rows have the same envelope bytes; see the same test on SQLite.
    from whale.events.chain import digest
    from whale.events.log import GENESIS

    long = '{"a":1,"event_id":"e","key":"k","meta":{}}'
    row = Row(1, "run", 1, "K", "E", "t", "T", 1, long.encode(), b"{}", GENESIS, "")
    moved = row._replace(data=b'{"a":1', event_id="e", key="k", meta=b'{}},"event_id":"E","key":"K","meta":{}')
    assert digest(row) == digest(moved)
    values = ", ".join(f"'{v.decode() if isinstance(v, bytes) else v}'" for v in (*moved[:-1], digest(moved)))
    tampered(
        server,
        url,
        "DELETE FROM whale_events",
        f"INSERT INTO whale_events (run, {COLUMNS}) VALUES ('demo', {values})",
        f"UPDATE whale_runs SET position = 1, hash = '{digest(moved)}'",
    )
    with pytest.raises(CorruptLog, match="not JSON") as caught:
        log.verify()
    assert caught.value.position == 1
