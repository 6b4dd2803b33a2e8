import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from whale.events import SqliteLog

if TYPE_CHECKING:
    from tests.events.postgres_server import LocalServer, TestServer

pytest.register_assert_rewrite("whale.events.contract")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


@pytest.fixture
def log(path: Path) -> Iterator[SqliteLog]:
    with SqliteLog(path) as log:
        yield log


@pytest.fixture(scope="session")
def server() -> "Iterator[TestServer]":
    """A PostgreSQL server for the session: that of WHALE_TEST_POSTGRES, or one of our own."""
    if find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed")
    from tests.events.postgres_server import LocalServer, TestServer

    url = os.environ.get("WHALE_TEST_POSTGRES")
    if url:
        running = TestServer(url)
    elif find_spec("pgserver") is None:
        pytest.skip("neither pgserver nor WHALE_TEST_POSTGRES is there")
    else:
        running = LocalServer()
    yield running
    running.close()


@pytest.fixture
def local_server(server: "TestServer") -> "LocalServer":
    """The session's server, if it is ours to stop and to configure."""
    from tests.events.postgres_server import LocalServer

    if not isinstance(server, LocalServer):
        pytest.skip("the server of WHALE_TEST_POSTGRES is not ours to stop")
    return server


@pytest.fixture(scope="session")
def shared_url(server: "TestServer") -> Iterator[str]:
    """A database for tests that differ by the run's name alone."""
    url = server.database()
    yield url
    server.drop(url)


@pytest.fixture
def url(server: "TestServer") -> Iterator[str]:
    """A new database."""
    made = server.database()
    yield made
    server.drop(made)
