"""The state of a run, as the pure fold of its log. No clock, no I/O, no randomness, no torch.

`reduce(state, recorded)` returns the next state and never changes the old one; everything that the runner
decides follows from it (`decide.py`), so a run that was killed and one that was not go the same way.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import field
from msgspec.structs import replace

from whale.alternation.frozen_map import FrozenMap
from whale.events import types as ev

Status = Literal["new", "running", "paused", "stopped", "completed"]

MINED_BATCHES = 64
"""Newest D_weight batches with a pass that proposers may mine worked examples from."""


class Candidate(msgspec.Struct, frozen=True):
    """A proposed harness."""

    id: str
    tree: str
    parents: tuple[str, ...]
    proposer: str
    cycle: int
    iteration: int
    title: str
    hypothesis: str
    axis: str
    changes: str
    duplicate_of: str | None
    committed: bool = False
    valid: bool | None = None
    reason: str = ""
    scores: tuple[ev.CandidateScored, ...] = ()
    """Every score that it ever got, oldest first, each labelled with its weights."""


class TrainedStep(msgspec.Struct, frozen=True):
    """A step since the last checkpoint: what is needed to train it again to the same digest."""

    cycle: int
    step: int
    artifacts: tuple[str, ...]
    weights: str


class Totals(msgspec.Struct, frozen=True):
    """What was paid, by purpose."""

    rollouts: int = 0
    passed: float = 0.0
    generated: int = 0
    prompted: int = 0

    def plus(self, outcomes: list[ev.Outcome]) -> "Totals":
        """These totals with a micro-batch added."""
        passed, generated, prompted = 0.0, 0, 0
        for outcome in outcomes:
            passed += outcome.reward
            generated += outcome.generated
            prompted += outcome.prompted
        return Totals(
            self.rollouts + len(outcomes), self.passed + passed, self.generated + generated, self.prompted + prompted
        )


class State(msgspec.Struct, frozen=True):
    """Everything that the next decision depends on."""

    status: Status = "new"
    name: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    data: str = ""
    splits: Mapping[str, int] = field(default_factory=dict)
    pinned: Mapping[str, str] = field(default_factory=dict)
    """Config key -> digest of the user's own file that it names."""
    origins: tuple[ev.Origin, ...] = ()
    """The runs that this one was forked from, oldest first."""
    sampler_origin: tuple[int, int] = (0, 0)
    """(weight phases, sampler position) from which the slices of E epochs are counted."""
    sampled: int = 0
    """The sampler's position: questions taken in all weight phases that are over."""
    stage: ev.StageSelected | None = None
    """Stagewise: the training point on which the search stands."""
    iterations_done: int = 0
    """Proposal rounds in all harness phases."""
    archive_cycle: int = 0
    """The cycle in which the open archive began: one goes on while the weights stay as they are. 0: none."""
    task_cycles: tuple[int, ...] = ()
    """Cycles in which questions of D_weight were replaced."""
    task_artifacts: tuple[str, ...] = ()
    """The new tasks of each."""
    # where the alternation is
    cycle: int = 0
    phase: ev.PhaseName | None = None
    phases_ended: tuple[ev.PhaseName, ...] = ()
    """Of the current cycle."""
    step: int = 0
    """Steps trained in the current weight phase."""
    iteration: int = 0
    """Iterations completed in the current harness phase."""
    iteration_candidates: tuple[str, ...] = ()
    iteration_note: str = ""
    # both sides of the pair
    weights: str = ""
    checkpoint: str | None = None
    checkpoints: Mapping[str, ev.CheckpointSaved] = field(default_factory=dict)
    untracked_steps: tuple[TrainedStep, ...] = ()
    accepted: str | None = None
    acceptance_serial: int = -1
    acceptance_pending: tuple[str, bool] | None = None
    """(candidate, whether it is a revert) that Git's `accepted` does not name yet."""
    acceptance_key: str = "validated/h0"
    """Key of the event that made the newest harness the accepted one; Git's commit names its hash."""
    candidates: FrozenMap[str, Candidate] = field(default_factory=FrozenMap)
    barred: frozenset[str] = frozenset()
    # the open unit and the current phase's archive
    batches: Mapping[str, ev.RolloutsRecorded] = field(default_factory=dict)
    smoke_attempts: int = 0
    """How often h0 failed in all of its smoke runs, and the run was stopped for it."""
    phase_scores: Mapping[str, ev.CandidateScored] = field(default_factory=dict)
    phase_outcomes: Mapping[str, tuple[ev.Outcome, ...]] = field(default_factory=dict)
    phase_artifacts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Artifacts of a candidate's first scoring, whole or stopped."""
    phase_stopped: Mapping[str, ev.CandidateStopped] = field(default_factory=dict)
    phase_rescored: Mapping[str, tuple[tuple[ev.Outcome, ...], ...]] = field(default_factory=dict)
    """Outcomes of a candidate's further scorings: replicate 1, 2, ..."""
    rule_rescored: int = 0
    """Rollouts of the phase that an acceptance rule asked for beyond the first scorings."""
    guarded: Mapping[str, str] = field(default_factory=dict)
    """Candidates that a guard refuses in this phase, and why."""
    noise: float | None = None
    """The noise floor, once it is measured: SD of one score."""
    verdict: ev.AcceptanceJudged | None = None
    """What the rule decided in this phase."""
    approved: bool | None = None
    """A reviewer's answer to it."""
    settled: bool = False
    """The harness phase's acceptance decision is made."""
    mined: tuple[tuple[str, str], ...] = ()
    """(artifact, candidate) of the newest D_weight batches in which something passed."""
    # results
    session_turns: int = 0
    """Replies of the open proposer session that are recorded."""
    proposer_tokens: int = 0
    proposer_dollars: float = 0.0
    steps: tuple[ev.StepTrained, ...] = ()
    evaluations: tuple[ev.Evaluated, ...] = ()
    totals: Mapping[str, Totals] = field(default_factory=dict)
    completed: ev.RunCompleted | None = None
    interrupted: str = ""
    # steering
    requests: Mapping[str, ev.Event] = field(default_factory=dict)
    """Unanswered control requests by key, oldest first."""
    revert_to: str | None = None
    revert_request: str = ""
    choose: str | None = None
    """A candidate that is accepted by hand when the phase ends."""
    choose_request: str = ""
    stop_after_phase: str = ""
    """Key of the request to stop when the phase ends."""
    notes: Mapping[str, tuple[ev.NoteAdded, ...]] = field(default_factory=dict)
    """Users' words on candidates."""
    proposals: Mapping[str, ev.ProposalSubmitted] = field(default_factory=dict)
    """A human's proposals that wait for the next iteration, by request key."""
    extra_cycles: int = 0
    interventions: tuple[str, ...] = ()
    """Human interventions that took effect; every table marks a run that has one."""

    @property
    def accepted_tree(self) -> str:
        """Tree of the accepted harness."""
        return self.candidates[self.accepted].tree if self.accepted else ""


