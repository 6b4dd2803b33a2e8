"""What the PostgreSQL store promises beyond the contract: append-only tables, many runs, errors in one line."""

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy.engine import make_url

from tests.events.postgres_server import LocalServer, TestServer
from whale.events import (
    CorruptLog,
    LogBusy,
    LogError,
    LogFull,
    LogUnavailable,
    NewEvent,
    PostgresLog,
    VersionConflict,
)
from whale.events.log import Row
from whale.events.postgres import runs
from whale.events.postgres_schema import LAYOUT
from whale.events.postgres_tables import tables
from whale.events.postgres_url import check_url
from whale.events.types import ExtendRequested, PauseRequested


def extend(n: int) -> NewEvent:
    return NewEvent(ExtendRequested(cycles=n), f"extend/{n}")


@pytest.fixture
def log(url: str) -> Iterator[PostgresLog]:
    with PostgresLog(url, "demo", busy_timeout=5) as log:
        yield log


def as_role(url: str, role: str) -> str:
    return make_url(url).set(username=role).render_as_string(False)


@contextmanager
def role(server: TestServer, options: str = "") -> Iterator[str]:
    name = f"whale_role_{os.getpid()}"
    with server.connect() as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN {options}".encode())
        yield name
        connection.execute(f"DROP ROLE {name}".encode())


# --- append-only ---

COLUMNS = ", ".join(Row._fields)


def copy_of_event_2(position: str = "4", version: str = "4", key: str = "'new'", event_id: str = "'x'") -> str:
    return (
        f"INSERT INTO whale_events (run, {COLUMNS}) SELECT run, {position}, stream, {version}, {key}, {event_id}, at, "
        "type, schema_version, data, meta, prev_hash, hash FROM whale_events WHERE position = 2"
    )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE whale_events SET meta = '{}' WHERE position = 2",
        "DELETE FROM whale_events WHERE position = 3",
        "DELETE FROM whale_events",
        "TRUNCATE whale_events",
        "TRUNCATE whale_events, whale_runs",
        "SET session_replication_role = replica; UPDATE whale_events SET meta = '{}' WHERE position = 2",
        "SET session_replication_role = replica; DELETE FROM whale_events WHERE position = 3",
        copy_of_event_2("2", "2", "'extend/2'") + " ON CONFLICT (run, position) DO UPDATE SET meta = '{}'",
        copy_of_event_2(key="'extend/2'") + " ON CONFLICT (run, stream, key) DO UPDATE SET meta = '{}'",
        "MERGE INTO whale_events e USING (SELECT 2 AS p) s ON e.position = s.p WHEN MATCHED THEN DELETE",
        copy_of_event_2(),
        copy_of_event_2(position="9"),
        copy_of_event_2(position="0"),
        copy_of_event_2(version="9").replace("prev_hash, hash FROM", "hash, hash FROM"),
        "UPDATE whale_runs SET position = 2",
        "UPDATE whale_runs SET position = 9",
        "UPDATE whale_runs SET hash = repeat('1', 64)",
        "UPDATE whale_runs SET run = 'other'",
        "DELETE FROM whale_runs",
        "INSERT INTO whale_runs VALUES ('new', 'now', 7, 'x')",
    ],
)
def test_no_statement_changes_replaces_removes_or_skips_an_event(
    log: PostgresLog, server: TestServer, url: str, statement: str
) -> None:
    log.append("run", [extend(1), extend(2), extend(3)], 0)
    before = list(log.read())
    with server.connect(url) as connection:
        if statement.startswith("MERGE") and connection.info.server_version < 150000:
            pytest.skip("PostgreSQL 15 has it")
        with pytest.raises(psycopg.IntegrityError, match="append-only"):
            connection.execute(statement.encode())
    assert list(log.read()) == before
    assert log.verify().position == 3
    assert log.append("run", [extend(4)], 3)[0].position == 4


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER whale_events_fixed ON whale_events",
        "ALTER TABLE whale_events DISABLE TRIGGER whale_events_kept",
        "ALTER TABLE whale_events ENABLE TRIGGER whale_events_follow",  # no longer ALWAYS
        "CREATE OR REPLACE FUNCTION whale_runs_grow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    ],
)
def test_a_log_whose_triggers_were_changed_does_not_verify(
    log: PostgresLog, server: TestServer, url: str, statement: str
) -> None:
    log.append("run", [extend(1)], 0)
    with server.connect(url) as connection:
        connection.execute(statement.encode())
    with pytest.raises(CorruptLog, match="triggers"):
        log.verify()


