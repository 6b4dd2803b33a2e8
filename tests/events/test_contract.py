"""Both stores keep the contract; the suite itself is shipped in whale.events.contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from whale.events import EventLog, MemoryLog, SqliteLog
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
