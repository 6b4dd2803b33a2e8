"""The geometry of a report's figures; report.html draws it.

Own geometry instead of a plotting library: two kinds of figure, a page that asks the network for nothing, the same
bytes for the same runs, and text that stays text for a screen reader. matplotlib would be 40 MB for that, and the
light SVG libraries load a script from a server. A system has a colour, a shape and a dash of its own, so that nothing
is told by colour alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from whale.report.compare.course import CurvePoint, curve
from whale.report.compare.intervals import estimate
from whale.report.compare.layout import legend, marked, rate
from whale.report.compare.success import outcomes, shown
from whale.report.compare.systems import System

WIDTH, HEIGHT = 760, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 16, 14, 40
_SHAPES = 6
_ROW = 26
_NAMES = 190


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid with its label."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A point with its interval; `text` says it in words."""

    x: float
    y: float
    low: float
    high: float
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Series:
    """A system's line, in its own style (0, 1, ...)."""

    name: str
    style: int
    line: str
    marks: tuple[Mark, ...]
    key: str
    """Its shape for the legend, around (8, 8)."""


@dataclass(frozen=True, slots=True)
class Curves:
    """Success by rollouts, all systems of a domain."""

    domain: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()
    """What the marks at the names mean."""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


@dataclass(frozen=True, slots=True)
class Forest:
    """The selected pairs of a domain's systems with their intervals, one under the other."""

    domain: str
    x_ticks: tuple[Tick, ...]
    rows: tuple[tuple[str, int, Mark], ...]
    height: int
    width: int = WIDTH
    bottom: int = 0


def curves_of(domain: str, systems: Sequence[System]) -> Curves | None:
    """The learning curves of a domain; None where nothing was evaluated."""
    lines = [(system, style, curve(system)) for style, system in enumerate(systems)]
    lines = [line for line in lines if line[2]]
    if not lines:
        return None
    seen = [point for _, _, points in lines for point in points]
    xs = nice_ticks(max(point.rollouts for point in seen))
    ys = nice_ticks(max(point.success.high for point in seen), 5)
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM

    def x(value: float) -> float:
        return _LEFT + (right - _LEFT) * value / xs[-1]

    def y(value: float) -> float:
        return bottom - (bottom - _TOP) * value / ys[-1]

    series = []
    for system, style, points in lines:
        marks = tuple(
            Mark(
                x(p.rollouts), y(p.success.value), y(p.success.low), y(p.success.high),
                shape(style, x(p.rollouts), y(p.success.value)), _words(system, p),
            )
            for p in points
        )  # fmt: skip
        line = " ".join(f"{mark.x:.1f},{mark.y:.1f}" for mark in marks)
        series.append(Series(marked(system.name, system.runs), style % _SHAPES, line, marks, shape(style, 8, 8)))
    return Curves(
        domain,
        tuple(Tick(x(value), f"{value:g}") for value in xs),
        tuple(Tick(y(value), f"{100 * value:g} %") for value in ys),
        tuple(series),
        legend([[line.name] for line in series]),
    )


def forest_of(domain: str, systems: Sequence[System]) -> Forest | None:
    """The success of a domain's systems; None where nothing was evaluated."""
    found = []
    for style, system in enumerate(systems):
        split, runs = shown(system)
        value = estimate([outcomes(run, split) for run in runs])
        if value is not None:
            seeds = f"{value.seeds} seed{'s' if value.seeds > 1 else ''}"
            found.append((f"{marked(system.name, runs)} ({split}, {seeds})", style, value))
    if not found:
        return None
    xs = nice_ticks(max(value.high for _, _, value in found), 5)

    def x(value: float) -> float:
        return _NAMES + (WIDTH - _RIGHT - _NAMES) * value / xs[-1]

    rows = []
    for index, (name, style, value) in enumerate(found):
        at = _TOP + _ROW * (index + 0.5)
        mark = Mark(x(value.value), at, x(value.low), x(value.high), shape(style, x(value.value), at), rate(value))
        rows.append((name, style % _SHAPES, mark))
    bottom = _TOP + _ROW * len(found)
    ticks = tuple(Tick(x(value), f"{100 * value:g} %") for value in xs)
    return Forest(domain, ticks, tuple(rows), height=bottom + 26, bottom=bottom)


def nice_ticks(most: float, about: int = 6) -> list[float]:
    """0, and steps of 1, 2 or 5 times a power of ten up to `most` or a little more."""
    if most <= 0:
        return [0.0, 1.0]
    raw = most / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return [round(step * i, 12) for i in range(math.ceil(most / step - 1e-9) + 1)]


def shape(style: int, x: float, y: float, r: float = 5.0) -> str:
    """The path of a system's mark around (x, y): circle, square, triangle, diamond, its point down, cross."""

    def closed(*corners: tuple[float, float]) -> str:
        return "M" + "L".join(f"{x + r * a:.1f} {y + r * b:.1f}" for a, b in corners) + "Z"

    match style % _SHAPES:
        case 0:
            return f"M{x - r:.1f} {y:.1f}a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0Z"
        case 1:
            return closed((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9))
        case 2:
            return closed((0, -1.1), (1.1, 0.9), (-1.1, 0.9))
        case 3:
            return closed((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0))
        case 4:
            return closed((0, 1.1), (1.1, -0.9), (-1.1, -0.9))
        case _:
            a, b = 0.35, 1.1
            return closed(
                (-a, -b),
                (a, -b),
                (a, -a),
                (b, -a),
                (b, a),
                (a, a),
                (a, b),
                (-a, b),
                (-a, a),
                (-b, a),
                (-b, -a),
                (-a, -a),
            )


def _words(system: System, point: CurvePoint) -> str:
    found = point.success
    return (
        f"{system.name}, cycle {point.cycle}: {rate(found)} % after {point.rollouts:.0f} rollouts, {found.seeds} seeds"
    )
