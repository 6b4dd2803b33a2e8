"""The app: one header, one row of tabs, the screen in front, one row of keys. It reads, and steers by requests."""

import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.filter import Monochrome, NoColor
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Input

from whale.alternation.state import waits_for_review
from whale.tui import themes
from whale.tui.acting import Acting
from whale.tui.actions import ACTIONS, bindings, first_key, help_rows, key_file
from whale.tui.bars import head_parts, key_parts, past_parts, tab_parts
from whale.tui.dialogs import Dialog, help_lines
from whale.tui.lines import LineBar, LineView, Palette
from whale.tui.opened import Moment, OpenRun
from whale.tui.searching import Searching
from whale.tui.source import RunSource
from whale.tui.text import FixedLines, line, wrap
from whale.tui.travelling import Travelling
from whale.tui.views import VIEWS
from whale.tui.views.base import View

TICK = 0.25
"""Seconds between looks at what was read."""


def make_view(name: str) -> View:
    """A screen, imported when it is first shown."""
    from importlib import import_module

    if name == "overview":
        from whale.tui.views.overview import Overview

        return Overview(id="overview")
    kind: Callable[[], View] = getattr(import_module(f"whale.tui.views.{name}"), name.capitalize())
    return kind()


class WhaleApp(Travelling, Searching, Acting):
    """The terminal app on one run, or on the list of runs."""

    TITLE = "whale"
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (110, "-wide")]  # noqa: RUF012
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
        super().__init__(clock)
        self.run_to_open = source
        self.first_view = view or ("overview" if source is not None else "runs")
        self.first_at = at
        self.keys = keys or {}
        self.wanted_theme = theme
        self.views: dict[str, View] = {}
        self._drawn: tuple[Any, ...] = ()

    # --- set-up ---

    def compose(self) -> ComposeResult:
        """The frame; screens are made when they are first shown."""
        yield Palette()
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
        if self.no_color:
            # Textual chose its filter before the theme was, and that one paints default colours black on black.
            self._filters = [NoColor() if isinstance(f, Monochrome) else f for f in self._filters]
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

    def show_moment(self, moment: Moment | None = None) -> None:
        """Draw a moment, or now, whatever was drawn before."""
        self._drawn = ()
        if moment is not None:
            self._show(moment)
        else:
            self.tick()

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
        said, role = self._banner()
        banner = self.query_one("#banner", LineBar)
        banner.set_class(bool(said), "-shown")
        banner.set_class(role == "warn", "-asks")
        if said:
            banner.set_lines(lambda inner: FixedLines([line((part, role)) for part in wrap(said, inner)]))
        past = self.query_one("#past", LineBar)
        travelling = self.moment is not None and not self.moment.live
        past.set_class(travelling, "-shown")
        if self.moment is not None and travelling:
            past.set_parts(past_parts(self.moment, width))

    def _banner(self) -> tuple[str, str]:
        """What must be seen on every screen, and its role: a log that cannot be read, a question to a person."""
        if self.opened is None:
            return "", ""
        if self.opened.problem:
            here = self.opened.history.position
            shown = f" · what was read before it is shown ({here} events)" if here else ""
            return f"! {self.opened.problem}{shown}", "bad"
        waiting = waits_for_review(self.moment.state) if self.moment is not None and self.moment.live else None
        if waiting is None:
            return "", ""
        return (
            f"? {waiting} waits for a reviewer · {self.key_of('steer.review')} shows what it changes, and answers",
            "warn",
        )

    def key_of(self, action: str) -> str:
        """The key of an action, as the user has it now."""
        return first_key(self.keys, action)

    def _draw_keys(self) -> None:
        if not self.is_running or len(self.screen_stack) != 1:
            return
        if isinstance(self.focused, Input):
            self.query_one("#keys", LineBar).set_parts(line((" ⏎", "key"), " done ", (" esc", "key"), " leave it"))
            return
        parts, targets = key_parts(self.screen.active_bindings, self.size.width - 2, self.get_key_display)
        calls = {n: partial(self.simulate_key, key) for n, key in targets.items()}
        self.query_one("#keys", LineBar).set_parts(parts, calls)

    async def on_event(self, event: events.Event) -> None:
        """Keys are acted on one after the other.

        Textual hands a key to the widget that has the focus as it comes in, and another widget may have it once the
        key before has been acted on: on a busy machine what is typed after `/` would be taken for commands.
        """
        if isinstance(event, events.Key) and not event.is_forwarded and isinstance(self.focused, LineView):
            self.app_focus = True
            if not await self._check_bindings(event.key, priority=True):
                await self._check_bindings(event.key)
            return
        await super().on_event(event)

    def watch_theme(self, theme: str) -> None:
        """The style sheet knows whether the terminal's own colours are used."""
        self.set_class(theme.startswith("ansi"), "-ansi-look")

    def on_resize(self, event: events.Resize) -> None:
        """The frame depends on the width, which is known once this has been handled.

        The classes of the size are set before Textual lays the screen out, which sets them afterwards: a busy
        machine would show the panes of the old size in the new one for a while.
        """
        classes = (self.HORIZONTAL_BREAKPOINTS, self.VERTICAL_BREAKPOINTS)
        now = {max(pair for pair in pairs if pair[0] <= at)[1] for at, pairs in zip(event.size, classes, strict=True)}
        for screen in self.screen_stack:
            screen.remove_class(*({name for pairs in classes for _, name in pairs} - now))
            screen.add_class(*now)
        self.call_after_refresh(self._draw_frame)
        self.call_after_refresh(self._draw_keys)

    @property
    def front(self) -> View | None:
        """The screen in front."""
        current = self.query_one("#views", ContentSwitcher).current
        return self.views.get(current) if current else None

    async def _front(self, name: str) -> None:
        if name not in self.views:
            self.views[name] = make_view(name)
            await self.query_one("#views", ContentSwitcher).mount(self.views[name])
        self._bring(name)

    def _bring(self, name: str) -> None:
        self.query_one("#views", ContentSwitcher).current = name
        self._draw_frame()
        view = self.views[name]
        view.try_again()
        view.show(self.moment)
        if self.asking:  # keys that came fast are for the question, not for the screen behind it
            self._searched = view.main()
        else:
            self.screen.set_focus(view.main())

    def go(self, name: str) -> None:
        """Bring a screen to the front; at once, where it was shown before, so that the next key is for it."""
        if name in self.views:
            self._bring(name)
        else:
            self.call_later(self._front, name)

    def action_go(self, name: str) -> None:
        """A key's way to `go`."""
        self._close_ask()
        self.go(name)

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

    def action_escape(self) -> None:
        """Close what is open, from the inside out: question, search, filter, past."""
        focused = self.focused
        if self.asking:
            self._close_ask()
        elif isinstance(focused, LineView) and focused.needle:
            focused.search("")
        elif self.front is not None and bool(getattr(self.front, "filter", None)):
            self.front.ask_filter("")
        elif self.past is not None:
            self.action_live()

    def action_keys(self) -> None:
        """All keys that work here."""
        front = self.query_one("#views", ContentSwitcher).current or ""
        scopes = {"app", "go", "time", "steer", "list", front}
        groups = help_rows(self.keys, scopes)
        groups.sort(key=lambda group: 0 if group[0].lower() == front else 1)
        self.push_screen(Dialog("keys", lambda width: FixedLines(help_lines(groups, str(key_file()), width), width=0)))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The command palette: every action that works everywhere, and Textual's own."""
        for action in ACTIONS:
            if action.scope in ("app", "go", "time", "steer") and action.id != "app.palette":

                async def act(call: str = action.call) -> None:
                    await self.run_action(call)

                yield SystemCommand(f"{action.scope}: {action.label}", action.help, act)
