"""Progress on stderr: a bar with rate and time left on a terminal, plain lines elsewhere."""

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from whale.cli.output import printable


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
        self.started = 0.0
        self.first = 0

    def begin(self, label: str, total: int, done: int = 0) -> None:
        """Show a bar."""
        self.end()
        self.progress.start()
        self.task = self.progress.add_task(printable(label), total=total, completed=done, rate="", note="")
        self.started, self.first = time.monotonic(), done

    def advance(self, done: int, note: str = "") -> None:
        """Move the bar."""
        if self.task is not None:
            elapsed = max(time.monotonic() - self.started, 1e-6)
            rate = f"{(done - self.first) / elapsed:.2f}/s"
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
    """For a log file or a pipe: one line per event, none per step of a bar."""

    def begin(self, label: str, total: int, done: int = 0) -> None:
        """Ignore."""

    def advance(self, done: int, note: str = "") -> None:
        """Ignore."""

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
