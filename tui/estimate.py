"""How far a run is, and how long it will take: a pure function of state, config and rates."""

from dataclasses import dataclass

from whale.alternation import decide as d
from whale.alternation import units
from whale.alternation.state import State
from whale.config import Config
from whale.errors import WhaleError
from whale.events import types as ev
from whale.tui.facts import Facts


@dataclass(frozen=True, slots=True)
class Part:
    """A step with a known length."""

    label: str
    done: int
    total: int
    unit: str
    left: float | None = None
    """Seconds that it will take yet; None if nothing is known of its speed."""
    begun: float = 0.0
    """How much of the unit after those that are done is done, in [0, 1)."""

    @property
    def share(self) -> float:
        """In [0, 1]."""
        return (self.done + self.begun) / self.total if self.total else 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """What is going on."""

    doing: str
    parts: tuple[Part, ...]
    """The open unit, the phase and the run."""


def progress(state: State, facts: Facts, until: int) -> Progress:
    """Where the state stands in what its config plans."""
    if state.status == "new" or not state.config:
        return Progress("nothing has been recorded yet", ())
    try:
        config = d.config_of(state)
        command = d.decide(state, config)
    except (WhaleError, KeyError, AssertionError) as error:
        return Progress(f"this release cannot say what comes next: {error}", ())
    parts: list[Part] = []
    doing = _words(state, command)
    unit = command.unit if isinstance(command, d.RunBatch | d.Validate) else None
    if unit is not None:
        keys = {batch.key for batch in unit.batches}
        done = sum(len(batch.outcomes) for key, batch in state.batches.items() if key in keys)
        rate = facts.rate(until, unit.batches[0].purpose) or facts.rate(until)
        left = (unit.rollouts - done) / rate if rate else None
        parts.append(Part("this step", done, unit.rollouts, "rollouts", left))
    try:
        phase = _phase(state, config, facts, until)
    except (WhaleError, KeyError):
        phase = None
    if phase is not None:
        parts.append(phase)
    cycles = config.schedule.cycles + state.extra_cycles
    if state.status == "completed":
        parts.append(Part("run", state.cycle, cycles, "cycles"))
    else:
        ended = max(0.0, state.cycle - 1 + len(state.phases_ended) / 3) if state.cycle else 0.0
        if state.cycle and phase is not None and len(state.phases_ended) < 3:
            ended = min(ended + phase.share / 3, state.cycle - 0.01)
        parts.append(Part("run", int(ended), cycles, "cycles", begun=ended % 1))
    return Progress(doing, tuple(parts))


def _phase(state: State, config: Config, facts: Facts, until: int) -> Part | None:
    if str(config.schedule.kind) == "adaptive" and state.phase != "evaluate":
        return None  # how long it goes on is decided step by step
    if state.phase == "weight":
        steps = len(units.training_steps(config, state.splits["weight"], state.cycle))
        rate = facts.rate(until, "train")
        recent = list(facts.step_seconds[-5:])
        left = None
        if rate:
            each = config.weights.batch * config.weights.rollouts_per_prompt / rate
            left = (steps - state.step) * (each + (sum(recent) / len(recent) if recent else 0.0))
        return Part("weight phase", state.step, steps, "steps", left)
    if state.phase == "harness":
        rounds = max(0, config.schedule.iterations - int(config.schedule.count_incoming))
        total = 1 + rounds * config.search.candidates
        scored = min(total, len(state.phase_scores))
        rate = facts.rate(until, "score")
        size = state.splits["harness"] * config.search.rollouts_per_task
        return Part("harness phase", scored, total, "harnesses", (total - scored) * size / rate if rate else None)
    if state.phase == "evaluate":
        unit = units.evaluation_unit(config, state.splits["validation"], state.cycle, "validation", "", "")
        done = sum(len(batch.outcomes) for batch in state.batches.values())
        rate = facts.rate(until, "evaluate")
        return Part("evaluation", done, unit.rollouts, "rollouts", (unit.rollouts - done) / rate if rate else None)
    return None


def _words(state: State, command: d.Command) -> str:
    if state.status == "paused":
        return "paused at a safe point; p goes on"
    match command:
        case d.RunBatch(batch=batch):
            what = {
                "train": f"sampling rollouts of {batch.candidate} for training",
                "score": f"scoring {batch.candidate}",
                "evaluate": f"evaluating {batch.candidate} on {batch.split} tasks",
                "smoke": f"trying {batch.candidate} on one task",
            }
            return what.get(batch.purpose, f"rollouts of {batch.candidate}")
        case d.Train(step=step, steps=steps):
            return f"training step {step} of {steps}"
        case d.ProposeTasks():
            return "replacing passed questions of D_weight by harder ones"
        case d.Propose(iteration=iteration):
            turns = f", turn {state.session_turns} of its session" if state.session_turns else ""
            return f"the proposer writes the candidates of iteration {iteration}{turns}"
        case d.AwaitApproval(candidate=candidate):
            return f"{candidate} waits for a reviewer"
        case d.Validate(candidate=candidate):
            return f"checking {candidate}"
        case d.Commit(candidate=candidate):
            return f"committing {candidate}"
        case d.SaveCheckpoint(checkpoint=checkpoint):
            return f"saving checkpoint {checkpoint}"
        case d.Handle():
            return "answering what was asked"
        case d.Wait():
            return "waiting"
        case d.CompleteScore(candidate=candidate) | d.CompleteRescore(candidate=candidate):
            return f"recording the score of {candidate}"
        case d.StopScore(candidate=candidate):
            return f"{candidate} cannot win: ending its scoring early"
        case d.Judge() | d.Settle():
            return "deciding which harness is accepted"
        case d.Finish():
            return "complete" if state.status == "completed" else "stopped"
        case d.Append(event=ev.PhaseStarted(phase=phase)):
            return f"starting the {phase} phase"
        case _:
            return _spaced(type(command).__name__)


def _spaced(name: str) -> str:
    words = "".join(" " + c.lower() if c.isupper() else c for c in name)
    return words.strip()
