"""What the SQLite store promises beyond the contract: the file, the disk, the place."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from whale.events import (
    CorruptLog,
    KeyConflict,
    LogBusy,
    LogError,
    LogFull,
    NewEvent,
    SqliteLog,
    VersionConflict,
)
from whale.events.filesystem import network_filesystem
from whale.events.log import Row
from whale.events.sqlite_file import LAYOUT, TRIGGERS
from whale.events.table import event_table
from whale.events.types import ExtendRequested, PauseRequested


def extend(n: int) -> NewEvent:
    return NewEvent(ExtendRequested(cycles=n), f"extend/{n}")


def shell(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as raw, raw:
        for sql in statements:
            raw.execute(sql)


def copy_of_event_2(position: str = "4", version: str = "4", key: str = "'new'", event_id: str = "'x'") -> str:
    return (
        f"INTO events SELECT {position}, stream, {version}, {key}, {event_id}, at, type, schema_version, "
        "data, meta, prev_hash, hash FROM events WHERE position = 2"
    )


# --- append-only ---


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE events SET meta = '{}' WHERE position = 2",
        "DELETE FROM events WHERE position = 3",
        "DELETE FROM events",
        "INSERT OR REPLACE " + copy_of_event_2(position="2", version="2", key="'extend/2'"),
        "INSERT OR REPLACE " + copy_of_event_2(version="2"),
        "INSERT OR REPLACE " + copy_of_event_2(key="'extend/2'"),
        "INSERT OR REPLACE " + copy_of_event_2(position="NULL"),
        "INSERT OR IGNORE " + copy_of_event_2(key="'extend/2'"),
        "INSERT OR REPLACE INTO events SELECT position + 3, stream, version + 3, key, 'x', at, type, schema_version, "
        "data, meta, prev_hash, hash FROM events",
        "INSERT " + copy_of_event_2(position="9"),
        "INSERT " + copy_of_event_2(version="9"),
        "INSERT INTO events SELECT * FROM events WHERE position = 2 ON CONFLICT DO UPDATE SET meta = '{}'",
    ],
)
def test_no_statement_changes_replaces_removes_or_skips_an_event(log: SqliteLog, sql: str) -> None:
    log.append("run", [extend(1), extend(2), extend(3)], 0)
    before = list(log.read())
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        shell(log.path, sql)
    assert list(log.read()) == before
    log.verify()


def test_a_refused_row_leaves_nothing_of_its_batch(log: SqliteLog) -> None:
    """The rows before it are in the file by then, and are taken back by the transaction."""
    log.append("run", [extend(1)], 0)
    before = log.head()
    with pytest.raises(KeyConflict, match="batches are whole"):
        log.append("run", [extend(2), extend(3), extend(1)], 1)
    assert log.verify() == log.head() == before
    assert [r.position for r in log.append("run", [extend(2), extend(3)], 1)] == [2, 3]


def test_a_log_whose_triggers_were_dropped_does_not_verify(log: SqliteLog) -> None:
    log.append("run", [extend(1)], 0)
    shell(log.path, "DROP TRIGGER events_no_update")
    with pytest.raises(CorruptLog, match="triggers"):
        log.verify()
    shell(log.path, TRIGGERS["events_no_update"])
    log.verify()


def test_an_event_that_was_put_in_between_is_found_where_it_stands(log: SqliteLog) -> None:
    log.append("run", [extend(n) for n in range(1, 7)], 0)
    shell(
        log.path,
        *(f"DROP TRIGGER {name}" for name in TRIGGERS),
        "UPDATE events SET position = -position WHERE position > 3",
        "UPDATE events SET position = 1 - position, version = version + 1 WHERE position < 0",
        "INSERT INTO events SELECT 4, stream, 4, 'new', 'x', at, type, schema_version, data, meta, prev_hash, hash "
        "FROM events WHERE position = 3",
        "UPDATE sqlite_sequence SET seq = 6",
        *TRIGGERS.values(),
    )
    for look in (log.verify, lambda: list(log.read())):
        with pytest.raises(CorruptLog, match="event 4"):
            look()


def test_a_value_of_another_type_is_found_though_its_bytes_are_the_same(log: SqliteLog) -> None:
    log.append("run", [extend(1), extend(2)], 0)
    shell(
        log.path, "DROP TRIGGER events_no_update",
        "UPDATE events SET data = CAST(data AS BLOB) WHERE position = 2", TRIGGERS["events_no_update"],
    )  # fmt: skip
    with pytest.raises(CorruptLog, match=r"event 2.*text"):
        log.verify()


def test_the_declared_table_has_the_columns_of_a_row_and_the_unique_constraints(log: SqliteLog) -> None:
    assert tuple(event_table().columns.keys()) == Row._fields
    with closing(sqlite3.connect(log.path)) as raw:
        unique = set()
        for _, name, is_unique, *_ in raw.execute("PRAGMA index_list(events)").fetchall():
            assert is_unique
            unique.add(tuple(row[2] for row in raw.execute(f"PRAGMA index_info({name})")))
        assert unique == {("stream", "version"), ("stream", "key")}
        assert not any(row[3] == 0 for row in raw.execute("PRAGMA table_info(events)"))  # all NOT NULL


# --- the disk ---


def test_commits_are_durable_and_readers_do_not_wait_for_the_writer(log: SqliteLog) -> None:
    assert log._writer is not None
    with log._writer.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2


def test_a_full_disk_is_said_nothing_is_half_written_and_the_same_append_works_later(log: SqliteLog) -> None:
    log.append("run", [extend(0)], 0)
    big = [NewEvent(PauseRequested(by="x" * 3000), f"big/{i}") for i in range(40)]
    assert log._writer is not None
    with log._writer.connect() as connection:  # the pool's only connection: append uses it too
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar() or 0
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 5}")
    with pytest.raises(LogFull, match="no space left; nothing was written"):
        log.append("run", big, 1)
    assert [r.key for r in log.read()] == ["extend/0"]
    assert log.verify().position == 1
    assert log.append("control", [extend(7)], None)[0].position == 2  # what fits is still written
    with log._writer.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1073741823")
    assert [r.position for r in log.append("run", big, 1)] == list(range(3, 43))
    log.verify()


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0 or shutil.which("mount") is None, reason="mounts a small disk"
)
def test_a_disk_that_is_really_full_loses_no_acknowledged_event(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", disk], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("cannot mount here")
    try:
        with SqliteLog(disk / "events.db") as log:
            acknowledged = 0
            with pytest.raises(LogFull):
                for i in range(1000):
                    log.append("run", [NewEvent(PauseRequested(by="x" * 2000), f"k/{i}")], None)
                    acknowledged += 1
            assert log.verify().position == acknowledged > 0
        (disk / "filler").write_bytes(b"x" * (os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize))
        with pytest.raises(LogFull):
            SqliteLog(disk / "other.db")
        assert [p.name for p in disk.iterdir() if "other" in p.name] == []  # complete or absent
        subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True)
        with SqliteLog(disk / "events.db") as log:
            assert log.verify().position == acknowledged
            log.append("run", [NewEvent(PauseRequested(by="x" * 2000), "after")], acknowledged)
            assert log.verify().position == acknowledged + 1
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_the_clock_going_back_changes_nothing_but_the_time_that_is_noted(path: Path) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    times = iter([now, now - timedelta(days=900), now + timedelta(seconds=1)])
    with SqliteLog(path, clock=lambda: next(times)) as log:
        for n in range(3):
            log.append("run", [extend(n)], n)
        events = list(log.read())
        assert [e.position for e in events] == [1, 2, 3]
        assert [e.at[:4] for e in events] == ["2030", "2027", "2030"]
        log.verify()


# --- the file ---


@pytest.mark.parametrize(
    "content", [b"", b"not a database, but long enough to be looked at" * 40, b"SQLite format 3\0"]
)
def test_a_file_that_is_no_log_is_said_to_be_none_and_is_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for readonly in (True, False):
        with pytest.raises(CorruptLog, match=r"events\.db is not an event log"):
            SqliteLog(path, readonly=readonly)
    assert path.read_bytes() == content


def test_another_programs_database_is_said_to_be_no_log(path: Path) -> None:
    shell(path, "CREATE TABLE events (position INTEGER PRIMARY KEY)")
    with pytest.raises(CorruptLog, match="not an event log"):
        SqliteLog(path)


def test_a_log_of_another_layout_is_refused_by_number(path: Path) -> None:
    SqliteLog(path).close()
    shell(path, f"PRAGMA user_version = {LAYOUT - 1}")
    with pytest.raises(LogError, match=f"layout {LAYOUT - 1}; this release knows layout {LAYOUT}"):
        SqliteLog(path)


@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_a_file_that_was_cut_off_is_corrupt(path: Path, keep: float) -> None:
    with SqliteLog(path) as log:
        for n in range(40):
            log.append("run", [NewEvent(PauseRequested(by="x" * 900), f"k/{n}")], None)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * keep)])
    with pytest.raises(CorruptLog), SqliteLog(path, readonly=True) as log:
        log.verify()


def test_a_format_number_that_sqlite_does_not_know_is_damage(path: Path) -> None:
    SqliteLog(path).close()
    raw = bytearray(path.read_bytes())
    raw[47] = 5
    path.write_bytes(raw)
    with pytest.raises(CorruptLog, match=r"events\.db is damaged: unsupported file format"):
        SqliteLog(path, readonly=True)


def test_a_torn_last_transaction_leaves_all_before_it(path: Path) -> None:
    with SqliteLog(path) as log:
        for n in range(3):
            log.append("run", [extend(n)], n)
        size = Path(f"{path}-wal").stat().st_size
        log.append("run", [extend(3)], 3)
        torn = path.with_name("torn.db")
        shutil.copy(path, torn)
        wal = Path(f"{path}-wal").read_bytes()
    Path(f"{torn}-wal").write_bytes(wal[: size + (len(wal) - size) // 2])
    with SqliteLog(torn) as log:
        assert log.verify().position == 3
        assert log.append("run", [extend(3)], 3)[0].position == 4


@pytest.mark.parametrize("keep", [0, 1, 31, 32, 33, 40, 500, 0.3, 0.6, 0.999])
def test_a_wal_file_that_was_cut_off_anywhere_leaves_a_prefix(path: Path, keep: float) -> None:
    # A crash of the machine: what was flushed is there, and after it anything.
    with SqliteLog(path) as log:
        for n in range(6):
            log.append("run", [extend(n)], n)
        before = list(log.read())
        torn = path.with_name("torn.db")
        shutil.copy(path, torn)
        wal = Path(f"{path}-wal").read_bytes()
    cut = int(len(wal) * keep) if isinstance(keep, float) else keep
    Path(f"{torn}-wal").write_bytes(wal[:cut] + b"\xa5" * (4096 if keep == 0.6 else 0))
    with SqliteLog(torn) as log:
        position = log.verify().position
        assert list(log.read()) == before[:position]
        assert position < 6
        assert log.append("run", [extend(position)], position)[0].position == position + 1


def test_a_torn_last_page_of_the_file_is_found(path: Path) -> None:
    with SqliteLog(path) as log:
        for n in range(40):
            log.append("run", [NewEvent(PauseRequested(by="x" * 900), f"k/{n}")], None)
    raw = path.read_bytes()
    torn = len(raw) - 4096
    path.write_bytes(raw[: torn + 2048] + b"\0" * 2048)  # half of it was written
    with pytest.raises(CorruptLog), SqliteLog(path, readonly=True) as log:
        log.verify()


FILLS = """
    import resource, signal, sys
    from whale.events import LogError, LogFull, NewEvent, SqliteLog
    from whale.events.types import PauseRequested
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with SqliteLog(sys.argv[1]) as log:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        acknowledged = 0
        try:
            while True:
                log.append("run", [NewEvent(PauseRequested(by="x" * 2000), f"k/{acknowledged}")], acknowledged)
                acknowledged += 1
        except LogError as error:
            print(acknowledged, type(error).__name__, error)
