"""Runs: all runs of the folder, what each is doing, and what it reached."""

from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.worker import get_current_worker

from whale.alternation.state import State
from whale.errors import WhaleError
from whale.events import LogError
from whale.tui.actions import bindings
from whale.tui.lines import LineView
from whale.tui.opened import Moment, status
from whale.tui.source import FolderSource, RunSource, known_runs
from whale.tui.text import FixedLines, Line, Span, cut, fit, line, share, thousands
from whale.tui.views.base import View, pane
from whale.tui.views.overview import evaluation_lines

AGAIN = 5.0
"""Seconds between looks at all runs while the screen is in front."""

STATUS = {
    "running": ("▶", "accent"), "paused": ("‖", "warn"), "stopped": ("■", "warn"), "completed": ("✓", "good"),
    "interrupted": ("!", "bad"), "review": ("?", "warn"), "new": ("·", "muted"), "unreadable": ("✗", "bad"),
    "reading": ("…", "muted"),
}  # fmt: skip
"""Status -> sign and role."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run in the list."""

    source: RunSource
    status: str
    state: State
    events: int
    problem: str = ""


class Runs(View):
    """The list, and the run in front."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("runs")

    def __init__(self) -> None:
        super().__init__(id="runs", classes="split")
        self.rows: list[RunRow] = []
        self._folds: dict[str, tuple[int, State]] = {}
        self._complete = False
        """All runs were read once: from then on the list changes as a whole."""

    def compose(self) -> ComposeResult:
        """The list, and the detail pane."""
        empty = "reading …"
        yield pane(LineView(id="ru-list", empty=empty, classes="list"), "runs")
        yield pane(LineView(id="ru-detail", cursor=False, classes="detail spare"), "run")

    def on_mount(self) -> None:
        """Look at all runs, now and then."""
        self.set_interval(AGAIN, self.refresh_rows)

    def show(self, moment: Moment | None) -> None:
        """See `View.show`."""
        if not self.rows:
            self.refresh_rows()

    def refresh_rows(self) -> None:
        """Read all runs, if the screen is in front."""
        if self.display:
            self._read(self.whale.opened.source.where if self.whale.opened is not None else None)

    @work(thread=True, exclusive=True, group="runs")
    def _read(self, beside: str | None) -> None:
        worker = get_current_worker()
        rows: list[RunRow] = []
        sources: list[RunSource] = list(known_runs(beside))
        opened = self.whale.opened
        if opened is not None and all(s.where != opened.source.where for s in sources) and opened.source.run is None:
            sources.insert(0, opened.source)
        if not sources:
            self.whale.from_thread(self._ready, rows)
        for n, source in enumerate(sources):
            if worker.is_cancelled:
                return
            rows.append(self._row(source))
            # A long log takes its time: what is known is shown meanwhile.
            waiting = [RunRow(s, "reading", self._folds.get(s.where, (0, State()))[1], 0) for s in sources[n + 1 :]]
            self.whale.from_thread(self._ready, [*rows, *waiting] if not self._complete or not waiting else self.rows)
        self._complete = True

    def _row(self, source: RunSource) -> RunRow:
        """A run's state; what was folded before is not folded again."""
        from whale.alternation.state import reduce

        opened = self.whale.opened
        if opened is not None and opened.source.where == source.where:
            moment = opened.moment()
            return RunRow(
                source, "unreadable" if opened.problem else moment.status, moment.state, moment.head, opened.problem
            )
        position, state = self._folds.get(source.where, (0, State()))
        if isinstance(source, FolderSource) and not source.folder.has_log():
            return RunRow(source, "new", state, 0)
        try:
            with source.open_log() as log:
                for recorded in log.read(after=position):
                    state, position = reduce(state, recorded), recorded.position
            self._folds[source.where] = (position, state)
            alive = source.runner() is not None
        except (WhaleError, LogError, OSError, ValueError, KeyError) as error:
            return RunRow(source, "unreadable", state, position, str(error))
        return RunRow(source, status(state, max(1, position), alive=alive), state, position)

    def _ready(self, rows: list[RunRow]) -> None:
        self.rows = rows
        view = self.query_one("#ru-list", LineView)
        view.empty = "no runs here: `whale run` starts one"
        first = not len(view.lines)
        view.set_lines(
            lambda width: FixedLines([self._line(r, width) for r in rows], [r.source.where for r in rows], width=0)
        )
        view.set_subtitle(f"{len(rows)}")
        if first and self.whale.opened is not None:
            found = view.lines.find(self.whale.opened.source.where)
            if found is not None:
                view.move_to(found)
        self._detail()

    def _line(self, row: RunRow, width: int) -> Line:
        sign, role = STATUS[row.status]
        state = row.state
        best = max((e.score for e in state.evaluations if e.split == "validation"), default=None)
        opened = self.whale.opened is not None and self.whale.opened.source.where == row.source.where
        name = max(10, min(28, width - 50))
        phase = f"cycle {state.cycle} {state.phase or ''}".strip() if state.cycle or state.phase else ""
        return (
            Span("➤ " if opened else "  ", "accent"),
            Span(fit(row.source.name, name) + " ", "strong"),
            Span(f"{sign} {row.status:<12}", role),
            Span(fit(phase, 17), ""),
            Span(f"{share(best) if best is not None else '':>8}", "good" if best else ""),
            Span(f"{thousands(row.events):>8} ev", "muted"),
        )

    def _current(self) -> RunRow | None:
        index = self.query_one("#ru-list", LineView).index
        return self.rows[index] if index < len(self.rows) else None

    @on(LineView.Moved, "#ru-list")
    def _moved(self) -> None:
        self._detail()

    @on(LineView.Chosen, "#ru-list")
    def _open(self) -> None:
        row = self._current()
        if row is not None:
            self.whale.open(row.source)
            self.whale.go("overview")

    def _detail(self) -> None:
        row, view = self._current(), self.query_one("#ru-detail", LineView)
        if row is None:
            return
        view.set_title(row.source.name)
        view.set_lines(lambda width: FixedLines(run_lines(row, width), width=0))

    def action_compare(self) -> None:
        """Compare the run under the cursor with the open one."""
        row = self._current()
        if row is None or self.whale.opened is None or row.source.where == self.whale.opened.source.where:
            self.whale.tell("open one run, then put the cursor on another one", "warning")
            return
        self.whale.compare_with(row.source)


def run_lines(row: RunRow, width: int) -> list[Line]:
    """A run in short."""
    state, config = row.state, row.state.config
    lines: list[Line] = [line((cut(row.source.where, width), "muted"))]
    if row.problem:
        return [*lines, line((cut(row.problem, 4 * width), "bad"))]
    if config:
        search, schedule = config["search"], config["schedule"]
        lines.append(line(("domain ", "muted"), cut(str(config["domain"]), width - 8)))
        lines.append(line(("model  ", "muted"), cut(str(config["model"]), width - 8)))
        lines.append(
            line(
                ("search ", "muted"),
                f"{search['proposer']}, {search['candidates']} candidates, {schedule['iterations']} iterations, "
                f"{schedule['cycles'] + state.extra_cycles} cycles",
            )
        )
    lines.append(line(("harness", "muted"), f" {state.accepted or 'none'} of {len(state.candidates)} candidates"))
    if state.evaluations:
        lines += [line(""), *evaluation_lines(state, width)]
    for words in state.interventions:
        lines.append(line((cut(f"by hand: {words}", width), "warn")))
    return lines
