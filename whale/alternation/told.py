"""What a runner tells the user of what it does: notes, rates, failures alike, from what it has recorded."""

from collections.abc import Sequence

from whale.alternation import decide as d
from whale.alternation.progress import Reporter
from whale.alternation.spent import final_test_spent, phase_spent
from whale.alternation.state import State
from whale.events import EventLog
from whale.events import types as ev
from whale.rollout.types import Trajectory

SHOWN_REASON = 200
"""Characters of a harness's error in a line."""


def first_line(reason: str) -> str:
    """What a line shows of a harness's error."""
    return reason.strip().partition("\n")[0][:SHOWN_REASON]


class Told:
    """Tells a reporter; what it remembers is what was told already."""

    def __init__(self, reporter: Reporter, log: EventLog) -> None:
        self.reporter = reporter
        self.log = log
        self._open_unit = ""
        self._tokens = 0
        """Sampled by this process for the open unit."""
        self._failing: tuple[int, str | None] | None = None
        """The phase of which it was told that all episodes of a micro-batch failed alike."""
        self._asked: int | None = None

    def appended(self, event: ev.Event) -> None:
        """A fact that needed no work was recorded."""
        match event:
            case ev.PhaseStarted(cycle=cycle, phase=phase):
                self.reporter.note(f"cycle {cycle}: {phase} phase")
            case ev.PhaseEnded(cycle=cycle, phase=phase):
                self.reporter.note(f"cycle {cycle}: {phase} phase took {phase_spent(self.log, cycle, phase)}")
            case ev.RunCompleted() if (spent := final_test_spent(self.log)).wall:
                self.reporter.note(f"test evaluation took {spent}")
            case ev.HarnessReverted(candidate=candidate):
                self.reporter.note(f"reverted to {candidate}")
            case ev.HarnessChosen(candidate=candidate):
                self.reporter.note(f"accepted {candidate} by hand")
            case ev.ControlHandled():
                self.handled(event)

    def handled(self, event: ev.ControlHandled) -> None:
        """A request was answered."""
        self.reporter.note(f"{event.kind}: {event.outcome}{' - ' if event.detail else ''}{event.detail}")

    def sampling(self, command: d.RunBatch) -> None:
        """A micro-batch is about to be sampled."""
        if self._open_unit != command.unit.key:
            self._open_unit, self._tokens = command.unit.key, 0
            done = sum(len(b.episodes) for b in command.unit.batches[: command.done])
            self.reporter.begin(command.unit.key, command.unit.rollouts, done)

    def sampled(self, command: d.RunBatch, trajectories: Sequence[Trajectory], state: State) -> None:
        """The micro-batch is recorded, and in the state."""
        self._tokens += sum(trajectory.generated for trajectory in trajectories)
        done = sum(len(b.episodes) for b in command.unit.batches[: command.done + 1])
        outcomes = [o for b in state.batches.values() for o in b.outcomes]
        passed = sum(o.reward for o in outcomes)
        self.reporter.advance(done, f"reward {passed / max(1, len(outcomes)):.3f}", self._tokens)
        self._tell_if_all_failed(command.batch.key, trajectories, (state.cycle, state.phase))
        if done == command.unit.rollouts:
            self.reporter.end()

    def _tell_if_all_failed(self, key: str, trajectories: Sequence[Trajectory], phase: tuple[int, str | None]) -> None:
        """One line a phase. A single episode says little; a smoke run, which is one, tells its own failure."""
        first, n = trajectories[0], len(trajectories)
        alike = first.status != "ok" and all(trajectory.status == first.status for trajectory in trajectories)
        if not alike or n == 1 or self._failing == phase:
            return
        self._failing = phase
        self.reporter.note(f"{key}: {n} of {n} episodes ended as {first.status}: {first_line(first.reason)}")

    def training(self, command: d.Train) -> None:
        """A step is about to be trained."""
        self.reporter.begin(f"c{command.cycle:03d} train step {command.step}/{command.steps}", 1)

    def trained(self, command: d.Train, event: ev.StepTrained) -> None:
        """The step is recorded."""
        loss = "no update" if event.loss is None else f"loss {event.loss:.4f}"
        loss += "".join(f", {name} {value:.3g}" for name, value in event.metrics.items())
        dropped = ", ".join(f"{count} {reason}" for reason, count in event.dropped.items() if count)
        self.reporter.advance(1, loss)
        self.reporter.end()
        self.reporter.note(
            f"step {command.step}/{command.steps}: {event.passed} of {event.rollouts} passed"
            f"{f' (dropped: {dropped})' if dropped else ''}, {loss}"
        )

    def waits_for_reviewer(self, candidate: str, state: State) -> None:
        """Once an acceptance: who has to do what."""
        if self._asked != state.acceptance_serial:
            self._asked = state.acceptance_serial
            self.reporter.note(
                f"{candidate} waits for a reviewer: `whale diff {state.name} accepted {candidate}`, then "
                f"`whale approve {state.name} {candidate}` or with --decline"
            )
