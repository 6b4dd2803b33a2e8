"""Proposer: every round of proposals, and what the proposer did in it: its session word by word, and what it cost."""

from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.worker import get_current_worker

from whale.errors import WhaleError
from whale.events import LogError
from whale.events import types as ev
from whale.tui.actions import bindings
from whale.tui.lines import LineView
from whale.tui.opened import Moment
from whale.tui.sessions import Iteration, Session, head_lines, iterations, replies_lines, row, transcript_lines
from whale.tui.text import NOTHING, FixedLines, Line, counted, line, money, wrap
from whale.tui.views.base import View, ever_accepted, pane


class Proposer(View):
    """The rounds, and the one under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("proposer")

    def __init__(self) -> None:
        super().__init__(id="proposer", classes="split")
        self._moment: Moment | None = None
        self._rounds: dict[tuple[int, int], Iteration] = {}
        self._asked: tuple[object, ...] = ()
        self._session: Session | None = None
        self._contents: tuple[bytes, ...] = ()
        """The whole transcript, or the replies of a session that goes on."""
        self._problem = ""

    def compose(self) -> ComposeResult:
        """The list, and the detail pane."""
        yield pane(LineView(id="pr-list", empty="nothing was proposed yet", classes="list"), "proposer")
        yield pane(LineView(id="pr-detail", cursor=False, classes="detail"), "session")

    def show(self, moment: Moment | None) -> None:
        """See `View.show`."""
        self._moment = moment
        view = self.query_one("#pr-list", LineView)
        if moment is None:
            view.set_lines(NOTHING)
            self.query_one("#pr-detail", LineView).set_lines(NOTHING)
            return
        state, facts, ever = moment.state, moment.run.history.facts, ever_accepted(moment)
        sessions = [key for key, positions in list(facts.sessions.items()) if positions[0] <= moment.position]
        rounds = iterations(state, sessions)
        self._rounds = {found.key: found for found in rounds}
        keys = [found.key for found in rounds]
        view.set_lines(lambda width: FixedLines([row(r, state, ever, width) for r in rounds], keys, width=0))
        paid = f" · {money(state.proposer_dollars)}" if state.proposer_dollars else ""
        view.set_title(f"proposer · {counted(len(rounds), 'round')}{paid}")
        view.set_subtitle("◆ accepted ◇ was ● scored ✗ invalid = duplicate ○ open")
        self._detail()

    @on(LineView.Moved, "#pr-list")
    def _moved(self) -> None:
        self._detail(top=True)

    @on(LineView.Chosen, "#pr-list")
    def _enter(self) -> None:
        self.query_one("#pr-detail", LineView).focus()

    def _found(self) -> Iteration | None:
        key = self.query_one("#pr-list", LineView).current
        return self._rounds.get(key) if isinstance(key, tuple) else None

    def _detail(self, *, top: bool = False) -> None:
        moment, found = self._moment, self._found()
        if moment is None or found is None:
            self.query_one("#pr-detail", LineView).set_lines(NOTHING)
            return
        positions = [p for p in moment.run.history.facts.sessions.get(found.key, ()) if p <= moment.position]
        wanted = (moment.run, found.key, tuple(positions))
        if wanted != self._asked:
            if self._asked[:2] != wanted[:2]:
                self._session, self._contents, self._problem = None, (), ""
            self._asked = wanted
            if positions:
                self._load(moment, wanted, tuple(positions))
        self._draw(moment, found, top=top)

    @work(thread=True, exclusive=True, group="session")
    def _load(self, moment: Moment, wanted: tuple[object, ...], positions: tuple[int, ...]) -> None:
        worker = get_current_worker()
        problem = ""
        contents: tuple[bytes, ...] = ()
        replies: list[ev.ProposerReplied] = []
        ended: ev.ProposerSessionEnded | None = None
        seconds = 0.0
        try:
            for position in positions:
                recorded = moment.run.event(position)
                if isinstance(recorded.event, ev.ProposerReplied):
                    replies.append(recorded.event)
                    seconds += float(recorded.meta.get("seconds") or 0.0)
                elif isinstance(recorded.event, ev.ProposerSessionEnded):
                    ended = recorded.event
            names = [ended.artifact] if ended else [reply.artifact for reply in replies]
            contents = tuple(moment.run.source.artifact(name) for name in names)
        except (WhaleError, LogError, IndexError) as error:
            problem = str(error)
        if not worker.is_cancelled:
            session = Session(tuple(replies), seconds, ended)
            self.whale.from_thread(self._ready, wanted, session, contents, problem)

    def _ready(self, wanted: tuple[object, ...], session: Session, contents: tuple[bytes, ...], problem: str) -> None:
        if wanted != self._asked or self._moment is None:
            return  # another round was chosen meanwhile
        self._session, self._contents, self._problem = session, contents, problem
        found = self._found()
        if found is not None:
            self._draw(self._moment, found)

    def try_again(self) -> None:
        """See `View.try_again`."""
        if self._problem:
            self._asked = ()

    def _draw(self, moment: Moment, found: Iteration, *, top: bool = False) -> None:
        view = self.query_one("#pr-detail", LineView)
        view.set_title(f"cycle {found.cycle} · iteration {found.number}")
        state, ever = moment.state, ever_accepted(moment)
        session, contents, problem = self._session, self._contents, self._problem

        def made(width: int) -> FixedLines:
            lines: list[Line] = head_lines(found, session, state, ever, width)
            if problem:
                lines += [line(""), *(line((part, "bad")) for part in wrap(problem, width))]
            elif session is not None and session.ended is not None and contents:
                lines += [line(""), *transcript_lines(contents[0], width)]
            elif contents:
                lines += [line(""), *replies_lines(contents, width)]
            return FixedLines(lines, width=0)

        view.set_lines(made, top=top)

    def action_harness(self) -> None:
        """The round's best candidate as a harness."""
        self._best_on("harness")

    def action_diff(self) -> None:
        """What the round's best candidate changed."""
        self._best_on("diff")

    def _best_on(self, screen: str) -> None:
        found = self._found()
        if found is None or not found.candidates:
            self.app.bell()
            return
        best = max(found.candidates, key=lambda c: c.scores[-1].score if c.scores else -1.0)
        self.whale.choose(best.id)
        self.whale.go(screen)
