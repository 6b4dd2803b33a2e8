"""What stands between a system and success: format, truncation, and what a domain measures of retrieval."""

from typing import Any

from whale.events.types import Outcome
from whale.report.compare.intervals import Measure, estimate
from whale.report.compare.layout import Figure, Table, legend, marked, provenance, rate
from whale.report.compare.success import INTERVALS, outcomes, shown
from whale.report.compare.systems import Grouped


def _format(outcome: Outcome) -> float | None:
    # A rollout that failed has no verdict, and no answer in the right form.
    return outcome.metrics.get("format", 0.0)


def _truncated(outcome: Outcome) -> float | None:
    return float(outcome.truncated)


def _failed(outcome: Outcome) -> float | None:
    return float(outcome.status != "ok")


def _retrieval(outcome: Outcome) -> float | None:
    return outcome.metrics.get("answer_bearing", 0.0)


def _extraction(outcome: Outcome) -> float | None:
    return float(outcome.reward >= 1) if outcome.metrics.get("answer_bearing", 0.0) >= 1 else None


def _fabricated(outcome: Outcome) -> float | None:
    return float(outcome.fabricated) if outcome.reward > 0 else None


_MEASURES: dict[str, tuple[Measure, str]] = {
    "format": (_format, "format"),
    "truncated": (_truncated, ""),
    "failed": (_failed, ""),
    "retrieval": (_retrieval, "answer_bearing"),
    "extraction": (_extraction, "answer_bearing"),
    "fabricated": (_fabricated, ""),
}
"""By name: the measure, and the metric of the domain without which there is none."""


def capability_table(grouped: Grouped) -> Table:
    """The first and the selected pair of each system, measure by measure."""
    rows, figures = [], []
    for system in grouped.systems:
        split, runs = shown(system)
        for pair, first in (("(θ0, h0)", True), ("selected", False)):
            seen = [outcomes(run, split, first=first) for run in runs]
            if not any(seen):
                continue
            metrics = {name for of_run in seen for outcome in of_run for name in outcome.metrics}
            found = {
                name: estimate(seen, measure) if not needs or needs in metrics else None
                for name, (measure, needs) in _MEASURES.items()
            }
            rows.append(
                (
                    system.domain, marked(system.name, runs), split, pair,
                    *(rate(value) for value in found.values()),
                )
            )  # fmt: skip
            more: Any = provenance(runs)
            figures += [
                Figure(
                    "capability", system.domain, system.name, f"{name}, {pair}", value.value, split=split,
                    low=value.low, high=value.high, seeds=value.seeds, tasks=value.tasks, **more,
                )
                for name, value in found.items()
                if value is not None
            ]  # fmt: skip
    notes = (
        "retrieval: a tool's result held an answer; extraction: passed, of those; fabricated: of the passed, the "
        "answer stood in text that the harness wrote; empty: the logs do not have it",
        INTERVALS,
        *legend(rows),
    )
    columns = ("domain", "system", "split", "pair", *(f"{name}, %" for name in _MEASURES))
    return Table("capability", "What stands between", columns, tuple(rows), notes, tuple(figures))
