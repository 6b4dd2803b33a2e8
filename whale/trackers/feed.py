"""Feed writers from a log: all of it, or on and on beside a run, in a thread that can do nothing to it."""

import threading
from collections.abc import Callable, Sequence

from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State, reduce
from whale.events import EventLog
from whale.trackers.points import Point, points
from whale.trackers.writers import Writer, open_writer

LOOK_SECONDS = 2.0
"""Between two looks at the log."""
END_SECONDS = 20.0
"""How long a run's end waits for its trackers."""


class Reader:
    """Points of a log, each once."""

    def __init__(self) -> None:
        self.state = State()
        self.position = 0

    def more(self, log: EventLog) -> list[Point]:
        """Those of the events that came since the last call."""
        found: list[Point] = []
        for recorded in log.read(after=self.position):
            self.state = reduce(self.state, recorded)
            self.position = recorded.position
            found += points(recorded, self.state)
        return found


def write_all(folder: RunFolder, names: Sequence[str], note: Callable[[str], None]) -> int:
    """Make the curves of a run anew, from its whole log; returns how many points there were.

    A tracker that fails raises: here the user has asked for it and nothing else is at stake.
    """
    log = folder.open_log(readonly=True)
    try:
        reader = Reader()
        found = reader.more(log)
    finally:
        log.close()
    for name in names:
        writer = open_writer(name, folder.path, folder.name, reader.state.config)
        try:
            writer.write(found)
        finally:
            writer.close()
        note(f"{name}: {len(found)} points")
    return len(found)


class Following:
    """A thread that follows a run's log for its trackers, from the beginning on.

    It reads and never writes the log. A tracker that raises is told of once and left; one that hangs holds up the
    run's end for END_SECONDS at most.
    """

    def __init__(self, folder: RunFolder, names: Sequence[str], note: Callable[[str], None]) -> None:
        self._folder = folder
        self._names = tuple(names)
        self._note = note
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="trackers", daemon=True)

    def __enter__(self) -> "Following":
        if self._names:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._names:
            self._thread.join(END_SECONDS)
            if self._thread.is_alive():
                self._note("the trackers are not through; `whale track` makes their curves anew")

    def _follow(self) -> None:
        try:
            log = self._folder.open_log(readonly=True)
        except Exception as error:
            self._note(f"no trackers: {error}")
            return
        reader, writers = Reader(), dict[str, Writer | None]()
        try:
            while True:
                last = self._over.is_set()
                self._look(log, reader, writers)
                if last:
                    break
                self._over.wait(LOOK_SECONDS)
            for name, writer in writers.items():
                if writer is not None:
                    self._guarded(name, writers, writer.close)
        finally:
            log.close()

    def _look(self, log: EventLog, reader: Reader, writers: dict[str, Writer | None]) -> None:
        try:
            found = reader.more(log)
        except Exception as error:
            self._note(f"trackers: the log could not be read: {error}")
            return
        if reader.state.status == "new":
            return  # nothing is known of the run yet
        for name in self._names:
            if name not in writers:
                writers[name] = None
                self._guarded(name, writers, lambda name=name: self._open(name, reader, writers))  # type: ignore[misc]
            writer = writers[name]
            if writer is not None and found:
                self._guarded(name, writers, lambda writer=writer: writer.write(found))  # type: ignore[misc]

    def _open(self, name: str, reader: Reader, writers: dict[str, Writer | None]) -> None:
        writers[name] = open_writer(name, self._folder.path, self._folder.name, reader.state.config)

    def _guarded(self, name: str, writers: dict[str, Writer | None], action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as error:  # a library may even exit
            writers[name] = None
            self._note(f"the tracker {name} failed and is left; the run goes on: {type(error).__name__}: {error}")
