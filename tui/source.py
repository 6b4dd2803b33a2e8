"""Where a run is: its log, and what else of it can be reached from here.

Only the log is needed. A screen that wants the harness store or the artifacts asks for them and gets a `Missing`
that says what is not here and what would bring it.
"""

import atexit
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from whale.alternation.run_folder import RunFolder, runs_folder
from whale.errors import UsageError, WhaleError

if TYPE_CHECKING:
    from whale.events import EventLog
    from whale.harness_repo import HarnessRepo
    from whale.rollout.types import Trajectory

READ_TIMEOUT = 5.0
"""Seconds that a reader waits for a locked file before it says so and tries again."""


class Missing(WhaleError):
    """A part of the run is not here: what, and how to bring it."""


class RunSource(Protocol):
    """One run as the app reaches it."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def where(self) -> str:
        """Its place, in words, without a password."""
        ...

    @property
    def run(self) -> str | None:
        """What the `whale` command calls it, where it can steer it from here."""
        ...

    def open_log(self, *, readonly: bool = True) -> "EventLog":
        """The log. Raises WhaleError or a LogError."""
        ...

    def repo(self) -> "AbstractContextManager[HarnessRepo]":
        """The harness store, as a context manager. Raises Missing."""
        ...

    def trajectories(self, artifact: str) -> "list[Trajectory]":
        """What an artifact of rollouts holds. Raises Missing, or WhaleError where its bytes are wrong."""
        ...

    def artifact(self, digest: str) -> bytes:
        """An artifact's bytes. Raises Missing, or WhaleError where they are wrong."""
        ...

    def runner(self) -> int | None:
        """The process that runs it; None: none, or it cannot be seen from here."""
        ...


