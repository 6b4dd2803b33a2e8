"""What can happen in a run: one frozen record per fact.

A record's fields are the event's `data`: deterministic, so that two runs with the same seed and config
hold equal data at equal keys. Times, rates, costs and Git's commit ids go into the envelope's `meta`.
Every record names the release's schema version; an old version goes through an upcaster (codec.py).
"""

from typing import Any, ClassVar, Literal

import msgspec

Purpose = Literal["train", "score", "smoke", "evaluate", "try"]
""""try": a proposer's own trial of a draft on training tasks, inside its session."""
PhaseName = Literal["weight", "harness", "evaluate", "tasks"]


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all events. `schema_version` is part of the type, not of the data."""

    schema_version: ClassVar[int] = 1


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """One counted rollout: what scoring and counters need; the trajectory itself is in the artifact."""

    task: str
    sample: int
    reward: float
    status: str
    """"ok", or the kind of the harness's own failure (whale.rollout.types.Status)."""
    turns: int
    generated: int
    """Tokens sampled by the model."""
    prompted: int
    """Tokens in prompts, those that a prefix cache served included."""
    truncated: bool
    fabricated: bool
    """The answer stands in text that the harness wrote and no tool returned."""
    metrics: dict[str, float] = {}


class RunStarted(Event, frozen=True, kw_only=True):
    """The frozen config and the digests of what the run stands on."""

    schema_version: ClassVar[int] = 2

    name: str
    config: dict[str, Any]
    model: str
    """Digest of the initial weights θ0."""
    data: str
    """Fingerprint of the domain's tasks and passages."""
    splits: dict[str, int]
    pinned: dict[str, str] = {}
    """Config key -> digest of the user's own file that it names: code, a text, a folder."""


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a fork comes from: an event of another run, and its hash."""

    run: str
    position: int
    hash: str


class RunForked(Event, frozen=True, kw_only=True):
    """All events before this one are another run's; from here on the run is one of its own."""

    name: str
    origin: Origin
    config: dict[str, Any]
    """The whole config from here on."""
    changed: list[str] = []
    """Keys that differ from the origin's config."""
    phases: int = 0
    """Weight phases before this point, and the sampler position at which the next one begins: a change of
    E or of the seed moves no question that was sampled."""
    sampled: int = 0
    pinned: dict[str, str] = {}
    """As in `RunStarted`, from here on."""


class HarnessProposed(Event, frozen=True, kw_only=True):
    """A candidate's tree is known; its commit follows."""

    candidate: str
    tree: str
    """Git's id of the tree: equal trees are the same harness, whoever proposes them."""
    parents: list[str]
    proposer: str
    cycle: int
    iteration: int
    title: str = ""
    hypothesis: str = ""
    axis: str = ""
    changes: str = ""
    duplicate_of: str | None = None
    """An earlier candidate with the same tree; it is not scored again."""
    request: str = ""
    """Key of the control request, if a human proposed it."""


class HarnessCommitted(Event, frozen=True, kw_only=True):
    """The candidate's commit is in Git under its ref; meta holds `sha`."""

    candidate: str


class HarnessValidated(Event, frozen=True, kw_only=True):
    """The gates before any scoring; an invalid candidate has no score, never 0."""

    candidate: str
    valid: bool
    reason: str = ""


class PhaseStarted(Event, frozen=True, kw_only=True):
    """A phase of a cycle began."""

    cycle: int
    phase: PhaseName


class RolloutsRecorded(Event, frozen=True, kw_only=True):
    """A micro-batch: the unit that is paid once. Its trajectories lie in the artifact."""

    batch: str
    purpose: Purpose
    candidate: str
    weights: str
    artifact: str
    """SHA-256 of the Parquet file, which was on disk before this event."""
    outcomes: list[Outcome]


class StepTrained(Event, frozen=True, kw_only=True):
    """One step of the weight method: of its rollouts some are kept, and θ is updated in at most one pass over these."""

    schema_version: ClassVar[int] = 2

    cycle: int
    step: int
    rollouts: int
    passed: int
    kept: int
    """Rollouts that were trained on: RSFT's S+, GRPO's of questions whose rewards differ, after the filters."""
    dropped: dict[str, int]
    """Rollouts that a rule of the method dropped, by reason; of RSFT's, passed ones only."""
    trained_tokens: int
    """Sum of |I(τ)| over the rollouts kept."""
    updates: int
    """Optimiser updates; 0 when nothing was kept."""
    loss: float | None
    metrics: dict[str, float] = {}
    """The method's own figures, means over the trained tokens before each update; GRPO's: clipped, log_ratio.
    Where a schedule moves it, learning_rate too: that of the step's last update."""
    weights: str
    """Digest of θ after the step."""


class TasksProposed(Event, frozen=True, kw_only=True):
    """Questions of D_weight that are passed have given their places to new ones, from here on."""

    cycle: int
    replaced: dict[str, str]
    """The old task's id -> that of the new one in its place."""
    passed: int
    """Questions that were passed often enough to give up their places, these included."""
    refused: dict[str, int]
    """Why others of them kept their places, by reason: none harder, known, hidden."""
    artifact: str
    """SHA-256 of the new tasks as JSON."""


