"""How systems get there: success by rollouts paid, what a level costs, how long adaptive phases are."""

from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from whale.report.compare.intervals import Estimate, estimate
from whale.report.compare.layout import Figure, Table, legend, marked, provenance, rate, whole
from whale.report.compare.records import RunRecord
from whale.report.compare.success import INTERVALS, outcomes, shown
from whale.report.compare.systems import Grouped, System


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A cycle of a system, over the seeds that reached it."""

    cycle: int
    rollouts: float
    success: Estimate


def curve(system: System, split: str = "validation") -> list[CurvePoint]:
    """Success after each cycle against what the method had paid until then."""
    cycles = sorted({point.evaluated.cycle for run in system.runs for point in run.on(split)})
    result = []
    for cycle in cycles:
        there = [point for run in system.runs for point in run.on(split) if point.evaluated.cycle == cycle]
        found = estimate([point.outcomes for point in there])
        if found is not None:
            result.append(CurvePoint(cycle, fmean(point.rollouts for point in there), found))
    return result


def curves_table(grouped: Grouped) -> Table:
    """The learning curves."""
    rows, figures = [], []
    for system in grouped.systems:
        more: Any = provenance(system.runs)
        for point in curve(system):
            found = point.success
            rows.append(
                (
                    system.domain, marked(system.name, system.runs), str(point.cycle), whole(point.rollouts),
                    rate(found), str(found.seeds), str(found.tasks),
                )
            )  # fmt: skip
            figures.append(
                Figure(
                    "curves", system.domain, system.name, "success", found.value, split="validation", cycle=point.cycle,
                    low=found.low, high=found.high, seeds=found.seeds, tasks=found.tasks, rollouts=point.rollouts,
                    **more,
                )
            )  # fmt: skip
    columns = ("domain", "system", "cycle", "rollouts", "success, %", "seeds", "tasks")
    notes = ("rollouts: all that the method had paid, evaluations apart; a mean over seeds", INTERVALS, *legend(rows))
    return Table("curves", "Validation success by rollouts", columns, tuple(rows), notes, tuple(figures))


def cost_table(grouped: Grouped) -> Table:
    """What it costs each system to reach the best level of each."""
    rows, figures = [], []
    for domain, systems in grouped.by_domain().items():
        curves = {system.name: curve(system) for system in systems}
        tops = {
            name: max(points, key=lambda p: (p.success.value, -p.rollouts)) for name, points in curves.items() if points
        }
        for target in systems:
            if target.name not in tops:
                continue
            level = tops[target.name]
            for system in systems:
                if system is target or system.name not in tops:
                    continue
                there = next((p for p in curves[system.name] if p.success.value >= level.success.value), None)
                more: Any = provenance([*system.runs, *target.runs])
                cells = (
                    domain, f"{100 * level.success.value:.1f}", marked(target.name, target.runs),
                    whole(level.rollouts), marked(system.name, system.runs),
                )  # fmt: skip
                if there is None:
                    best = tops[system.name].success.value
                    rows.append((*cells, f"not reached, best {100 * best:.1f}", "", ""))
                    continue
                share = f"{100 * there.rollouts / level.rollouts:.0f}" if level.rollouts else ""
                rows.append((*cells, whole(there.rollouts), share, str(there.cycle)))
                figures.append(
                    Figure(
                        "cost", domain, system.name, "rollouts to reach", there.rollouts, against=target.name,
                        split="validation", cycle=there.cycle, seeds=there.success.seeds,
                        rollouts=there.rollouts, **more,
                    )
                )  # fmt: skip
    columns = ("domain", "level, %", "best of", "its rollouts", "reached by", "rollouts", "% of its", "cycle")
    notes = (
        "level: the best mean validation success of a system over its cycles; reached at the first cycle whose mean "
        "over seeds is not below it; no interval: a maximum of noisy means is optimistic",
        *legend(rows),
    )
    return Table("cost", "What a level costs", columns, tuple(rows), notes if rows else (), tuple(figures))


def schedule_table(grouped: Grouped) -> Table:
    """Schedules that alternate both sides in the full space, side by side."""
    rows, figures = [], []
    for system in grouped.systems:
        schedule, space = system.config.get("schedule", {}), system.config.get("search", {}).get("space", "full")
        kind = schedule.get("kind", "fixed")
        if kind not in ("fixed", "adaptive") or space == "prompts":
            continue
        split, runs = shown(system)
        found = estimate([outcomes(run, split) for run in runs])
        epochs = fmean(sum(p.length for p in run.phases if p.side == "weight") for run in system.runs)
        rounds = fmean(sum(p.length for p in run.phases if p.side == "harness") for run in system.runs)
        paid = fmean(run.rollouts for run in system.runs)
        accepted, searches = sum(run.accepted for run in system.runs), sum(run.searches for run in system.runs)
        step = "patience" if kind == "adaptive" else f"({schedule.get('epochs')}, {schedule.get('iterations')})"
        rows.append(
            (
                system.domain, marked(system.name, system.runs), step,
                f"{fmean(_cycles(run) for run in system.runs):.1f}", f"{epochs:.2f}", f"{rounds:.1f}",
                f"{accepted} of {searches}", whole(paid), split if runs else "", rate(found),
            )
        )  # fmt: skip
        more: Any = provenance(system.runs)
        for quantity, value in (("epochs", epochs), ("iterations", rounds), ("accepted", float(accepted))):
            figures.append(
                Figure(
                    "schedules",
                    system.domain,
                    system.name,
                    quantity,
                    value,
                    seeds=len(system.runs),
                    rollouts=paid,
                    **more,
                )
            )
        if found is not None:
            figures.append(
                Figure(
                    "schedules", system.domain, system.name, "success", found.value, split=split, low=found.low,
                    high=found.high, seeds=found.seeds, tasks=found.tasks, rollouts=paid, **more,
                )
            )  # fmt: skip
    columns = (
        "domain", "system", "(E, I)", "cycles", "epochs", "iterations", "accepted", "rollouts", "split", "success, %"
    )  # fmt: skip
    notes = (
        "cycles: those evaluated; epochs, iterations: in phases that ended; a mean over seeds, as rollouts are",
        INTERVALS,
        *legend(rows),
    )
    return Table("schedules", "Schedules", columns, tuple(rows), notes if rows else (), tuple(figures))


def _cycles(run: RunRecord) -> int:
    """Cycles that came to their evaluation."""
    return sum(point.evaluated.cycle > 0 for point in run.on("validation"))


def phases_table(grouped: Grouped) -> Table:
    """How long adaptive phases were."""
    rows, figures = [], []
    for system in grouped.systems:
        if system.config.get("schedule", {}).get("kind") != "adaptive":
            continue
        for side, unit in (("weight", "epochs"), ("harness", "iterations")):
            phases = [phase for run in system.runs for phase in run.phases if phase.side == side]
            if not phases:
                continue
            lengths = [phase.length for phase in phases]
            patient = sum(phase.reason.startswith("patience") for phase in phases)
            shape = "{:.2f}" if side == "weight" else "{:g}"
            rows.append(
                (
                    system.domain, marked(system.name, system.runs), side, unit,
                    *(shape.format(f(lengths)) for f in (median, min, max)), f"{patient} of {len(phases)}",
                    str(len(system.runs)),
                )
            )  # fmt: skip
            more: Any = provenance(system.runs)
            for name, of in (("median", median), ("min", min), ("max", max)):
                figures.append(
                    Figure(
                        "phases", system.domain, system.name, f"{name} {unit} of a {side} phase", float(of(lengths)),
                        seeds=len(system.runs), **more,
                    )
                )  # fmt: skip
    columns = ("domain", "system", "phases", "unit", "median", "shortest", "longest", "ended by patience", "seeds")
    return Table("phases", "Adaptive phases", columns, tuple(rows), legend(rows), tuple(figures))
