"""Overview: what is going on, how long it will take, what was reached, what it cost, what was asked for."""

import datetime

from textual.app import ComposeResult

from whale.alternation.decide import selected, selects
from whale.alternation.state import State, Totals
from whale.events import types as ev
from whale.tui import charts
from whale.tui.estimate import Part, progress
from whale.tui.lines import LineView
from whale.tui.opened import Moment
from whale.tui.requests import request_lines
from whale.tui.text import NOTHING, FixedLines, Line, Span, cut, duration, line, money, share, thousands, wrap
from whale.tui.views.base import View, ever_accepted, pane

_PURPOSES = {"train": "training", "score": "scoring", "evaluate": "evaluation", "smoke": "smoke runs", "try": "trials"}


class Overview(View):
    """Panels on one run."""

    def compose(self) -> ComposeResult:
        """Six panels; a narrow terminal shows four of them."""
        yield pane(LineView(id="ov-now", cursor=False, empty="no run is open: choose one under 1 Runs"), "now")
        yield pane(LineView(id="ov-cost", cursor=False), "paid")
        yield pane(
            LineView(id="ov-scores", cursor=False, empty="no evaluation yet"), "held-out success, 95 % intervals"
        )
        yield pane(LineView(id="ov-curve", cursor=False, empty="no training step yet"), "reward in training")
        yield pane(LineView(id="ov-best", cursor=False, empty="no harness is scored yet"), "best score of each cycle")
        yield pane(LineView(id="ov-asked", cursor=False, empty="nothing was asked for yet"), "requests")

    def show(self, moment: Moment | None) -> None:
        """See `View.show`."""
        views = {view.id: view for view in self.query(LineView)}
        if moment is None:
            for view in views.values():
                view.set_lines(NOTHING)
            return
        state, facts, ever = moment.state, moment.run.history.facts, ever_accepted(moment)
        views["ov-now"].set_lines(lambda width: FixedLines(now_lines(moment, width), width=0))
        views["ov-cost"].set_lines(FixedLines(cost_lines(moment), width=0))
        views["ov-scores"].set_lines(lambda width: FixedLines(evaluation_lines(state, width), width=0))
        curve = views["ov-curve"]
        height = max(3, curve.scrollable_content_region.height or 8)
        curve.set_lines(lambda width: FixedLines(curve_lines(state, width, height), width=0))
        views["ov-best"].set_lines(lambda width: FixedLines(best_lines(state, ever, width), width=0))
        views["ov-asked"].set_lines(lambda width: FixedLines(request_lines(facts, moment.position, width), width=0))

    def on_resize(self) -> None:
        """The curve depends on its panel's height."""
        self.call_after_refresh(lambda: self.show(self.whale.moment))


def now_lines(moment: Moment, width: int) -> list[Line]:
    """Status, what is done at the moment, and bars with the time left."""
    state = moment.state
    plan = progress(state, moment.run.history.facts, moment.position)
    idle = "the log is damaged" if moment.run.damaged else "no process runs it; p starts one"
    doing = f"nothing: {idle}" if moment.status == "interrupted" else plan.doing
    lines = [line(("doing ", "muted"), (cut(doing, width - 6), "bad" if moment.status == "interrupted" else ""))]
    tails = [_tail(part, moment) for part in plan.parts]
    room = max(4, min(48, width - 14 - max(map(len, tails), default=0)))
    lines += [
        (Span(f"{part.label:<14}", "muted"), *charts.progress_bar(part.share, room), Span(tail))
        for part, tail in zip(plan.parts, tails, strict=True)
    ]
    rate = moment.run.history.facts.rate(moment.position)
    facts = [f"{rate:.1f} rollouts/s" if rate and state.status != "completed" else ""]
    if state.accepted:
        facts.append(f"harness {state.accepted}")
    if state.weights:
        facts.append(f"θ {state.weights[:8]}")
    lines.append(line(("using ", "muted"), cut(" · ".join(filter(None, facts)), width - 6)))
    paid = [sum(t.rollouts for t in state.totals.values()), sum(t.generated for t in state.totals.values())]
    lines.append(line(("paid  ", "muted"), f"{thousands(paid[0])} rollouts, {thousands(paid[1])} sampled tokens"))
    if state.revert_to:
        lines.append(line(("next  ", "muted"), (f"revert to {state.revert_to} when the phase ends", "warn")))
    chosen = getattr(state, "choose", "")
    if chosen:
        lines.append(line(("next  ", "muted"), (f"{chosen} is accepted by hand when the phase ends", "warn")))
    if getattr(state, "stop_after_phase", ""):
        lines.append(line(("next  ", "muted"), ("stop when the phase ends", "warn")))
    if state.interrupted and state.status != "completed":
        lines += [line((part, "bad")) for part in wrap(f"interrupted: {state.interrupted}", width)[:3]]
    for words in state.interventions[-2:]:
        lines.append(line(("hand  ", "muted"), (cut(words, width - 6), "warn")))
    return lines


