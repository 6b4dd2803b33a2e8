"""An open run: its source, its history that a thread keeps up with the log, and what was read of it."""

import gc
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from whale.alternation.state import State, waits_for_review
from whale.errors import WhaleError
from whale.events import CorruptLog, LogBusy, LogError, Recorded, UnknownEvent
from whale.events import types as ev
from whale.tui.history import History
from whale.tui.source import RunSource

if TYPE_CHECKING:
    from whale.events import EventLog
    from whale.rollout.types import Trajectory

POLL = 0.25
"""Seconds between looks at the log."""
PAGE, PAGES = 200, 32
"""Events that are read together, and how many such pages are kept."""
AGAIN = 2.0
"""Seconds after which a log that could not be read is tried again."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What every screen shows: the run as it is, or as it was after event `position`."""

    run: "OpenRun"
    state: State
    position: int
    head: int
    """Events that were read so far."""
    live: bool
    runner: int | None
    """The process that runs it now."""
    now: float
    """Seconds since 1970."""

    @property
    def at(self) -> float:
        """The time that is shown: now, or that of the past event."""
        times = self.run.history.facts.times
        return self.now if self.live or not self.position else times[self.position - 1]

    @property
    def status(self) -> str:
        """For people: a run without a process is not running, whatever was recorded last."""
        if not self.live:
            return self.state.status
        near = self.run.source.run is not None  # whether a process would be seen from here
        return status(self.state, self.position, alive=self.runner is not None or not near)


def status(state: State, position: int, *, alive: bool) -> str:
    """A run's status for people, after `position` events: what runs needs a process; a review waits for a person."""
    if state.status not in ("new", "running"):
        return state.status
    if not alive:
        return "interrupted" if position else "new"
    return "review" if waits_for_review(state) else state.status


class OpenRun:
    """A run that is being looked at. `close` ends its thread and its log."""

    def __init__(self, source: RunSource, clock: Callable[[], float] = time.time) -> None:
        self.source = source
        self.history = History()
        self.clock = clock
        self.problem = ""
        """Why the log cannot be read (any further); "" while it can."""
        self.damaged = False
        """The log is broken from the next event on, or of a newer version: no runner can go on with it either."""
        self.caught_up = threading.Event()
        """Set once everything that was there at the opening has been read."""
        self.head = 0
        """The log's length when it was last looked at."""
        self._stop = threading.Event()
        self._reader: EventLog | None = None
        self._reader_lock = threading.Lock()
        self._thread = threading.Thread(target=self._follow, name=f"follow {source.name}", daemon=True)
        self.trajectories = lru_cache(maxsize=8)(self._trajectories)
        self._pages: dict[int, tuple[Recorded, ...]] = {}
        self.diff = lru_cache(maxsize=8)(self._diff)
        self.files = lru_cache(maxsize=16)(self._files)

    def start(self) -> None:
        """Begin to follow the log, unless it was closed already."""
        if not self._stop.is_set():
            self._thread.start()

    def close(self) -> None:
        """Stop following; leave no thread and no file open."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        with self._reader_lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    # --- following ---

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                with self.source.open_log() as log:
                    self.head = log.head().position
                    for recorded in log.tail(self.history.position, stop=self._idle, poll=POLL):
                        self.problem, self.damaged = "", False
                        self.history.add(recorded)
                        if recorded.position % 64 == 0:
                            time.sleep(0.0005)  # while it catches up, the keys come first
                        if self._stop.is_set():
                            return
            except (CorruptLog, UnknownEvent) as error:
                self.problem, self.damaged = str(error), True
            except LogBusy as error:
                self.problem = f"the log is locked, trying again: {error}"
            except (LogError, WhaleError) as error:
                self.problem = str(error)
            except (KeyError, ValueError) as error:
                self.problem = f"event {self.history.position + 1} does not follow from those before it: {error}"
            self.caught_up.set()
            self._stop.wait(AGAIN)

    def _idle(self) -> bool:
        if self.history.position >= self.head:
            if not self.caught_up.is_set():
                gc.freeze()  # what was read stays: else a full collection walks a million events between two keys
            self.caught_up.set()
            self.problem, self.damaged = "", False
        return self._stop.is_set()

    # --- reading; from workers ---

    def log(self) -> "EventLog":
        """A log for reading, shared by the workers."""
        with self._reader_lock:
            if self._reader is None:
                self._reader = self.source.open_log()
            return self._reader

    def moment(self, at: int | None = None) -> Moment:
        """The run now, or after event `at`."""
        position, state = self.history.moment
        live = at is None or at >= position
        if not live:
            assert at is not None
            position, state = at, self.history.at(at, self.log())
        runner = None
        try:
            runner = self.source.runner()
        except OSError as error:
            self.problem = f"{self.source.where}: {error.strerror or error}"
        return Moment(self, state, position, self.history.position, live, runner, self.clock())

    def event(self, position: int) -> Recorded:
        """One event, read with those around it."""
        number, offset = divmod(position - 1, PAGE)
        page = self._pages.get(number, ())
        if offset >= len(page):  # not read yet, or when it was shorter
            # Not past what has been read: behind damage nothing is, and what stands before it can be shown.
            until = max(position, min((number + 1) * PAGE, self.history.position))
            page = tuple(self.log().read(after=number * PAGE, until=until))
            while len(self._pages) >= PAGES:
                self._pages.pop(next(iter(self._pages)), None)
            self._pages[number] = page
        return page[offset]

    def _trajectories(self, artifact: str) -> "list[Trajectory]":
        return self.source.trajectories(artifact)

    def _diff(self, a: str, b: str) -> str:
        with self.source.repo() as repo:
            return repo.diff(a, b)

    def _files(self, rev: str) -> dict[str, str]:
        with self.source.repo() as repo:
            return {path: data.decode("utf-8", "replace") for path, data in repo.files(rev).items()}

    def outcomes(self, candidate: str, weights: str, until: int) -> list[ev.Outcome]:
        """The rollouts that scored a candidate under these weights."""
        result: list[ev.Outcome] = []
        for position in self.history.facts.score_batches.get((candidate, weights), ()):
            if position <= until:
                event = self.event(position).event
                assert isinstance(event, ev.RolloutsRecorded)
                result.extend(event.outcomes)
        return result
