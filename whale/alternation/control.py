"""Answers to control requests: a pure function of the state and the request."""

from whale.alternation.schedule import another_round
from whale.alternation.state import State, waits_for_review
from whale.config import Config
from whale.events import types as ev


def answer(state: State, config: Config, key: str, request: ev.Event) -> ev.ControlHandled:
    """The recorded outcome of one request."""

    def handled(kind: str, outcome: str, detail: str = "") -> ev.ControlHandled:
        return ev.ControlHandled(request=key, kind=kind, outcome=outcome, detail=detail)

    done = state.status == "completed"
    match request:
        case ev.PauseRequested():
            return handled("pause", "nothing to do", "the run is complete") if done else handled("pause", "paused")
        case ev.ResumeRequested():
            if done:
                return handled("resume", "nothing to do", "the run is complete")
            return handled("resume", "resumed")
        case ev.StopRequested():
            return handled("stop", "nothing to do", "the run is complete") if done else handled("stop", "stopped")
        case ev.PhaseStopRequested():
            if done:
                return handled("stop", "nothing to do", "the run is complete")
            if state.phase is None:
                return handled("stop", "stopped", "no phase is open")
            return handled("stop", "scheduled", f"when the {state.phase} phase of cycle {state.cycle} ends")
        case ev.RevertRequested(candidate=candidate) | ev.AcceptRequested(candidate=candidate):
            kind = "revert" if isinstance(request, ev.RevertRequested) else "accept"
            known = state.candidates.get(candidate)
            if known is None:
                return handled(kind, "refused", f"no candidate {candidate}")
            if not known.valid:
                return handled(kind, "refused", f"{candidate} is not a valid harness: {known.reason}")
            if known.tree == state.accepted_tree:
                return handled(kind, "nothing to do", f"{candidate} is the accepted harness")
            when = "now" if state.phase is None else f"when the {state.phase} phase of cycle {state.cycle} ends"
            return handled(kind, "scheduled", f"{candidate} takes effect {when}")
        case ev.ApprovalGiven(candidate=candidate, approved=approved):
            waiting = waits_for_review(state)
            if config.search.approve != "human":
                return handled("approve", "refused", 'this run does not wait for a reviewer: approve is not "human"')
            if waiting is None:
                return handled("approve", "refused", "no acceptance waits for an answer")
            if candidate != waiting:
                return handled("approve", "refused", f"what waits for an answer is {waiting}, not {candidate}")
            return handled("approve", "approved" if approved else "declined", candidate)
        case ev.ProposalSubmitted(title=title):
            if done:
                return handled("propose", "refused", "the run is complete: `whale extend` it first")
            if not another_round(state, config):
                return handled("propose", "refused", "the last iteration has begun: `whale extend` the run first")
            return handled("propose", "queued", f"{title}: enters with the next iteration")
        case ev.ExtendRequested(cycles=cycles):
            if cycles < 1:
                return handled("extend", "refused", "give at least one cycle")
            return handled("extend", "extended", f"{cycles} more cycles")
    return handled(type(request).__name__, "refused", "not a request that this release knows")
