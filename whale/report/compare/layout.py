"""A table as data: cells for people, and the figures behind them for programs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whale.report.compare.intervals import Estimate
from whale.report.compare.records import RunRecord

COLUMNS = (
    "table", "domain", "system", "against", "seed", "split", "cycle", "quantity", "value", "low", "high", "seeds",
    "tasks", "rollouts", "select", "interventions", "complete",
)  # fmt: skip
"""The columns of the CSV and the keys of the JSON, in this order; a later release may add some at the end."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a report. Rates are in [0, 1]; empty fields do not apply."""

    table: str
    domain: str
    system: str
    quantity: str
    value: float
    against: str = ""
    """The system that it is compared with, or whose level is meant."""
    seed: int | None = None
    split: str = ""
    cycle: int | None = None
    low: float | None = None
    high: float | None = None
    seeds: int | None = None
    tasks: int | None = None
    rollouts: float | None = None
    """What the method had paid, evaluations apart; a mean over seeds."""
    select: str = "validation"
    """The split that chose the pair; "test" is the paper's rule, and optimistic."""
    interventions: int = 0
    """Of a human, over all runs behind the number."""
    complete: bool = True
    """Whether all runs behind the number came to their end."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a report."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()


MARKS = {
    "†": "a human intervened in a run behind this row",
    "‡": 'evaluate.select = "test": the test chose the pair, so its success there is optimistic',
    "§": "a run behind this row has not come to its end",
    "¶": "a run behind this row is a fork, or was given more cycles: its budget is its own",
}
"""What every table says of runs that are not as planned, in signs that need no colour."""


def marks(runs: Iterable[RunRecord]) -> str:
    """The marks of what these runs stand behind."""
    runs = list(runs)
    found = {
        "†": any(run.state.interventions for run in runs),
        "‡": any(run.selects == "test" for run in runs),
        "§": any(not run.complete for run in runs),
        "¶": any(run.state.origins or run.state.extra_cycles for run in runs),
    }
    return "".join(mark for mark, there in found.items() if there)


def legend(rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """What the marks in these rows mean."""
    text = "".join(cell for row in rows for cell in row)
    return tuple(f"{mark} {meaning}" for mark, meaning in MARKS.items() if mark in text)


def marked(name: str, runs: Iterable[RunRecord]) -> str:
    """A name with its marks."""
    signs = marks(runs)
    return f"{name} {signs}" if signs else name


def provenance(runs: Sequence[RunRecord]) -> dict[str, object]:
    """The marks of these runs as a figure has them."""
    return {
        "select": "test" if any(run.selects == "test" for run in runs) else "validation",
        "interventions": sum(len(run.state.interventions) for run in runs),
        "complete": all(run.complete for run in runs),
    }


def rate(found: Estimate | None) -> str:
    """A rate in percent with its interval."""
    if found is None:
        return ""
    return f"{100 * found.value:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def points(found: Estimate | None) -> str:
    """A difference in percentage points with its interval."""
    if found is None:
        return ""
    return f"{100 * found.value:+z.1f} [{100 * found.low:+z.1f}, {100 * found.high:+z.1f}]"


def whole(value: float) -> str:
    """A count with thousands apart."""
    return f"{value:,.0f}".replace(",", " ")
