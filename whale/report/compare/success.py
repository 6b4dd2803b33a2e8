"""How well each system does: its success, its gain, each of its runs, and one system against another."""

from collections.abc import Sequence
from itertools import combinations, product
from statistics import fmean
from typing import Any

from whale.report.compare.intervals import Estimate, estimate, paired_bootstrap, paired_estimate
from whale.report.compare.layout import Figure, Table, legend, marked, points, provenance, rate, whole
from whale.report.compare.records import RunRecord
from whale.report.compare.systems import Grouped, System

INTERVALS = "95 % intervals over seeds and tasks, both drawn at random; with one seed over tasks alone"


def split_of(runs: Sequence[RunRecord]) -> str:
    """The split on which a system is shown: the test, where any of its runs was tested."""
    return "test" if any(run.chosen("test") for run in runs) else "validation"


def shown(system: System) -> tuple[str, list[RunRecord]]:
    """The split on which a system is shown, and its runs that have their selected pair there."""
    split = split_of(system.runs)
    return split, [run for run in system.runs if run.chosen(split)]


def outcomes(run: RunRecord, split: str, first: bool = False) -> Any:
    """The recorded outcomes of a run's selected pair (or of its first one)."""
    point = run.first(split) if first else run.chosen(split)
    return point.outcomes if point else ()


def paired_within(runs: Sequence[RunRecord], split: str) -> Estimate | None:
    """The gain of the selected pairs over (θ0, h0)."""
    return paired_estimate([(outcomes(run, split, first=True), outcomes(run, split)) for run in runs])


def success_table(grouped: Grouped) -> Table:
    """Success by system, on the test where it was read."""
    rows, figures, notes = [], [], [INTERVALS]
    for system in grouped.systems:
        split, runs = shown(system)
        untested = [run.name for run in system.runs if run not in runs]
        if untested and runs:
            notes.append(f"{system.domain}, {system.name}: without {', '.join(untested)}, which have no {split}")
        if not runs:
            rows.append((system.domain, marked(system.name, system.runs), "not evaluated", *[""] * 6))
            continue
        start = estimate([outcomes(run, split, first=True) for run in runs])
        found = estimate([outcomes(run, split) for run in runs])
        gain = paired_within(runs, split)
        assert found is not None
        paid = fmean(run.rollouts for run in runs)
        rows.append(
            (
                system.domain, marked(system.name, runs), split, rate(start), rate(found), points(gain),
                str(found.seeds), str(found.tasks), whole(paid),
            )
        )  # fmt: skip
        for quantity, value in (("first", start), ("success", found), ("gain", gain)):
            if value is not None:
                figures.append(_figure("success", system, runs, split, quantity, value, paid))
    if any(row[2] == "validation" for row in rows):
        notes.append("validation chose the pair that is shown: where the test was not read, success is optimistic")
    return Table(
        "success", "Held-out success by system, %",
        ("domain", "system", "split", "(θ0, h0)", "selected pair", "gain, points", "seeds", "tasks", "rollouts"),
        tuple(rows), (*notes, *legend(rows)), tuple(figures),
    )  # fmt: skip


def _figure(
    table: str, system: System, runs: Sequence[RunRecord], split: str, quantity: str, found: Estimate, paid: float
) -> Figure:
    more: Any = provenance(runs)
    return Figure(
        table, system.domain, system.name, quantity, found.value, split=split, low=found.low, high=found.high,
        seeds=found.seeds, tasks=found.tasks, rollouts=paid, **more,
    )  # fmt: skip