def test_the_declared_table_has_the_columns_of_a_row_and_none_may_be_null(
    log: PostgresLog, server: TestServer, url: str
) -> None:
    assert tuple(tables()[1].columns.keys()) == ("run", *Row._fields)
    with server.connect(url) as connection:
        nullable = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid IN ('whale_runs'::regclass, 'whale_events'::regclass) "
            "AND attnum > 0 AND NOT attnotnull"
        ).fetchall()
        unique = connection.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'whale_events'::regclass "
            "AND contype IN ('u', 'p')"
        ).fetchall()
    assert nullable == []
    assert {row[0] for row in unique} == {
        "PRIMARY KEY (run, \"position\")", "UNIQUE (run, stream, version)", "UNIQUE (run, stream, key)",
    }  # fmt: skip


# --- many runs in one database ---


def test_runs_of_one_database_do_not_see_each_other(url: str) -> None:
    with PostgresLog(url, "a") as a, PostgresLog(url, "b") as b:
        a.append("run", [extend(1), extend(2)], 0)
        assert b.head().position == 0
        assert [r.position for r in b.append("run", [extend(1)], 0)] == [1]
        assert (a.version("run"), b.version("run")) == (2, 1)
        assert [r.key for r in b.tail(0, stop=lambda: True)] == ["extend/1"]
        a.verify()
        b.verify()


def test_a_fork_lies_beside_its_origin_with_the_same_ids(url: str) -> None:
    with PostgresLog(url, "origin") as origin, PostgresLog(url, "fork") as fork:
        origin.append("run", [extend(n) for n in range(2500)], 0)
        assert fork.restore(origin.rows(until=1200)).position == 1200
        assert list(fork.rows()) == list(origin.rows(until=1200))
        assert fork.append("run", [extend(9999)], 1200)[0].position == 1201
        assert fork.verify().position == 1201
        assert origin.verify().position == 2500


def test_the_runs_of_a_database_are_listed(url: str) -> None:
    assert runs(url) == []
    with PostgresLog(url, "second run é", clock=lambda: datetime(2031, 1, 1, tzinfo=UTC)) as log:
        log.append("run", [extend(1), extend(2)], 0)
    PostgresLog(url, "first", clock=lambda: datetime(2030, 1, 1, tzinfo=UTC)).close()
    assert [tuple(entry) for entry in runs(url)] == [
        ("first", 0, "2030-01-01T00:00:00.000000Z"),
        ("second run é", 2, "2031-01-01T00:00:00.000000Z"),
    ]


def test_a_reader_is_told_which_runs_there_are(url: str) -> None:
    with pytest.raises(LogError, match="there is no event log in this database"):
        PostgresLog(url, "demo", readonly=True)
    PostgresLog(url, "demo").close()
    with pytest.raises(LogError, match='no run "other" here; there are: demo'):
        PostgresLog(url, "other", readonly=True)
    with PostgresLog(url, "demo", readonly=True) as log, pytest.raises(LogError, match="reading only"):
        log.append("run", [extend(1)], 0)


def test_a_log_can_lie_in_a_schema_of_its_own(server: TestServer, url: str) -> None:
    with server.connect(url) as connection:
        connection.execute('CREATE SCHEMA "My Schema"')
    theirs = make_url(url).update_query_dict({"options": '-csearch_path="My\\ Schema"'}).render_as_string(False)
    with PostgresLog(theirs, "demo") as log, PostgresLog(url, "demo") as other:
        log.append("run", [extend(1)], 0)
        assert log.verify().position == 1
        assert other.verify().position == 0


