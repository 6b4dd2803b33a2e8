"""Time travel: every screen shows the run as it was after an event."""

from textual import work

from whale.errors import WhaleError
from whale.events import LogError
from whale.tui.opened import Moment, OpenRun
from whale.tui.shell import Shell


class Travelling(Shell):
    """Goes to a moment, and comes back to now."""

    _travels = 0
    """Journeys that were begun: one that is overtaken by another does not arrive."""

    def travel_to(self, position: int) -> None:
        """Show the run after event `position` on every screen."""
        if self.opened is None:
            return
        self.past = max(1, position)
        self._travels += 1
        self._travel(self.opened, self.past, self._travels)

    @work(thread=True, exclusive=True, group="travel")
    def _travel(self, run: OpenRun, position: int, number: int) -> None:
        if position > run.history.position:
            run.caught_up.wait(timeout=60)
        try:
            moment = run.moment(min(position, run.history.position))
        except (LogError, WhaleError, ValueError, KeyError) as error:
            self.from_thread(self.tell, f"event {position} cannot be shown: {error}", "error")
            return
        self.from_thread(self._arrive, run, moment, number)

    def _arrive(self, run: OpenRun, moment: Moment, number: int) -> None:
        if run is not self.opened or number != self._travels:
            return
        if moment.live:
            self.past = None
        self.show_moment(moment)

    def action_travel(self, step: int) -> None:
        """One event back or on."""
        if self.moment is not None:
            here = self.past if self.past is not None else self.moment.position
            self.travel_to(here + step)

    def action_travel_phase(self, step: int) -> None:
        """To the start of a phase."""
        if self.moment is None or self.opened is None:
            return
        here = self.past if self.past is not None else self.moment.position
        phases = list(self.opened.history.facts.phases)
        places = [p for p in phases if (p < here if step < 0 else p > here)]
        if places:
            self.travel_to(places[-1] if step < 0 else places[0])
        elif step > 0:
            self.action_live()
        else:
            self.travel_to(1)

    def action_goto(self) -> None:
        """Ask for an event's number."""
        self.ask("show the run after event number", self._goto, "")

    def _goto(self, text: str) -> None:
        if text.strip().isdecimal():
            self.travel_to(int(text))
        else:
            self.tell("give the number of an event", "warning")

    def action_live(self) -> None:
        """Back to now."""
        self.past = None
        self._travels += 1
        self.show_moment()
