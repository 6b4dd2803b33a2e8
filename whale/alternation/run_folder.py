"""A run is a folder: config, log, harness repository, artifacts, checkpoints. One writer at a time."""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
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

    @classmethod
    def find(cls, run: str) -> "RunFolder":
        """A run by name or by path.

        Raises:
            UsageError: there is none, or the folder is not a run.
        """
        for path in (Path(run), runs_folder() / run):
            folder = cls(path)
            if folder.log_file.exists() or (folder.config_file.exists() and path.parent == runs_folder()):
                if folder.log_file.exists() and not os.access(folder.log_file, os.R_OK):
                    raise WhaleError(f"{folder.log_file}: cannot be read: check its permissions")
                return folder
        known = sorted(p.parent.name for p in runs_folder().glob("*/whale.toml"))
        hint = f"; runs here: {', '.join(known)}" if known else "; `whale run` starts one"
        raise UsageError(f"no run {run!r} in {runs_folder()}{hint}")

    @property
    def name(self) -> str:
        """The run's name."""
        return self.path.resolve().name

    def open_log(self, *, readonly: bool = False) -> "EventLog":
        """The event log.

        Raises:
            CorruptLogError: the file is not a log of events.
        """
        from whale.events import CorruptLog, LogError, SqliteLog

        try:
            return SqliteLog(self.log_file, readonly=readonly)
        except CorruptLog as error:
            raise CorruptLogError(f"{self.log_file}: {error}") from error
        except LogError as error:
            raise WhaleError(f"{self.log_file}: {error}") from error

    def state(self, at: int | None = None) -> "State":
        """The fold of the log, up to position `at`."""
        from whale.alternation.state import State, reduce
        from whale.events import CorruptLog, UnknownEvent, fold

        log = self.open_log(readonly=True)
        try:
            return fold(reduce, State(), log.read(until=at))
        except (CorruptLog, UnknownEvent) as error:
            raise CorruptLogError(f"{self.log_file}: {error}") from error
        finally:
            log.close()

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Be the run's single writer. The lock belongs to the process, so a dead one cannot hold it.

        Raises:
            ConflictError: another process runs this run.
        """
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
        """The process that holds the lease, or None."""
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
