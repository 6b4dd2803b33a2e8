"""Work that other threads hand to the session's own: the log and the sandbox are used from one thread alone."""

import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

LOOK = 0.25


class Closed(Exception):
    """The session is over: nothing more is done for it."""


class Desk:
    """`ask` from any thread, `serve` in the session's own."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], object], Future[object]]] = queue.SimpleQueue()
        self._closed = False

    def ask(self, work: Callable[[], T]) -> T:
        """The result of `work`, done in the session's thread; what it raises there is raised here as Closed.

        Its cause stays with `serve`, which raises it in the session's thread.
        """
        future: Future[object] = Future()
        if self._closed:
            raise Closed
        self._jobs.put((work, future))
        while True:
            try:
                return future.result(timeout=LOOK)  # type: ignore[return-value]  # of the work that was handed in
            except TimeoutError:
                if self._closed and not future.done():
                    raise Closed from None

    def serve(self, over: Callable[[], bool]) -> None:
        """Do what is asked until `over()`. A job's exception ends it, and rises here."""
        try:
            while not over():
                try:
                    work, future = self._jobs.get(timeout=LOOK)
                except queue.Empty:
                    continue
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(Closed(str(error)))
                    raise
        finally:
            self._closed = True
