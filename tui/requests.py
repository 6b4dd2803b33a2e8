"""What was asked of a run, and what became of it, as lines."""

from whale.events import types as ev
from whale.tui.facts import Facts, Request
from whale.tui.text import Line, Span, cut

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
        case ev.ProposalSubmitted(title=title):
            return f"propose {title}"
        case ev.ExtendRequested(cycles=cycles):
            return f"extend by {cycles} cycles"
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
    """One line a request, newest first."""
    lines: list[Line] = []
    for request in reversed(facts.requests[-200:]):
        if request.position > until:
            continue
        sign, text, role = outcome(facts, request, until)
        by = getattr(request.event, "by", "")
        tail = f"  #{request.position} {request.at[11:16]}{' by ' + by if by else ''}"
        asked = cut(words(request.event), max(12, width // 2))
        lines.append(
            (
                Span(f"{sign} ", role),
                Span(asked, "strong"),
                Span(f"  {cut(text, max(10, width - len(asked) - 4 - len(tail)))}", role),
                Span(tail, "muted"),
            )
        )
    return lines