# --- durability and time ---


def test_commits_are_durable_whatever_the_role_is_set_to(server: TestServer, url: str) -> None:
    with role(server, "SUPERUSER") as name, server.connect() as connection:
        connection.execute(f"ALTER ROLE {name} SET synchronous_commit = off".encode())
        connection.execute(f"ALTER ROLE {name} SET default_transaction_isolation = serializable".encode())
        with PostgresLog(as_role(url, name), "demo") as log:
            log.append("run", [extend(1)], 0)
            ask = "SELECT current_setting('synchronous_commit'), current_setting('default_transaction_isolation')"
            assert log._server.once(lambda c: c.execute(ask).fetchone()) == ("on", "read committed")
        server.drop(url)


def test_the_clock_going_back_changes_nothing_but_the_time_that_is_noted(url: str) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    times = iter([now, now, now - timedelta(days=900), now + timedelta(seconds=1)])
    with PostgresLog(url, "demo", clock=lambda: next(times)) as log:
        for n in range(3):
            log.append("run", [extend(n)], n)
        events = list(log.read())
        assert [e.position for e in events] == [1, 2, 3]
        assert [e.at[:4] for e in events] == ["2030", "2027", "2030"]
        log.verify()


def test_a_log_on_a_server_that_does_not_flush_has_a_warning(
    log: PostgresLog, local_server: LocalServer, url: str
) -> None:
    assert log.warning is None
    with local_server.connect() as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
        try:
            for _ in range(100):
                with PostgresLog(url, "demo") as other:
                    if other.warning:
                        break
            assert "fsync = off" in (other.warning or "")
        finally:
            connection.execute("ALTER SYSTEM RESET fsync")
            connection.execute("SELECT pg_reload_conf()")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0 or shutil.which("mount") is None, reason="mounts a disk")
def test_a_full_disk_is_said_and_loses_no_acknowledged_event(local_server: LocalServer) -> None:
    disk = local_server.folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=14m", "none", disk], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("cannot mount here")
    url = local_server.database()
    name = sql.Identifier(make_url(url).database or "")
    try:
        (disk / "space").mkdir()
        shutil.chown(disk / "space", local_server.user)
        with local_server.connect() as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{disk}/space'".encode())
            connection.execute(sql.SQL("ALTER DATABASE {} SET default_tablespace = small").format(name))
        big = [NewEvent(PauseRequested(by=os.urandom(900).hex()), f"k/{i}") for i in range(400)]
        acknowledged = 0
        with PostgresLog(url, "demo") as log:
            with pytest.raises(LogFull, match="no space left on the server; nothing was written"):
                for i in range(100):
                    log.append("run", [NewEvent(n.event, f"{i}/{n.key}") for n in big], acknowledged)
                    acknowledged += len(big)
            assert log.verify().position == acknowledged > 0
            subprocess.run(["mount", "-o", "remount,size=60m", disk], check=True)
            assert log.append("run", [NewEvent(big[0].event, "after")], acknowledged)[0].position == acknowledged + 1
            assert log.verify().position == acknowledged + 1
    finally:
        local_server.drop(url)
        with local_server.connect() as connection:
            connection.execute("DROP TABLESPACE IF EXISTS small")
        subprocess.run(["umount", "-l", disk], check=True)


# --- errors in one line ---


def test_a_server_that_is_not_there_is_said(url: str) -> None:
    with pytest.raises(LogUnavailable, match=r"cannot be reached .*refused") as caught:
        PostgresLog(make_url(url).set(host="127.0.0.1", port=1).render_as_string(False), "demo")
    assert "\n" not in str(caught.value)


def test_a_database_or_role_that_is_not_there_is_said(url: str) -> None:
    with pytest.raises(LogError, match=r'database "nope" does not exist. Make it with: createdb'):
        PostgresLog(make_url(url).set(database="nope").render_as_string(False), "demo")
    with pytest.raises(LogError, match='role "nobody_here" does not exist'):
        PostgresLog(as_role(url, "nobody_here"), "demo")