class StepsRetrained(Event, frozen=True, kw_only=True):
    """Steps that no checkpoint held were trained again from their recorded rollouts, and gave other bits.

    A GPU adds in no fixed order, and another processor in another one. θ goes on from here; what is recorded
    before this event was sampled with the θ that is lost.
    """

    cycle: int
    step: int
    """The last of them."""
    checkpoint: str
    """Where they began; empty: θ0."""
    lost: str
    """Digest of θ after the step, as it was."""
    weights: str
    """Digest of θ after the step, as it is now."""


class CheckpointSaved(Event, frozen=True, kw_only=True):
    """A complete checkpoint folder with this content is on disk."""

    checkpoint: str
    weights: str
    trainer: str
    """Digest over weights and optimiser state."""
    cycle: int
    step: int
    phase_end: bool


class CandidateScored(Event, frozen=True, kw_only=True):
    """All of D_harness is covered for this candidate under these weights."""

    candidate: str
    tree: str
    weights: str
    cycle: int
    iteration: int
    """0 for the incoming harness."""
    n: int
    passed: float
    score: float
    low: float
    high: float
    """95 % Wilson interval of the score."""
    mean_turns: float
    mean_tokens: float
    fabricated: float
    """Share of passes whose answer stands in text that the harness wrote and no tool returned."""
    failures: dict[str, int] = {}


class CandidateStopped(Event, frozen=True, kw_only=True):
    """The acceptance rule ended a scoring early: the candidate cannot win. It has no score and no rank."""

    candidate: str
    tree: str
    weights: str
    cycle: int
    iteration: int
    n: int
    """Rollouts that were paid."""
    passed: float
    saved: int
    """Rollouts of the full scoring that were not."""
    reason: str


class CandidateRescored(Event, frozen=True, kw_only=True):
    """Another scoring on D_harness under fresh seeds: for the noise floor, or because a rule asked for it."""

    candidate: str
    tree: str
    weights: str
    cycle: int
    replicate: int
    """From 1; the first scoring, 0, is `CandidateScored`."""
    purpose: Literal["noise", "rule"]
    n: int
    passed: float
    score: float
    low: float
    high: float
    noise: float
    """SD of one score, estimated from this scoring and the first one."""


class CandidateGuarded(Event, frozen=True, kw_only=True):
    """A guard refuses this candidate for the phase, whatever its score."""

    candidate: str
    cycle: int
    reason: str


class AcceptanceJudged(Event, frozen=True, kw_only=True):
    """What the acceptance rule decided, on which figures; `HarnessAccepted` or `HarnessRetained` follows."""

    cycle: int
    rule: str
    candidate: str
    """The winner: the incoming harness if nothing is accepted."""
    accepted: bool
    reason: str
    challenger: str = ""
    """The best harness that is not the incoming one, to which the figures belong."""
    gain: float | None = None
    """Its paired gain over the incoming harness, with the rule's interval."""
    low: float | None = None
    high: float | None = None
    corrected: float | None = None
    """The gain with the winner's curse taken off."""
    noise: float | None = None
    """The noise floor: SD of one score."""


class ProposerReplied(Event, frozen=True, kw_only=True):
    """One paid reply of a model inside a proposer's session; the artifact holds it as JSON.

    A session that is resumed plays the recorded replies again and pays for none of them twice.
    """

    cycle: int
    iteration: int
    turn: int
    model: str
    artifact: str
    stop_reason: str
    tool_calls: int
    input_tokens: int
    """Neither read from nor written to the cache."""
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    dollars: float
    """By the prices in the config; 0 where there are none."""


class ProposerSessionEnded(Event, frozen=True, kw_only=True):
    """A proposer's session is over and said why; its whole transcript is in the artifact."""

    cycle: int
    iteration: int
    outcome: str
    """"submitted", "gave up", "refusal", "cut", "empty" or "budget: ..."."""
    proposed: int
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    dollars: float
    artifact: str


class IterationCompleted(Event, frozen=True, kw_only=True):
    """Every candidate of the iteration has one recorded outcome."""

    cycle: int
    iteration: int
    outcomes: dict[str, str]
    """candidate -> "scored" | "stopped" | "invalid" | "duplicate"."""
    best: str
    best_score: float
    note: str = ""
    """Why fewer than M candidates came, if so."""


class HarnessAccepted(Event, frozen=True, kw_only=True):
    """The archive's best replaces the accepted harness."""

    cycle: int
    candidate: str
    tree: str
    previous: str
    score: float
    incoming_score: float


class HarnessRetained(Event, frozen=True, kw_only=True):
    """No candidate beat the incoming harness; there is no commit."""

    cycle: int
    candidate: str
    score: float


class HarnessReverted(Event, frozen=True, kw_only=True):
    """A user's revert took effect at a phase boundary; the tree that was left is barred."""

    cycle: int
    candidate: str
    tree: str
    previous: str
    barred: str
    request: str


