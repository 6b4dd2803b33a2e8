"""A run is a folder: config, log, harness repository, artifacts, checkpoints. One writer at a time."""

import fcntl
import os
import struct
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from whale.artifacts import ArtifactStore
from whale.errors import ConflictError, CorruptLogError, UsageError, WhaleError

if TYPE_CHECKING:
    from whale.alternation.state import State
    from whale.events import EventLog

RUNS = "runs"


def runs_folder() -> Path:
    """Where runs live: $WHALE_RUNS, else ./runs."""
    return Path(os.environ.get("WHALE_RUNS") or RUNS)


class RunFolder:
    """The paths of one run and what opens them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "whale.toml"
        self.log_file = path / "events.db"
        self.harnesses = path / "harnesses.git"
        self.checkpoints = path / "checkpoints"
        self.error_log = path / "error.log"
        self.artifacts = ArtifactStore(path / "artifacts")

    @property
    def spoken(self) -> str:
        """What a command that is typed here finds this run by: its name in ./runs, else its path.

        Not by $WHALE_RUNS: a cell of an experiment has it from the experiment, and whoever reads its words has not.
        """
        path = self.path.resolve()
        if path.parent == Path(RUNS).resolve():
            return path.name
        here = Path.cwd()
        return str(path.relative_to(here) if path.is_relative_to(here) else path)

    @classmethod
    def find(cls, run: str) -> "RunFolder":
        """A run by name or by path.

        Raises:
            UsageError: there is none, or the folder is not a run.
        """
        for path in (Path(run), runs_folder() / run):
            folder = cls(path)
            if folder.log_file.exists() and not os.access(folder.log_file, os.R_OK):
                raise WhaleError(f"{folder.log_file}: cannot be read: check its permissions")
            if folder.log_file.exists() or folder.database or (folder.config_file.exists() and path != Path(run)):
                return folder
        known = sorted(p.parent.name for p in runs_folder().glob("*/whale.toml"))
        hint = f"; runs here: {', '.join(known)}" if known else "; `whale run` starts one"
        raise UsageError(f"no run {run!r} in {runs_folder()}{hint}")

    @property
    def name(self) -> str:
        """The run's name."""
        return self.path.resolve().name

    @cached_property
    def database(self) -> tuple[str, str] | None:
        """(URL, the run's name there) if the log is in a database server; None if it is the folder's file.

        Raises:
            UsageError: the URL is none, or holds a password.
        """
        try:
            events = tomllib.loads(self.config_file.read_text(encoding="utf-8")).get("events", {})
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            return None
        if not events.get("url"):
            return None
        from whale.events import LogError
        from whale.events.postgres_url import check_url

        try:
            return check_url(events["url"]), events.get("run") or self.name
        except LogError as error:
            raise UsageError(f"{self.config_file}: events.url: {error}") from None

    @property
    def log_place(self) -> str:
        """Where the log is, for messages."""
        return f"{self.database[0]}, run {self.database[1]}" if self.database else str(self.log_file)

    def has_log(self) -> bool:
        """Whether there is a log to read; a run whose start was cut short may have none."""
        return self.database is not None or self.log_file.exists()

    def open_log(self, *, readonly: bool = False) -> "EventLog":
        """The event log.

        Raises:
            CorruptLogError: the file is not a log of events.
            WhaleError: it cannot be opened.
        """
        from whale.events import CorruptLog, LogError

        try:
            if self.database:
                from whale.events import PostgresLog

                return PostgresLog(*self.database, readonly=readonly)
            from whale.events import SqliteLog

            return SqliteLog(self.log_file, readonly=readonly)
        except CorruptLog as error:
            raise CorruptLogError(f"{self.log_place}: {error}") from error
        except LogError as error:
            raise WhaleError(f"{self.log_place}: {error}") from error

    def state(self, at: int | None = None) -> "State":
        """The fold of the log, up to position `at`; a long log's from a snapshot on, where there is one."""
        from whale.alternation import snapshot
        from whale.alternation.state import reduce
        from whale.events import CorruptLog, UnknownEvent

        log = self.open_log(readonly=True)
        try:
            start, state = snapshot.read(self.path, log, at)
            recorded = None
            for recorded in log.read(after=start, until=at):
                state = reduce(state, recorded)
            if recorded is not None and recorded.position - start >= snapshot.EVERY:
                snapshot.write(self.path, recorded, state)
            return state
        except (CorruptLog, UnknownEvent) as error:
            raise CorruptLogError(f"{self.log_place}: {error}") from error
        finally:
            log.close()

    @contextmanager
    def lease(self) -> Iterator[Callable[[], bool]]:
        """Be the run's single writer. The lock belongs to the process, so a dead one cannot hold it.

        A log in a database server has a lease there too, since another machine may know the run. That one
        is lost with its connection: the function that comes back says whether it is still held.

        Raises:
            ConflictError: another process runs this run.
        """
        with ExitStack() as stack:
            stack.enter_context(self._folder_lease())
            if not self.database:
                yield lambda: True
                return
            from whale.events import LeaseHeld, LogError, PostgresLease

            try:
                lease = stack.enter_context(PostgresLease(*self.database))
            except LeaseHeld as error:
                raise ConflictError(f"{self.path}: {error}") from None
            except LogError as error:
                raise WhaleError(f"{self.log_place}: {error}") from error
            yield lease.alive

    @contextmanager
    def _folder_lease(self) -> Iterator[None]:
        path = self.path / "runner.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _exclusive_lock())
            except OSError:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
                raise ConflictError(
                    f"{self.path}: process {holder or '?'} runs this run already; "
                    f"`whale status {self.name}` shows it, `whale stop {self.name}` ends it"
                ) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def runner_pid(self) -> int | None:
        """The process that holds the lease, on this machine or another one; None if there is none."""
        return self._local_runner_pid() or self._remote_runner_pid()

    def _remote_runner_pid(self) -> int | None:
        if not self.database:
            return None
        from whale.events import LogError, PostgresLease

        try:
            holder = PostgresLease(*self.database).holder()
        except LogError as error:
            raise WhaleError(f"{self.log_place}: {error}") from error
        return holder.pid if holder else None

    def _local_runner_pid(self) -> int | None:
        path = self.path / "runner.lock"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            # A query, not an attempt: it can never be in a starting runner's way.
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _exclusive_lock())
            if struct.unpack(_FLOCK, answer)[0] == fcntl.F_UNLCK:
                return None
            text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            return int(text) if text.isdigit() else -1
        finally:
            os.close(descriptor)


_FLOCK = "hhqqi4x"
"""struct flock: type, whence, start, length, pid."""


def _exclusive_lock() -> bytes:
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
