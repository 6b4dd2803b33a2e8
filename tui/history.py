"""A run's past, so that any moment of it is quickly there again: facts in columns, and snapshots of the fold."""

import threading
from bisect import bisect_right
from collections.abc import Iterable

from whale.alternation.state import State, reduce
from whale.events import EventLog, Recorded
from whale.tui.facts import Facts

MOST = 256
"""Snapshots that are kept: when there are more, every other one is dropped and the stride doubles."""
NEAR = 64
"""Events between the snapshots around the moment that was looked at last."""


class History:
    """The fold of a log up to `position`, and what is needed to fold to any earlier event."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.state = State()
        self.position = 0
        self._stride = 100
        self._positions = [0]
        self._snapshots = [self.state]
        self._near: dict[int, State] = {}
        self._lock = threading.Lock()

    def add(self, recorded: Recorded) -> None:
        """Take the next event. One thread calls this."""
        state = reduce(self.state, recorded)
        self.facts.add(recorded)
        self.state = state
        self.position = recorded.position
        if recorded.position - self._positions[-1] >= self._stride:
            self._keep()

    def _keep(self) -> None:
        with self._lock:
            self._positions.append(self.position)
            self._snapshots.append(self.state)
            if len(self._positions) > MOST:
                self._stride *= 2
                self._positions[:] = self._positions[::2]
                self._snapshots[:] = self._snapshots[::2]

    @property
    def moment(self) -> tuple[int, State]:
        """Position and state that belong together."""
        while True:
            position, state = self.position, self.state
            if position == self.position:
                return position, state

    def at(self, position: int, log: EventLog) -> State:
        """The state after event `position`, folded from the nearest snapshot before it.

        Reads at most the stride (the log's length over 128) of events; stepping about near the last moment
        reads some dozens.
        """
        with self._lock:
            if position >= self.position:
                return self.state
            i = bisect_right(self._positions, position) - 1
            start, state = self._positions[i], self._snapshots[i]
            near = max((p for p in self._near if start < p <= position), default=None)
            if near is not None:
                start, state = near, self._near[near]
        kept: dict[int, State] = {}
        for recorded in log.read(after=start, until=position):
            state = reduce(state, recorded)
            if recorded.position % NEAR == 0:
                kept[recorded.position] = state
        with self._lock:
            self._near = {**self._near, **kept} if len(self._near) + len(kept) <= MOST else kept
            self._near[position] = state
        return state

    def extend(self, events: Iterable[Recorded]) -> None:
        """Take all of some events."""
        for recorded in events:
            self.add(recorded)