"""


@pytest.mark.skipif(os.name != "posix", reason="RLIMIT_FSIZE")
def test_a_limit_on_the_size_of_files_loses_no_acknowledged_event(path: Path) -> None:
    SqliteLog(path).close()
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(FILLS), path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    acknowledged, kind, message = done.stdout.strip().split(" ", 2)
    assert kind == "LogError"
    assert message == f"{path}: disk I/O error; nothing was written. A limit on the size of files, or a failing disk"
    with SqliteLog(path) as log:
        assert log.verify().position == int(acknowledged) > 0
        assert log.append("run", [extend(0)], int(acknowledged))[0].position == int(acknowledged) + 1


def test_a_missing_log_is_made_for_a_writer_and_said_for_a_reader(path: Path) -> None:
    with pytest.raises(LogError, match="no event log here"):
        SqliteLog(path, readonly=True)
    assert not path.exists()
    SqliteLog(path).close()
    assert sorted(p.name for p in path.parent.iterdir()) == ["events.db"]
    with pytest.raises(LogError, match="cannot make an event log here"):
        SqliteLog(path.parent / "no folder" / "events.db")


def test_any_name_of_a_folder_will_do(tmp_path: Path) -> None:
    path = tmp_path / "what? #1 50%20 é 'x'" / "events.db"
    path.parent.mkdir()
    with SqliteLog(path) as log:
        log.append("run", [extend(1)], 0)
    assert [p.name for p in path.parent.iterdir()] == ["events.db"]
    with SqliteLog(path, readonly=True) as log:
        assert log.verify().position == 1


def test_a_tail_ends_when_its_log_is_closed(path: Path) -> None:
    with SqliteLog(path) as log:
        log.append("run", [extend(1)], 0)
        tail = log.tail(0, stop=lambda: False)
        assert next(tail).position == 1
        log.close()
        with pytest.raises(LogError, match="closed"):
            next(tail)


def test_a_reader_cannot_append_and_never_makes_a_change(path: Path) -> None:
    with SqliteLog(path) as log:
        log.append("run", [extend(1)], 0)
    before = path.read_bytes()
    with SqliteLog(path, readonly=True) as reader:
        with pytest.raises(LogError, match="reading only"):
            reader.append("run", [extend(2)], 1)
        reader.verify()
    assert path.read_bytes() == before


# --- reading beside a writer ---


def test_readers_never_wait_for_a_writer_that_holds_the_lock(log: SqliteLog) -> None:
    log.append("run", [extend(1)], 0)
    with closing(sqlite3.connect(log.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with SqliteLog(log.path, readonly=True, busy_timeout=0.0) as reader:
            assert [r.key for r in reader.read()] == ["extend/1"]
            assert reader.version("run") == reader.head().position == reader.verify().position == 1
            assert reader.find("extend/1", "run")
            assert len(list(reader.tail(0, stop=lambda: True))) == 1
        other.execute("ROLLBACK")


def test_a_reader_that_stops_midway_never_keeps_a_writer_from_appending(path: Path) -> None:
    with SqliteLog(path, busy_timeout=0.0) as log, SqliteLog(path, readonly=True) as reader:
        log.append("run", [extend(1), extend(2)], 0)
        reading, tailing = reader.read(), reader.tail(0, stop=lambda: False)
        assert next(reading).position == next(tailing).position == 1
        log.append("run", [extend(3)], 2)
        with closing(sqlite3.connect(path)) as raw:  # nor the WAL file from being emptied
            assert raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        assert [r.position for r in reading] == [2]
        assert [next(tailing).position for _ in range(2)] == [2, 3]


def test_a_write_lock_that_is_held_too_long_is_said(path: Path) -> None:
    with (
        SqliteLog(path, busy_timeout=0.0) as log,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LogBusy, match="nothing was written"):
            log.append("run", [extend(1)], 0)
        other.execute("ROLLBACK")
        assert log.append("run", [extend(1)], 0)[0].position == 1


def test_a_conflict_releases_the_write_lock(path: Path) -> None:
    with SqliteLog(path) as log, SqliteLog(path, busy_timeout=0.0) as other:
        log.append("run", [extend(1)], 0)
        with pytest.raises(VersionConflict):
            log.append("run", [extend(2)], 0)
        other.append("run", [extend(2)], 1)


# --- a read-only folder ---

READ_AS_NOBODY = """
    import os, sys
    from whale.events import LogError, SqliteLog
    if os.geteuid() == 0:
        os.setgid(65534); os.setuid(65534)
    try:
        SqliteLog(sys.argv[1]).close()
    except LogError as error:
        print("writer:", error, file=sys.stderr)
    else:
        sys.exit("the folder is not read-only: the test proves nothing")
    with SqliteLog(sys.argv[1], readonly=True) as log:
        print(log.verify().position, len(list(log.read())), len(list(log.tail(0, stop=lambda: True))))
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    # pytest's own folders are closed to other users.
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def read_as_nobody(path: Path) -> str:
    path.parent.chmod(0o555)
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(READ_AS_NOBODY), path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_log_in_a_read_only_folder_is_read(open_folder: Path) -> None:
    path = open_folder / "events.db"
    with SqliteLog(path) as log:
        log.append("run", [extend(1), extend(2)], 0)
    path.chmod(0o444)
    assert read_as_nobody(path) == "2 2 2"