class FolderSource:
    """A run's folder."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.name = folder.name
        self.where = str(folder.path)
        self.run: str | None = str(folder.path)

    def open_log(self, *, readonly: bool = True) -> "EventLog":
        """See `RunSource.open_log`."""
        from whale.events import SqliteLog

        if self.folder.database or not self.folder.log_file.exists():
            return self.folder.open_log(readonly=readonly)
        return SqliteLog(self.folder.log_file, readonly=readonly, busy_timeout=READ_TIMEOUT)

    @contextmanager
    def repo(self) -> "Iterator[HarnessRepo]":
        """See `RunSource.repo`."""
        if not self.folder.harnesses.exists():
            raise Missing(f"the harness store is not here: {self.folder.harnesses} does not exist")
        with _opened(self.folder.harnesses) as repo:
            yield repo

    def trajectories(self, artifact: str) -> "list[Trajectory]":
        """See `RunSource.trajectories`."""
        return _decoded(self.artifact(artifact))

    def artifact(self, digest: str) -> bytes:
        """See `RunSource.artifact`."""
        if not self.folder.artifacts.folder.exists():
            raise Missing(f"the run's artifacts are not here: {self.folder.artifacts.folder} does not exist")
        return self.folder.artifacts.get(digest)

    def runner(self) -> int | None:
        """See `RunSource.runner`."""
        return self.folder.runner_pid()


@dataclass
class LogSource:
    """A run of which only the log is here, and perhaps a Git URL."""

    name: str
    where: str
    opener: "Callable[[bool], EventLog]"
    """Opens the log; the argument says whether for reading only."""
    git: str | None = None
    run: str | None = None

    def open_log(self, *, readonly: bool = True) -> "EventLog":
        """See `RunSource.open_log`."""
        return self.opener(readonly)

    @contextmanager
    def repo(self) -> "Iterator[HarnessRepo]":
        """See `RunSource.repo`."""
        if self.git is None:
            raise Missing("the harness store is not here: name it with --git URL")
        with _opened(mirror(self.git)) as repo:
            yield repo

    def trajectories(self, artifact: str) -> "list[Trajectory]":
        """See `RunSource.trajectories`."""
        return _decoded(self.artifact(artifact))

    def artifact(self, digest: str) -> bytes:
        """See `RunSource.artifact`: a log alone has none."""
        raise Missing("texts are not here: they lie in the run's artifacts, on its own machine")

    def runner(self) -> int | None:
        """Not to be seen from another machine."""
        return None


@contextmanager
def _opened(path: Path) -> "Iterator[HarnessRepo]":
    from whale.harness_repo import HarnessRepo, RepoError

    try:
        repo = HarnessRepo.open(path)
    except RepoError as error:
        raise Missing(f"the harness store cannot be opened: {error}") from error
    with repo:
        try:
            yield repo
        except RepoError as error:
            raise Missing(str(error)) from error


def _decoded(content: bytes) -> "list[Trajectory]":
    from whale.rollout.parquet import decode_trajectories

    return decode_trajectories(content)


_mirrors: dict[str, Path] = {}
_mirror_lock = threading.Lock()


def mirror(url: str) -> Path:
    """A bare copy of a Git URL in a temporary folder, brought up to date; gone when the program ends.

    Raises:
        Missing: git cannot read it.
    """
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    with _mirror_lock:
        there = _mirrors.get(url)
        if there is None:
            there = Path(tempfile.mkdtemp(prefix="whale-git-")) / "harnesses.git"
            atexit.register(shutil.rmtree, there.parent, ignore_errors=True)
            arguments: Sequence[str] = ("clone", "--mirror", "--quiet", "--", url, str(there))
        else:
            arguments = ("-C", str(there), "fetch", "--quiet", "--prune", "origin")
        try:
            done = subprocess.run(
                ["git", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Missing(f"{url}: git could not read it: {error}") from error
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise Missing(f"{url}: git could not read it: {last}")
        _mirrors[url] = there
        return there


def find_source(target: str, *, git: str | None = None) -> RunSource:
    """A run by name, folder, log file or database URL.

    Raises:
        UsageError: there is none.
    """
    if "://" in target:
        return _database_source(target, git)
    path = Path(target)
    if path.is_file():
        folder = RunFolder(path.parent)
        if path.name == folder.log_file.name and (folder.config_file.exists() or folder.harnesses.exists()):
            return FolderSource(folder)
        return LogSource(path.stem, str(path), lambda readonly: _log_file(path, readonly), git)
    return FolderSource(RunFolder.find(target))


def _log_file(path: Path, readonly: bool) -> "EventLog":
    from whale.events import SqliteLog

    return SqliteLog(path, readonly=readonly, busy_timeout=READ_TIMEOUT)


def _database_source(url: str, git: str | None) -> RunSource:
    """A run in a database: postgresql+psycopg://host/database?run=NAME; NAME may be left out where there is one run."""
    from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

    from whale.events.log import LogError
    from whale.events.postgres_url import check_url

    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    run = query.pop("run", None)
    try:
        plain = check_url(urlunsplit(parts._replace(query=urlencode(query))))
    except LogError as error:
        raise UsageError(str(error)) from None
    try:
        from whale.events import PostgresLog
        from whale.events.postgres import runs
    except ImportError as error:
        raise UsageError(f'{parts.scheme}://: pip install "whale-evolve[postgres]" reads logs in PostgreSQL') from error
    where = f"{parts.hostname or 'localhost'}{parts.path}"
    if not run:
        try:
            there = [entry.name for entry in runs(plain)]
        except LogError as error:
            raise WhaleError(f"{where}: {error}") from error
        if len(there) != 1:
            known = f"; there: {', '.join(there[:20])}" if there else "; there is none yet"
            raise UsageError(f"{where}: which run? add ?run=NAME to the URL{known}")
        (run,) = there
    named = run

    def opener(readonly: bool) -> "EventLog":
        log: EventLog = PostgresLog(plain, named, readonly=readonly)
        return log

    return LogSource(named, f"{where}?run={named}", opener, git)


def known_runs(beside: str | None = None) -> list[FolderSource]:
    """The runs of the runs folder, and those beside the one that is open."""
    folders = [runs_folder()]
    if beside is not None and Path(beside).parent.resolve() != folders[0].resolve():
        folders.append(Path(beside).parent)
    return [FolderSource(RunFolder(path.parent)) for folder in folders for path in sorted(folder.glob("*/whale.toml"))]
