"""The lines of the frame: header, tabs, the past's banner, keys. Pure."""

import datetime
from collections.abc import Callable, Mapping

from textual.binding import ActiveBinding, Binding

from whale.tui.opened import Moment, OpenRun
from whale.tui.text import Line, Span, counted, cut, line, measure, thousands
from whale.tui.views import VIEWS
from whale.tui.views.runs import STATUS


def head_parts(run: OpenRun | None, moment: Moment | None, width: int) -> Line:
    """Name, status, where the run is, and how much of its log was read."""
    if run is None:
        return line(("whale ", "title"), ("no run is open", "muted"))
    if moment is None:
        return line(("whale ", "title"), (run.source.name, "strong"), ("  reading …", "muted"))
    state = moment.state
    sign, role = STATUS.get(moment.status, ("·", "muted"))
    left = [Span("whale ", "title"), Span(cut(run.source.name, max(8, width // 3)), "strong")]
    left.append(Span(f"  {sign} {moment.status}", role))
    if state.cycle or state.phase:
        cycles = state.config["schedule"]["cycles"] + state.extra_cycles if state.config else 0
        left.append(Span(f"  cycle {state.cycle}/{cycles}"))
        if state.phase:
            rounds = state.config["schedule"]["iterations"] if state.config else 0
            iteration = min(state.iteration + 1, rounds)
            done = f", {counted(state.step, 'step')} done"
            detail = {"weight": done, "harness": f", iteration {iteration}"}.get(state.phase, "")
            left.append(Span(f" · {state.phase}{detail}"))
    waiting = len(run.history.state.requests)
    if waiting:
        left.append(Span(f"  … {waiting} asked", "warn"))
    if run.head > moment.head and not run.caught_up.is_set():
        right = Span(f"reading {100 * moment.head / run.head:.0f} % of {thousands(run.head)} events", "warn")
    elif moment.live:
        right = Span(f"● live · event {moment.position:,}" if moment.runner else f"event {moment.position:,}", "muted")
    else:
        right = Span(f"event {moment.position:,} of {moment.head:,}", "warn")
    room = width - measure((right,)) - 1
    text: list[Span] = []
    for span in left:
        if measure(tuple(text)) + measure((span,)) > room:
            break
        text.append(span)
    gap = width - measure(tuple(text)) - measure((right,))
    return (*text, Span(" " * max(1, gap)), right)


def tab_parts(current: str, width: int) -> Line:
    """The screens with their keys; every second span is a gap, the others are targets."""
    pad, gap, names = " ", " ", [f"{n} {name.capitalize()}" for n, name in enumerate(VIEWS, 1)]
    for pad, gap, apart in ((" ", " ", " "), (" ", "", " "), ("", "", " "), ("", "", "")):
        names = [f"{n}{apart}{name.capitalize()}" for n, name in enumerate(VIEWS, 1)]
        if sum(len(name) + len(pad) + len(gap) + 1 for name in names) <= width:
            break
    else:  # too narrow for all names: the others by number
        names = [name if view == current else name[0] for name, view in zip(names, VIEWS, strict=True)]
    parts: list[Span] = []
    for name, view in zip(names, VIEWS, strict=True):
        parts += [Span(f" {name}{pad}", "tab-current" if view == current else "tab"), Span(gap)]
    return tuple(parts)


def past_parts(moment: Moment, width: int) -> Line:
    """Which moment is shown, and how to leave it."""
    at = datetime.datetime.fromtimestamp(moment.at, datetime.UTC).strftime("%d %b %H:%M:%S UTC")
    words = f" ◀ the past: after event {moment.position:,}, {at} "
    keys = line(("[ ]", "key"), " event  ", ("{ }", "key"), " phase  ", ("0", "key"), " now")
    return (Span(cut(words, max(10, width - measure(keys))), "warn"), *keys)


_ORDER = {"list.choose": 40, "steer.pause": 50, "app.search": 60, "app.help": 70}


def key_parts(
    active: Mapping[str, ActiveBinding], width: int, display: Callable[[Binding], str]
) -> tuple[Line, dict[int, str]]:
    """The keys of the screen in front, and which span presses which key."""
    shown: dict[str, Binding] = {}
    for found in active.values():
        binding = found.binding
        if binding.show and binding.id is not None:
            shown.setdefault(binding.id, binding)
    rows = sorted(shown.values(), key=lambda binding: _ORDER.get(binding.id or "", 0))
    tail = [binding for binding in rows if binding.id == "app.help"]
    parts: list[Span] = []
    targets: dict[int, str] = {}
    room = width - sum(len(display(b)) + len(b.description) + 3 for b in tail)
    for binding in rows:
        key = display(binding)
        if binding not in tail:
            room -= len(key) + len(binding.description) + 3
            if room < 0:
                continue
        targets[len(parts)] = targets[len(parts) + 1] = binding.key
        parts += [Span(f" {key}", "key"), Span(f" {binding.description} ", "muted")]
    return tuple(parts), targets