def test_a_log_in_a_read_only_folder_is_read_while_its_writer_lives(open_folder: Path) -> None:
    path = open_folder / "events.db"
    with SqliteLog(path) as log:
        log.append("run", [extend(1), extend(2)], 0)
        assert read_as_nobody(path) == "2 2 2"


def test_what_a_dead_writer_left_in_the_wal_file_is_read_in_a_read_only_folder(open_folder: Path) -> None:
    path, copy = open_folder / "events.db", open_folder / "copy"
    copy.mkdir()
    with SqliteLog(path) as log:
        log.append("run", [extend(1), extend(2)], 0)
        for suffix in ("", "-wal"):  # as after a crash: no shared memory, and events in the WAL file only
            shutil.copy(f"{path}{suffix}", copy / f"events.db{suffix}")
    assert read_as_nobody(copy / "events.db") == "2 2 2"
    copy.chmod(0o755)


# --- the place ---


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/home/me/run", None),
        ("/mnt/share/run", "nfs4"),
        ("/mnt/share/local/run", None),
        ("/mnt/shared", None),
        ("/mnt/my disk/run", "cifs"),
        ("/mnt/remote/x", "fuse.sshfs"),
    ],
)
def test_a_network_file_system_is_told_from_a_local_one(tmp_path: Path, place: str, kind: str | None) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\nhost:/x /mnt/share nfs4 rw 0 0\n/dev/sdb /mnt/share/local xfs rw 0 0\n"
        "//host/d /mnt/my\\040disk cifs rw 0 0\nme@host: /mnt/remote ext4 rw 0 0\n"
        "me@host: /mnt/remote fuse.sshfs rw 0 0\nshort line\n"
    )
    assert network_filesystem(Path(place), mounts) == kind


def test_a_log_on_a_network_file_system_has_a_warning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteLog(path) as log:
        assert log.warning is None
    monkeypatch.setattr("whale.events.sqlite.network_filesystem", lambda _: "nfs4")
    with SqliteLog(path) as log:
        assert "network file system (nfs4)" in (log.warning or "")
        log.append("run", [extend(1)], 0)
