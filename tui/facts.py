"""What the screens need of a log beside its fold, in columns: small, growing only at the end.

Each column is ordered by position, so that a past moment is a prefix of it, found by bisection. A million events
take some tens of megabytes. One thread adds; others read lengths first and slice, which is safe: nothing that is
there ever changes.
"""

import datetime
import re
from array import array
from bisect import bisect_right
from dataclasses import dataclass

from whale.events import Recorded
from whale.events import types as ev

PURPOSES: tuple[ev.Purpose, ...] = ("train", "score", "evaluate", "smoke", "try")
_AGAIN = re.compile(r"/r\d+/")
"""In the key of a batch that scores a harness once more, for its noise: the score does not stand on it."""
TRUNCATED, BROKEN, FABRICATED = 1, 2, 4
"""Bits of a rollout's flags; BROKEN: the harness itself failed."""


class Names:
    """Strings as small numbers."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._ids: dict[str, int] = {}

    def id(self, name: str) -> int:
        """The number of a name, a new one if it has none."""
        found = self._ids.get(name)
        if found is None:
            found = self._ids[name] = len(self.names)
            self.names.append(name)
        return found

    def known(self, name: str) -> int | None:
        """The number of a name, if it has one."""
        return self._ids.get(name)


@dataclass(frozen=True, slots=True)
class Request:
    """A control request and its answer."""

    position: int
    key: str
    event: ev.Event
    at: str


class Facts:
    """The columns of one log."""

    def __init__(self) -> None:
        self.count = 0
        self.types = Names()
        self.of_type: list[array[int]] = []
        """Positions of each type."""
        self.times = array("d")
        """Seconds since 1970, one an event."""
        # one entry a micro-batch
        self.batch_positions = array("I")
        self.batch_sizes = array("I")
        self.batch_seconds = array("d")
        """NaN where the log does not say."""
        self.batch_purposes = bytearray()
        # one entry a rollout
        self.rollout_positions = array("I")
        self.rollout_index = array("H")
        self.rollout_rewards = array("f")
        self.rollout_flags = bytearray()
        self.rollout_purposes = bytearray()
        self.rollout_tasks = array("I")
        self.rollout_candidates = array("I")
        self.tasks, self.candidates = Names(), Names()
        self.score_batches: dict[tuple[str, str], array[int]] = {}
        """(candidate, weights) -> positions of the micro-batches that its score stands on."""
        self.phases = array("I")
        """Positions at which a phase began."""
        self.acceptances: list[tuple[int, int, str, str]] = []
        """(position, serial, candidate, "accepted" or "reverted" or "by hand")."""
        self.requests: list[Request] = []
        self.answers: dict[str, tuple[int, ev.ControlHandled]] = {}
        """Request key -> the newest answer."""
        self.sessions: dict[tuple[int, int], array[int]] = {}
        """(cycle, iteration) -> positions of a proposer's replies, and of its session's end."""
        self.step_seconds = array("d")
        self._how = "accepted"

    def add(self, recorded: Recorded) -> None:
        """Take the next event."""
        event, position = recorded.event, recorded.position
        kind = self.types.id(type(event).__name__)
        if kind == len(self.of_type):
            self.of_type.append(array("I"))
        self.of_type[kind].append(position)
        self.times.append(datetime.datetime.fromisoformat(recorded.at).timestamp())
        if isinstance(event, ev.RolloutsRecorded):
            self._rollouts(position, event, recorded.meta.get("seconds"))
        elif isinstance(event, ev.PhaseStarted):
            self.phases.append(position)
        elif isinstance(event, ev.AcceptanceCommitted):
            self.acceptances.append((position, event.serial, event.candidate, self._how))
            self._how = "accepted"
        elif isinstance(event, ev.HarnessReverted):
            self._how = "reverted"
        elif isinstance(event, ev.StepTrained):
            self.step_seconds.append(float(recorded.meta.get("seconds") or 0.0))
        elif isinstance(event, ev.ProposerReplied | ev.ProposerSessionEnded):
            self.sessions.setdefault((event.cycle, event.iteration), array("I")).append(position)
        elif isinstance(event, ev.ControlHandled):
            self.answers[event.request] = (position, event)
        elif type(event).__name__ == "HarnessChosen":
            self._how = "by hand"
        if recorded.stream == "control":
            self.requests.append(Request(position, recorded.key, event, recorded.at))
        self.count = position

    def _rollouts(self, position: int, event: ev.RolloutsRecorded, seconds: float | None) -> None:
        purpose = PURPOSES.index(event.purpose)
        candidate = self.candidates.id(event.candidate)
        self.batch_sizes.append(len(event.outcomes))
        self.batch_seconds.append(float("nan") if seconds is None else float(seconds))
        self.batch_purposes.append(purpose)
        self.batch_positions.append(position)
        if event.purpose == "score" and not _AGAIN.search(event.batch):
            self.score_batches.setdefault((event.candidate, event.weights), array("I")).append(position)
        for index, outcome in enumerate(event.outcomes):
            self.rollout_index.append(index)
            self.rollout_rewards.append(outcome.reward)
            self.rollout_flags.append(
                TRUNCATED * outcome.truncated | BROKEN * (outcome.status != "ok") | FABRICATED * outcome.fabricated
            )
            self.rollout_purposes.append(purpose)
            self.rollout_tasks.append(self.tasks.id(outcome.task))
            self.rollout_candidates.append(candidate)
            # Last: a reader takes its length from this column.
            self.rollout_positions.append(position)

    # --- prefixes ---

    def rollouts_until(self, position: int) -> int:
        """How many rollouts were recorded up to a position."""
        return bisect_right(self.rollout_positions, position)

    def events_of(self, type_name: str, until: int) -> "array[int]":
        """Positions of one type of event up to a position."""
        kind = self.types.known(type_name)
        if kind is None:
            return array("I")
        column = self.of_type[kind]
        return column[: bisect_right(column, until)]

    def rate(self, until: int, purpose: ev.Purpose | None = None, last: int = 8) -> float | None:
        """Rollouts a second over the last micro-batches up to a position; None where the log does not say."""
        end = min(bisect_right(self.batch_positions, until), len(self.batch_positions))
        rollouts, seconds, seen = 0, 0.0, 0
        for i in range(end - 1, max(-1, end - 200), -1):
            if purpose is not None and PURPOSES[self.batch_purposes[i]] != purpose:
                continue
            if self.batch_seconds[i] == self.batch_seconds[i]:
                rollouts += self.batch_sizes[i]
                seconds += self.batch_seconds[i]
            seen += 1
            if seen == last:
                break
        return rollouts / seconds if seconds > 0 else None
