"""Charts as lines of text: pure, so that a test sees what a user sees."""

from collections.abc import Sequence
from dataclasses import dataclass

from whale.tui.text import Line, Span

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def progress_bar(done: float, width: int) -> Line:
    """A bar of `width` cells, filled to `done` in [0, 1]."""
    filled = max(0.0, min(1.0, done)) * width
    whole = int(filled)
    part = _EIGHTHS[int((filled - whole) * 8)].strip() if whole < width else ""
    return (Span("█" * whole + part, "bar"), Span("░" * (width - whole - len(part)), "bar-empty"))


def _limits(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    low = max(0.0, low - 0.02)
    high = min(1.0, high + 0.02)
    return (low, high) if high - low > 0.04 else (max(0.0, low - 0.05), min(1.0, high + 0.05))


def curve(values: Sequence[float], width: int, height: int, *, smooth: Sequence[float] = ()) -> list[Line]:
    """Rates over steps as a braille curve with a percent axis; more values than columns are averaged.

    `smooth` is drawn as the line, `values` as points behind it; without it the values are the line.
    """
    axis = 6
    columns = max(4, width - axis)
    if not values or height < 2:
        return []
    low, high = _limits([*values, *smooth])
    points = _grid(columns, height)
    _scatter(points, values, low, high, columns, height)
    line_ = _grid(columns, height)
    _connect(line_, list(smooth) or list(values), low, high, columns, height)
    rows: list[Line] = []
    for y in range(height):
        label = ""
        if y == 0:
            label = f"{100 * high:.0f} %"
        elif y == height - 1:
            label = f"{100 * low:.0f} %"
        elif y == height // 2 and height >= 5:
            label = f"{100 * (low + high) / 2:.0f} %"
        spans = [Span(f"{label:>5}┤" if label else "     │", "muted")]
        for x in range(columns):
            over, under = line_[y][x], points[y][x] if smooth else 0
            role, bits = ("accent", over | under) if over else ("muted", under)
            text = chr(0x2800 + bits) if bits else " "
            if len(spans) > 1 and spans[-1].role == role:
                spans[-1] = Span(spans[-1].text + text, role)
            else:
                spans.append(Span(text, role))
        rows.append(tuple(spans))
    return rows


def _grid(columns: int, height: int) -> list[list[int]]:
    return [[0] * columns for _ in range(height)]


def _set(grid: list[list[int]], x: int, y: int) -> None:
    grid[y // 4][x // 2] |= _DOTS[y % 4][x % 2]


def _places(values: Sequence[float], low: float, high: float, columns: int, height: int) -> list[tuple[int, int]]:
    """(x, y) in dots for each value, averaged where several share a column of dots."""
    wide, tall = columns * 2, height * 4
    if len(values) > wide:
        size = len(values) / wide
        values = [
            sum(chunk) / len(chunk)
            for i in range(wide)
            if (chunk := values[int(i * size) : max(int(i * size) + 1, int((i + 1) * size))])
        ]
    step = (wide - 1) / max(1, len(values) - 1)
    span = (high - low) or 1.0
    return [(round(i * step), round((tall - 1) * (high - value) / span)) for i, value in enumerate(values)]


def _scatter(
    grid: list[list[int]], values: Sequence[float], low: float, high: float, columns: int, height: int
) -> None:
    for x, y in _places(values, low, high, columns, height):
        _set(grid, x, max(0, min(height * 4 - 1, y)))


def _connect(
    grid: list[list[int]], values: Sequence[float], low: float, high: float, columns: int, height: int
) -> None:
    places = _places(values, low, high, columns, height)
    for (x0, y0), (x1, y1) in zip(places, places[1:] or places, strict=False):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(steps + 1):
            y = round(y0 + (y1 - y0) * i / steps)
            _set(grid, round(x0 + (x1 - x0) * i / steps), max(0, min(height * 4 - 1, y)))


@dataclass(frozen=True, slots=True)
class Interval:
    """A rate with its 95 % interval, to draw on one line."""

    label: str
    value: float
    low: float
    high: float
    note: str = ""
    best: bool = False


def intervals(rows: Sequence[Interval], width: int) -> list[Line]:
    """One line a row: label, "├──●──┤" on a common scale, the figures. The best one is a ◆ and bold."""
    if not rows:
        return []
    label = max(len(row.label) for row in rows)
    figures = [f"{100 * r.value:5.1f} % [{100 * r.low:.1f}, {100 * r.high:.1f}]" for r in rows]
    figure = max(map(len, figures))
    note = max(len(row.note) for row in rows)
    room = width - label - figure - 3
    if note and room - note - 1 >= 16:
        room -= note + 1
    else:
        note = 0
    if room < 8:
        note, room = 0, max(0, room)
    low = max(0.0, min(r.low for r in rows))
    high = min(1.0, max(r.high for r in rows))
    span = (high - low) or 1.0

    def place(value: float) -> int:
        return max(0, min(room - 1, round((room - 1) * (value - low) / span)))

    lines: list[Line] = []
    for row, text in zip(rows, figures, strict=True):
        track = [" "] * room
        if room >= 8:
            start, end = place(row.low), place(row.high)
            for x in range(start, end + 1):
                track[x] = "─"
            track[start], track[end] = "├", "┤"
            track[place(row.value)] = "◆" if row.best else "●"
        role = "good" if row.best else ""
        lines.append(
            (
                Span(f"{row.label:<{label}} ", "strong" if row.best else "muted"),
                Span("".join(track), "good" if row.best else "accent"),
                Span(f" {text:<{figure}}", role),
                Span(f" {row.note[:note]}" if note else "", "muted"),
            )
        )
    return lines
