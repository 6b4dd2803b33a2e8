"""What happens next: `decide(state)` is pure, the runner carries it out and records the result.

The loop of the method with a fixed budget: for each cycle a weight phase over the sampler's next slice, a
harness phase of I iterations on a fresh archive {incoming harness}, an evaluation on validation tasks.
"""

from dataclasses import dataclass
from typing import Literal

from whale.alternation import judging, schedule, units
from whale.alternation.state import State, waits_for_review
from whale.alternation.units import MicroBatch, Unit
from whale.config import Config, config_from
from whale.domains.base import Split
from whale.events import types as ev

INITIAL = "h0"
"""Candidate id of the initial harness."""


@dataclass(frozen=True, slots=True)
class Handle:
    """Answer the oldest control request."""

    request: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Paused: wait for the next control request."""


@dataclass(frozen=True, slots=True)
class ProposeInitial:
    """Record h0."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit a candidate to Git."""

    candidate: str


@dataclass(frozen=True, slots=True)
class CommitAcceptance:
    """Make Git's `accepted` name this harness."""

    serial: int
    candidate: str
    revert: bool


@dataclass(frozen=True, slots=True)
class Validate:
    """Check a candidate's source and judge its smoke run."""

    candidate: str
    unit: Unit


@dataclass(frozen=True, slots=True)
class RunBatch:
    """Sample one micro-batch."""

    batch: MicroBatch
    unit: Unit
    done: int
    """Micro-batches of the unit that are recorded already."""


@dataclass(frozen=True, slots=True)
class Train:
    """One step of the weight method on the recorded rollouts."""

    cycle: int
    step: int
    steps: int


@dataclass(frozen=True, slots=True)
class ProposeTasks:
    """Replace passed questions of D_weight by harder ones."""

    cycle: int


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Save θ and the optimiser."""

    checkpoint: str
    cycle: int
    step: int
    phase_end: bool


@dataclass(frozen=True, slots=True)
class Propose:
    """Ask the proposer for the iteration's candidates."""

    cycle: int
    iteration: int


@dataclass(frozen=True, slots=True)
class CompleteScore:
    """All of D_harness is covered: record the score."""

    candidate: str
    iteration: int


@dataclass(frozen=True, slots=True)
class StopScore:
    """The acceptance rule ends this scoring: the candidate cannot win."""

    candidate: str
    iteration: int
    saved: int
    reason: str


@dataclass(frozen=True, slots=True)
class CompleteRescore:
    """Another scoring covers all of D_harness: record it."""

    candidate: str
    replicate: int
    purpose: Literal["noise", "rule"]


@dataclass(frozen=True, slots=True)
class AwaitApproval:
    """The rule accepts this harness, and a reviewer has not answered yet."""

    candidate: str


@dataclass(frozen=True, slots=True)
class CompleteIteration:
    """Every candidate of the iteration has its outcome."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Judge:
    """Let the acceptance rule decide."""


@dataclass(frozen=True, slots=True)
class Settle:
    """Carry out the rule's decision."""


@dataclass(frozen=True, slots=True)
class CompleteEvaluation:
    """All evaluation rollouts are recorded."""

    cycle: int
    split: Split
    candidate: str
    weights: str
    reuse: ev.Evaluated | None
    """The same pair was evaluated on the same tasks before: nothing is sampled again."""


@dataclass(frozen=True, slots=True)
class Append:
    """Record a fact that needs no work."""

    key: str
    event: ev.Event


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do, or the runner was asked to stop."""


Command = (
    Handle | Wait | ProposeInitial | Commit | CommitAcceptance | Validate | RunBatch | Train | SaveCheckpoint
    | Propose | CompleteScore | StopScore | CompleteRescore | CompleteIteration | Judge | AwaitApproval | Settle
    | CompleteEvaluation | ProposeTasks | Append | Finish
)  # fmt: skip


def config_of(state: State) -> Config:
    """The run's frozen config."""
    return config_from(dict(state.config), source=f"run {state.name}")


def decide(state: State, config: Config) -> Command:
    """The next command of a started run."""
    if state.requests:
        return Handle(next(iter(state.requests)))
    if state.status == "paused":
        return Wait()
    if state.status == "stopped":
        return Finish()
    if INITIAL not in state.candidates:
        return ProposeInitial()
    command = _gates(state, config, INITIAL)
    if command:
        return command
    if state.acceptance_serial < 0:
        return CommitAcceptance(0, INITIAL, revert=False)
    if state.acceptance_pending:
        candidate, revert = state.acceptance_pending
        return CommitAcceptance(state.acceptance_serial + 1, candidate, revert)
    if state.phase is None:
        if state.revert_to is not None:
            return _revert(state)
        if state.choose is not None:
            return _choose(state)
        if state.stop_after_phase and state.status != "completed":
            return _stop(state)
        return Finish() if state.status == "completed" else _between_phases(state, config)
    if state.phase == "weight":
        return _weight_phase(state, config)
    if state.phase == "harness":
        return _harness_phase(state, config)
    return _tasks_phase(state) if state.phase == "tasks" else _evaluation_phase(state, config)


