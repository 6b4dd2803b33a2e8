"""A row changed, removed, inserted or reordered with the databases' own shells is found, and its position named."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from whale.events import CorruptLog, EventLog, NewEvent, PostgresLog, SqliteLog
from whale.events.log import Row
from whale.events.types import ExtendRequested

COLUMNS = ", ".join(Row._fields)
REST = "stream, version + 90, 'k/90', 'id', at, type, schema_version, data, meta, prev_hash, hash"
SCRIPTS = {
    "changed": (3, "UPDATE {t} SET data = '{{\"cycles\":30}}' WHERE position = 3;"),
    "removed": (3, "DELETE FROM {t} WHERE position = 3;"),
    "removed last": (6, "DELETE FROM {t} WHERE position = 6;"),
    "inserted": (
        4,
        "UPDATE {t} SET position = 7 WHERE position = 6; UPDATE {t} SET position = 6 WHERE position = 5; "
        "UPDATE {t} SET position = 5 WHERE position = 4; "
        "INSERT INTO {t} ({r}{c}) SELECT {r}4, {rest} FROM {t} WHERE position = 2;",
    ),
    "reordered": (
        3,
        "UPDATE {t} SET position = 99 WHERE position = 3; UPDATE {t} SET position = 3 WHERE position = 4; "
        "UPDATE {t} SET position = 4 WHERE position = 99;",
    ),
}
NO_TRIGGERS = {
    "sqlite": "DROP TRIGGER events_no_update; DROP TRIGGER events_no_delete; DROP TRIGGER events_append_only;",
    "postgres": "ALTER TABLE whale_events DISABLE TRIGGER ALL;",
}
Shell = Callable[[str], None]


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(kind: str, path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[EventLog, Shell]]:
    """A log of six events, and the shell on it."""
    log: EventLog
    if kind == "sqlite":
        log = SqliteLog(path)
        # Where there is no shell, Python's module in another process is one.
        shell = [shutil.which("sqlite3") or "", "-bail", str(path)]
        if not shell[0]:
            program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.stdin.read())"
            shell = [sys.executable, "-c", program, str(path)]
    else:
        url = make_url(request.getfixturevalue("url"))
        psql = shutil.which("psql")
        if psql is None:
            pytest.skip("no psql")
        log = PostgresLog(url.render_as_string(False), "demo")
        address = url.set(drivername="postgresql").render_as_string(False)
        shell = [psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", address]

    def run(script: str) -> None:
        done = subprocess.run(shell, input=script, capture_output=True, text=True)
        if done.returncode or done.stderr:
            raise RuntimeError(done.stderr)

    with log:
        for i in range(1, 7):
            log.append("run", [NewEvent(ExtendRequested(cycles=i), f"k/{i}")], None)
        yield log, run


def script(kind: str, change: str) -> str:
    table, run = ("events", "") if kind == "sqlite" else ("whale_events", "run, ")
    return SCRIPTS[change][1].format(t=table, r=run, c=COLUMNS, rest=REST)


@pytest.mark.parametrize("change", SCRIPTS)
def test_a_row_tampered_with_in_the_shell_is_found_and_its_position_named(
    opened: tuple[EventLog, Shell], kind: str, change: str
) -> None:
    log, shell = opened
    shell(NO_TRIGGERS[kind] + script(kind, change))
    with pytest.raises(CorruptLog) as caught:
        log.verify()
    assert caught.value.position == SCRIPTS[change][0]
    assert str(caught.value).startswith(f"event {SCRIPTS[change][0]}: ")


@pytest.mark.parametrize("change", SCRIPTS)
def test_with_its_triggers_a_log_refuses_the_shell(opened: tuple[EventLog, Shell], kind: str, change: str) -> None:
    log, shell = opened
    with pytest.raises(RuntimeError, match="append-only"):
        shell(script(kind, change))
    assert log.verify().position == 6