def waits_for_review(state: State) -> str | None:
    """The candidate that the rule accepts and a reviewer has not answered, in a run with `approve = "human"`."""
    verdict = state.verdict
    if verdict is None or not verdict.accepted or state.settled or state.approved is not None:
        return None
    return verdict.candidate if state.config.get("search", {}).get("approve") == "human" else None


def reduce(state: State, recorded: Any) -> State:
    """Apply one recorded event (`whale.events.Recorded`)."""
    event: ev.Event = recorded.event
    handler = _HANDLERS.get(type(event))
    if handler is None:
        if recorded.stream == "control":
            return replace(state, requests={**state.requests, recorded.key: event})
        raise ValueError(f"no rule for {type(event).__name__} at position {recorded.position}")
    result: State = handler(state, event)
    if type(event) in _ACCEPTING:
        result = replace(result, acceptance_key=recorded.key)
    return result


def _started(state: State, event: ev.RunStarted) -> State:
    return replace(
        state,
        status="running",
        name=event.name,
        config=event.config,
        model=event.model,
        data=event.data,
        splits=event.splits,
        pinned=event.pinned,
        weights=event.model,
    )


def _forked(state: State, event: ev.RunForked) -> State:
    # What the origin had not answered yet, and whether it was paused, is the origin's own. A complete run
    # stays complete unless the new config gives it more cycles.
    cycles = int(event.config.get("schedule", {}).get("cycles", 0)) + state.extra_cycles
    complete = state.status == "completed" and state.cycle >= cycles
    return replace(
        state,
        status="completed" if complete else "running",
        completed=state.completed if complete else None,
        interrupted="",
        name=event.name,
        config=event.config,
        origins=(*state.origins, event.origin),
        pinned=event.pinned,
        sampler_origin=(event.phases, event.sampled),
        sampled=max(state.sampled, event.sampled),
        requests={},
    )


