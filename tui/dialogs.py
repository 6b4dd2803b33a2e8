"""What stands over a screen: a question, a choice, the keys, what was asked for."""

from collections.abc import Callable, Sequence
from typing import ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from whale.tui.actions import bindings
from whale.tui.lines import LineBar, LineView
from whale.tui.text import FixedLines, Line, Lines, clean, line, wrap


class Dialog(ModalScreen[object]):
    """A box with lines; keys as anywhere else."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("dialog")

    def __init__(
        self, title: str, lines: "Lines | Callable[[int], Lines]", *, cursor: bool = False, danger: bool = False
    ):
        super().__init__(classes="-danger" if danger else "")
        self._title = title
        self._content = lines
        self._cursor = cursor

    def compose(self) -> ComposeResult:
        """The box."""
        with Vertical(id="box") as box:
            box.border_title = Content(clean(self._title))
            yield LineView(id="lines", cursor=self._cursor)
            yield LineBar(id="buttons")

    def on_mount(self) -> None:
        """Fill it."""
        self.query_one("#lines", LineView).set_lines(self._content)
        self.query_one("#lines", LineView).focus()
        self.buttons()

    def buttons(self) -> None:
        """What can be pressed."""
        self.query_one("#buttons", LineBar).set_parts(
            line((" esc ", "key"), "close"), {0: self.action_no, 1: self.action_no}
        )

    def action_yes(self) -> None:
        """Only questions can be agreed to."""

    def action_decline(self) -> None:
        """Only some questions can be answered with no."""

    def action_no(self) -> None:
        """Leave without an answer."""
        self.dismiss(None)


class Question(Dialog):
    """Something to agree to. Gives True, False where `no` says what that does, or None."""

    def __init__(
        self,
        title: str,
        lines: "Lines | Callable[[int], Lines]",
        yes: str,
        *,
        no: str = "",
        leave: str = "leave it as it is",
        danger: bool = False,
    ) -> None:
        super().__init__(title, lines, danger=danger)
        self._yes, self._no, self._leave = yes, no, leave

    def buttons(self) -> None:
        """See `Dialog.buttons`."""
        parts: list[str | tuple[str, str]] = [(" y ", "key"), f"{self._yes}   "]
        targets: dict[int, Callable[[], None]] = {0: self.action_yes, 1: self.action_yes}
        if self._no:
            targets |= {2: self.action_decline, 3: self.action_decline}
            parts += [(" n ", "key"), f"{self._no}   "]
        targets |= {len(parts): self.action_no, len(parts) + 1: self.action_no}
        parts += [(" esc ", "key"), self._leave]
        self.query_one("#buttons", LineBar).set_parts(line(*parts), targets)

    def action_yes(self) -> None:
        """Agree."""
        self.dismiss(True)

    def action_decline(self) -> None:
        """Decline."""
        if self._no:
            self.dismiss(False)


class Choice(Dialog):
    """One of some rows. Gives its key, or None."""

    def __init__(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        super().__init__(title, FixedLines([line(words) for _, words in rows], [key for key, _ in rows]), cursor=True)

    def buttons(self) -> None:
        """See `Dialog.buttons`."""
        self.query_one("#buttons", LineBar).set_parts(
            line((" ⏎ ", "key"), "choose   ", (" esc ", "key"), "leave it"),
            {0: self._choose, 1: self._choose, 2: self.action_no, 3: self.action_no},
        )

    def _choose(self) -> None:
        self.query_one("#lines", LineView).action_choose()

    @on(LineView.Chosen, "#lines")
    def _chosen(self) -> None:
        self.dismiss(cast(str, self.query_one("#lines", LineView).current))


def help_lines(groups: Sequence[tuple[str, Sequence[tuple[str, str, str]]]], file: str, width: int) -> list[Line]:
    """The keys of the scopes that are heard now."""
    lines: list[Line] = []
    column = min(max((len(keys) for _, rows in groups for keys, _, _ in rows), default=0), max(4, width // 3)) + 2
    for title, rows in groups:
        lines.append(line((title, "title")))
        for keys, words, id_ in rows:
            room = width - column - len(words) - 4
            name = (f"  {id_:>{room}}", "muted") if room >= len(id_) else ""
            first, *others = wrap(words, max(8, width - column - 2))
            lines.append(line((f"  {keys:<{column}}", "key"), first, name))
            lines += [line(" " * (column + 2), more) for more in others]
        lines.append(line(""))
    words = f'Change keys in {file}: a table for each scope, such as [steer] and in it pause = "P".'
    lines += [line((part, "muted")) for part in wrap(words, width)]
    return lines
