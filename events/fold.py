"""State from events: the one way in which anything in a run becomes known."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from whale.events.log import Recorded
from whale.events.types import Event

S = TypeVar("S")

Reducer = Callable[[S, Recorded], S]
"""Gives the state after an event. It is pure: no clock, no I/O, no randomness, and it does not change the
state that it is given. It may look at the event, its key, stream and position, and not at its meta."""


def fold(reducer: Reducer[S], state: S, recorded: Iterable[Recorded]) -> S:
    """The state after the last of the events, which must come in order.

    Folding a prefix and then the rest gives the same as folding all at once: so any state can be kept as a
    snapshot, and thrown away.
    """
    for event in recorded:
        state = reducer(state, event)
    return state


def facts(recorded: Iterable[Recorded]) -> dict[tuple[str, str], Event]:
    """What happened, by stream and key: equal for two runs that did the same, whatever time it took them."""
    return {(r.stream, r.key): r.event for r in recorded}