def _gates(state: State, config: Config, candidate_id: str) -> Command | None:
    """Commit and validate a candidate; None once that is done."""
    candidate = state.candidates[candidate_id]
    if not candidate.committed:
        return Commit(candidate_id)
    if candidate.valid is None:
        unit = units.smoke_unit(
            config, state.splits["weight"], candidate_id, state.weights,
            first=candidate_id == INITIAL, attempt=state.smoke_attempts + 1,
        )  # fmt: skip
        return Validate(candidate_id, unit)
    return None


def _next_batch(state: State, unit: Unit) -> RunBatch | None:
    for done, batch in enumerate(unit.batches):
        if batch.key not in state.batches:
            return RunBatch(batch, unit, done)
    return None


def _between_phases(state: State, config: Config) -> Command:
    left = [p for p in schedule.phases(state, config, state.cycle) if p not in state.phases_ended]
    if left:
        cycle, phase = state.cycle, left[0]
    elif schedule.selects_stage(state, config):
        return _select_stage(state)
    elif state.cycle < schedule.cycles(state, config) and not (state.cycle and schedule.spent(state, config)):
        cycle = state.cycle + 1
        phase = schedule.phases(state, config, cycle)[0]
    else:
        return _final(state, config)
    return Append(f"c{cycle:03d}/{phase}/started", ev.PhaseStarted(cycle=cycle, phase=phase))


def _select_stage(state: State) -> Command:
    """Stagewise: the weights of the best training point, with the checkpoint that holds them."""
    best = selected(state)
    saved = [c.checkpoint for c in state.checkpoints.values() if c.weights == best.weights and c.phase_end]
    return Append(
        "stage/selected",
        ev.StageSelected(
            cycle=best.cycle, weights=best.weights, checkpoint=saved[-1] if saved else None, score=best.score
        ),
    )


def _revert(state: State) -> Command:
    """A revert takes effect at a phase boundary; the tree that is left is barred from acceptance."""
    assert state.revert_to is not None
    target = state.candidates[state.revert_to]
    return Append(
        f"revert/{state.revert_request}",
        ev.HarnessReverted(
            cycle=state.cycle,
            candidate=target.id,
            tree=target.tree,
            previous=state.accepted or "",
            barred=state.accepted_tree,
            request=state.revert_request,
        ),
    )


def _choose(state: State) -> Command:
    """A candidate that was accepted by hand takes effect at a phase boundary, as an acceptance."""
    assert state.choose is not None
    target = state.candidates[state.choose]
    return Append(
        f"chosen/{state.choose_request}",
        ev.HarnessChosen(
            cycle=state.cycle,
            candidate=target.id,
            tree=target.tree,
            previous=state.accepted or "",
            request=state.choose_request,
        ),
    )


def _stop(state: State) -> Command:
    """The phase has ended after which the run was to stop."""
    return Append(
        f"stopped/{state.stop_after_phase}",
        ev.ControlHandled(request=state.stop_after_phase, kind="stop", outcome="stopped", detail="the phase has ended"),
    )


def _tasks_phase(state: State) -> Command:
    cycle = state.cycle
    if cycle not in state.task_cycles:
        return ProposeTasks(cycle)
    return Append(f"c{cycle:03d}/tasks/ended", ev.PhaseEnded(cycle=cycle, phase="tasks", reason="complete"))


def _weight_phase(state: State, config: Config) -> Command:
    n, cycle = state.splits["weight"], state.cycle
    steps = schedule.weight_steps(state, config)
    over = schedule.weight_over(state, config, steps)
    if state.step:
        # A checkpoint is due after a step, before anything stands on its weights.
        # Steps that were trained again and gave other bits would do so again: they are due at once.
        again = bool(state.untracked_steps) and state.untracked_steps[-1].weights != state.weights
        due = over is not None or state.step % config.weights.checkpoint_every == 0 or again
        name = f"c{cycle:03d}-s{state.step:04d}"
        if due and name not in state.checkpoints:
            return SaveCheckpoint(name, cycle, state.step, phase_end=over is not None)
    if over is None:
        assert state.accepted is not None
        batch = steps[state.step]
        unit = units.training_unit(config, n, cycle, state.step + 1, batch, state.accepted, state.weights)
        return _next_batch(state, unit) or Train(cycle, state.step + 1, len(steps))
    sampled = schedule.sampled_after(state, steps)
    return Append(
        f"c{cycle:03d}/weight/ended", ev.PhaseEnded(cycle=cycle, phase="weight", reason=over, sampled=sampled)
    )


def _scoring_unit(state: State, config: Config, candidate: str, replicate: int = 0) -> Unit:
    n = state.splits["harness"]
    return units.scoring_unit(
        config, n, state.cycle, candidate, state.weights,
        archive=state.archive_cycle, replicate=replicate, looks=judging.looks(config, n),
    )  # fmt: skip


