"""What an event says in a few words, and how it stands out in a list."""

from whale.events import Recorded
from whale.events import types as ev
from whale.tui.requests import words
from whale.tui.text import money, share

ROLES = {
    "PhaseStarted": "title", "PhaseEnded": "title", "RunStarted": "title", "RunCompleted": "title",
    "RunForked": "title", "HarnessAccepted": "good", "HarnessChosen": "good", "HarnessReverted": "warn",
    "AcceptanceCommitted": "good", "CandidateScored": "accent", "Evaluated": "accent", "StepTrained": "accent",
    "AcceptanceJudged": "accent", "RunInterrupted": "bad", "CandidateGuarded": "warn", "CandidateStopped": "warn",
    "ControlHandled": "info", "PauseRequested": "info", "ResumeRequested": "info", "StopRequested": "info",
    "PhaseStopRequested": "info", "RevertRequested": "info", "AcceptRequested": "info", "NoteAdded": "info",
    "ProposalSubmitted": "info", "ExtendRequested": "info", "ApprovalGiven": "info", "StepsRetrained": "warn",
}  # fmt: skip
"""Type of an event -> role."""


def gist(recorded: Recorded) -> str:
    """What an event says, in a few words."""
    event = recorded.event
    if recorded.stream == "control":
        by = getattr(event, "by", "")
        return words(event) + (f", by {by}" if by else "")
    return _of_candidates(event) or _of_rollouts(event) or _of_the_run(event) or recorded.key


def _of_candidates(event: ev.Event) -> str:
    match event:
        case ev.HarnessProposed(candidate=c, title=title):
            return f"{c} {title}"
        case ev.HarnessCommitted(candidate=c):
            return c
        case ev.HarnessValidated(candidate=c, valid=valid, reason=reason):
            return f"{c} {'valid' if valid else 'invalid: ' + reason}"
        case ev.CandidateScored(candidate=c, score=score, n=n):
            return f"{c} {share(score)} of {n}"
        case ev.CandidateStopped(candidate=c, n=n, saved=saved, reason=reason):
            return f"{c} after {n} rollouts, {saved} saved: {reason}"
        case ev.CandidateRescored(candidate=c, replicate=r, score=score, n=n, purpose=purpose):
            return f"{c} {share(score)} of {n}, scoring {r + 1}, for the {purpose}"
        case ev.CandidateGuarded(candidate=c, reason=reason):
            return f"{c}: {reason}"
        case ev.ProposerReplied(turn=turn, tool_calls=calls, output_tokens=written, dollars=dollars):
            paid = f", {money(dollars)}" if dollars else ""
            return f"turn {turn}: {calls} tool call{'s' if calls != 1 else ''}, {written} tokens written{paid}"
        case ev.ProposerSessionEnded(outcome=outcome, proposed=proposed, turns=turns, dollars=dollars):
            paid = f", {money(dollars)}" if dollars else ""
            return f"{outcome}: {proposed} proposed in {turns} turns{paid}"
        case ev.AcceptanceJudged(candidate=c, accepted=accepted, rule=rule, reason=reason):
            return f"{rule}: {'accept' if accepted else 'keep'} {c}, {reason}"
        case ev.HarnessAccepted(candidate=c, previous=previous, score=score, incoming_score=incoming):
            return f"{previous} → {c}, {share(incoming)} → {share(score)}"
        case ev.HarnessRetained(candidate=c, score=score):
            return f"{c} stays, {share(score)}"
        case ev.HarnessReverted(candidate=c, previous=previous):
            return f"{previous} → {c}, {previous} is barred"
        case ev.HarnessChosen(candidate=c, previous=previous):
            return f"{previous} → {c} by hand"
        case ev.AcceptanceCommitted(candidate=c, serial=serial):
            return f"{c} is number {serial} on `accepted`"
    return ""


def _of_rollouts(event: ev.Event) -> str:
    match event:
        case ev.RolloutsRecorded(purpose=purpose, candidate=c, outcomes=outcomes):
            return f"{sum(o.reward > 0 for o in outcomes)} of {len(outcomes)} passed: {purpose} {c}"
        case ev.StepTrained(cycle=cycle, step=step, passed=passed, rollouts=rollouts, loss=loss):
            tail = "" if loss is None else f", loss {loss:.4f}"
            return f"cycle {cycle} step {step}: {passed} of {rollouts} passed{tail}"
        case ev.StepsRetrained(cycle=cycle, step=step, lost=lost, weights=weights):
            return f"cycle {cycle} step {step}: θ {lost[:8]} is lost, trained again {weights[:8]}"
        case ev.CheckpointSaved(checkpoint=checkpoint, cycle=cycle, step=step):
            return f"{checkpoint[:12]} cycle {cycle} step {step}"
        case ev.IterationCompleted(cycle=cycle, iteration=i, best=best, best_score=score):
            return f"best {best} {share(score)}, cycle {cycle} iteration {i}"
        case ev.Evaluated(split=split, candidate=c, score=score, n=n):
            return f"{c} {split} {share(score)} of {n}"
        case ev.StageSelected(score=score, weights=weights):
            return f"θ {weights[:8]}, {share(score)}"
    return ""


def _of_the_run(event: ev.Event) -> str:
    match event:
        case ev.RunStarted(name=name):
            return name
        case ev.RunForked(name=name, origin=origin):
            return f"{name}, from {origin.run} after event {origin.position}"
        case ev.TasksProposed(cycle=cycle, replaced=replaced, passed=passed):
            return f"cycle {cycle}: {len(replaced)} of {passed} passed questions gave way to harder ones"
        case ev.PhaseStarted(cycle=cycle, phase=phase):
            return f"cycle {cycle} {phase}"
        case ev.PhaseEnded(cycle=cycle, phase=phase, reason=reason):
            return f"cycle {cycle} {phase}: {reason}"
        case ev.RunCompleted(reason=reason, candidate=c, score=score):
            return f"{reason}: {c}" + (f" {share(score)}" if score is not None else "")
        case ev.RunInterrupted(reason=reason):
            return reason
        case ev.ControlHandled(kind=kind, outcome=outcome, detail=detail):
            return f"{kind}: {outcome}{': ' if detail else ''}{detail}"
    return ""
