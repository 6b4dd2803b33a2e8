"""What a comparison needs of one run, by one reading of its log."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from whale.alternation.decide import selected, selects
from whale.alternation.state import State, reduce
from whale.events import EventLog
from whale.events import types as ev

Outcomes = tuple[ev.Outcome, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A pair (θ, h) on a held-out split."""

    evaluated: ev.Evaluated
    outcomes: Outcomes
    rollouts: int
    """What the method had paid when the pair was there: all rollouts but evaluations."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A weight or harness phase that has ended."""

    side: str
    """"weight" or "harness"."""
    cycle: int
    length: float
    """Epochs of D_weight, or proposal rounds."""
    reason: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as a comparison sees it."""

    name: str
    source: str
    """Where its log was read."""
    head: str
    """Hash of its newest event: equal for copies."""
    state: State
    points: tuple[Point, ...]
    phases: tuple[Phase, ...]
    searches: int
    """Harness phases that came to a decision, and in how many a candidate was accepted."""
    accepted: int
    made_by: Mapping[str, str]
    """Code, libraries and device that it began with; empty in logs that are older than that."""
    started: str
    """When its first event was recorded, UTC, ISO 8601."""
    seconds: float
    """From its first event to its last, whatever it waited for in between."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Its frozen config."""
        return self.state.config

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.config.get("seed", 0))

    @property
    def complete(self) -> bool:
        """Whether it came to its end."""
        return self.state.status == "completed"

    @property
    def selects(self) -> str:
        """The split that chose its pair."""
        return selects(self.state)

    @property
    def rollouts(self) -> int:
        """What the method paid: all rollouts but evaluations."""
        return method_rollouts(self.state)

    def on(self, split: str) -> list[Point]:
        """Its pairs on this split, by cycle."""
        return sorted((p for p in self.points if p.evaluated.split == split), key=lambda p: p.evaluated.cycle)

    def first(self, split: str) -> Point | None:
        """(θ0, h0) on this split."""
        return next((p for p in self.points if (p.evaluated.split, p.evaluated.cycle) == (split, 0)), None)

    def chosen(self, split: str) -> Point | None:
        """The selected pair on this split; None where it was not evaluated there."""
        if not self.points:
            return None
        cycle = selected(self.state).cycle
        return next((p for p in self.points if (p.evaluated.split, p.evaluated.cycle) == (split, cycle)), None)


def method_rollouts(state: State) -> int:
    """All rollouts but evaluations."""
    return sum(totals.rollouts for purpose, totals in state.totals.items() if purpose != "evaluate")


def read_record(log: EventLog, source: str) -> RunRecord:
    """Fold a log and gather. Raises CorruptLog or UnknownEvent."""
    state = State()
    outcomes: dict[tuple[str, str, str], list[ev.Outcome]] = {}
    evaluated: list[ev.Evaluated] = []
    paid: dict[int, int] = {}
    phases: list[Phase] = []
    questions, iterations, searches, accepted, head = 0.0, 0, 0, 0, ""
    first = last = ""
    made_by: dict[str, str] = {}
    for recorded in log.read():
        state = reduce(state, recorded)
        head = recorded.hash
        if not first:
            made_by = {key: value for key, value in recorded.meta.items() if isinstance(value, str)}
        first, last = first or recorded.at, recorded.at
        match recorded.event:
            case ev.RolloutsRecorded(purpose="evaluate") as event:
                pair = (event.batch.split("/")[2], state.candidates[event.candidate].tree, event.weights)
                outcomes.setdefault(pair, []).extend(event.outcomes)
            case ev.PhaseStarted():
                questions, iterations = 0.0, 0
            case ev.StepTrained(rollouts=rollouts):
                questions += rollouts / int(state.config["weights"]["rollouts_per_prompt"])
            case ev.IterationCompleted():
                iterations += 1
            case ev.HarnessAccepted():
                searches, accepted = searches + 1, accepted + 1
            case ev.HarnessRetained():
                searches += 1
            case ev.PhaseEnded(phase="weight") as event if questions:
                phases.append(Phase("weight", event.cycle, questions / state.splits["weight"], event.reason))
            case ev.PhaseEnded(phase="harness") as event if iterations:
                phases.append(Phase("harness", event.cycle, iterations, event.reason))
            case ev.Evaluated() as event:
                evaluated.append(event)
                paid.setdefault(event.cycle, method_rollouts(state))
    points = [Point(e, tuple(outcomes[e.split, e.tree, e.weights]), paid[e.cycle]) for e in evaluated]
    name = state.name or Path(source).name
    # Clocks go backwards.
    seconds = max(0.0, (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()) if first else 0.0
    return RunRecord(
        name, source, head, state, tuple(points), tuple(phases), searches, accepted, made_by, first, seconds
    )
