"""The method's claims beside what the published runs of the embedded model say of them.

    python benchmarks/claims.py [--results docs/results]

Each row is a paired difference in success on the test (same seeds, tasks and sampling seeds), its 95 % interval over
seeds and tasks, and what that interval says: above or below zero, or that these runs cannot tell.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

from whale.report.compare.layout import Figure
from whale.report.compare.report import tables
from whale.report.compare.sources import find
from whale.report.compare.systems import group

WHALE = "whale (0.6, 4)"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and which differences answer it: (domain, system, against)."""

    asked: str
    pairs: tuple[tuple[str, str, str], ...]


DOMAINS = ("searchqa", "math", "chess")
QUESTIONS = (
    Question("Is WHALE above training alone?", tuple((domain, WHALE, "weight-only") for domain in DOMAINS)),
    Question("Above search alone?", tuple((domain, WHALE, "harness-only") for domain in DOMAINS)),
    Question(
        "Does the restriction to prompts (FST) cost?", tuple((domain, WHALE, "fst (0.6, 4)") for domain in DOMAINS)
    ),
    Question(
        "Which side is ahead alone: search minus training",
        tuple((domain, "harness-only", "weight-only") for domain in DOMAINS),
    ),
    Question(
        "Is small-step alternation above stagewise?",
        tuple(
            ("searchqa", system, "stagewise")
            for system in ("whale (0.2, 2)", "whale (0.2, 6)", "whale (0.6, 6)", "adaptive")
        ),
    ),
    Question(
        "Is Adaptive the best schedule?",
        tuple(
            ("searchqa", "adaptive", against)
            for against in (
                "whale (0.2, 2)", "whale (0.2, 6)", "whale (0.6, 2)", "whale (0.6, 6)", "whale (1.2, 12)", "stagewise",
                "weight-only",
            )
        ),
    ),
    Question(
        "Is (0.2, 6)?",
        tuple(
            ("searchqa", "whale (0.2, 6)", against)
            for against in ("whale (0.2, 2)", "whale (0.6, 2)", "whale (0.6, 6)", "whale (1.2, 12)")
        ),
    ),
)  # fmt: skip


def reading(low: float, high: float) -> str:
    """What a 95 % interval says of a difference's sign."""
    return "yes, above" if low > 0 else "no, below" if high < 0 else "cannot tell"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "docs" / "results")
    results: Path = parser.parse_args().results
    grouped = group(find([str(results / name) for name in ("embedded", "sides", "schedules")]).records)
    (paired,) = tables(grouped, ["paired"])
    found: dict[tuple[str, str, str], tuple[Figure, int]] = {}
    for figure in paired.figures:
        if figure.quantity == "difference" and figure.against is not None:
            found[figure.domain, figure.system, figure.against] = figure, 1
            found[figure.domain, figure.against, figure.system] = figure, -1
    print("| question | domain | difference | points | seeds | these runs say |")
    print("|---|---|---|---|---|---|")
    marked = False
    for question in QUESTIONS:
        for pair in question.pairs:
            figure, sign = found[pair]
            assert figure.low is not None and figure.high is not None
            low, high = sorted((sign * figure.low, sign * figure.high))
            mark = "" if figure.split == "test" else " §"
            marked = marked or bool(mark)
            print(
                f"| {question.asked if pair == question.pairs[0] else ''} | {pair[0]} | {pair[1]} - {pair[2]}{mark} | "
                f"{100 * sign * figure.value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}] | {figure.seeds} | "
                f"{reading(low, high)} |"
            )
    if marked:
        print("\n- § on validation: runs behind it did not come to their test")


if __name__ == "__main__":
    main()
