"""Ask a service again while that can help: with backoff, as long as it asks to wait, and never past a stop."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from whale.errors import WhaleError
from whale.search.agentic.types import Suspended, Workbench

T = TypeVar("T")

FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
GRACE = 20.0
"""Seconds that a reply in the making gets to finish when the run is stopped: it is being paid for."""
LOOK = 0.25


class Transient(Exception):
    """Asking again can help; `after` = seconds that the service asks to wait."""

    def __init__(self, told: str, after: float | None = None) -> None:
        super().__init__(told)
        self.after = after


@dataclass(frozen=True, slots=True)
class Retry:
    """How long a service may fail in a row."""

    patience: float = 900.0
    """Seconds of waiting in all, after which the run stops with the cause; a resume goes on."""

    def call(self, work: Callable[[], T], bench: Workbench, service: str) -> T:
        """Call until it works.

        Raises:
            Suspended: the run was asked to stop.
            WhaleError: patience is over.
        """
        waited, backoff = 0.0, FIRST_WAIT
        while True:
            try:
                return interruptible(work, bench)
            except Transient as error:
                left = self.patience - waited
                delay = min(backoff, left) if error.after is None else error.after
                if left <= 0 or delay > left:
                    asked = "" if error.after is None else f", and it asks to wait {error.after:g} s"
                    raise WhaleError(
                        f"{service}: no answer after {waited:g} s of waiting{asked}: {error}; `whale resume` goes on "
                        "with the session from its last reply"
                    ) from error
                bench.note(f"{service}: {error}; again in {delay:g} s")
                bench.wait(delay)
                waited += delay
                backoff = min(LONGEST_WAIT, 2 * backoff)


def interruptible(work: Callable[[], T], bench: Workbench) -> T:
    """Run `work` in a thread and leave it behind if the run is stopped and it does not end within GRACE."""
    box: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def target() -> None:
        try:
            box.put((work(), None))
        except BaseException as error:
            box.put((None, error))

    threading.Thread(target=target, daemon=True).start()
    left = GRACE
    while True:
        try:
            result, error = box.get(timeout=LOOK)
        except queue.Empty:
            if bench.leave():
                left -= LOOK
                if left <= 0:
                    raise Suspended from None
            continue
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # either a result or an error was put