def _proposed(state: State, event: ev.HarnessProposed) -> State:
    candidate = Candidate(
        id=event.candidate,
        tree=event.tree,
        parents=tuple(event.parents),
        proposer=event.proposer,
        cycle=event.cycle,
        iteration=event.iteration,
        title=event.title,
        hypothesis=event.hypothesis,
        axis=event.axis,
        changes=event.changes,
        duplicate_of=event.duplicate_of,
    )
    proposals = {key: value for key, value in state.proposals.items() if key != event.request}
    return replace(
        state,
        candidates=state.candidates.set(candidate.id, candidate),
        iteration_candidates=(*state.iteration_candidates, candidate.id),
        proposals=proposals,
        interventions=(*state.interventions, f"{event.candidate}: proposed by a human")
        if event.request
        else state.interventions,
    )


def _with_candidate(state: State, candidate: str, **changes: Any) -> State:
    updated = replace(state.candidates[candidate], **changes)
    return replace(state, candidates=state.candidates.set(candidate, updated))


def _committed(state: State, event: ev.HarnessCommitted) -> State:
    return _with_candidate(state, event.candidate, committed=True)


def _validated(state: State, event: ev.HarnessValidated) -> State:
    state = _with_candidate(state, event.candidate, valid=event.valid, reason=event.reason)
    return replace(state, batches={})


def _without_archive(state: State) -> State:
    return replace(
        state,
        phase_scores={},
        phase_outcomes={},
        phase_artifacts={},
        phase_stopped={},
        phase_rescored={},
        archive_cycle=0,
    )


def _phase_started(state: State, event: ev.PhaseStarted) -> State:
    new_cycle = event.cycle != state.cycle
    if event.phase == "harness" and not state.archive_cycle:
        # A fresh archive, since scores count only under the current weights; where no weights were trained
        # in between (harness-only, stagewise), the search goes on in the archive that is there.
        state = replace(_without_archive(state), archive_cycle=event.cycle)
    return replace(
        state,
        cycle=event.cycle,
        phase=event.phase,
        phases_ended=() if new_cycle else state.phases_ended,
        step=0,
        iteration=0,
        iteration_candidates=(),
        batches={},
        rule_rescored=0,
        guarded={},
        verdict=None,
        approved=None,
        session_turns=0,
        settled=False,
    )


def _rollouts(state: State, event: ev.RolloutsRecorded) -> State:
    totals = state.totals.get(event.purpose, Totals()).plus(event.outcomes)
    mined = state.mined
    if event.purpose == "try":
        # A trial inside a proposer's session: paid, and part of no unit that a decision waits for.
        return replace(state, totals={**state.totals, event.purpose: totals})
    if event.purpose == "train" and any(outcome.reward > 0 for outcome in event.outcomes):
        mined = (*mined, (event.artifact, event.candidate))[-MINED_BATCHES:]
    return replace(
        state,
        batches={**state.batches, event.batch: event},
        totals={**state.totals, event.purpose: totals},
        mined=mined,
    )


def _trained(state: State, event: ev.StepTrained) -> State:
    step = TrainedStep(
        cycle=event.cycle,
        step=event.step,
        artifacts=tuple(batch.artifact for batch in state.batches.values()),
        weights=event.weights,
    )
    return replace(
        state,
        step=event.step,
        weights=event.weights,
        batches={},
        untracked_steps=(*state.untracked_steps, step),
        steps=(*state.steps, event),
        archive_cycle=0,
    )


def _retrained(state: State, event: ev.StepsRetrained) -> State:
    return replace(state, weights=event.weights)


def _tasks(state: State, event: ev.TasksProposed) -> State:
    return replace(
        state,
        task_cycles=(*state.task_cycles, event.cycle),
        task_artifacts=(*state.task_artifacts, event.artifact),
    )


def _checkpoint(state: State, event: ev.CheckpointSaved) -> State:
    return replace(
        state,
        checkpoint=event.checkpoint,
        checkpoints={**state.checkpoints, event.checkpoint: event},
        untracked_steps=(),
    )


