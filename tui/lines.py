"""The widget under every long list, diff and transcript: it makes only the lines that are on the screen."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.color import Color
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from whale.tui.actions import bindings
from whale.tui.text import NOTHING, ROLES, FixedLines, Line, Lines, Span, clean, plain

MARK = "▌"
"""Stands left of the cursor's line, so that it shows without colour."""

Maker = Callable[[int], Lines]
"""Makes the lines for a width; asked again when the width changes."""


class Palette(Widget):
    """How roles look in the theme, once for all views: a view with forty styles of its own is slow to restyle."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"line--{role}" for role in ROLES}


class LineView(ScrollView, can_focus=True):
    """A scrolling list of `Lines`, with a cursor if `cursor`, sideways too where lines are wider than the view."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"line--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = bindings("list")

    class Moved(Message):
        """The cursor is on another line."""

        def __init__(self, view: "LineView", index: int) -> None:
            super().__init__()
            self.view, self.index = view, index

        @property
        def control(self) -> "LineView":
            """The view, for `@on(..., "#id")`."""
            return self.view

    class Chosen(Moved):
        """Enter, or a click on the cursor's line."""

    def __init__(self, *, id: str | None = None, cursor: bool = True, empty: str = "", classes: str | None = None):
        """`empty`: what stands there while there are no lines."""
        super().__init__(id=id, classes=classes)
        self.lines: Lines = NOTHING
        self.index = 0
        self.with_cursor = cursor
        self.empty = empty
        self.follow = False
        """Keep the cursor on the last line while lines are added."""
        self.needle = ""
        self._maker: Maker | None = None
        self._made_for = 0
        self._drawn: dict[tuple[int, bool], Strip] = {}
        self._styles_of: dict[str, Style] = {}

    def set_title(self, title: str) -> None:
        """Words on the border, taken as they are: a name may look like markup."""
        self.border_title = Content(clean(title))

    def set_subtitle(self, text: str) -> None:
        """Words on the border below."""
        self.border_subtitle = Content(clean(text))

    # --- content ---

    def set_lines(self, lines: Lines | Maker, *, keep: bool = True, top: bool = False) -> None:
        """Show other lines. `keep`: stay on the line with the same key; `top`: go to the first one."""
        if callable(lines):
            self._maker, self._made_for = lines, self._inner_width
            lines = lines(self._made_for)
        else:
            self._maker = None
        key = self.lines.key(self.index) if keep and self.index < len(self.lines) else None
        above = self.index - self.scroll_offset.y
        self.lines = lines
        self._drawn.clear()
        self.virtual_size = Size(max(lines.width + self._margin, 0), len(lines))
        found = lines.find(key) if key is not None else None
        if top:
            self.index = 0
            self.scroll_to(0, 0, animate=False)
        elif self.follow and len(lines):
            self.index = len(lines) - 1
        elif found is not None and found != self.index:
            self.index = found
            self.scroll_to(y=max(0, found - above), animate=False)
        self.index = max(0, min(self.index, len(lines) - 1))
        if self.with_cursor and (self.follow or top):
            self._into_view()
        self.refresh()

    @property
    def _margin(self) -> int:
        return 1 if self.with_cursor else 0

    @property
    def _inner_width(self) -> int:
        return max(1, self.scrollable_content_region.width - self._margin)

    @property
    def current(self) -> object | None:
        """The key of the cursor's line."""
        return self.lines.key(self.index) if self.index < len(self.lines) else None

    def on_resize(self, event: events.Resize) -> None:
        """Make the lines anew where they depend on the width."""
        self._drawn.clear()
        self._make_again()
        if self.with_cursor:
            self._into_view()

    def _make_again(self) -> None:
        if self._maker is not None and self._made_for != self._inner_width:
            self.set_lines(self._maker)

    # --- drawing ---

    def notify_style_update(self) -> None:
        """The theme changed: draw everything anew."""
        super().notify_style_update()
        self._styles_of.clear()
        self._drawn.clear()

    def _style(self, role: str) -> Style:
        """A role's look in the theme; colours that let the ground through are mixed with it here."""
        if not role:
            return Style.null()
        style = self._styles_of.get(role)
        if style is None and "|" in role:
            under, _, over = role.partition("|")
            style = self._styles_of[role] = self._style(under) + self._style(over)
        if style is None:
            owner = self if role == "cursor" else self.app.query_one(Palette)
            rules = owner.get_component_styles(f"line--{role}")
            ground = self.background_colors[1]
            back = fore = None
            if rules.has_rule("background"):
                ground = _mixed(ground, rules.background)
                back = ground.rich_color
            if rules.has_rule("color"):
                fore = _mixed(ground, rules.color).rich_color
            style = Style(color=fore, bgcolor=back) + rules.text_style
            self._styles_of[role] = style
        return style

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        width = self.scrollable_content_region.width
        row = y + self.scroll_offset.y
        base = self.rich_style
        if y == 0 and self._maker is not None and self._made_for != self._inner_width:
            # The lines were made while the view was hidden, or had another size.
            self.call_after_refresh(self._make_again)
        if row >= len(self.lines):
            if row == 0 and self.empty:
                style = base + self._style("muted")
                return Strip([Segment(f" {self.empty}", style)]).adjust_cell_length(width, base)
            return Strip.blank(width, base)
        here = self.with_cursor and row == self.index
        strip = self._drawn.get((row, here))
        if strip is None:
            strip = self._draw(self.lines.line(row, self._inner_width), here, base)
            if len(self._drawn) > 1000:
                self._drawn.clear()
            self._drawn[row, here] = strip
        left = self.scroll_offset.x
        fill = base + self._style("cursor") if here else base
        return strip.crop(left, left + width).extend_cell_length(width, fill)

    def _draw(self, parts: Line, here: bool, base: Style) -> Strip:
        fill = base + self._style("cursor") if here else base
        segments = []
        if self.with_cursor:
            segments.append(Segment(MARK if here else " ", fill + self._style("accent") if here else fill))
        if self.needle:
            parts = _marked(parts, self.needle)
        for text, role in parts:
            style = self._style(role)
            segments.append(Segment(clean(text), fill + style))
        return Strip(segments)

    def watch_has_focus(self, focus: bool) -> None:
        """The cursor looks different without focus."""
        super().watch_has_focus(focus)
        self._styles_of.clear()
        self._drawn.clear()

    # --- moving ---

    def move_to(self, index: int, *, centre: bool = False) -> None:
        """Put the cursor on a line, or scroll there where there is no cursor."""
        index = max(0, min(index, len(self.lines) - 1))
        if not self.with_cursor:
            self.scroll_to(y=index, animate=False)
            return
        if index != self.index:
            old, self.index = self.index, index
            self.refresh_lines(old)
            self.refresh_lines(index)
            self.post_message(self.Moved(self, index))
        self._into_view(centre=centre)

    def _into_view(self, *, centre: bool = False) -> None:
        height = max(1, self.scrollable_content_region.height)
        top = self.scroll_offset.y
        if centre and not top <= self.index < top + height:
            self.scroll_to(y=max(0, self.index - height // 2), animate=False)
        elif self.index < top:
            self.scroll_to(y=self.index, animate=False)
        elif self.index >= top + height:
            self.scroll_to(y=self.index - height + 1, animate=False)

    def _by(self, lines: int) -> None:
        if self.with_cursor:
            self.move_to(self.index + lines)
        else:
            self.scroll_to(y=self.scroll_offset.y + lines, animate=False)

    @property
    def _page(self) -> int:
        return max(1, self.scrollable_content_region.height - 1)

    def action_down(self) -> None:
        """One line down."""
        self._by(1)

    def action_up(self) -> None:
        """One line up."""
        self._by(-1)

    def action_page_down(self) -> None:
        """One page down."""
        self._by(self._page)

    def action_page_up(self) -> None:
        """One page up."""
        self._by(-self._page)

    def action_half_down(self) -> None:
        """Half a page down."""
        self._by(self._page // 2)

    def action_half_up(self) -> None:
        """Half a page up."""
        self._by(-(self._page // 2))

    def action_first(self) -> None:
        """To the first line."""
        self.move_to(0)

    def action_last(self) -> None:
        """To the last line."""
        self.move_to(len(self.lines) - 1)

    def _sideways(self, cells: int) -> None:
        shift = getattr(self.lines, "shift", None)
        if shift is None:
            self.scroll_to(x=self.scroll_offset.x + cells, animate=False)
        else:  # lines that move inside their columns
            self.lines.shift = max(0, shift + cells)  # type: ignore[attr-defined]
            self._drawn.clear()
            self.refresh()

    def action_left(self) -> None:
        """Scroll left."""
        self._sideways(-8)

    def action_right(self) -> None:
        """Scroll right."""
        self._sideways(8)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only a line under a cursor can be opened."""
        return self.with_cursor if action == "choose" else True

    def action_choose(self) -> None:
        """Open the cursor's line."""
        if len(self.lines):
            self.post_message(self.Chosen(self, self.index))

    def on_click(self, event: events.Click) -> None:
        """Select a line; select it again to open it."""
        row = event.y + self.scroll_offset.y
        if not self.with_cursor or row >= len(self.lines):
            return
        if row == self.index:
            self.action_choose()
        else:
            self.move_to(row)

    # --- searching ---

    def search(self, needle: str) -> None:
        """Mark what is searched for; "" ends it."""
        self.needle = needle
        self._drawn.clear()
        self.refresh()

    def found_from(self, start: int, step: int, *, stop: Callable[[], bool] = lambda: False) -> int | None:
        """The next line with the needle in it, around the end. Runs in a worker: it may look at every line."""
        needle, count = self.needle.lower(), len(self.lines)
        for distance in range(count):
            if distance % 1000 == 0 and stop():
                return None
            index = (start + step * distance) % count
            if needle in self.lines.text(index).lower():
                return index
        return None

    def copied(self) -> str:
        """What a copy takes: the cursor's line, or all of them where there is no cursor."""
        if self.with_cursor:
            return self.lines.text(self.index).rstrip() if len(self.lines) else ""
        return "\n".join(self.lines.text(i).rstrip() for i in range(min(len(self.lines), 20_000)))


def _mixed(ground: Color, over: Color) -> Color:
    """A colour over another one. The terminal's own colours cannot be mixed."""
    return over if over.a == 1 or over.ansi is not None else ground + over


def _marked(parts: Line, needle: str) -> Line:
    """The line with every occurrence of the needle in the role "match"."""
    text, lower, needle = plain(parts), plain(parts).lower(), needle.lower()
    if needle not in lower or len(lower) != len(text):
        return parts
    marks = bytearray(len(text))
    at = lower.find(needle)
    while at >= 0:
        marks[at : at + len(needle)] = b"\1" * len(needle)
        at = lower.find(needle, at + len(needle))
    result: list[tuple[str, str]] = []
    position = 0
    for piece, role in parts:
        for character in piece:
            wanted = "match" if marks[position] else role
            if result and result[-1][1] == wanted:
                result[-1] = (result[-1][0] + character, wanted)
            else:
                result.append((character, wanted))
            position += 1
    return tuple(Span(*pair) for pair in result)


class LineBar(LineView, can_focus=False):
    """One line that is no list: the header, the tabs, the keys. A click is answered by column."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, cursor=False)
        self._targets: list[tuple[int, int, Callable[[], object]]] = []

    def set_parts(self, parts: Line, targets: Mapping[int, Callable[[], object]] | None = None) -> None:
        """Show a line; `targets` says what a click on its n-th span does."""
        self._targets = []
        column = 0
        for n, (text, _) in enumerate(parts):
            width = cell_len(text)
            if targets and n in targets:
                self._targets.append((column, column + width, targets[n]))
            column += width
        self.set_lines(FixedLines([parts], width=0))

    def on_click(self, event: events.Click) -> None:
        """Do what stands there."""
        for start, end, act in self._targets:
            if start <= event.x < end:
                act()
                return