def _tail(part: Part, moment: Moment) -> str:
    shown = moment.live and moment.status == "running" and part.done < part.total
    counts = f" {part.done}/{part.total} {part.unit}"
    left = f" ~{duration(part.left)} left" if part.left is not None and shown else ""
    return f"{counts}{left}"


def cost_lines(moment: Moment) -> list[Line]:
    """Rollouts and tokens by purpose, budgets, time."""
    state, facts = moment.state, moment.run.history.facts
    lines = [line((f"{'':<11}{'rollouts':>9}{'passed':>9}{'sampled':>9}{'prompts':>9}", "muted"))]
    totals = list(state.totals.items())
    whole = Totals()
    for purpose, t in totals:
        whole = Totals(
            whole.rollouts + t.rollouts, whole.passed + t.passed, whole.generated + t.generated,
            whole.prompted + t.prompted,
        )  # fmt: skip
        lines.append(_cost(_PURPOSES.get(purpose, purpose), t, ""))
    if totals:
        lines.append(_cost("all", whole, "strong"))
    config = state.config
    if config:
        cycles = config["schedule"]["cycles"] + state.extra_cycles
        more = f" (+{state.extra_cycles})" if state.extra_cycles else ""
        lines.append(line(("budget     ", "muted"), f"{state.cycle} of {cycles}{more} cycles"))
    if state.proposer_tokens:
        price = f"{money(state.proposer_dollars)}, " if state.proposer_dollars else ""
        lines.append(line(("proposer   ", "muted"), f"{price}{thousands(state.proposer_tokens)} tokens"))
    if moment.position:
        began = facts.times[0]
        when = datetime.datetime.fromtimestamp(began, datetime.UTC).strftime("%d %b %H:%M UTC")
        last = facts.times[moment.position - 1]
        lines.append(line(("began      ", "muted"), when, (f", last event {duration(last - began)} later", "muted")))
    return lines


def _cost(name: str, t: Totals, role: str) -> Line:
    passed = share(t.passed / t.rollouts) if t.rollouts else ""
    figures = f"{thousands(t.rollouts):>9}{passed:>9}{thousands(t.generated):>9}{thousands(t.prompted):>9}"
    return (Span(f"{name:<11}", role or "muted"), Span(figures, role))


def evaluation_lines(state: State, width: int) -> list[Line]:
    """Held-out success of each pair; the selected one is marked, and the test where it selects."""
    if not state.evaluations:
        return []
    best = selected(state)
    rows = [
        charts.Interval(
            ("(θ0, h0)" if e.cycle == 0 else f"cycle {e.cycle}") + (" test" if e.split == "test" else ""),
            e.score,
            e.low,
            e.high,
            f"{e.candidate} n={e.n}",
            e is best,
        )
        for e in state.evaluations
    ]
    by_test = [line(("the test selects the pair: optimistic", "muted"))] if selects(state) == "test" else []
    return [*charts.intervals(rows, width), *by_test]


def curve_lines(state: State, width: int, height: int) -> list[Line]:
    """Share of training rollouts that passed, step by step."""
    steps = state.steps
    if not steps:
        return []
    values = [step.passed / step.rollouts if step.rollouts else 0.0 for step in steps]
    losses = [f"{step.loss:.3f}" for step in steps[-1:] if step.loss is not None]
    title = f"step {len(steps)}: {share(values[-1])} passed" + (f", loss {losses[0]}" if losses else "")
    smooth = _smoothed(values) if len(values) > 8 else ()
    return [line((cut(title, width), "muted")), *charts.curve(values, width, height - 1, smooth=smooth)]


def _smoothed(values: list[float], weight: float = 0.8) -> list[float]:
    """An exponential mean, corrected for its start."""
    result, mean, norm = [], 0.0, 0.0
    for value in values:
        mean, norm = weight * mean + (1 - weight) * value, weight * norm + (1 - weight)
        result.append(mean / norm)
    return result


def best_lines(state: State, ever: set[str], width: int) -> list[Line]:
    """The best harness score of each cycle, beside that of the incoming harness; of equals, the accepted one."""
    cycles: dict[int, list[ev.CandidateScored]] = {}
    for candidate in state.candidates.values():
        for scored in candidate.scores:
            cycles.setdefault(scored.cycle, []).append(scored)
    rows = []
    for cycle, scores in sorted(cycles.items()):
        best = max(scores, key=lambda s: (s.score, s.candidate in ever, -s.iteration))
        incoming = next((s for s in scores if s.iteration == 0), None)
        gain = f" ({100 * (best.score - incoming.score):+.1f})" if incoming and incoming is not best else ""
        rows.append(charts.Interval(f"cycle {cycle}", best.score, best.low, best.high, f"{best.candidate}{gain}"))
    return charts.intervals(rows[-200:], width)