def _scored(state: State, event: ev.CandidateScored) -> State:
    outcomes = tuple(outcome for batch in state.batches.values() for outcome in batch.outcomes)
    state = _with_candidate(state, event.candidate, scores=(*state.candidates[event.candidate].scores, event))
    return replace(
        state,
        batches={},
        phase_scores={**state.phase_scores, event.candidate: event},
        phase_outcomes={**state.phase_outcomes, event.candidate: outcomes},
        phase_artifacts={**state.phase_artifacts, event.candidate: _artifacts(state)},
    )


def _artifacts(state: State) -> tuple[str, ...]:
    return tuple(batch.artifact for batch in state.batches.values())


def _stopped(state: State, event: ev.CandidateStopped) -> State:
    outcomes = tuple(outcome for batch in state.batches.values() for outcome in batch.outcomes)
    return replace(
        state,
        batches={},
        phase_stopped={**state.phase_stopped, event.candidate: event},
        phase_outcomes={**state.phase_outcomes, event.candidate: outcomes},
        phase_artifacts={**state.phase_artifacts, event.candidate: _artifacts(state)},
    )


def _rescored(state: State, event: ev.CandidateRescored) -> State:
    outcomes = tuple(outcome for batch in state.batches.values() for outcome in batch.outcomes)
    there = state.phase_rescored.get(event.candidate, ())
    return replace(
        state,
        batches={},
        phase_rescored={**state.phase_rescored, event.candidate: (*there, outcomes)},
        rule_rescored=state.rule_rescored + (event.n if event.purpose == "rule" else 0),
        noise=event.noise if event.purpose == "noise" else state.noise,
    )


def _guarded(state: State, event: ev.CandidateGuarded) -> State:
    return replace(state, guarded={**state.guarded, event.candidate: event.reason})


def _judged(state: State, event: ev.AcceptanceJudged) -> State:
    return replace(state, verdict=event, approved=None)


def _replied(state: State, event: ev.ProposerReplied) -> State:
    tokens = event.input_tokens + event.cache_read_tokens + event.cache_write_tokens + event.output_tokens
    return replace(
        state,
        session_turns=event.turn,
        proposer_tokens=state.proposer_tokens + tokens,
        proposer_dollars=state.proposer_dollars + event.dollars,
    )


def _session_ended(state: State, event: ev.ProposerSessionEnded) -> State:
    return replace(state, session_turns=0)


def _iteration(state: State, event: ev.IterationCompleted) -> State:
    return replace(
        state,
        iteration=event.iteration,
        iterations_done=state.iterations_done + 1,
        iteration_candidates=(),
        iteration_note=event.note,
    )


def _accepted(state: State, event: ev.HarnessAccepted) -> State:
    return replace(
        state,
        accepted=event.candidate,
        acceptance_pending=(event.candidate, False),
        settled=True,
    )


def _retained(state: State, event: ev.HarnessRetained) -> State:
    return replace(state, settled=True)


def _reverted(state: State, event: ev.HarnessReverted) -> State:
    return replace(
        state,
        accepted=event.candidate,
        acceptance_pending=(event.candidate, True),
        barred=(state.barred - {event.tree}) | {event.barred},
        revert_to=None,
        revert_request="",
        interventions=(*state.interventions, f"cycle {event.cycle}: reverted to {event.candidate}"),
    )


def _chosen(state: State, event: ev.HarnessChosen) -> State:
    return replace(
        state,
        accepted=event.candidate,
        acceptance_pending=(event.candidate, False),
        barred=state.barred - {event.tree},
        choose=None,
        choose_request="",
        interventions=(*state.interventions, f"cycle {event.cycle}: {event.candidate} accepted by hand"),
    )


def _noted(state: State, event: ev.NoteAdded) -> State:
    there = state.notes.get(event.candidate, ())
    return replace(state, notes={**state.notes, event.candidate: (*there, event)})


def _acceptance_committed(state: State, event: ev.AcceptanceCommitted) -> State:
    return replace(
        state,
        accepted=event.candidate,
        acceptance_serial=event.serial,
        acceptance_pending=None,
    )


