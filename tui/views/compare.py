"""Compare: two runs, what they reached, what they cost, and where their configs differ."""

from typing import Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.worker import get_current_worker

from whale.alternation.state import State, Totals, reduce
from whale.errors import WhaleError
from whale.events import LogError
from whale.tui import charts
from whale.tui.actions import bindings
from whale.tui.lines import LineView
from whale.tui.opened import Moment
from whale.tui.source import RunSource, known_runs
from whale.tui.text import FixedLines, Line, fit, line, share, thousands, wrap
from whale.tui.views.base import View, pane


class Compare(View):
    """The open run beside another one."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("compare")

    def __init__(self) -> None:
        super().__init__(id="compare")
        self.other: RunSource | None = None
        self._state: State | None = None
        self._problem = ""
        self._moment: Moment | None = None

    def compose(self) -> ComposeResult:
        """One pane."""
        yield pane(LineView(id="co-lines", cursor=False, empty="no run is open"), "compare")

    def show(self, moment: Moment | None) -> None:
        """See `View.show`."""
        self._moment = moment
        view = self.query_one(LineView)
        if moment is None:
            return
        if self.other is None:
            text = "Press e to choose the run to compare this one with."
            view.set_lines(lambda width: FixedLines([line((part, "muted")) for part in wrap(text, width)], width=0))
            return
        name, other = moment.run.source.name, self.other.name
        view.set_title(f"{name} and {other}")
        if self._problem:
            problem = self._problem
            view.set_lines(lambda width: FixedLines([line((p, "bad")) for p in wrap(problem, width)], width=0))
        elif self._state is not None:
            state = self._state
            view.set_lines(lambda width: FixedLines(comparison(name, moment.state, other, state, width), width=0))

    def action_pick(self) -> None:
        """Choose the other run."""
        run = self.whale.opened
        if run is None:
            return
        sources = {s.where: s for s in known_runs(run.source.where) if s.where != run.source.where}
        if not sources:
            self.whale.tell("there is no other run here", "warning")
            return
        rows = [(where, f"{source.name}  {where}") for where, source in sources.items()]
        self.whale.pick("Compare with which run?", rows, lambda where: self.choose(sources[where]))

    def choose(self, source: RunSource) -> None:
        """Compare with this run."""
        self.other, self._state, self._problem = source, None, ""
        self.show(self._moment)
        self._read(source)

    @work(thread=True, exclusive=True, group="compare")
    def _read(self, source: RunSource) -> None:
        worker = get_current_worker()
        state = State()
        try:
            with source.open_log() as log:
                for recorded in log.read():
                    state = reduce(state, recorded)
                    if worker.is_cancelled:
                        return
        except (WhaleError, LogError, ValueError, KeyError) as error:
            self._problem = f"{source.name}: {error}"
        self._state = state
        if not worker.is_cancelled:
            self.whale.from_thread(lambda: self.show(self._moment))


def comparison(name: str, a: State, other: str, b: State, width: int) -> list[Line]:
    """Everything in two columns, then success on one scale, then the config keys that differ."""
    names = min(max(18, width // 4), 40)
    column = max(12, (width - names) // 2)

    def row(label: str, left: str, right: str) -> Line:
        differ = "" if left == right else "accent"
        return line((fit(label, names - 1) + " ", "muted"), fit(left, column), (fit(right, column), differ))

    lines = [line((fit("", names), ""), (fit(name, column), "strong"), (fit(other, column), "strong"))]
    pairs = [
        ("status", a.status, b.status),
        ("cycle", str(a.cycle), str(b.cycle)),
        ("candidates", str(len(a.candidates)), str(len(b.candidates))),
        ("accepted harness", a.accepted or "", b.accepted or ""),
        ("accepted tree", a.accepted_tree[:12], b.accepted_tree[:12]),
        ("weights", a.weights[:12], b.weights[:12]),
        ("steps", str(len(a.steps)), str(len(b.steps))),
        ("best validation", _best(a), _best(b)),
        ("by hand", str(len(a.interventions)), str(len(b.interventions))),
    ]
    for purpose in dict.fromkeys((*a.totals, *b.totals)):
        left, right = a.totals.get(purpose, Totals()), b.totals.get(purpose, Totals())
        pairs.append((f"{purpose} rollouts", _paid(left), _paid(right)))
    lines += [row(*pair) for pair in pairs]
    rows = [
        charts.Interval(
            f"{fit(run, 10)} {'(θ0, h0)' if e.cycle == 0 else f'cycle {e.cycle}'}", e.score, e.low, e.high, e.candidate
        )
        for cycle in sorted({e.cycle for e in (*a.evaluations, *b.evaluations)})
        for run, state in ((name, a), (other, b))
        for e in state.evaluations
        if e.cycle == cycle and e.split == "validation"
    ]
    if rows:
        lines += [
            line(""),
            line(("held-out success (validation), 95 % intervals", "title")),
            *charts.intervals(rows, width),
        ]
        if a.data != b.data:
            lines.append(line(("the two runs have other data: their figures do not compare", "warn")))
    left_config, right_config = _flat(a.config), _flat(b.config)
    differing = [k for k in sorted({**left_config, **right_config}) if left_config.get(k) != right_config.get(k)]
    lines += [line(""), line(("config keys that differ", "title"))]
    lines += [row(k, left_config.get(k, "–"), right_config.get(k, "–")) for k in differing]
    if not differing:
        lines.append(line(("none", "muted")))
    return lines


def _best(state: State) -> str:
    found = [e for e in state.evaluations if e.split == "validation"]
    if not found:
        return ""
    best = max(found, key=lambda e: (e.score, -e.cycle))
    return f"{share(best.score)} [{100 * best.low:.1f}, {100 * best.high:.1f}]"


def _paid(totals: Totals) -> str:
    return f"{thousands(totals.rollouts)}, {thousands(totals.generated)} tokens" if totals.rollouts else ""


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    result: dict[str, str] = {}
    for key, inner in dict(value).items():
        if isinstance(inner, dict) and inner:
            result |= _flat(inner, f"{prefix}{key}.")
        else:
            result[prefix + key] = str(inner)
    return result
