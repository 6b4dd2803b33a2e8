"""Events: the log as it grows, what each event says, and the way into the past."""

import json
from array import array
from bisect import bisect_left
from typing import Any, ClassVar

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from whale.errors import WhaleError
from whale.events import LogError, Recorded
from whale.tui.actions import bindings
from whale.tui.gist import ROLES, gist
from whale.tui.highlight import paint
from whale.tui.lines import LineView
from whale.tui.opened import Moment, OpenRun
from whale.tui.text import NOTHING, FixedLines, Line, Span, cut, facts_table, fit, line
from whale.tui.views.base import View, pane

_MANY = 40
"""Items of a list up to which a payload shows them all."""


class Events(View):
    """The list, and the event in front."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("events")

    def __init__(self) -> None:
        super().__init__(id="events", classes="split")
        self.only = ""
        self._moment: Moment | None = None

    def compose(self) -> ComposeResult:
        """The list, and the detail pane."""
        log = LineView(id="ev-list", empty="no event yet", classes="list")
        log.follow = True
        yield pane(log, "events")
        yield pane(LineView(id="ev-detail", cursor=False, classes="detail spare"), "event")

    def show(self, moment: Moment | None) -> None:
        """See `View.show`."""
        self._moment = moment
        view = self.query_one("#ev-list", LineView)
        if moment is None:
            view.set_lines(NOTHING)
            return
        # The past shows what came after it too, dimmed: that is the way back.
        view.set_lines(EventLines(moment.run, moment.head, self.only, None if moment.live else moment.position))
        what = self.only or "all types"
        view.set_title(f"events · {what}")
        tail = "▼ tail" if view.follow else "t stays on the newest"
        view.set_subtitle(f"{tail} · enter: travel there" if moment.live else "enter: travel there · 0: back to now")
        self._detail()

    @on(LineView.Moved, "#ev-list")
    def _moved(self, event: LineView.Moved) -> None:
        event.view.follow = event.index == len(event.view.lines) - 1 and self._moment is not None and self._moment.live
        self._detail(top=True)

    @on(LineView.Chosen, "#ev-list")
    def _travel(self) -> None:
        key = self.query_one("#ev-list", LineView).current
        if isinstance(key, int):
            self.query_one("#ev-list", LineView).follow = False
            self.whale.travel_to(key)

    def _detail(self, *, top: bool = False) -> None:
        view, key = self.query_one("#ev-detail", LineView), self.query_one("#ev-list", LineView).current
        if self._moment is None or not isinstance(key, int):
            view.set_lines(NOTHING)
            return
        try:
            recorded = self._moment.run.event(key)
        except (LogError, WhaleError, IndexError) as error:
            view.set_lines(FixedLines([line((str(error), "bad"))]), top=top)
            return
        view.set_title(f"event {key}")
        view.set_lines(FixedLines(event_lines(recorded)), top=top)

    def action_filter(self) -> None:
        """Choose a type."""
        if self._moment is not None:
            facts = self._moment.run.history.facts
            rows = [("", f"all types ({self._moment.head})")]
            for name in sorted(facts.types.names):
                rows.append((name, f"{name} ({len(facts.events_of(name, self._moment.head))})"))
            self.whale.pick("Events of which type?", rows, self.ask_filter)

    def ask_filter(self, text: str) -> None:
        """See `View.ask_filter`."""
        self.only = text
        self.show(self._moment)

    def action_tail(self) -> None:
        """Stay on the newest event, or not."""
        view = self.query_one("#ev-list", LineView)
        view.follow = not view.follow
        self.show(self._moment)


class EventLines:
    """The log as `Lines`: positions in memory, rows read in pages as they are looked at."""

    def __init__(self, run: OpenRun, head: int, only: str, here: int | None) -> None:
        self.run, self.head, self.here = run, head, here
        self._positions: array[int] | None = run.history.facts.events_of(only, head) if only else None
        self._digits = len(str(head))

    def __len__(self) -> int:
        return self.head if self._positions is None else len(self._positions)

    def line(self, index: int, width: int) -> Line:
        """See `Lines.line`."""
        position = self._position(index)
        try:
            recorded = self.run.event(position)
        except (LogError, WhaleError, IndexError) as error:
            return line((f"{position:>{self._digits}}  cannot be read: {error}", "bad"))
        later = self.here is not None and position > self.here
        mark = "▶" if position == self.here else " "
        at = recorded.at[11:19] + " " if width >= 50 else ""
        kind = recorded.type
        role = "muted" if later else ROLES.get(kind, "")
        return (
            Span(f"{mark}{position:>{self._digits}} ", "warn" if mark == "▶" else "muted"),
            Span(at, "muted"),
            Span(fit(kind, 20) + " ", role),
            Span(cut(gist(recorded), max(0, width - self._digits - 23 - len(at))), "muted" if later else ""),
        )

    def _position(self, index: int) -> int:
        return index + 1 if self._positions is None else self._positions[index]

    def text(self, index: int) -> str:
        """See `Lines.text`."""
        recorded = self.run.event(self._position(index))
        return f"{recorded.position} {recorded.type} {recorded.key} {gist(recorded)}"

    def key(self, index: int) -> object:
        """See `Lines.key`."""
        return self._position(index)

    def find(self, key: object) -> int | None:
        """See `Lines.find`: the event itself, or the next one that is listed."""
        if not isinstance(key, int) or not len(self):
            return None
        if self._positions is None:
            return min(key, self.head) - 1
        return min(bisect_left(self._positions, key), len(self._positions) - 1)

    @property
    def width(self) -> int:
        """Cut to the view."""
        return 0


def event_lines(recorded: Recorded) -> list[Line]:
    """An event with its envelope and payload."""
    rows: list[tuple[str, Line]] = [
        ("type", line((recorded.type, "strong"), (f" version {type(recorded.event).schema_version}", "muted"))),
        ("key", line(recorded.key)),
        ("stream", line(f"{recorded.stream} {recorded.version}")),
        ("at", line(recorded.at)),
        ("hash", line((recorded.hash[:16], "muted"), (" after ", "muted"), (recorded.prev_hash[:16], "muted"))),
    ]
    if recorded.meta:
        rows.append(("meta", line(json.dumps(dict(recorded.meta), ensure_ascii=False))))
    data: Any = _short(msgspec.to_builtins(recorded.event))
    return [*facts_table(rows, label=8), line(""), *paint(_dump(data), "payload.json")]


def _short(value: Any) -> Any:
    """The value with long lists cut."""
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    if isinstance(value, list):
        cut_off = len(value) - _MANY
        return [_short(v) for v in value[:_MANY]] + ([f"… {cut_off} more"] if cut_off > 0 else [])
    return value


def _dump(value: Any) -> str:
    """JSON, with the innermost lists on one line each: an outcome is one."""
    if isinstance(value, dict) and value:
        inner = ",\n".join(f"{json.dumps(k)}: {_dump(v)}" for k, v in value.items())
        return "{\n" + "\n".join("  " + part for part in inner.split("\n")) + "\n}"
    if isinstance(value, list) and any(isinstance(v, list | dict) for v in value):
        inner = ",\n".join(json.dumps(v, ensure_ascii=False) for v in value)
        return "[\n" + "\n".join("  " + part for part in inner.split("\n")) + "\n]"
    return json.dumps(value, ensure_ascii=False)
