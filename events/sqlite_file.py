"""The SQLite file below the log: made whole, opened for writing or reading, its errors put in our words."""

import errno
import os
import secrets
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import cast
from urllib.parse import quote

from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import NullPool, QueuePool

from whale.events.log import CorruptLog, LogBusy, LogError, LogFull

APPLICATION_ID = 0x5748_4C45  # "WHLE"
LAYOUT = 3
"""Version of the table's layout (PRAGMA user_version); the events' own versions are apart from it."""

_PAGE_SIZE = 8192  # a row has about 800 bytes: fewer pages to write, and less of each left empty

# INSERT OR REPLACE deletes rows without firing a DELETE trigger, so inserting is guarded too: a new row has
# the next position, and no unique value of an old one. FAIL, where ABORT would make SQLite copy every page that
# a statement touches, to undo the rows before the refused one: those do follow, and an append that is refused
# rolls its transaction back.
TRIGGERS = {
    "events_no_update": (
        "CREATE TRIGGER events_no_update BEFORE UPDATE ON events "
        "BEGIN SELECT RAISE(ABORT, 'the event log is append-only'); END"
    ),
    "events_no_delete": (
        "CREATE TRIGGER events_no_delete BEFORE DELETE ON events "
        "BEGIN SELECT RAISE(ABORT, 'the event log is append-only'); END"
    ),
    "events_append_only": (
        "CREATE TRIGGER events_append_only BEFORE INSERT ON events "
        "WHEN NEW.position IS NOT (SELECT coalesce(max(position), 0) + 1 FROM events) "
        "OR NEW.version IS NOT (SELECT coalesce(max(version), 0) + 1 FROM events WHERE stream = NEW.stream) "
        "OR EXISTS (SELECT 1 FROM events WHERE stream = NEW.stream AND key = NEW.key) "
        "BEGIN SELECT RAISE(FAIL, 'the event log is append-only'); END"
    ),
}


def create(path: Path) -> None:
    """Make an empty log, complete or not at all; leave one alone that another process has just made."""
    from sqlalchemy.schema import CreateTable

    from whale.events.table import event_table

    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.new")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(temporary), poolclass=NullPool)
        with engine.begin() as connection:
            connection.exec_driver_sql(f"PRAGMA page_size = {_PAGE_SIZE}")
            connection.execute(CreateTable(event_table()))
            for trigger in TRIGGERS.values():
                connection.exec_driver_sql(trigger)
            connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.exec_driver_sql(f"PRAGMA user_version = {LAYOUT}")
        with closing(sqlite3.connect(temporary)) as raw:
            raw.execute("PRAGMA journal_mode = WAL")
        _sync(temporary)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            # A file system without hard links: claim the name, then put the file in its place.
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                return
            temporary.replace(path)
        _sync(path.parent)
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{temporary}{suffix}").unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def writer(path: Path, busy_timeout: float) -> Engine:
    """One connection, whose commits are durable when they return."""

    def connect() -> sqlite3.Connection:
        raw = _connect(f"{path.resolve().as_uri()}?mode=rw", busy_timeout)
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("PRAGMA synchronous = FULL")
        raw.execute("PRAGMA recursive_triggers = ON")
        raw.execute("PRAGMA cache_size = -16000")  # 16 MB: an append touches the end of each index
        return raw

    return create_engine(
        "sqlite://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=1,
        max_overflow=0,
        pool_timeout=busy_timeout,
    )


@contextmanager
def borrowed(engine: Engine) -> Iterator[sqlite3.Connection]:
    """The driver's connection out of the pool: what goes through SQLAlchemy's own costs twice the statement."""
    pooled = engine.raw_connection()
    try:
        yield cast(sqlite3.Connection, pooled.driver_connection)
    finally:
        pooled.close()


@contextmanager
def transaction(engine: Engine) -> Iterator[sqlite3.Connection]:
    """BEGIN IMMEDIATE, and a commit, or a roll back of all of it.

    A deferred BEGIN would read first and ask for the write lock later, and fail then if another process
    has written in between: the busy timeout does not help there.
    """
    with borrowed(engine) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # a full disk may have rolled back by itself
                connection.execute("ROLLBACK")
            raise


