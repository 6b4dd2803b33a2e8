"""What was asked of a run, and what became of it, as lines."""

from rich.cells import cell_len

from whale.events import types as ev
from whale.tui.facts import Facts, Request
from whale.tui.text import Line, Span, cut, fit

_SIGNS = {"refused": ("✗", "bad"), "nothing to do": ("–", "muted")}


def words(event: ev.Event) -> str:
    """A request in words."""
    match event:
        case ev.PauseRequested():
            return "pause"
        case ev.ResumeRequested():
            return "resume"
        case ev.StopRequested():
            return "stop"
        case ev.PhaseStopRequested():
            return "stop after this phase"
        case ev.RevertRequested(candidate=candidate):
            return f"revert to {candidate}"
        case ev.AcceptRequested(candidate=candidate):
            return f"accept {candidate}"
        case ev.ApprovalGiven(candidate=candidate, approved=approved, note=why):
            return f"{'approve' if approved else 'decline'} {candidate}" + (f": {why}" if why else "")
        case ev.ProposalSubmitted(title=title):
            return f"propose {title}"
        case ev.ExtendRequested(cycles=cycles):
            return f"extend by {cycles} cycle{'s' if cycles != 1 else ''}"
        case ev.NoteAdded(candidate=candidate, text=text):
            return f"note on {candidate}: {text}"
    return type(event).__name__


def outcome(facts: Facts, request: Request, until: int) -> tuple[str, str, str]:
    """(sign, words, role) of what became of a request up to a position."""
    if isinstance(request.event, ev.NoteAdded):
        return "✓", "recorded", "good"
    answered = facts.answers.get(request.key)
    if answered is None or answered[0] > until:
        return "…", "waits for the runner", "warn"
    handled = answered[1]
    sign, role = _SIGNS.get(handled.outcome, ("✓", "good"))
    return sign, handled.outcome + (f": {handled.detail}" if handled.detail else ""), role


def request_lines(facts: Facts, until: int, width: int) -> list[Line]:
    """One line a request, newest first: what was asked, what became of it, when and by whom."""
    shown = [request for request in reversed(facts.requests[-200:]) if request.position <= until]
    asked = [words(request.event) for request in shown]
    column = min(max(map(cell_len, asked), default=0), max(8, width // 2 - 8))
    lines: list[Line] = []
    for request, what in zip(shown, asked, strict=True):
        sign, text, role = outcome(facts, request, until)
        by = getattr(request.event, "by", "")
        tail = f" {request.at[11:16]}{' ' + cut(by, 12) if by else ''} #{request.position}"
        room = width - column - 4 - cell_len(tail)
        if room < 12 < width - column - 4:  # no room for both: the outcome counts
            room, tail = width - column - 4, ""
        lines.append(
            (
                Span(f"{sign} ", role),
                Span(fit(what, column) + "  ", "strong"),
                Span(fit(text, max(0, room)), role),
                Span(tail, "muted"),
            )
        )
    return lines


def told(handled: ev.ControlHandled) -> str:
    """An answer as a short message to who asked."""
    match handled.kind, handled.outcome:
        case _, "paused":
            return "paused at a safe point"
        case _, "resumed":
            return "the run goes on"
    return f"{handled.kind}: {handled.outcome}{': ' if handled.detail else ''}{handled.detail}"
