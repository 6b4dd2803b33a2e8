"""The method's claims beside what the published runs of the embedded model say of them.

    python benchmarks/claims.py [--results docs/results]

Each row is a paired difference in success on the test (same seeds, tasks and sampling seeds) with its 95 % interval
over seeds and tasks, and the bootstrap's. A sign is only called where both leave zero out: with three seeds whose
spread is small by luck, the first alone is too narrow too often (`python benchmarks/report_intervals.py --paired`).

"grid" are the runs of systems.toml by one command and of one code, with those of schedules.toml and sides.toml (seeds
4 and 5). "earlier" is the same grid as older code ran it, with the same seeds: GPUs do not repeat to the bit, so it is
another draw of the same differences as well as other code.
"""

import argparse
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from whale.report.compare.layout import Figure
from whale.report.compare.report import tables
from whale.report.compare.sources import find
from whale.report.compare.systems import group

GRID = ("systems/*", "schedules/*", "sides/*-s4.*", "sides/*-s5.*")
EARLIER = ("embedded/*",)
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


class Differences:
    """All paired differences among some runs, in either direction."""

    def __init__(self, results: Path, patterns: tuple[str, ...]) -> None:
        paths = [str(path) for pattern in patterns for path in sorted(results.glob(pattern))]
        (paired,) = tables(group(find(paths).records), ["paired"])
        self._found = {(f.domain, f.system, f.against, f.quantity): f for f in paired.figures}

    def of(self, pair: Pair) -> tuple[str, str] | None:
        """The cells of a row, and what they say; None where the runs have no such difference."""
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
        says = "above" if min(low, lower) > 0 else "below" if max(high, higher) < 0 else "cannot tell"
        bounds = f"{value:+.1f} [{low:+.1f}, {high:+.1f}] | [{lower:+.1f}, {higher:+.1f}] | {figure.seeds}"
        return f"{system} - {against}{mark} | {bounds} | {says}", says


def _interval(figure: Figure, sign: int) -> tuple[float, float, float]:
    assert figure.low is not None and figure.high is not None
    low, high = sorted((sign * figure.low, sign * figure.high))
    return 100 * sign * figure.value, 100 * low, 100 * high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "docs" / "results")
    results: Path = parser.parse_args().results
    sets = {"grid": Differences(results, GRID), "earlier": Differences(results, EARLIER)}
    print("| question | domain | runs | difference | points | bootstrap | seeds | these runs say |")
    print("|---|---|---|---|---|---|---|---|")
    told = []
    for question in QUESTIONS:
        asked = question.asked
        for pair in question.pairs:
            for name, differences in sets.items():
                found = differences.of(pair)
                if found is None:
                    continue
                print(f"| {asked} | {pair[0]} | {name} | {found[0]} |")
                told.append(found)
                asked = ""
    if any("§" in cells for cells, _ in told):
        print("\n- § on validation: runs behind it did not come to their test")
    called = sum(says != "cannot tell" for _, says in told)
    print(
        f"- {len(told)} differences, of which {called} are called: were there none at all, a twentieth "
        f"({len(told) / 20:.1f}) of 95 % intervals would leave zero out by chance"
    )


if __name__ == "__main__":
    main()
