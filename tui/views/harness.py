"""Harness: one candidate's hypothesis, scores, tasks gained and lost against its parent, and every file."""

from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.worker import get_current_worker

from whale.alternation.state import Candidate, State
from whale.errors import WhaleError
from whale.events import LogError
from whale.events import types as ev
from whale.tui.actions import bindings
from whale.tui.highlight import paint
from whale.tui.lines import LineView
from whale.tui.opened import Moment
from whale.tui.text import NOTHING, FixedLines, Line, Span, cut, line, share, wrap
from whale.tui.views.base import SIGNS, View, ever_accepted, fate, pane
from whale.tui.views.lineage import candidate_lines


@dataclass(frozen=True, slots=True)
class TaskChange:
    """One task's mean reward under the parent and under the candidate; None where it was not run."""

    task: str
    before: float | None
    after: float | None

    @property
    def kind(self) -> str:
        """gained, lost, same or new."""
        if self.before is None or self.after is None:
            return "new"
        return "gained" if self.after > self.before else "lost" if self.after < self.before else "same"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a worker found on a candidate."""

    candidate: str
    files: dict[str, str]
    problem: str
    against: str
    """The parent with which tasks are compared; "" if there is no common weights."""
    tasks: tuple[TaskChange, ...]


class Harness(View):
    """Contents at the left, one of them at the right."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("harness")

    def __init__(self) -> None:
        super().__init__(id="harness")
        self._moment: Moment | None = None
        self._loaded: Loaded | None = None
        self._wanted: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        """Contents, and what is chosen of them."""
        yield pane(LineView(id="hn-list", empty="no harness"), "harness")
        yield pane(LineView(id="hn-body", cursor=False), "about")

    def show(self, moment: Moment | None) -> None:
        """See `View.show`."""
        self._moment = moment
        chosen = self.whale.chosen_candidate(moment.state) if moment else None
        if moment is None or chosen is None:
            for view in self.query(LineView):
                view.set_lines(NOTHING)
            return
        self.query_one("#hn-list", LineView).set_title(chosen.id)
        wanted = (moment.run, chosen.id, chosen.scores)
        if wanted != self._wanted:
            again = self._wanted[1:2] == (chosen.id,)
            self._wanted = wanted
            if not again:
                self._loaded = None
            self._load(moment, chosen)
        self._contents()
        self._body()

    def try_again(self) -> None:
        """See `View.try_again`."""
        if self._loaded is not None and self._loaded.problem:
            self._wanted = ()

    @work(thread=True, exclusive=True, group="harness")
    def _load(self, moment: Moment, candidate: Candidate) -> None:
        worker = get_current_worker()
        files: dict[str, str] = {}
        problem, against = "", ""
        tasks: tuple[TaskChange, ...] = ()
        try:
            files = moment.run.files(candidate.tree)
        except WhaleError as error:
            problem = str(error)
        try:
            against, tasks = task_changes(moment, candidate)
        except (WhaleError, LogError) as error:
            problem = problem or str(error)
        if not worker.is_cancelled:
            self.whale.from_thread(self._ready, Loaded(candidate.id, files, problem, against, tasks))

    def _ready(self, loaded: Loaded) -> None:
        if self._wanted[1:2] != (loaded.candidate,):
            return  # another one was chosen meanwhile
        self._loaded = loaded
        self._contents()
        self._body(top=True)

    def _contents(self) -> None:
        view, moment, loaded = self.query_one("#hn-list", LineView), self._moment, self._loaded
        if moment is None:
            return
        rows: list[Line] = [line(("About", "title")), line(("Tasks ", "title"), *_counts(loaded))]
        keys: list[object] = ["about", "tasks"]
        for path, text in (loaded.files if loaded else {}).items():
            rows.append(line(path, (f"  {text.count(chr(10)) + (not text.endswith(chr(10)))}", "muted")))
            keys.append(("file", path))
        if loaded and loaded.problem:
            rows.append(line(("! store", "bad")))
            keys.append("problem")
        view.set_lines(FixedLines(rows, keys))

    @on(LineView.Moved, "#hn-list")
    def _moved(self) -> None:
        self._body(top=True)

    @on(LineView.Chosen, "#hn-list")
    def _enter(self) -> None:
        self.query_one("#hn-body", LineView).focus()

    def _body(self, *, top: bool = False) -> None:
        view, moment, loaded = self.query_one("#hn-body", LineView), self._moment, self._loaded
        key = self.query_one("#hn-list", LineView).current
        chosen = self.whale.chosen_candidate(moment.state) if moment else None
        if moment is None or chosen is None:
            return
        state = moment.state
        if key == "tasks":
            view.set_title("tasks against " + (loaded.against if loaded and loaded.against else "the parent"))
            view.set_lines(lambda width: FixedLines(task_lines(loaded, width), width=0), top=top)
        elif key == "problem" and loaded:
            view.set_title("the harness store")
            problem = loaded.problem
            view.set_lines(lambda width: FixedLines([line((p, "bad")) for p in wrap(problem, width)], width=0), top=top)
        elif isinstance(key, tuple) and loaded and key[1] in loaded.files:
            view.set_title(key[1])
            view.set_lines(FixedLines(numbered(paint(loaded.files[key[1]], key[1]))), top=top)
        else:
            view.set_title("about")
            ever = ever_accepted(moment)
            view.set_lines(lambda width: FixedLines(about_lines(state, chosen, ever, width), width=0), top=top)

    def action_diff(self) -> None:
        """Its diff."""
        self.whale.go("diff")

    def action_rollouts(self) -> None:
        """Its rollouts."""
        chosen = self.whale.chosen_candidate(self._moment.state) if self._moment else None
        self.whale.show_rollouts(candidate=chosen.id if chosen else None)

    def action_parent(self) -> None:
        """Go to its first parent."""
        chosen = self.whale.chosen_candidate(self._moment.state) if self._moment else None
        if chosen is not None and chosen.parents:
            self.whale.choose(chosen.parents[0])
            self.show(self._moment)
        else:
            self.app.bell()


