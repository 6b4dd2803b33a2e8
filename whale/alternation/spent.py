"""What a phase or other work has taken, from the log alone: each event's `meta` tells the time since the one before."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from whale.events import EventLog
from whale.events import types as ev

PARTS = ("generate", "harness", "verify", "train", "sync", "other")
"""Of wall time: the engine; what its episodes' processes were waited for; verdicts; the trainer; new weights into the
engine and the check that it has them; the rest."""

PLACES = {
    "start": "start",
    "tasks": "tasks",
    "weight": "weight",
    "harness": "harness",
    "evaluate": "evaluate",
    "test": "test evaluation",
    "between": "between phases",
}
"""Where in a run time is spent, in a run's order, and what a table calls it: kinds of phase, and outside of phases what
is before the first one, the test after the last, and the rest."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Wall time by part, of all runners that worked on the phase after one another, and what was sampled in it."""

    seconds: dict[str, float]
    rollouts: int
    tokens: int

    @property
    def wall(self) -> float:
        """All parts together."""
        return sum(self.seconds.values())

    def __str__(self) -> str:
        """One line."""
        parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in self.seconds.items())
        wall = self.wall or 1.0
        rates = f"{self.rollouts / wall:.2f} rollouts/s, {self.tokens / wall:.0f} tokens/s"
        return f"{self.wall:.1f} s{f' ({rates})' if self.rollouts else ''}: {parts}"


def add_spent(seconds: dict[str, float], recorded: Any) -> None:
    """Add what an event's meta says of the time before it, by part; an older log's says nothing."""
    for part, took in recorded.meta.get("spent", {}).items():
        seconds[part] = seconds.get(part, 0.0) + took


def spent_in(phase: Iterable[Any]) -> Spent:
    """The sums over recorded events (`whale.events.Recorded`)."""
    seconds, rollouts, tokens = dict.fromkeys(PARTS, 0.0), 0, 0
    for recorded in phase:
        add_spent(seconds, recorded)
        if isinstance(recorded.event, ev.RolloutsRecorded):
            rollouts += len(recorded.event.outcomes)
            tokens += sum(outcome.generated for outcome in recorded.event.outcomes)
    return Spent(seconds, rollouts, tokens)


def phase_spent(log: EventLog, cycle: int, phase: ev.PhaseName) -> Spent:
    """What a phase that has begun has taken so far, or until it ended."""
    started = log.find(f"c{cycle:03d}/{phase}/started", "run")
    ended = log.find(f"c{cycle:03d}/{phase}/ended", "run")
    assert started is not None
    return spent_in(log.read(after=started.position, until=ended.position if ended else None))


def placed(run: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """A run's recorded events from its first on, each with the place (`PLACES`) of the time before it."""
    phase, outside = "", "start"
    for recorded in run:
        event = recorded.event
        tested = isinstance(event, ev.Evaluated) or (
            isinstance(event, ev.RolloutsRecorded) and event.purpose == "evaluate"
        )
        yield phase or ("test" if tested else outside), recorded
        if isinstance(event, ev.PhaseStarted):
            phase, outside = event.phase, "between"
        elif isinstance(event, ev.PhaseEnded):
            phase = ""


def final_test_spent(log: EventLog) -> Spent:
    """What the test after the last phase has taken."""
    return spent_in(recorded for place, recorded in placed(log.read()) if place == "test")