def _phase_ended(state: State, event: ev.PhaseEnded) -> State:
    if event.sampled is not None:
        state = replace(state, sampled=event.sampled)
        if state.config.get("schedule", {}).get("kind") == "adaptive":
            # A phase ends when patience does: the next one begins wherever that was.
            state = replace(state, sampler_origin=(event.cycle, event.sampled))
    return replace(
        state,
        phase=None,
        phases_ended=(*state.phases_ended, event.phase),
        batches={},
        iteration_candidates=(),
    )


def _stage(state: State, event: ev.StageSelected) -> State:
    return replace(
        _without_archive(state),
        stage=event,
        weights=event.weights,
        checkpoint=event.checkpoint,
        untracked_steps=(),
    )


def _evaluated(state: State, event: ev.Evaluated) -> State:
    return replace(state, evaluations=(*state.evaluations, event), batches={})


def _completed(state: State, event: ev.RunCompleted) -> State:
    return replace(state, status="completed", completed=event)


def _interrupted(state: State, event: ev.RunInterrupted) -> State:
    state = replace(state, interrupted=event.reason)
    # Before h0 is settled only its smoke runs are open: it failed in more than the first, and is tried anew.
    if state.acceptance_serial < 0 and len(state.batches) > 1:
        return replace(state, batches={}, smoke_attempts=state.smoke_attempts + 1)
    return state


def _handled(state: State, event: ev.ControlHandled) -> State:
    request = state.requests.get(event.request)
    state = replace(state, requests={key: value for key, value in state.requests.items() if key != event.request})
    match event.outcome:
        case "paused":
            return replace(state, status="paused")
        case "resumed":
            return replace(state, status="running", interrupted="", stop_after_phase="")
        case "stopped":
            return replace(state, status="stopped", stop_after_phase="")
        case "scheduled" if isinstance(request, ev.RevertRequested):
            # The later of two wishes holds.
            return replace(
                state, revert_to=request.candidate, revert_request=event.request, choose=None, choose_request=""
            )
        case "scheduled" if isinstance(request, ev.AcceptRequested):
            return replace(
                state, choose=request.candidate, choose_request=event.request, revert_to=None, revert_request=""
            )
        case "approved" | "declined" if isinstance(request, ev.ApprovalGiven):
            told = f"cycle {state.cycle}: {request.candidate} {event.outcome} by a reviewer"
            return replace(state, approved=request.approved, interventions=(*state.interventions, told))
        case "scheduled" if isinstance(request, ev.PhaseStopRequested):
            return replace(state, stop_after_phase=event.request)
        case "queued" if isinstance(request, ev.ProposalSubmitted):
            return replace(state, proposals={**state.proposals, event.request: request})
        case "extended" if isinstance(request, ev.ExtendRequested):
            status = "running" if state.status == "completed" else state.status
            return replace(state, status=status, extra_cycles=state.extra_cycles + request.cycles)
    return state


_ACCEPTING = {ev.HarnessAccepted, ev.HarnessReverted, ev.HarnessChosen}

_HANDLERS: dict[type[ev.Event], Any] = {
    ev.RunStarted: _started,
    ev.RunForked: _forked,
    ev.HarnessProposed: _proposed,
    ev.HarnessCommitted: _committed,
    ev.HarnessValidated: _validated,
    ev.PhaseStarted: _phase_started,
    ev.RolloutsRecorded: _rollouts,
    ev.StepTrained: _trained,
    ev.TasksProposed: _tasks,
    ev.StepsRetrained: _retrained,
    ev.CheckpointSaved: _checkpoint,
    ev.CandidateScored: _scored,
    ev.CandidateStopped: _stopped,
    ev.CandidateRescored: _rescored,
    ev.CandidateGuarded: _guarded,
    ev.AcceptanceJudged: _judged,
    ev.ProposerReplied: _replied,
    ev.ProposerSessionEnded: _session_ended,
    ev.IterationCompleted: _iteration,
    ev.HarnessAccepted: _accepted,
    ev.HarnessRetained: _retained,
    ev.HarnessReverted: _reverted,
    ev.HarnessChosen: _chosen,
    ev.NoteAdded: _noted,
    ev.AcceptanceCommitted: _acceptance_committed,
    ev.PhaseEnded: _phase_ended,
    ev.StageSelected: _stage,
    ev.Evaluated: _evaluated,
    ev.RunCompleted: _completed,
    ev.RunInterrupted: _interrupted,
    ev.ControlHandled: _handled,
}
