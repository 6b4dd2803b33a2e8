"""Steering: what an act would do, in words, before it is done; and the request or command that does it. Pure."""

from dataclasses import dataclass

from whale.alternation.state import waits_for_review
from whale.events import types as ev
from whale.tui.opened import Moment


@dataclass(frozen=True, slots=True)
class Plan:
    """An act that can be confirmed."""

    title: str
    consequences: tuple[str, ...] = ()
    event: ev.Event | None = None
    """The request to record, or"""
    command: tuple[str, ...] = ()
    """the arguments of the `whale` command to start in a process of its own."""
    background: bool = False
    """The command goes on after the app has been closed."""
    refused: str = ""
    """Why it cannot be done; then nothing else counts."""
    ask: bool = True
    """Ask before doing it."""
    diff: tuple[str, str] | None = None
    """Trees whose diff is shown with the question."""
    yes: str = "do it"
    no: str = ""
    """What declining does, where it is an answer too; `declined` is then the request."""
    declined: ev.Event | None = None
    leave: str = "leave it as it is"


def pause(moment: Moment, by: str) -> Plan:
    """Pause a running run; go on with one that does not run."""
    state = moment.run.history.state
    if moment.run.damaged:
        return Plan("pause", refused=f"no runner can go on with this log: {moment.run.problem}")
    if state.status == "completed" and not state.requests:
        return Plan("pause", refused="the run is complete: `whale extend` adds cycles")
    paused = state.status in ("paused", "stopped")
    if moment.runner is not None or moment.run.source.run is None:
        if paused:
            return Plan("resume", event=ev.ResumeRequested(by=by), ask=False)
        return Plan("pause", event=ev.PauseRequested(by=by), ask=False)
    name = moment.run.source.run
    return Plan(
        "Go on with the run",
        (
            "No process runs this run now.",
            "This starts `whale resume` in the background. It goes on when the app is closed; "
            "what it prints goes to runner.out in the run's folder.",
        ),
        command=("resume", name, "--quiet"),
        background=True,
        yes="start it",
    )


def stop(moment: Moment, by: str, *, after_phase: bool) -> Plan:
    """End the runner's process."""
    if moment.run.history.state.status == "completed":
        return Plan("stop", refused="the run is complete")
    if moment.runner is None and moment.run.source.run is not None:
        return Plan("stop", refused="no process runs this run")
    return Plan("stop", event=ev.PhaseStopRequested(by=by) if after_phase else ev.StopRequested(by=by), ask=False)


def change_harness(moment: Moment, candidate: str | None, by: str, *, revert: bool) -> Plan:
    """Go back to a harness, or accept one by hand. The run as it is now counts, not a past moment."""
    state = moment.run.history.state
    verb = "revert" if revert else "accept"
    if candidate is None or candidate not in state.candidates:
        return Plan(verb, refused="choose a candidate under 3 Lineage first")
    target = state.candidates[candidate]
    if target.valid is False:
        return Plan(verb, refused=f"{candidate} is not a valid harness: {target.reason}")
    if target.valid is None:
        return Plan(verb, refused=f"{candidate} has not been checked yet")
    if target.tree == state.accepted_tree:
        return Plan(verb, refused=f"{candidate} is the accepted harness already")
    when = "at once" if state.phase is None else f"when the {state.phase} phase of cycle {state.cycle} ends"
    score = f"its last score: {100 * target.scores[-1].score:.1f} %" if target.scores else "it was never scored"
    left = state.accepted or "none"
    lines = [
        f"{left} → {candidate}, {when}; {score}.",
        "Git gets a new commit on `accepted`; no history is rewritten. The weights stay as they are.",
    ]
    if revert:
        lines.append(f"The tree of {left} is barred: it is not accepted again until it is chosen by hand.")
        event: ev.Event = ev.RevertRequested(candidate=candidate, by=by)
    else:
        lines.append("Nothing is barred: the next harness phase may take it back if something scores higher.")
        event = ev.AcceptRequested(candidate=candidate, by=by)
    lines.append("Every table of this run will say that a human intervened.")
    command: tuple[str, ...] = ()
    if state.status == "completed" and moment.runner is None and moment.run.source.run is not None:
        # Nobody answers for a completed run: the command line does, in a process that may load what it needs.
        command = (verb, moment.run.source.run, candidate, "--yes")
    elif moment.runner is None and moment.run.source.run is not None:
        lines.append("No process runs this run: it takes effect when the run goes on.")
    title = f"Revert to {candidate}?" if revert else f"Accept {candidate} by hand?"
    return Plan(
        title, tuple(lines), None if command else event, command, diff=(state.accepted_tree, target.tree), yes=verb
    )


def review(moment: Moment, by: str) -> Plan:
    """Answer the acceptance that waits for a reviewer."""
    state = moment.run.history.state
    waiting, verdict = waits_for_review(state), state.verdict
    if waiting is None or verdict is None:
        return Plan("answer", refused="nothing waits for a reviewer")
    target, incoming = state.candidates[waiting], state.accepted or "none"
    lines = [f"{incoming} → {waiting}: {target.title}", f"The rule {verdict.rule} accepts it: {verdict.reason}."]
    if verdict.gain is not None and verdict.low is not None and verdict.high is not None:
        lines.append(
            f"Gain over {incoming} on the same tasks: {100 * verdict.gain:+.1f} points, "
            f"interval [{100 * verdict.low:+.1f}, {100 * verdict.high:+.1f}]."
        )
    if target.hypothesis:
        lines.append(f"Hypothesis: {target.hypothesis}")
    lines.append(f"The run waits for the answer. Declined, {incoming} stays the accepted harness of this cycle.")
    if moment.runner is None and moment.run.source.run is not None:
        lines.append("No process runs this run: the answer takes effect when it goes on.")
    return Plan(
        f"Accept {waiting}?",
        tuple(lines),
        event=ev.ApprovalGiven(candidate=waiting, approved=True, by=by),
        declined=ev.ApprovalGiven(candidate=waiting, approved=False, by=by),
        diff=(state.accepted_tree, target.tree),
        yes=f"accept {waiting}",
        no=f"keep {incoming}",
        leave="answer later",
    )


def note(moment: Moment, candidate: str, text: str, by: str) -> Plan:
    """Words on a candidate."""
    if candidate not in moment.run.history.state.candidates:
        return Plan("note", refused="choose a candidate under 3 Lineage first")
    if not text.strip():
        return Plan("note", refused="an empty note says nothing")
    return Plan("note", event=ev.NoteAdded(candidate=candidate, text=text.strip(), by=by), ask=False)


def fork(moment: Moment, name: str) -> Plan:
    """A new run from the moment that is shown."""
    run = moment.run.source.run
    if run is None:
        return Plan("fork", refused="the run's folder is not here: fork it on its own machine")
    if not name.strip():
        return Plan("fork", refused="a new run needs a name")
    return Plan(
        f"Fork a new run {name} from event {moment.position}?",
        (
            f"Copies the first {moment.position} of {moment.head} events, and what they name, into a run of its own.",
            f"{moment.run.source.name} is not changed. The new run says where it comes from.",
        ),
        command=("fork", run, "--at", str(moment.position), "--name", name.strip()),
        yes="fork it",
        leave="leave it",
    )
