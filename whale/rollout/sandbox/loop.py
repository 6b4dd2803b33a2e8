"""A deterministic asyncio loop: what a harness awaits is the host's answers and a clock that costs nothing.

When no callback is ready, all waiting requests go to the host in one message, in the order of asking, and the
loop continues with all answers at once. Only when no request waits does the clock jump to the next timer. So
the order of everything depends on the program alone, and a time-out never depends on how fast the model is.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Exchange = Callable[[Sequence[str]], Sequence[Mapping[str, Any]]]
"""Sends requests (JSON texts) to the host and returns one answer for each."""


class NothingToWaitFor(RuntimeError):
    """The harness awaits something that can never happen."""


class EpisodeLoop(asyncio.BaseEventLoop):
    """See the module. `exchange` is called with the requests of each round."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange = exchange
        self._now = 0.0
        self._waiting: list[tuple[str, asyncio.Future[Mapping[str, Any]]]] = []
        # The base class asks its `_selector` for I/O whenever it would block; here that is the whole I/O.
        self._selector = self

    def request(self, text: str) -> "asyncio.Future[Mapping[str, Any]]":
        """Ask the host; the future resolves to its answer."""
        future: asyncio.Future[Mapping[str, Any]] = self.create_future()
        self._waiting.append((text, future))
        return future

    def time(self) -> float:
        """Return the virtual clock, in seconds from the episode's start."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += max(0.0, seconds)

    def select(self, timeout: float | None) -> list[Any]:
        """Stand in for a selector: called once per round of callbacks, `timeout` 0 if any is ready."""
        if timeout is not None and timeout <= 0:
            return []
        waiting = [(text, future) for text, future in self._waiting if not future.done()]
        self._waiting.clear()
        if waiting:
            answers = self._exchange([text for text, _ in waiting])
            for (_, future), answer in zip(waiting, answers, strict=True):
                future.set_result(answer)
            return []
        scheduled = self._scheduled  # type: ignore[attr-defined]  # the base class's heap of timers
        if timeout is None or not scheduled or not math.isfinite(scheduled[0].when()):
            raise NothingToWaitFor("run awaits something that can never happen")
        self._now = max(self._now, scheduled[0].when())
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """Nothing: there are no file events."""

    def _write_to_self(self) -> None:
        """Nothing: there are no other threads to be woken by."""