class HarnessChosen(Event, frozen=True, kw_only=True):
    """A candidate that a user accepted by hand took effect at a phase boundary; nothing is barred."""

    cycle: int
    candidate: str
    tree: str
    previous: str
    request: str


class AcceptanceCommitted(Event, frozen=True, kw_only=True):
    """Git's `accepted` names this harness; meta holds `sha`."""

    serial: int
    """Counts h0, acceptances and reverts from 0."""
    candidate: str
    tree: str


class PhaseEnded(Event, frozen=True, kw_only=True):
    """A phase is complete and says why it ended."""

    schema_version: ClassVar[int] = 2

    cycle: int
    phase: PhaseName
    reason: str
    sampled: int | None = None
    """The sampler's position after a weight phase; None in version 1, where E alone gave it."""


class StageSelected(Event, frozen=True, kw_only=True):
    """A stagewise run's weight budget is used: it goes on from the best training point E*."""

    cycle: int
    weights: str
    checkpoint: str | None
    """None: θ0 was best."""
    score: float


class Evaluated(Event, frozen=True, kw_only=True):
    """Held-out success of a pair (θ, h). Cycle 0 is (θ0, h0)."""

    cycle: int
    split: str
    candidate: str
    tree: str
    weights: str
    n: int
    """Rollouts."""
    tasks: int
    passed: float
    score: float
    low: float
    high: float
    metrics: dict[str, float] = {}


class RunCompleted(Event, frozen=True, kw_only=True):
    """The schedule is through; the pair that validation selected (or the test, with `evaluate.select = "test"`)."""

    reason: str
    cycle: int
    candidate: str
    weights: str
    score: float | None = None


class RunInterrupted(Event, frozen=True, kw_only=True):
    """The runner stopped on a fault of the machine, engine or judge; the run can be resumed."""

    reason: str


class ControlHandled(Event, frozen=True, kw_only=True):
    """The runner's answer to a control request."""

    request: str
    """Key of the request in the control stream."""
    kind: str
    outcome: str
    """"paused", "resumed", "stopped", "scheduled", "queued", "extended", "approved", "declined", "refused",
    "nothing to do"."""
    detail: str = ""


# --- the control stream: appended by the CLI or the TUI, from another process ---


class PauseRequested(Event, frozen=True, kw_only=True):
    """Stop at the next safe point."""

    by: str = ""


class ResumeRequested(Event, frozen=True, kw_only=True):
    """Lift a pause."""

    by: str = ""


class StopRequested(Event, frozen=True, kw_only=True):
    """End the runner's process at the next safe point; `whale resume` goes on."""

    by: str = ""


class PhaseStopRequested(Event, frozen=True, kw_only=True):
    """End the runner's process when the current phase ends; a resume calls it off."""

    by: str = ""


class RevertRequested(Event, frozen=True, kw_only=True):
    """Go back to an earlier harness from the next phase on."""

    candidate: str
    by: str = ""


class AcceptRequested(Event, frozen=True, kw_only=True):
    """Make a candidate the accepted harness by hand, from the next phase on."""

    candidate: str
    by: str = ""


class ApprovalGiven(Event, frozen=True, kw_only=True):
    """A reviewer's answer to the acceptance that waits for one (`approve = "human"`)."""

    candidate: str
    approved: bool
    by: str = ""
    note: str = ""


class NoteAdded(Event, frozen=True, kw_only=True):
    """A user's words on a candidate. Nothing depends on them; the runner need not answer."""

    candidate: str
    text: str
    by: str = ""


class ProposalSubmitted(Event, frozen=True, kw_only=True):
    """A human's harness for the next iteration; `artifact` is the SHA-256 of its files as JSON."""

    artifact: str
    title: str
    hypothesis: str = ""
    by: str = ""


class ExtendRequested(Event, frozen=True, kw_only=True):
    """More cycles after the planned ones."""

    cycles: int
    by: str = ""


def artifact_of(event: Event) -> str | None:
    """The artifact that an event names, if it names one: what a copy of the log needs beside it."""
    return getattr(event, "artifact", None)


EVENT_TYPES: dict[str, type[Event]] = {
    cls.__name__: cls
    for cls in (
        RunStarted, RunForked, HarnessProposed, HarnessCommitted, HarnessValidated, PhaseStarted, RolloutsRecorded,
        StepTrained, CheckpointSaved, CandidateScored, IterationCompleted, HarnessAccepted, HarnessRetained,
        HarnessReverted, HarnessChosen, AcceptanceCommitted, PhaseEnded, StageSelected, Evaluated, RunCompleted,
        RunInterrupted, ControlHandled, PauseRequested, ResumeRequested, StopRequested, PhaseStopRequested,
        RevertRequested, AcceptRequested, NoteAdded, ProposalSubmitted, ExtendRequested, CandidateStopped,
        CandidateRescored, CandidateGuarded, AcceptanceJudged, ProposerReplied, ProposerSessionEnded, ApprovalGiven,
        TasksProposed, StepsRetrained,
    )
}  # fmt: skip
