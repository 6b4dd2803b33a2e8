"""The app: one header, one row of tabs, the screen in front, one row of keys. It reads, and steers by requests."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual import on, work
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Input

from whale.alternation.requests import append_request, user
from whale.alternation.state import Candidate, State
from whale.errors import WhaleError
from whale.events import LogError
from whale.tui import steering, themes
from whale.tui.actions import ACTIONS, bindings, help_rows, key_file
from whale.tui.bars import head_parts, key_parts, past_parts, tab_parts
from whale.tui.dialogs import Choice, Dialog, Question, help_lines
from whale.tui.difflines import UnifiedLines, parse
from whale.tui.highlight import Painter
from whale.tui.lines import LineBar, LineView
from whale.tui.opened import Moment, OpenRun
from whale.tui.requests import request_lines
from whale.tui.source import RunSource
from whale.tui.text import FixedLines, Line, Lines, line, wrap
from whale.tui.views import VIEWS
from whale.tui.views.base import View

TICK = 0.25
"""Seconds between looks at what was read."""

LOCAL = {"runs", "lineage", "diff", "harness", "rollouts", "events", "compare"}


def make_view(name: str) -> View:
    """A screen, imported when it is first shown."""
    from importlib import import_module

    if name == "overview":
        from whale.tui.views.overview import Overview

        return Overview(id="overview")
    kind: Callable[[], View] = getattr(import_module(f"whale.tui.views.{name}"), name.capitalize())
    return kind()


class WhaleApp(App[None]):
    """The terminal app on one run, or on the list of runs."""

    TITLE = "whale"
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (16, "-medium"), (34, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = bindings("app", "go", "time", "steer")

    def __init__(
        self,
        source: RunSource | None = None,
        *,
        view: str | None = None,
        at: int | None = None,
        keys: dict[str, str] | None = None,
        theme: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Show `source`, or the list of runs; `view` in front; the moment after event `at`."""
        super().__init__()
        self.run_to_open = source
        self.first_view = view or ("overview" if source is not None else "runs")
        self.first_at = at
        self.keys = keys or {}
        self.wanted_theme = theme
        self.clock = clock
        self.opened: OpenRun | None = None
        self.moment: Moment | None = None
        self.past: int | None = None
        """The event after which the screens show the run; None: now."""
        self.chosen: str | None = None
        """The candidate that Diff, Harness and steering are about."""
        self.views: dict[str, View] = {}
        self._answer: Callable[[str], None] | None = None
        self._searched: LineView | None = None
        self._drawn: tuple[Any, ...] = ()
        self._waiting: set[str] = set()
        """Requests of this session without an answer yet."""
        self._travels = 0

    # --- set-up ---

    def compose(self) -> ComposeResult:
        """The frame; screens are made when they are first shown."""
        yield LineBar(id="head")
        yield LineBar(id="tabs")
        yield LineBar(id="banner")
        yield LineBar(id="past")
        yield ContentSwitcher(id="views")
        yield Input(id="ask", compact=True)
        yield LineBar(id="keys")

    async def on_mount(self) -> None:
        """Open what was asked for."""
        self.set_keymap(self.keys)
        # The threads that read logs must give way to a key within a frame, not after Python's 5 ms a switch.
        sys.setswitchinterval(0.0005)
        self.register_theme(themes.WHALE)
        self.register_theme(themes.WHALE_LIGHT)
        self.theme = self.wanted_theme or (themes.ANSI if os.environ.get("NO_COLOR") else themes.DEFAULT)
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self._draw_keys())
        if self.run_to_open is not None:
            self.open(self.run_to_open)
            self.past = self.first_at
        await self._front(self.first_view)
        self.set_interval(TICK, self.tick)
        self.tick()
        if self.first_at is not None:
            self.travel_to(self.first_at)

    def open(self, source: RunSource) -> None:
        """Look at another run."""
        if self.opened is not None:
            if self.opened.source.where == source.where:
                return
            self.opened.close()
        self.opened = OpenRun(source, self.clock)
        # The first frame comes before the log: a long one would keep it waiting.
        self.call_after_refresh(self.opened.start)
        self.moment, self.past, self.chosen, self._drawn = None, None, None, ()
        self._waiting.clear()

    def on_unmount(self) -> None:
        """Leave no thread behind."""
        if self.opened is not None:
            self.opened.close()

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
        from whale.tui.text import clean

        kind: Any = severity
        self.notify(clean(text), severity=kind, markup=False, timeout=seconds)

    # --- what is shown ---

    def tick(self) -> None:
        """Show what was read since the last look."""
        run = self.opened
        if run is None:
            self._draw_frame()
            return
        if self.past is None:
            moment = run.moment()
        elif self.moment is not None:
            moment = replace(self.moment, head=run.history.position)
        else:
            return
        seen = (run, moment.position, moment.head, moment.status, moment.runner, run.problem, run.caught_up.is_set())
        if seen != self._drawn:
            self._drawn = seen
            self._show(moment)
        self._tell_outcomes(run)

    def _show(self, moment: Moment) -> None:
        self.moment = moment
        self._draw_frame()
        front = self.front
        if front is not None:
            front.show(moment)

    def _draw_frame(self) -> None:
        width = self.size.width - 2
        self.query_one("#head", LineBar).set_parts(head_parts(self.opened, self.moment, width))
        current = self.query_one("#views", ContentSwitcher).current or ""
        tabs = tab_parts(current, width)
        targets = {n: partial(self.action_go, name) for n, name in zip(range(0, 99, 2), VIEWS, strict=False)}
        self.query_one("#tabs", LineBar).set_parts(tabs, targets)
        problem = self.opened.problem if self.opened is not None else ""
        banner = self.query_one("#banner", LineBar)
        banner.set_class(bool(problem), "-shown")
        if problem:
            here = self.opened.history.position if self.opened is not None else 0
            shown = f" · what was read before it is shown ({here} events)" if here else ""
            banner.set_lines(lambda inner: FixedLines([line((p, "bad")) for p in wrap(f"! {problem}{shown}", inner)]))
        past = self.query_one("#past", LineBar)
        travelling = self.moment is not None and not self.moment.live
        past.set_class(travelling, "-shown")
        if self.moment is not None and travelling:
            past.set_parts(past_parts(self.moment, width))

    def _draw_keys(self) -> None:
        if not self.is_running or len(self.screen_stack) != 1:
            return
        if isinstance(self.focused, Input):
            self.query_one("#keys", LineBar).set_parts(line((" ⏎", "key"), " done ", (" esc", "key"), " leave it"))
            return
        parts, targets = key_parts(self.screen.active_bindings, self.size.width - 2, self.get_key_display)
        calls = {n: partial(self.simulate_key, key) for n, key in targets.items()}
        self.query_one("#keys", LineBar).set_parts(parts, calls)

    def watch_theme(self, theme: str) -> None:
        """The style sheet knows whether the terminal's own colours are used."""
        self.set_class(theme.startswith("ansi"), "-ansi-look")

    def on_resize(self) -> None:
        """The frame depends on the width."""
        self._draw_frame()
        self._draw_keys()

    @property
    def front(self) -> View | None:
        """The screen in front."""
        current = self.query_one("#views", ContentSwitcher).current
        return self.views.get(current) if current else None

    async def _front(self, name: str) -> None:
        switcher = self.query_one("#views", ContentSwitcher)
        if name not in self.views:
            self.views[name] = make_view(name)
            await switcher.mount(self.views[name])
        switcher.current = name
        self._draw_frame()
        view = self.views[name]
        view.show(self.moment)
        view.main().focus()

    def go(self, name: str) -> None:
        """Bring a screen to the front, once what is being handled is done."""
        self.call_later(self._front, name)

    def action_go(self, name: str) -> None:
        """A key's way to `go`."""
        self._close_ask()
        self.go(name)

    def chosen_candidate(self, state: State) -> Candidate | None:
        """The candidate that was chosen, else the accepted one, in this state."""
        for name in (self.chosen, state.accepted):
            if name is not None and name in state.candidates:
                return state.candidates[name]
        return None

    def choose(self, candidate: str) -> None:
        """Diff, Harness and steering are about this candidate from now on."""
        self.chosen = candidate

    def show_rollouts(self, candidate: str | None = None) -> None:
        """The rollouts of one harness."""
        self.call_later(self._show_rollouts, candidate)

    async def _show_rollouts(self, candidate: str | None) -> None:
        from whale.tui.views.rollouts import Rollouts

        await self._front("rollouts")
        view = self.views["rollouts"]
        assert isinstance(view, Rollouts)
        view.set_filter(candidate=candidate)

    def compare_with(self, source: RunSource) -> None:
        """The open run beside another one."""
        self.call_later(self._compare_with, source)

    async def _compare_with(self, source: RunSource) -> None:
        from whale.tui.views.compare import Compare

        await self._front("compare")
        view = self.views["compare"]
        assert isinstance(view, Compare)
        view.choose(source)

    # --- time travel ---

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
        self._drawn = ()
        self._show(moment)

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
        self._drawn = ()
        self.tick()

    # --- asking, searching, copying ---

    def ask(self, prompt: str, answer: Callable[[str], None], initial: str) -> None:
        """Ask for a line of text below the screen."""
        self._answer = answer
        box = self.query_one("#ask", Input)
        box.placeholder = prompt
        box.value = initial
        box.add_class("-shown")
        box.focus()

    @on(Input.Submitted, "#ask")
    def _asked(self, event: Input.Submitted) -> None:
        answer, text = self._answer, event.value
        self._close_ask()
        if answer is not None:
            answer(text)

    def _close_ask(self) -> None:
        box = self.query_one("#ask", Input)
        if box.has_class("-shown"):
            box.remove_class("-shown")
            self._answer = None
            if box.has_focus and self.front is not None:
                (self._searched or self.front.main()).focus()

    def action_escape(self) -> None:
        """Close what is open, from the inside out: question, search, filter, past."""
        box = self.query_one("#ask", Input)
        focused = self.focused
        if box.has_class("-shown"):
            self._close_ask()
        elif isinstance(focused, LineView) and focused.needle:
            focused.search("")
        elif self.front is not None and bool(getattr(self.front, "filter", None)):
            self.front.ask_filter("")
        elif self.past is not None:
            self.action_live()

    def action_search(self) -> None:
        """Ask what to search for."""
        focused = self.focused
        self._searched = focused if isinstance(focused, LineView) else self.front.main() if self.front else None
        if self._searched is not None:
            self.ask("search", self._search, "")

    def _search(self, text: str) -> None:
        view = self._searched
        if view is None:
            return
        view.search(text)
        if text:
            self._find(view, view.index if view.with_cursor else int(view.scroll_offset.y), 1)

    def action_search_next(self, step: int) -> None:
        """The next match, or the one before."""
        view = self.focused
        if isinstance(view, LineView) and view.needle and len(view.lines):
            here = view.index if view.with_cursor else int(view.scroll_offset.y)
            self._find(view, (here + step) % len(view.lines), step)

    @work(thread=True, exclusive=True, group="search")
    def _find(self, view: LineView, start: int, step: int) -> None:
        from textual.worker import get_current_worker

        worker = get_current_worker()
        try:
            found = view.found_from(start, step, stop=lambda: worker.is_cancelled)
        except (LogError, WhaleError, IndexError) as error:
            self.from_thread(self.tell, str(error), "error")
            return
        if worker.is_cancelled:
            return
        if found is None:
            self.from_thread(self.tell, f"not found: {view.needle}", "warning")
        else:
            self.from_thread(lambda: view.move_to(found, centre=True))

    def action_copy(self) -> None:
        """Copy the line, or the text, to the clipboard."""
        view = self.focused if isinstance(self.focused, LineView) else self.front.main() if self.front else None
        text = view.copied() if view is not None else ""
        if text:
            self.copy_to_clipboard(text)
            lines = text.count("\n") + 1
            self.tell(f"copied {lines} line{'s' if lines != 1 else ''}")

    def pick(self, title: str, rows: Sequence[tuple[str, str]], answer: Callable[[str], None]) -> None:
        """Let the user choose one of some rows."""
        self.push_screen(Choice(title, rows), lambda key: answer(str(key)) if key is not None else None)

    def action_keys(self) -> None:
        """All keys that work here."""
        front = self.query_one("#views", ContentSwitcher).current or ""
        scopes = {"app", "go", "time", "steer", "list", front}
        groups = help_rows(self.keys, scopes)
        groups.sort(key=lambda group: 0 if group[0].lower() == front else 1)
        self.push_screen(Dialog("keys", lambda width: FixedLines(help_lines(groups, str(key_file()), width), width=0)))

    def action_outcomes(self) -> None:
        """What was asked for, and what became of it."""
        if self.opened is None:
            return
        facts, head = self.opened.history.facts, self.opened.history.position

        def made(width: int) -> Lines:
            return FixedLines(request_lines(facts, head, width) or [line(("nothing was asked for yet", "muted"))])

        self.push_screen(Dialog("requests and their outcomes", made))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The command palette: every action that works everywhere, and Textual's own."""
        for action in ACTIONS:
            if action.scope in ("app", "go", "time", "steer") and action.id != "app.palette":

                async def act(call: str = action.call) -> None:
                    await self.run_action(call)

                yield SystemCommand(f"{action.scope}: {action.label}", action.help, act)

    # --- steering ---

    def action_steer(self, act: str) -> None:
        """Begin an act of steering."""
        moment = self.moment
        if moment is None:
            self.tell("open a run first", "warning")
            return
        chosen = self.chosen_candidate(moment.run.history.state)
        name = chosen.id if chosen is not None else None
        if act == "pause":
            self._carry_out(steering.pause(moment, user()))
        elif act == "stop":
            rows = [("phase", "after this phase"), ("now", "at the next safe point")]
            self.pick(
                "End the runner's process when?",
                rows,
                lambda when: self._carry_out(steering.stop(moment, user(), after_phase=when == "phase")),
            )
        elif act in ("revert", "accept"):
            self._carry_out(steering.change_harness(moment, self.chosen, user(), revert=act == "revert"))
        elif act == "note" and name is not None:
            self.ask(f"note on {name}", lambda text: self._carry_out(steering.note(moment, name, text, user())), "")
        elif act == "fork":
            suggestion = f"{moment.run.source.name}-{moment.position}"
            self.ask(
                f"name of the new run, forked after event {moment.position}",
                lambda text: self._carry_out(steering.fork(moment, text)),
                suggestion,
            )

    def _carry_out(self, plan: steering.Plan) -> None:
        if plan.refused:
            self.tell(f"{plan.title}: {plan.refused}", "warning")
        elif plan.ask:
            self._question(plan)
        else:
            self._do(plan)

    @work(thread=True, exclusive=True, group="question")
    def _question(self, plan: steering.Plan) -> None:
        diff: UnifiedLines | None = None
        words = ""
        if plan.diff is not None and self.opened is not None:
            try:
                diff = UnifiedLines(parse(self.opened.diff(*plan.diff)), Painter)
            except WhaleError as error:
                words = str(error)

        def made(width: int) -> Lines:
            lines: list[Line] = [line(part) for text in plan.consequences for part in wrap(text, width)]
            if words:
                lines += [line((part, "warn")) for part in wrap(words, width)]
            if diff is not None:
                lines += [line(""), *(diff.line(i, width) for i in range(min(len(diff), 2000)))]
            return FixedLines(lines)

        def answered(yes: object) -> None:
            if yes:
                self._do(plan)

        question = Question(plan.title, made, "do it", danger=plan.diff is not None)
        self.from_thread(lambda: self.push_screen(question, answered))

    @work(thread=True, group="steer")
    def _do(self, plan: steering.Plan) -> None:
        run = self.opened
        if run is None:
            return
        if plan.command:
            self._command(run, plan)
            return
        assert plan.event is not None
        try:
            with run.source.open_log(readonly=False) as log:
                key = append_request(log, plan.event)
        except (WhaleError, LogError) as error:
            self.from_thread(self.tell, f"{plan.title}: {error}", "error")
            return
        self._waiting.add(key)
        if plan.title == "note":
            self.from_thread(self.tell, "note recorded")
        else:
            self.from_thread(self.tell, f"{plan.title}: asked", "information", 2)

    def _command(self, run: OpenRun, plan: steering.Plan) -> None:
        """Start the command line in a process of its own."""
        command = [sys.executable, "-m", "whale", *plan.command]
        # Not this terminal's: its size, and a colour setting, are no business of a background process.
        try:
            if plan.background:
                with (Path(run.source.where) / "runner.out").open("ab") as out:
                    subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
                    )  # fmt: skip
                self.from_thread(self.tell, f"started: whale {' '.join(plan.command)}")
                return
            self.from_thread(self.tell, f"whale {' '.join(plan.command)} …")
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
        except (OSError, subprocess.TimeoutExpired) as error:
            self.from_thread(self.tell, f"{plan.title}: {error}", "error")
            return
        said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
        text = said[-1] if said else "done" if done.returncode == 0 else f"exit code {done.returncode}"
        self.from_thread(self.tell, text, "information" if done.returncode == 0 else "error")

    def _tell_outcomes(self, run: OpenRun) -> None:
        for key in list(self._waiting):
            answered = run.history.facts.answers.get(key)
            if answered is not None:
                self._waiting.discard(key)
                handled = answered[1]
                words = f"{handled.kind}: {handled.outcome}{': ' if handled.detail else ''}{handled.detail}"
                self.tell(words, "warning" if handled.outcome == "refused" else "information")
