"""Rollouts: every trajectory that was paid, filtered, and one of them turn by turn."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.timer import Timer
from textual.worker import get_current_worker

from whale.errors import WhaleError
from whale.events import LogError
from whale.events import types as ev
from whale.rollout.types import Trajectory
from whale.tui.actions import bindings
from whale.tui.facts import BROKEN, FABRICATED, PURPOSES, TRUNCATED, Facts
from whale.tui.lines import LineView
from whale.tui.opened import Moment, OpenRun
from whale.tui.text import NOTHING, FixedLines, Line, Span, fit, line, thousands, wrap
from whale.tui.transcript import transcript
from whale.tui.views.base import View, pane

REST = 0.04
"""Seconds of rest before a rollout's text is read."""

VERDICTS = ("all", "passed", "failed", "truncated", "broken", "fabricated")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rollouts are listed."""

    verdict: str = "all"
    purpose: str = "all"
    task: str | None = None
    candidate: str | None = None

    def words(self) -> str:
        """The filter for people."""
        parts = [self.verdict if self.verdict != "all" else "", self.purpose if self.purpose != "all" else ""]
        parts += [f"task {self.task}" if self.task else "", f"of {self.candidate}" if self.candidate else ""]
        return ", ".join(filter(None, parts)) or "all"


def matching(facts: Facts, until: int, wanted: Filter) -> "Sequence[int]":
    """Indices of the rollouts up to a position that the filter lets through, newest first."""
    count = facts.rollouts_until(until)
    if wanted == Filter():
        return range(count - 1, -1, -1)
    import numpy as np

    # Copies of the prefixes: the columns may grow meanwhile.
    keep = np.ones(count, dtype=bool)
    flags = np.frombuffer(bytes(facts.rollout_flags[:count]), dtype=np.uint8)
    if wanted.verdict in ("passed", "failed"):
        rewards = np.frombuffer(facts.rollout_rewards[:count].tobytes(), dtype=np.float32)
        keep &= (rewards > 0) if wanted.verdict == "passed" else (rewards <= 0)
    elif wanted.verdict != "all":
        bit = {"truncated": TRUNCATED, "broken": BROKEN, "fabricated": FABRICATED}[wanted.verdict]
        keep &= (flags & bit) != 0
    if wanted.purpose != "all":
        purposes = np.frombuffer(bytes(facts.rollout_purposes[:count]), dtype=np.uint8)
        keep &= purposes == [str(p) for p in PURPOSES].index(wanted.purpose)
    for name, names, column in (
        (wanted.task, facts.tasks, facts.rollout_tasks),
        (wanted.candidate, facts.candidates, facts.rollout_candidates),
    ):
        if name is not None:
            number = names.known(name)
            values = np.frombuffer(column[:count].tobytes(), dtype=np.uint32)
            keep &= values == number if number is not None else False
    return array("I", np.flatnonzero(keep)[::-1].astype(np.uint32).tobytes())


class Rollouts(View):
    """The list, and a transcript."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("rollouts")

    def __init__(self) -> None:
        super().__init__(id="rollouts", classes="split")
        self.wanted = Filter()
        self._moment: Moment | None = None
        self._listed: tuple[object, ...] = ()
        self._asked: int | None = None
        self._failed = False
        self._resting: Timer | None = None

    def compose(self) -> ComposeResult:
        """The list, and the transcript."""
        yield pane(LineView(id="ro-list", empty="no rollout matches", classes="list"), "rollouts")
        yield pane(LineView(id="ro-detail", cursor=False, classes="detail"), "transcript")

    def show(self, moment: Moment | None) -> None:
        """See `View.show`."""
        self._moment = moment
        view = self.query_one("#ro-list", LineView)
        if moment is None:
            view.set_lines(NOTHING)
            self.query_one("#ro-detail", LineView).set_lines(NOTHING)
            return
        count = moment.run.history.facts.rollouts_until(moment.position)
        listed = (moment.run, count, self.wanted)
        if listed != self._listed:
            self._listed = listed
            self._list(moment, self.wanted, count)

    @work(thread=True, exclusive=True, group="rollout-list")
    def _list(self, moment: Moment, wanted: Filter, count: int) -> None:
        worker = get_current_worker()
        found = matching(moment.run.history.facts, moment.position, wanted)
        if not worker.is_cancelled:
            self.whale.from_thread(self._ready, moment, found, count)

    def _ready(self, moment: Moment, found: Sequence[int], count: int) -> None:
        view = self.query_one("#ro-list", LineView)
        view.set_lines(RolloutLines(moment.run, found))
        view.set_title(f"rollouts · {self.wanted.words()}")
        view.set_subtitle(f"{thousands(len(found))} of {thousands(count)}")
        self._open()

    @on(LineView.Moved, "#ro-list")
    def _moved(self) -> None:
        self._open(top=True)

    @on(LineView.Chosen, "#ro-list")
    def _enter(self) -> None:
        self.query_one("#ro-detail", LineView).focus()

    def _open(self, *, top: bool = False) -> None:
        key = self.query_one("#ro-list", LineView).current
        if self._moment is None or not isinstance(key, int):
            self._asked = None
            self.query_one("#ro-detail", LineView).set_lines(NOTHING)
        elif key != self._asked:
            self._asked = key
            if self._resting is not None:
                self._resting.stop()
            # While keys are held down nothing is read: the transcript comes when the cursor rests.
            self._resting = self.set_timer(REST, partial(self._load, self._moment, key))

    @work(thread=True, exclusive=True, group="transcript")
    def _load(self, moment: Moment, index: int) -> None:
        worker = get_current_worker()
        facts = moment.run.history.facts
        try:
            event = moment.run.event(facts.rollout_positions[index]).event
            assert isinstance(event, ev.RolloutsRecorded)
            trajectory = moment.run.trajectories(event.artifact)[facts.rollout_index[index]]
        except (WhaleError, LogError, IndexError) as error:
            if not worker.is_cancelled:
                self.whale.from_thread(self._say, str(error))
            return
        if not worker.is_cancelled:
            self.whale.from_thread(self._read, moment, event, trajectory)

    def try_again(self) -> None:
        """See `View.try_again`."""
        if self._failed:
            self._asked = None

    def _say(self, text: str) -> None:
        self._failed = True
        view = self.query_one("#ro-detail", LineView)
        view.set_title("transcript")
        view.set_lines(lambda width: FixedLines([line((p, "bad")) for p in wrap(text, width)], width=0), top=True)

    def _read(self, moment: Moment, event: ev.RolloutsRecorded, trajectory: Trajectory) -> None:
        self._failed = False
        view = self.query_one("#ro-detail", LineView)
        view.set_title(f"{trajectory.task_id} · sample {trajectory.sample} · {event.candidate}")
        view.set_subtitle(event.batch)
        config = moment.state.config
        view.set_lines(
            lambda width: FixedLines(transcript(trajectory, width, purpose=event.purpose, config=config), width=0),
            keep=False,
            top=True,
        )

    # --- filters ---

    def set_filter(self, **changes: str | None) -> None:
        """Change a part of the filter."""
        self.wanted = replace(self.wanted, **changes)  # type: ignore[arg-type]
        self.show(self._moment)

    def action_verdict(self) -> None:
        """The next verdict."""
        at = VERDICTS.index(self.wanted.verdict)
        self.set_filter(verdict=VERDICTS[(at + 1) % len(VERDICTS)])

    def action_purpose(self) -> None:
        """The next purpose."""
        every = ("all", *PURPOSES)
        self.set_filter(purpose=every[(every.index(self.wanted.purpose) + 1) % len(every)])

    def _current(self) -> int | None:
        key = self.query_one("#ro-list", LineView).current
        return key if isinstance(key, int) else None

    def action_task(self) -> None:
        """Only the task of the cursor's rollout, or all."""
        index = self._current()
        if self.wanted.task is not None:
            self.set_filter(task=None)
        elif self._moment is not None and index is not None:
            facts = self._moment.run.history.facts
            self.set_filter(task=facts.tasks.names[facts.rollout_tasks[index]])

    def action_candidate(self) -> None:
        """Only the harness of the cursor's rollout, or all."""
        index = self._current()
        if self.wanted.candidate is not None:
            self.set_filter(candidate=None)
        elif self._moment is not None and index is not None:
            facts = self._moment.run.history.facts
            self.set_filter(candidate=facts.candidates.names[facts.rollout_candidates[index]])