def _connect(uri: str, busy_timeout: float) -> sqlite3.Connection:
    # isolation_level=None: the driver begins no transaction of its own. Threads share the pool's connections.
    return sqlite3.connect(
        uri,
        uri=True,
        timeout=busy_timeout,
        isolation_level=None,
        check_same_thread=False,
    )


class ReadSource:
    """Opens connections that can only read: beside a living writer, and in a folder that is read-only."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self._path, self._busy_timeout = path, busy_timeout
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self.frozen = False
        """The file was opened without SQLite's locks: a connection shows it as it was when it was opened."""
        self.engine = create_engine(
            "sqlite://", creator=self._connect, poolclass=QueuePool, pool_size=2, max_overflow=-1
        )

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()
        if self._copy is not None:
            self._copy.cleanup()

    def _connect(self) -> sqlite3.Connection:
        place = self._path.resolve()
        try:
            raw = _connect(f"{place.as_uri()}?mode=ro", self._busy_timeout)
            try:
                raw.execute("PRAGMA schema_version").fetchone()
            except sqlite3.Error:
                raw.close()
                raise
            self.frozen = False
            return raw
        except sqlite3.OperationalError as error:
            # A WAL database in a folder where no shared memory can be made, and no process has made it.
            if _primary(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) or not place.is_file():
                raise
        self.frozen = True
        wal = Path(f"{place}-wal")
        if not wal.is_file() or wal.stat().st_size == 0:
            return _connect(f"{place.as_uri()}?mode=ro&immutable=1", self._busy_timeout)
        # The writer died and its last events are in the WAL file only; `immutable` would not see them.
        if self._copy is None:
            self._copy = tempfile.TemporaryDirectory(prefix="whale-log-")
        copy = Path(self._copy.name) / place.name
        with suppress(FileNotFoundError):
            shutil.copyfile(wal, f"{copy}-wal")
        shutil.copyfile(place, copy)
        return _connect(f"file:{quote(str(copy))}", self._busy_timeout)


def _primary(error: BaseException | None) -> int:
    code: int = getattr(error, "sqlite_errorcode", None) or 0
    return code & 0xFF


@contextmanager
def in_our_words(path: Path) -> Iterator[None]:
    """Turn the driver's errors into the log's, each with one line that says what to do."""
    try:
        yield
    except PoolTimeout as error:
        raise LogBusy(f"{path}: another thread's append takes too long; nothing was written") from error
    except UnicodeDecodeError as error:  # the driver's own message quotes what is damaged
        raise CorruptLog(None, f"{path} is damaged: {error.object!r}") from error
    except (DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise _translated(path, cause) from error


def _translated(path: Path, cause: BaseException | None) -> LogError:
    code, text = _primary(cause), str(cause)
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _no_space(path.parent)):
        return LogFull(f"{path}: no space left; nothing was written. Make room and run the same again")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LogBusy(f"{path}: another process holds the write lock; nothing was written. Try again")
    if code == sqlite3.SQLITE_NOTADB:
        return CorruptLog(None, f"{path} is not an event log: {text}")
    short_read = getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHORT_READ
    # What SQLite has no code for: text that is none, a table that is gone, a format number that was never given.
    told = any(words in text for words in ("decode to UTF-8", "no such", "unsupported file format"))
    if code == sqlite3.SQLITE_CORRUPT or short_read or told:
        return CorruptLog(None, f"{path} is damaged: {text}")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return LogError(f"{path}: {text}. Check the permissions of the file and its folder")
    if code == sqlite3.SQLITE_IOERR:
        return LogError(f"{path}: {text}; nothing was written. A limit on the size of files, or a failing disk")
    return LogError(f"{path}: {text}")


def _no_space(folder: Path) -> bool:
    """SQLite reports a full disk as a plain I/O error where it grows its shared memory."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < 64 * 1024