def test_a_refused_login_names_the_places_for_a_password(
    local_server: LocalServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", "/nowhere")
    rules = local_server.data / "pg_hba.conf"
    before = rules.read_text()
    with role(local_server, "SUPERUSER PASSWORD 'right'") as name:
        rules.write_text(f"host all {name} 127.0.0.1/32 scram-sha-256\n{before}")
        local_server.reload()
        try:
            theirs = as_role(url, name)
            with pytest.raises(LogError, match=r"refused the login: .*PGPASSWORD"):
                for _ in range(100):  # until the server has read its rules anew
                    PostgresLog(theirs, "demo").close()
            monkeypatch.setenv("PGPASSWORD", "wrong")
            with pytest.raises(LogError, match="password authentication failed"):
                PostgresLog(theirs, "demo")
            monkeypatch.setenv("PGPASSWORD", "right")
            with PostgresLog(theirs, "demo") as log:
                log.append("run", [extend(1)], 0)
                assert "right" not in log.where
        finally:
            rules.write_text(before)
            local_server.reload()
            local_server.drop(url)


def test_a_role_needs_no_more_than_what_it_does(server: TestServer, url: str) -> None:
    with PostgresLog(url, "demo") as log, role(server) as name, server.connect(url) as connection:
        log.append("run", [extend(1)], 0)
        theirs = as_role(url, name)
        with pytest.raises(LogError, match=r"permission denied.*GRANT"):
            PostgresLog(theirs, "demo", readonly=True)
        connection.execute(f"GRANT SELECT ON whale_events, whale_runs TO {name}".encode())
        with PostgresLog(theirs, "demo", readonly=True) as reader:
            assert reader.verify().position == 1
            assert len(list(reader.tail(0, stop=lambda: True))) == 1
        with PostgresLog(theirs, "demo") as reader, pytest.raises(LogError, match=r"permission denied.*GRANT"):
            reader.append("run", [extend(2)], 1)
        connection.execute(f"GRANT INSERT ON whale_events, whale_runs TO {name}".encode())
        connection.execute(f"GRANT UPDATE ON whale_runs TO {name}".encode())
        with PostgresLog(theirs, "demo") as writer:
            assert writer.append("run", [extend(2)], 1)[0].position == 2
            assert writer.restore is not None
            writer.verify()
        connection.execute(f"REVOKE ALL ON whale_events, whale_runs FROM {name}".encode())


def test_a_role_that_may_not_make_tables_is_said(server: TestServer, url: str) -> None:
    with role(server) as name, server.connect(url) as connection:
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        with pytest.raises(LogError, match="permission denied for schema public"):
            PostgresLog(as_role(url, name), "demo")


def test_a_read_only_server_is_said(server: TestServer, url: str) -> None:
    with PostgresLog(url, "demo") as log:
        log.append("run", [extend(1)], 0)
    with server.connect() as connection:
        name = sql.Identifier(make_url(url).database or "")
        connection.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
    with PostgresLog(url, "demo") as log, pytest.raises(LogError, match="read-only"):
        log.append("run", [extend(2)], 1)
    with PostgresLog(url, "demo", readonly=True) as log:
        assert log.verify().position == 1


def test_a_run_lock_that_is_held_too_long_is_said_and_no_reader_waits_for_it(server: TestServer, url: str) -> None:
    with PostgresLog(url, "demo", busy_timeout=0.2) as log, server.connect(url) as connection:
        log.append("run", [extend(1)], 0)
        with connection.transaction():
            connection.execute("SELECT FROM whale_runs FOR UPDATE")
            with pytest.raises(LogBusy, match="nothing was written"):
                log.append("run", [extend(2)], 1)
            assert log.verify().position == log.version("run") == len(list(log.read())) == 1
            assert log.find("extend/1", "run")
            assert len(list(log.tail(0, stop=lambda: True))) == 1
            with PostgresLog(url, "other", busy_timeout=0.2) as other:  # nor does another run
                other.append("run", [extend(1)], 0)
        assert log.append("run", [extend(2)], 1)[0].position == 2


def test_a_conflict_releases_the_lock(url: str) -> None:
    with PostgresLog(url, "demo") as log, PostgresLog(url, "demo", busy_timeout=0.5) as other:
        log.append("run", [extend(1)], 0)
        with pytest.raises(VersionConflict):
            log.append("run", [extend(2)], 0)
        other.append("run", [extend(2)], 1)


def test_a_database_that_cannot_hold_all_text_is_refused(server: TestServer) -> None:
    url = server.database(encoding="LATIN1")
    try:
        with pytest.raises(LogError, match=r"encoding is LATIN1.*createdb"):
            PostgresLog(url, "demo")
    finally:
        server.drop(url)


def test_another_programs_table_is_said_to_be_no_log(server: TestServer, url: str) -> None:
    with server.connect(url) as connection:
        connection.execute("CREATE TABLE whale_events (position int)")
        with pytest.raises(CorruptLog, match="not an event log of ours"):
            PostgresLog(url, "demo")
        connection.execute("COMMENT ON TABLE whale_events IS 'event log of whale, layout 9'")
        with pytest.raises(LogError, match=f"layout 9; this release knows {LAYOUT}"):
            PostgresLog(url, "demo")


@pytest.mark.parametrize("name", ["", "a\nb", "a\x00b"])
def test_a_run_whose_name_is_not_plain_text_is_refused(name: str) -> None:
    with pytest.raises(LogError, match="run's name"):
        PostgresLog("postgresql+psycopg://localhost/x", name)


def test_names_that_no_log_holds_are_not_found(log: PostgresLog) -> None:
    log.append("run", [extend(1)], 0)
    for name in ("a\x00b", "\ud800"):
        assert log.find(name, "run") is log.find("extend/1", name) is None
        assert log.version(name) == len(list(log.read(stream=name))) == 0


# --- the address ---


def test_an_address_is_brought_to_one_form() -> None:
    for url in ("postgres://me@host:5433/db", "postgresql://me@host:5433/db", "postgresql+psycopg://me@host:5433/db"):
        assert check_url(url) == "postgresql+psycopg://me@host:5433/db"
    kept = "postgresql+psycopg:///db?host=%2Frun%2Fpostgresql&service=mine"
    assert check_url(kept) == kept


@pytest.mark.parametrize(
    "url",
    ["postgresql://me:secret@host/db", "postgresql://me:@host/db", "postgresql:///db?password=secret",
     "postgresql:///db?sslpassword=secret"],
)  # fmt: skip
def test_a_password_in_the_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(LogError, match=r"PGPASSWORD, ~/\.pgpass or a service file") as caught:
        check_url(url)
    assert "secret" not in str(caught.value)
    with pytest.raises(LogError, match="PGPASSWORD"):
        PostgresLog(url, "demo")


@pytest.mark.parametrize("url", ["", "me:secret@host", "postgresql://me:secret@host:port/db"])
def test_an_address_that_is_none_is_said_without_repeating_it(url: str) -> None:
    with pytest.raises(LogError, match="not a database address") as caught:
        check_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["sqlite:///x.db", "postgresql+asyncpg://host/db", "mysql://host/db"])
def test_another_database_is_refused(url: str) -> None:
    with pytest.raises(LogError, match="not in"):
        check_url(url)


def test_a_missing_driver_gives_one_line_with_the_command(tmp_path: Path) -> None:
    program = """
        import sys
        sys.modules["psycopg"] = None
        import whale.events
        from whale.events.postgres_url import check_url
        check_url("postgresql://host/db")  # a config can be checked without the driver
        try:
            whale.events.PostgresLog
        except whale.events.LogError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.stdout == 'a log in PostgreSQL needs psycopg: pip install "whale-evolve[postgres]"\n', done.stderr