def _score(state: State, config: Config, candidate: str, iteration: int) -> Command:
    unit = _scoring_unit(state, config, candidate)
    if iteration and state.batches:
        reason = judging.early_stop(state, config, unit)
        if reason is not None:
            paid = sum(len(batch.outcomes) for batch in state.batches.values())
            return StopScore(candidate, iteration, unit.rollouts - paid, reason)
    return _next_batch(state, unit) or CompleteScore(candidate, iteration)


def _rescore(
    state: State, config: Config, candidate: str, replicate: int, purpose: Literal["noise", "rule"]
) -> Command:
    unit = _scoring_unit(state, config, candidate, replicate)
    return _next_batch(state, unit) or CompleteRescore(candidate, replicate, purpose)


def _judgement(state: State, config: Config) -> Command:
    """After the last iteration: what the rule wants to know, its decision, a reviewer's, the end."""
    if state.verdict is None:
        wish = judging.rule_of(config).more(judging.board_of(state, config))
        return _rescore(state, config, wish.candidate, wish.replicate, "rule") if wish else Judge()
    waiting = waits_for_review(state)
    return AwaitApproval(waiting) if waiting else Settle()


def _harness_phase(state: State, config: Config) -> Command:
    cycle = state.cycle
    assert state.accepted is not None
    over = schedule.harness_over(state, config)
    if state.settled or over == schedule.NO_BUDGET:
        reason = over or "settled"
        return Append(f"c{cycle:03d}/harness/ended", ev.PhaseEnded(cycle=cycle, phase="harness", reason=reason))
    if state.accepted not in state.phase_scores:
        # The incoming harness first, under the new weights: the phase's archive starts with it.
        return _score(state, config, state.accepted, 0)
    if config.search.noise_floor and state.noise is None:
        return _rescore(state, config, state.accepted, 1, "noise")
    if over is not None:
        return _judgement(state, config)
    iteration = state.iteration + 1
    if not state.iteration_candidates:
        return Propose(cycle, iteration)
    for candidate in state.iteration_candidates:
        if scored_twin(state, candidate):
            if not state.candidates[candidate].committed:
                return Commit(candidate)
            continue
        command = _gates(state, config, candidate)
        if command:
            return command
        done = candidate in state.phase_scores or candidate in state.phase_stopped
        if state.candidates[candidate].valid and not done:
            return _score(state, config, candidate, iteration)
    return CompleteIteration(iteration)


def scored_twin(state: State, candidate: str) -> str | None:
    """Another candidate of this phase with the same tree that was scored or stopped: content has one score."""
    tree = state.candidates[candidate].tree
    for scored in (*state.phase_scores, *state.phase_stopped):
        if scored != candidate and state.candidates[scored].tree == tree:
            return scored
    return None


def _evaluation_phase(state: State, config: Config) -> Command:
    cycle = state.cycle
    assert state.accepted is not None
    splits: tuple[Split, ...] = ("validation", "test") if config.evaluate.select == "test" else ("validation",)
    for split in splits:
        if not any(e.cycle == cycle and e.split == split for e in state.evaluations):
            return _evaluate(state, config, cycle, split, state.accepted, state.weights)
    return Append(f"c{cycle:03d}/evaluate/ended", ev.PhaseEnded(cycle=cycle, phase="evaluate", reason="complete"))


def _evaluate(state: State, config: Config, cycle: int, split: Split, candidate: str, weights: str) -> Command:
    tree = state.candidates[candidate].tree
    for earlier in state.evaluations:
        if (earlier.split, earlier.tree, earlier.weights) == (split, tree, weights):
            return CompleteEvaluation(cycle, split, candidate, weights, earlier)
    unit = units.evaluation_unit(config, state.splits[split], cycle, split, candidate, weights)
    return _next_batch(state, unit) or CompleteEvaluation(cycle, split, candidate, weights, None)


def selected(state: State) -> ev.Evaluated:
    """The pair with the best score on the split that selects; ties to the earlier cycle.

    Until a split is read that the config lets select, validation does. Raises ValueError before any evaluation.
    """
    select = selects(state)
    read = [e for e in state.evaluations if e.split == select]
    return max(read or [e for e in state.evaluations if e.split == "validation"], key=lambda e: (e.score, -e.cycle))


def selects(state: State) -> str:
    """The split that chooses the final pair: "validation", or "test" by the paper's rule."""
    return str(state.config.get("evaluate", {}).get("select", "validation"))


def _final(state: State, config: Config) -> Command:
    """After the last cycle: the test, read once for the first and the selected pair, then the end.

    Where the test itself selects, the cycles have read it.
    """
    best = selected(state)
    if config.evaluate.test_tasks:
        first = state.evaluations[0]
        for pair in (first, best):
            if not any(e.split == "test" and e.cycle == pair.cycle for e in state.evaluations):
                return _evaluate(state, config, pair.cycle, "test", pair.candidate, pair.weights)
    return Append(
        f"completed/{schedule.cycles(state, config)}",
        ev.RunCompleted(
            reason="budget",
            cycle=best.cycle,
            candidate=best.candidate,
            weights=best.weights,
            score=best.score,
        ),
    )