def paired_table(grouped: Grouped, against: str | None = None) -> Table:
    """Each system against each other one, or all against the one named `against`, on the tasks and seeds of both."""
    rows, figures, without = [], [], []
    for domain, systems in grouped.by_domain().items():
        named = [system for system in systems if system.name == against]
        others = [system for system in systems if system.name != against]
        if against is not None and not named:
            without.append(f"{domain}: no system there is named {against}")
        for one, other in combinations(systems, 2) if against is None else product(named, others):
            split = "test" if split_of(one.runs) == split_of(other.runs) == "test" else "validation"
            by_seed = {run.seed: run for run in one.runs if run.chosen(split)}
            both = [(by_seed[run.seed], run) for run in other.runs if run.seed in by_seed and run.chosen(split)]
            sides = [(outcomes(a, split), outcomes(b, split)) for a, b in both]
            found, drawn = paired_estimate(sides), paired_bootstrap(sides)
            runs = [run for pair in both for run in pair]
            names = marked(other.name, [b for _, b in both]), marked(one.name, [a for a, _ in both])
            if found is None or drawn is None:
                rows.append((domain, *names, split, "no common seeds and tasks", "", "", ""))
                continue
            bounds = f"[{100 * drawn.low:+.1f}, {100 * drawn.high:+.1f}]"
            rows.append((domain, *names, split, points(found), bounds, str(found.seeds), str(found.tasks)))
            more: Any = provenance(runs)
            figures += [
                Figure(
                    "paired", domain, other.name, quantity, value.value, against=one.name, split=split,
                    low=value.low, high=value.high, seeds=value.seeds, tasks=value.tasks, **more,
                )
                for quantity, value in (("difference", found), ("difference, bootstrap", drawn))
            ]  # fmt: skip
    notes = (
        "a positive difference: the system is better than the one that it is compared with",
        "paired: the same seed on both sides, the same tasks and sampling seeds",
        INTERVALS,
        "bootstrap: the same by drawing seeds and tasks again, crossed, 4000 times with a fixed seed",
        *without,
        *legend(rows),
    )
    columns = ("domain", "system", "against", "split", "difference, points", "bootstrap", "seeds", "tasks")
    return Table("paired", "One system against another", columns, tuple(rows), notes if rows else (), tuple(figures))


def runs_table(grouped: Grouped) -> Table:
    """Each run."""
    made = [_run(system, run) for system in grouped.systems for run in system.runs]
    rows = [row for row, _ in made]
    columns = (
        "domain", "system", "seed", "split", "(θ0, h0), %", "selected pair, %", "gain, points", "n", "rollouts",
        "minutes", "accepted", "run",
    )  # fmt: skip
    notes = (
        "95 % intervals over tasks; the gain is paired: same tasks, same sampling seeds",
        "minutes: from a run's first event to its last, beside whatever else its machine did",
        *legend(rows),
    )
    return Table("runs", "Each run", columns, tuple(rows), notes, tuple(f for _, figures in made for f in figures))


def _run(system: System, run: RunRecord) -> tuple[tuple[str, ...], list[Figure]]:
    split = split_of([run])
    point, start = run.chosen(split), run.first(split)
    found = estimate([point.outcomes]) if point else None
    gain = paired_within([run], split) if point and point.evaluated.cycle else None
    before = estimate([start.outcomes]) if point and start else None
    where = "complete" if run.complete else f"not complete, in cycle {run.state.cycle}"
    row = (
        system.domain,
        marked(system.name, [run]),
        str(run.seed),
        split if point else "",
        f"{100 * before.value:.1f}" if before else "",
        rate(found) if found else "",
        (points(gain) or "the first pair") if point else "",
        str(len(point.outcomes)) if point else "",
        whole(run.rollouts),
        f"{run.seconds / 60:.1f}",
        f"{run.accepted} of {run.searches}" if run.searches else "",
        f"{where}, pair of cycle {point.evaluated.cycle}" if point else where,
    )
    more: Any = provenance([run])
    cycle = point.evaluated.cycle if point else None
    figures = [
        Figure(
            "runs", system.domain, system.name, quantity, value.value, seed=run.seed, split=split, cycle=cycle,
            low=value.low, high=value.high, seeds=1, tasks=value.tasks, rollouts=run.rollouts, **more,
        )
        for quantity, value in (("first", before), ("success", found), ("gain", gain))
        if value is not None
    ]  # fmt: skip
    figures.append(
        Figure("runs", system.domain, system.name, "minutes", run.seconds / 60, seed=run.seed, seeds=1, **more)
    )
    return row, figures
