"""All stores keep the contract; the suite itself is shipped in whale.events.contract."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from whale.events import EventLog, MemoryLog, PostgresLog, SqliteLog
from whale.events.contract import EventLogContract


class TestMemoryLog(EventLogContract):
    @pytest.fixture
    def log(self) -> Iterator[EventLog]:
        with MemoryLog() as log:
            yield log


class TestSqliteLog(EventLogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[EventLog]:
        with SqliteLog(tmp_path / "events.db") as log:
            yield log


class TestPostgresLog(EventLogContract):
    @pytest.fixture
    def log(self, shared_url: str) -> Iterator[EventLog]:
        with PostgresLog(shared_url, f"run {secrets.token_hex(4)}") as log:
            yield log
