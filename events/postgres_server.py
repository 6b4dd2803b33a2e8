"""Connections to the server below a PostgreSQL log: made, pooled, given up; its errors put in our words."""

import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from sqlalchemy import create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool

from whale.events.log import CorruptLog, LogBusy, LogError, LogFull, LogUnavailable
from whale.events.postgres_driver import psycopg
from whale.events.postgres_url import check_url

T = TypeVar("T")

OLDEST = 14
"""The oldest release of PostgreSQL that is maintained, and that has all settings below."""

# Both ends look after a connection: a machine that is gone without a word is given up after about 35 s, and
# with it its locks. (Not over a Unix socket, where the other end's death always shows.)
_CLIENT = {
    "connect_timeout": 10, "keepalives": 1, "keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 4,
    "tcp_user_timeout": 30_000, "client_encoding": "utf8",
}  # fmt: skip
_SESSION = """
SET default_transaction_isolation = 'read committed';
SET idle_in_transaction_session_timeout = '10min';
SET idle_session_timeout = 0;
SET tcp_keepalives_idle = 15;
SET tcp_keepalives_interval = 5;
SET tcp_keepalives_count = 4;
SET tcp_user_timeout = 30000;
SELECT set_config('synchronous_commit', 'on', false)
  WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply');
"""


class Server:
    """A database, as one run's log or lease uses it.

    Attributes:
        where: the address, for messages; it holds no password.
    """

    def __init__(self, url: str, purpose: str, *, readonly: bool = False, patience: float = 60.0) -> None:
        """Connects when it is first used. `patience`: seconds to wait for a lock, or for a server that is away."""
        address = make_url(check_url(url))
        self.where = address.set(drivername="postgresql", query={}).render_as_string()
        self._patience = patience
        lock_timeout = max(1, min(math.ceil(patience * 1000), 2**31 - 1))  # 0 would be no limit
        session = f"{_SESSION}SET lock_timeout = {lock_timeout};"
        if readonly:
            session += "SET default_transaction_read_only = on;"
        arguments = {name: value for name, value in _CLIENT.items() if name not in address.query}
        arguments["application_name"] = f"whale {purpose} {os.getpid()}@{socket.gethostname()}"
        self._engine = create_engine(
            address,
            connect_args=arguments,
            use_native_hstore=False,  # it asks the server for a type at each connection
            poolclass=QueuePool,
            pool_size=2,
            max_overflow=8,
            pool_timeout=patience,
        )

        @event.listens_for(self._engine, "connect")
        def connected(raw: psycopg.Connection, _: object) -> None:
            # Each transaction is begun where it is needed: a reader never sits idle in one.
            raw.autocommit = True
            if raw.info.server_version < OLDEST * 10_000:
                version = raw.info.server_version // 10_000
                raise LogError(f"{self.where} is PostgreSQL {version}; a log needs {OLDEST} or later")
            raw.execute(session)

    def connect(self) -> psycopg.Connection:
        """A connection of the caller's own, outside the pool, to be closed by them."""
        with in_our_words(self.where):
            pooled = self._engine.raw_connection()
            connection = cast(psycopg.Connection, pooled.driver_connection)
            pooled.detach()
            return connection

    def once(self, work: Callable[[psycopg.Connection], T]) -> T:
        """Do it on a connection of the pool. Raises LogUnavailable if the server is not there."""
        with in_our_words(self.where):
            pooled = self._engine.raw_connection()
            connection = cast(psycopg.Connection, pooled.driver_connection)
            try:
                return work(connection)
            finally:
                if not _reusable(connection):
                    pooled.invalidate()
                pooled.close()

    def patiently(self, work: Callable[[psycopg.Connection], T]) -> T:
        """Do it, and do it again if the connection is lost: at once, and then until the patience is at its end.

        So `work` must be safe to repeat, also where it was done and only the answer was lost.
        """
        deadline: float | None = None
        wait = 0.0
        while True:
            try:
                return self.once(work)
            except LogUnavailable:
                self._engine.dispose()  # the others in the pool went with it
                now = time.monotonic()
                if deadline is None:
                    deadline = now + self._patience
                elif now >= deadline:
                    raise
                time.sleep(min(wait, max(deadline - now, 0.0)))
                wait = min(2 * wait + 0.05, 1.0)

    def close(self) -> None:
        """Close the pool's connections."""
        self._engine.dispose()


def _reusable(connection: psycopg.Connection) -> bool:
    """Whether nothing is open on it: an interrupt can come in the middle of anything."""
    return (
        not connection.closed
        and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        and connection.pgconn.pipeline_status == psycopg.pq.PipelineStatus.OFF
    )


@contextmanager
def in_our_words(where: str) -> Iterator[None]:
    """Turn the driver's errors into the log's, each with one line that says what to do."""
    try:
        yield
    except PoolTimeout as error:
        raise LogBusy(f"{where}: other threads hold all connections; nothing was written. Try again") from error
    except DBAPIError as error:
        raise _translated(where, error.orig) from error
    except psycopg.Error as error:
        raise _translated(where, error) from error


def is_lost(error: BaseException | None) -> bool:
    """Whether the connection is gone, or never was."""
    state = getattr(error, "sqlstate", None) or ""
    if state:
        return state[:2] == "08" or state in ("57P01", "57P02", "57P03", "57P05", "25P03")
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def _translated(where: str, cause: Any) -> LogError:
    state = getattr(cause, "sqlstate", None) or ""
    text = _first_line(cause)
    if state == "53100":
        return LogFull(f"{where}: no space left on the server; nothing was written. Make room and run the same again")
    if state in ("55P03", "57014", "40001", "40P01"):
        return LogBusy(f"{where}: another process holds the run's lock; nothing was written. Try again ({text})")
    if state == "42501":
        return LogError(f"{where}: {text}. Ask the owner of the tables to GRANT it")
    if state == "25006":
        return LogError(f"{where}: {text}. The role or the server is read-only: open the log for reading only")
    if state[:2] == "XX" or state in ("42P01", "42703"):
        return CorruptLog(None, f"{where} is damaged: {text}")
    if state[:2] == "28" or "authentication" in text or "password" in text:
        return LogError(f"{where}: the server refused the login: {text}. Give the password in PGPASSWORD or ~/.pgpass")
    if state == "3D000" or ("database" in text and "does not exist" in text):
        return LogError(f"{where}: {text}. Make it with: createdb --encoding=UTF8 --template=template0 NAME")
    away = "the database system is" in text or "too many" in text or "connection slots" in text
    if "FATAL:" in text and not away:  # said while connecting, where there is no code: no such role, …
        return LogError(f"{where}: {text}")
    if is_lost(cause) or state == "53300":
        return LogUnavailable(
            f"{where}: the server cannot be reached ({text}). When it is back, do the same again: what was "
            "recorded is not recorded twice"
        )
    return LogError(f"{where}: {text}")


def _first_line(cause: Any) -> str:
    """The server's own words, without psycopg's and libpq's lead-in."""
    primary = getattr(getattr(cause, "diag", None), "message_primary", None)
    lines = [line for line in str(primary or cause).splitlines() if line.strip()]
    text = lines[0] if lines else type(cause).__name__
    return text.removeprefix("connection failed: ").removesuffix(".").strip()