def _counts(loaded: Loaded | None) -> Line:
    if loaded is None or not loaded.tasks:
        return ()
    gained = sum(change.kind == "gained" for change in loaded.tasks)
    lost = sum(change.kind == "lost" for change in loaded.tasks)
    return (Span(f"+{gained}", "good"), Span(" "), Span(f"-{lost}", "bad"))


def about_lines(state: State, candidate: Candidate, ever: set[str], width: int) -> list[Line]:
    """The candidate's facts and its children."""
    lines = candidate_lines(state, candidate, ever, width)
    children = [c for c in state.candidates.values() if candidate.id in c.parents]
    if children:
        lines += [line(""), line((f"children ({len(children)})", "title"))]
        for child in children[:500]:
            sign, role = SIGNS[fate(state, child, ever)]
            score = f"{share(child.scores[-1].score):>8}" if child.scores else f"{'':>8}"
            lines.append(
                line((f"{sign} ", role), f"{child.id:<13}", score, (f"  {cut(child.title, width - 26)}", "muted"))
            )
    return lines


def task_changes(moment: Moment, candidate: Candidate) -> tuple[str, tuple[TaskChange, ...]]:
    """The candidate's newest scoring against its first parent's under the same weights."""
    state, run = moment.state, moment.run
    if not candidate.scores:
        return "", ()
    for score in reversed(candidate.scores):  # the newest weights under which both were scored
        for parent in candidate.parents:
            before = _means(run.outcomes(parent, score.weights, moment.position))
            if not before or parent not in state.candidates:
                continue
            after = _means(run.outcomes(candidate.id, score.weights, moment.position))
            changes = (TaskChange(task, before.get(task), after.get(task)) for task in {**after, **before})
            order = {"lost": 0, "gained": 1, "new": 2, "same": 3}
            return parent, tuple(sorted(changes, key=lambda c: (order[c.kind], c.task)))
    after = _means(run.outcomes(candidate.id, candidate.scores[-1].weights, moment.position))
    return "", tuple(TaskChange(task, None, mean) for task, mean in after.items())


def _means(outcomes: list[ev.Outcome]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.task, []).append(outcome.reward)
    return {task: sum(values) / len(values) for task, values in found.items()}


def task_lines(loaded: Loaded | None, width: int) -> list[Line]:
    """One line a task, what changed first."""
    if loaded is None:
        return [line(("reading …", "muted"))]
    if not loaded.tasks:
        return [line(("not scored yet: no task results", "muted"))]
    kinds = {kind: sum(c.kind == kind for c in loaded.tasks) for kind in ("gained", "lost", "same", "new")}
    if loaded.against:
        head = line(
            (f"+{kinds['gained']} gained", "good"), "  ", (f"-{kinds['lost']} lost", "bad"), "  ",
            (f"{kinds['same']} same, same weights", "muted"),
        )  # fmt: skip
    else:
        head = line(("no parent was scored under the same weights: its own results", "muted"))
    rows = [head, line("")]
    marks = {
        "gained": ("+ gained", "good"),
        "lost": ("- lost  ", "bad"),
        "same": ("  same  ", "muted"),
        "new": ("        ", ""),
    }
    for change in loaded.tasks:
        mark, role = marks[change.kind]
        figures = f"{_figure(change.before)} → {_figure(change.after)}" if loaded.against else _figure(change.after)
        lead = f"{mark}  {figures:<14}" if loaded.against else f"{figures:<7}"
        rows.append(line((lead, role), (cut(change.task, max(8, width - len(lead))), role)))
    return rows


def _figure(value: float | None) -> str:
    if value is None:
        return "  –  "
    return {0.0: "  ✗  ", 1.0: "  ✓  "}.get(value, f"{value:.2f} ")


def numbered(lines: list[Line]) -> list[Line]:
    """Lines with their numbers."""
    digits = len(str(len(lines)))
    return [(Span(f"{n:>{digits}} ", "muted"), Span("│ ", "muted"), *parts) for n, parts in enumerate(lines, 1)]
