"""What every part of the app stands on: the open run, the moment that is shown, a word to the user, a question."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from textual import on
from textual.app import App
from textual.widgets import Input

from whale.alternation.state import Candidate, State
from whale.tui.dialogs import Choice
from whale.tui.lines import LineView
from whale.tui.opened import Moment, OpenRun
from whale.tui.text import clean
from whale.tui.views.base import View


class Shell(App[None]):
    """The app's state, and how it speaks with the user."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self.clock = clock
        self.opened: OpenRun | None = None
        self.moment: Moment | None = None
        self.past: int | None = None
        """The event after which the screens show the run; None: now."""
        self.chosen: str | None = None
        """The candidate that Diff, Harness and steering are about."""
        self._answer: Callable[[str], None] | None = None
        self._searched: LineView | None = None

    @property
    def front(self) -> View | None:
        """The screen in front."""
        raise NotImplementedError

    def show_moment(self, moment: Moment | None = None) -> None:
        """Draw a moment, or now, whatever was drawn before."""
        raise NotImplementedError

    def chosen_candidate(self, state: State) -> Candidate | None:
        """The candidate that was chosen, else the accepted one, in this state."""
        for name in (self.chosen, state.accepted):
            if name is not None and name in state.candidates:
                return state.candidates[name]
        return None

    def choose(self, candidate: str) -> None:
        """Diff, Harness and steering are about this candidate from now on."""
        self.chosen = candidate

    def from_thread(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call from a worker; nothing happens where the app has ended meanwhile."""
        if self.is_running:
            try:
                self.call_from_thread(callback, *arguments)
            except (RuntimeError, asyncio.CancelledError):
                if self.is_running:
                    raise

    def tell(self, text: str, severity: str = "information", seconds: float = 5) -> None:
        """A short message, taken as it is."""
        kind: Any = severity
        self.notify(clean(text), severity=kind, markup=False, timeout=seconds)

    def ask(self, prompt: str, answer: Callable[[str], None], initial: str) -> None:
        """Ask for a line of text below the screen."""
        self._answer = answer
        box = self.query_one("#ask", Input)
        box.placeholder = prompt
        box.value = initial
        box.add_class("-shown")
        self.screen.set_focus(box)  # at once: the next key is for it

    @on(Input.Submitted, "#ask")
    def _asked(self, event: Input.Submitted) -> None:
        answer, text = self._answer, event.value
        self._close_ask()
        if answer is not None:
            answer(text)

    @property
    def asking(self) -> bool:
        """Whether a line of text is being asked for."""
        return self.query_one("#ask", Input).has_class("-shown")

    def _close_ask(self) -> None:
        box = self.query_one("#ask", Input)
        if box.has_class("-shown"):
            box.remove_class("-shown")
            self._answer = None
            if box.has_focus and self.front is not None:
                (self._searched or self.front.main()).focus()

    def pick(self, title: str, rows: Sequence[tuple[str, str]], answer: Callable[[str], None]) -> None:
        """Let the user choose one of some rows."""
        self.push_screen(Choice(title, rows), lambda key: answer(str(key)) if key is not None else None)
