"""The method's claims beside what the published runs of the embedded model say of them.

    python benchmarks/claims.py [--results docs/results]

Each row is a paired difference in success on the test (same seeds, tasks and sampling seeds) with its 95 % interval
over seeds and tasks, and the bootstrap's. A sign is only called where both leave zero out: with three seeds whose
spread is small by luck, the first alone is too narrow too often (`python benchmarks/report_intervals.py --paired`).

The same seeds were run more than once, as the code changed: "grid" has the newest run of each system, "before" the
one before that where the proposer was the newer one already, "first" the first run of the grid of systems.
"""

import argparse
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from whale.report.compare.layout import Figure
from whale.report.compare.report import tables
from whale.report.compare.sources import find
from whale.report.compare.systems import group

SETS = {
    "grid": ("systems/*", "schedules/*", "sides/*-s4.*", "sides/*-s5.*"),
    "before": (
        "embedded/*-weight-only-*", "embedded/*-fst-*", "explanations/*-whale-s?.*", "schedules/*",
        "sides/*-harness-only-*", "sides/*-weight-only-*",
    ),
    "first": ("embedded/*",),
}  # fmt: skip
WHALE = "whale (0.6, 4)"
FIXED = ("whale (0.2, 2)", "whale (0.2, 6)", "whale (0.6, 2)", WHALE, "whale (0.6, 6)", "whale (1.2, 12)")
Pair = tuple[str, str, str]
"""Domain, system, what it is compared with."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and which differences answer it."""

    asked: str
    pairs: tuple[Pair, ...]


def in_all(system: str, against: str, domains: tuple[str, ...] = ("searchqa", "math", "chess")) -> tuple[Pair, ...]:
    return tuple((domain, system, against) for domain in domains)


QUESTIONS = (
    Question("Is WHALE above training alone?", in_all(WHALE, "weight-only")),
    Question(
        "With other steps?",
        tuple(("searchqa", system, "weight-only") for system in (*FIXED, "adaptive") if system != WHALE),
    ),
    Question("Above search alone?", in_all(WHALE, "harness-only")),
    Question("Above FST: does the restriction to prompts cost?", in_all(WHALE, "fst (0.6, 4)")),
    Question("FST against training alone", in_all("fst (0.6, 4)", "weight-only")),
    Question("Which side is ahead alone? Search minus training", in_all("harness-only", "weight-only")),
    Question(
        "Is small-step alternation above stagewise?",
        tuple(("searchqa", system, "stagewise") for system in (*FIXED, "adaptive")),
    ),
    Question("Is Adaptive the best?", tuple(("searchqa", "adaptive", other) for other in (*FIXED, "weight-only"))),
    Question("Is one of the fixed steps?", tuple(("searchqa", *pair) for pair in combinations(FIXED, 2))),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A difference, and what it says."""

    cells: str
    says: str
    alone: bool
    """Whether search alone is one of the two."""
    excluded: bool
    """Whether the first interval leaves zero out."""


class Differences:
    """All paired differences among some runs, in either direction."""

    def __init__(self, results: Path, patterns: tuple[str, ...]) -> None:
        paths = [str(path) for pattern in patterns for path in sorted(results.glob(pattern))]
        grouped = group(find(paths).records)
        (paired,) = tables(grouped, ["paired"])
        self._found = {(f.domain, f.system, f.against, f.quantity): f for f in paired.figures}
        self._codes = {
            (s.domain, s.name): {run.seed: run.made_by.get("code", "") for run in s.runs} for s in grouped.systems
        }

    def of(self, pair: Pair) -> Row | None:
        """None where the runs have no such difference."""
        domain, system, against = pair
        intervals = []
        for quantity in ("difference", "difference, bootstrap"):
            straight = self._found.get((domain, system, against, quantity))
            turned = self._found.get((domain, against, system, quantity))
            figure, sign = (straight, 1) if straight else (turned, -1)
            if figure is None:
                return None
            intervals.append(_interval(figure, sign))
        assert figure is not None
        (value, low, high), (_, lower, higher) = intervals
        mark = "" if figure.split == "test" else " §"
        one, other = self._codes[domain, system], self._codes[domain, against]
        mark += " ‡" if any(one[seed] != other[seed] for seed in one.keys() & other.keys()) else ""
        says = "above" if min(low, lower) > 0 else "below" if max(high, higher) < 0 else "cannot tell"
        if figure.seeds == 1:
            says = "one seed"
        bounds = f"{value:+.1f} [{low:+.1f}, {high:+.1f}] | [{lower:+.1f}, {higher:+.1f}] | {figure.seeds}"
        return Row(
            f"{system} - {against}{mark} | {bounds} | {says}", says, "harness-only" in pair[1:], low > 0 or high < 0
        )


def _interval(figure: Figure, sign: int) -> tuple[float, float, float]:
    assert figure.low is not None and figure.high is not None
    low, high = sorted((sign * figure.low, sign * figure.high))
    return 100 * sign * figure.value, 100 * low, 100 * high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "docs" / "results")
    results: Path = parser.parse_args().results
    sets = {name: Differences(results, patterns) for name, patterns in SETS.items()}
    print("| question | domain | runs | difference | points | bootstrap | seeds | these runs say |")
    print("|---|---|---|---|---|---|---|---|")
    told: dict[tuple[str, str, frozenset[str]], Row] = {}
    for question in QUESTIONS:
        asked = question.asked
        for pair in question.pairs:
            shown: list[Row] = []
            for name, differences in sets.items():
                row = differences.of(pair)
                if row is None or row in shown:
                    continue  # the same runs are in two sets
                shown.append(row)
                print(f"| {asked} | {pair[0]} | {name} | {row.cells} |")
                told[name, pair[0], frozenset(pair[1:])] = row
                asked = ""
    print("\n- grid: the newest run of each system; before, first: runs of the same seeds by older code")
    if any("§" in row.cells for row in told.values()):
        print("- § on validation: runs behind it did not come to their test")
    if any("‡" in row.cells for row in told.values()):
        print("- ‡ the two sides were run by different code")
    both = [row for row in told.values() if not row.alone]
    called, excluded = sum(row.says in ("above", "below") for row in both), sum(row.excluded for row in both)
    chance = len(both) / 20
    print(
        f"- {len(told)} different differences; of the {len(both)} that are not to search alone, {called} are called. "
        f"The first interval leaves zero out in {excluded}; without any difference {chance:.1f} would by chance"
    )


if __name__ == "__main__":
    main()
