from collections.abc import Iterator
from pathlib import Path

import pytest

from whale.events import SqliteLog

pytest.register_assert_rewrite("whale.events.contract")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


@pytest.fixture
def log(path: Path) -> Iterator[SqliteLog]:
    with SqliteLog(path) as log:
        yield log