class RolloutLines:
    """The list as `Lines`, from the columns alone."""

    def __init__(self, run: OpenRun, found: Sequence[int]) -> None:
        self.run, self.found = run, found
        self._digits = len(str(run.history.position))

    def __len__(self) -> int:
        return len(self.found)

    def line(self, index: int, width: int) -> Line:
        """See `Lines.line`."""
        i, facts = self.found[index], self.run.history.facts
        flags, reward = facts.rollout_flags[i], facts.rollout_rewards[i]
        if flags & BROKEN:
            mark = Span("✗ broken ", "warn")
        elif reward > 0:
            mark = Span("✓ passed ", "good")
        else:
            mark = Span("✗ failed ", "bad")
        extra = ("✂" if flags & TRUNCATED else " ") + ("!" if flags & FABRICATED else " ")
        purpose = PURPOSES[facts.rollout_purposes[i]]
        candidate = facts.candidates.names[facts.rollout_candidates[i]]
        task = facts.tasks.names[facts.rollout_tasks[i]]
        event = f" #{facts.rollout_positions[i]:<{self._digits}}" if width >= 64 else ""  # a task's name counts more
        return (
            mark,
            Span(extra + " ", "warn"),
            Span(fit(purpose, 9), "muted"),
            Span(fit(candidate, 12) + " ", ""),
            Span(fit(task, max(6, width - 34 - len(event))), ""),
            Span(event, "muted"),
        )

    def text(self, index: int) -> str:
        """See `Lines.text`."""
        i, facts = self.found[index], self.run.history.facts
        task = facts.tasks.names[facts.rollout_tasks[i]]
        return f"{task} {facts.candidates.names[facts.rollout_candidates[i]]} {PURPOSES[facts.rollout_purposes[i]]}"

    def key(self, index: int) -> object:
        """See `Lines.key`."""
        return self.found[index]

    def find(self, key: object) -> int | None:
        """See `Lines.find`: the list is ordered, newest first."""
        if not isinstance(key, int):
            return None
        low, high = 0, len(self.found)
        while low < high:
            middle = (low + high) // 2
            if self.found[middle] > key:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self.found) and self.found[low] == key else None

    @property
    def width(self) -> int:
        """Cut to the view."""
        return 0
