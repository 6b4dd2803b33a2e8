"""How a runner tells what it is doing, without knowing who listens."""

from typing import Protocol


class Reporter(Protocol):
    """Receives progress; every call is cheap, and all but `note` come from the runner's thread only."""

    def begin(self, label: str, total: int, done: int = 0) -> None:
        """A long step began, or goes on: `done` of `total` rollouts (or steps) are recorded."""
        ...

    def advance(self, done: int, note: str = "", tokens: int | None = None) -> None:
        """`done` of the step's total are recorded now; of rollouts: `tokens` were sampled since it began or went on."""
        ...

    def end(self) -> None:
        """The long step is over."""
        ...

    def note(self, text: str) -> None:
        """One line on something that happened."""
        ...


class Silent:
    """A reporter that says nothing."""

    def begin(self, label: str, total: int, done: int = 0) -> None:
        """Ignore."""

    def advance(self, done: int, note: str = "", tokens: int | None = None) -> None:
        """Ignore."""

    def end(self) -> None:
        """Ignore."""

    def note(self, text: str) -> None:
        """Ignore."""
