"""Progress on stderr: a bar with rates and time left on a terminal, plain lines elsewhere."""

import datetime
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from whale.cli.output import printable

LINES_APART = 15.0
"""Seconds between two lines on the same long step, at least."""


class _Pace:
    """How fast a long step goes, since it began or went on in this process."""

    def __init__(self, total: int, done: int) -> None:
        self.total = total
        self._first = done
        self._started = time.monotonic()

    def rates(self, done: int, tokens: int | None) -> str:
        """Per second: of what is counted, and of sampled tokens where that are rollouts."""
        seconds = max(time.monotonic() - self._started, 1e-6)
        rate = f"{(done - self._first) / seconds:.2f}"
        return f"{rate}/s" if tokens is None else f"{rate} rollouts/s, {tokens / seconds:.0f} tokens/s"

    def left(self, done: int) -> str:
        """The time that the rest takes at this pace."""
        each = (time.monotonic() - self._started) / max(done - self._first, 1)
        return f"{datetime.timedelta(seconds=round(each * (self.total - done)))} left"


class TerminalProgress:
    """Bars for long steps, lines for events."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            transient=True,
        )
        self.task: TaskID | None = None
        self.pace = _Pace(0, 0)

    def begin(self, label: str, total: int, done: int = 0) -> None:
        """Show a bar."""
        self.end()
        self.progress.start()
        self.task = self.progress.add_task(printable(label), total=total, completed=done, rate="", note="")
        self.pace = _Pace(total, done)

    def advance(self, done: int, note: str = "", tokens: int | None = None) -> None:
        """Move the bar."""
        if self.task is not None:
            rate = self.pace.rates(done, tokens)
            self.progress.update(self.task, completed=done, rate=rate, note=printable(note))

    def end(self) -> None:
        """Take the bar away."""
        if self.task is not None:
            self.progress.remove_task(self.task)
            self.task = None
            self.progress.stop()

    def note(self, text: str) -> None:
        """One line, with the time of day."""
        self.console.print(_stamped(text), markup=False)


class LineProgress:
    """For a log file or a pipe: one line per event, and now and then one on how far a long step has come."""

    def __init__(self) -> None:
        self.label = ""
        self.pace = _Pace(0, 0)
        self.told = time.monotonic()

    def begin(self, label: str, total: int, done: int = 0) -> None:
        """Remember what is counted."""
        self.label, self.pace = label, _Pace(total, done)

    def advance(self, done: int, note: str = "", tokens: int | None = None) -> None:
        """A line, unless the last one was moments ago. What comes in one piece tells its own end."""
        if self.pace.total > 1 and time.monotonic() - self.told >= LINES_APART:
            self.told = time.monotonic()
            counted = f"{done} of {self.pace.total}, {self.pace.rates(done, tokens)}"
            self.note(", ".join(filter(None, (f"{self.label}: {counted}", note, self.pace.left(done)))))

    def end(self) -> None:
        """Ignore."""

    def note(self, text: str) -> None:
        """One line, with the time of day."""
        print(_stamped(text), file=sys.stderr, flush=True)


def _stamped(text: str) -> str:
    """A note as one line, with the time of day: a title's line breaks make no line of their own."""
    return f"{time.strftime('%H:%M:%S')}  {printable(' '.join(text.split()))}"


def reporter(quiet: bool) -> "TerminalProgress | LineProgress | None":
    """What suits stderr; None when nothing is wanted."""
    if quiet:
        return None
    return TerminalProgress() if sys.stderr.isatty() else LineProgress()
