"""What every screen is: a container that draws the moment that it is shown, and nothing else."""

from typing import TYPE_CHECKING, cast

from textual.containers import Container

from whale.alternation.state import Candidate, State
from whale.tui.lines import LineView
from whale.tui.opened import Moment
from whale.tui.text import Line, Span, cut

if TYPE_CHECKING:
    from whale.tui.app import WhaleApp


class View(Container):
    """A screen of the app. `show` is called when the moment changes while it is in front."""

    @property
    def whale(self) -> "WhaleApp":
        """The app, with its own attributes."""
        return cast("WhaleApp", self.app)

    def show(self, moment: Moment | None) -> None:
        """Draw a moment; None while no run is open."""
        raise NotImplementedError

    def try_again(self) -> None:
        """The user comes to this screen: what could not be read when it was last shown is read again."""

    def main(self) -> LineView:
        """What gets the focus when the screen comes to the front."""
        return self.query(LineView).first()

    def ask_filter(self, text: str) -> None:
        """The text of the filter that the user gave to this screen."""


def pane(view: LineView, title: str) -> LineView:
    """A view with a border and a title in it."""
    view.add_class("pane")
    view.set_title(title)
    return view


SIGNS = {
    "accepted": ("◆", "good"),
    "was": ("◇", "good"),
    "scored": ("●", "info"),
    "invalid": ("✗", "bad"),
    "duplicate": ("=", "muted"),
    "open": ("○", "warn"),
}
"""Fate of a candidate -> sign and role. Sign and word differ, not only the colour."""


def fate(state: State, candidate: Candidate, ever: set[str]) -> str:
    """What became of a candidate, as a key of SIGNS."""
    if candidate.id == state.accepted:
        return "accepted"
    if candidate.id in ever:
        return "was"
    if candidate.duplicate_of:
        return "duplicate"
    if candidate.valid is False:
        return "invalid"
    return "scored" if candidate.scores else "open"


def fate_words(state: State, candidate: Candidate, ever: set[str]) -> Line:
    """The fate in words."""
    kind = fate(state, candidate, ever)
    sign, role = SIGNS[kind]
    words = {
        "accepted": "the accepted harness",
        "was": "was accepted, then replaced",
        "scored": "scored, not accepted",
        "invalid": f"invalid, no score: {candidate.reason}",
        "duplicate": f"the same tree as {candidate.duplicate_of}, not scored again",
        "open": "not scored yet" if candidate.valid else "not checked yet",
    }[kind]
    barred = " · barred: the run was taken back from it" if candidate.tree in state.barred else ""
    return (Span(f"{sign} ", role), Span(cut(words, 300) + barred, role))


def ever_accepted(moment: Moment) -> set[str]:
    """Candidates that were accepted up to the moment."""
    return {
        candidate for position, _, candidate, _ in moment.run.history.facts.acceptances if position <= moment.position
    }
