"""The method's claims beside what the published runs of the embedded model say of them.

    python benchmarks/claims.py [--results docs/results]

Each row is a paired difference in success on the test (same seeds, tasks and sampling seeds) with its 95 % interval
over seeds and tasks, and the bootstrap's. A sign is only called where both leave zero out: with three seeds whose
spread is small by luck, the first alone is too narrow too often (`python benchmarks/report_intervals.py --paired`).
Most of it was run before, by older code: the second table has what was run twice, newest minus before, and the third
the same differences as the first by those earlier runs, where there are any.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

from whale.events import MemoryLog
from whale.events.transfer import read_file
from whale.events.types import HarnessValidated
from whale.report.compare.intervals import Estimate, paired_bootstrap, paired_estimate
from whale.report.compare.records import RunRecord
from whale.report.compare.sources import find
from whale.report.compare.success import outcomes, split_of

ALL = ("searchqa", "math", "chess")
TRAINING, SEARCH, WHALE, FST = "training alone", "search alone", "WHALE (0.6, 4)", "FST (0.6, 4)"
FIXED = ("WHALE (0.2, 2)", "WHALE (0.2, 6)", "WHALE (0.6, 2)", WHALE, "WHALE (0.6, 6)", "WHALE (1.2, 12)")
ARMS: Mapping[str, tuple[str, ...]] = {
    TRAINING: ("systems/{}-weight-only-s?.",),
    SEARCH: ("systems/{}-harness-only-s?.",),
    "training alone, seeds 1 to 5": ("systems/{}-weight-only-s?.", "sides/{}-weight-only-s[45]."),
    "search alone, seeds 1 to 5": ("systems/{}-harness-only-s?.", "sides/{}-harness-only-s[45]."),
    WHALE: ("systems/{}-whale-s?.",),
    FST: ("systems/{}-fst-s?.",),
    **{f"WHALE ({e[0]}.{e[1]}, {i})": (f"schedules/{{}}-whale-{e}-{i}-s?.",)
       for e, i in (("02", 2), ("02", 6), ("06", 2), ("06", 6), ("12", 12))},
    "Adaptive": ("schedules/{}-adaptive-s?.",),
    "stagewise": ("schedules/{}-stagewise-s?.",),
    "training alone at 1e-4": ("explanations/{}-weight-only-lr-s?.",),
    "WHALE at 1e-4": ("explanations/{}-whale-lr-s?.",),
    "WHALE with confirm": ("explanations/{}-whale-confirm-s?.",),
    "WHALE with more tasks": ("explanations/{}-whale-data-s?.",),
    "training with 9,793 rollouts": ("control/{}-weight-only-long-s?.",),
    "with 2,305": ("control/{}-weight-only-s?.",),
    "GRPO": ("methods/{}-grpo-s?.",),
}  # fmt: skip
"""Which logs are the seeds of what; {} is the domain."""
BEFORE: Mapping[str, tuple[str, ...]] = {
    TRAINING: ("embedded/{}-weight-only-?.",),
    SEARCH: ("embedded/{}-harness-only-?.",),
    WHALE: ("embedded/{}-fixed-?.",),
    FST: ("superseded/systems/{}-fst-s?.",),
    **{f"WHALE ({e[0]}.{e[1]}, {i})": (f"superseded/schedules/{{}}-whale-{e}-{i}-s?.",)
       for e, i in (("02", 2), ("06", 2), ("06", 6), ("12", 12))},
    "Adaptive": ("superseded/schedules/{}-adaptive-s?.",),
    "stagewise": ("superseded/schedules/{}-stagewise-s?.",),
    "training alone at 1e-4": ("superseded/explanations/{}-weight-only-lr-s?.",),
    "WHALE at 1e-4": ("superseded/explanations/{}-whale-lr-s?.",),
    "WHALE with confirm": ("superseded/explanations/{}-whale-confirm-s?.",),
    "GRPO": ("superseded/methods/{}-grpo-s?.",),
}  # fmt: skip
"""Earlier runs of the same seeds, by older code. Of (0.2, 6) none came to its test."""
OTHERS: Mapping[str, tuple[str, ...]] = {
    WHALE: ("superseded/explanations/{}-whale-s?.",),
    FST: ("embedded/{}-fst-?.",),
}
"""What was run a third time: of these the second table has both."""
Pair = tuple[str, str, str]
"""Domain, what, and what it is compared with."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and which differences answer it."""

    asked: str
    pairs: tuple[Pair, ...]


def on(what: str, against: str, domains: Sequence[str] = ALL) -> tuple[Pair, ...]:
    return tuple((domain, what, against) for domain in domains)


def searchqa(*pairs: tuple[str, str]) -> tuple[Pair, ...]:
    return tuple(("searchqa", *pair) for pair in pairs)


QUESTIONS = (
    Question("Is WHALE above training alone?", on(WHALE, TRAINING)),
    Question("Above search alone?", on(WHALE, SEARCH)),
    Question("Above FST: does the restriction to prompts cost?", on(WHALE, FST)),
    Question("FST against training alone", on(FST, TRAINING)),
    Question(
        "Which side is ahead alone? Search minus training",
        (*on("search alone, seeds 1 to 5", "training alone, seeds 1 to 5", ALL[:2]), *on(SEARCH, TRAINING, ALL[2:])),
    ),
    Question(
        "WHALE with other steps, against training alone",
        searchqa(*((what, TRAINING) for what in (*FIXED, "Adaptive") if what != WHALE)),
    ),
    Question(
        "Is small-step alternation above stagewise?", searchqa(*((what, "stagewise") for what in (*FIXED, "Adaptive")))
    ),
    Question("Is Adaptive the best?", searchqa(*(("Adaptive", other) for other in FIXED))),
    Question("Is one of the fixed steps?", searchqa(*combinations(FIXED, 2))),
    Question("Training alone, paid as (0.2, 6) is", searchqa(("training with 9,793 rollouts", "with 2,305"))),
    Question(
        "What holds alternating back? The acceptance rule",
        (*on("WHALE with confirm", TRAINING), *on("WHALE with confirm", WHALE)),
    ),
    Question(
        "The learning rate",
        (*on("WHALE at 1e-4", "training alone at 1e-4"), *on("training alone at 1e-4", TRAINING)),
    ),
    Question("Data size", (*on("WHALE with more tasks", WHALE), *on("WHALE with more tasks", TRAINING))),
    Question("RSFT or GRPO, training alone", searchqa(("GRPO", TRAINING))),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """A difference, and what it says."""

    cells: str
    says: str
    excluded: bool
    """Whether the first interval leaves zero out."""


class Results:
    """The published runs by arm."""

    def __init__(self, folder: Path, arms: Mapping[str, tuple[str, ...]]) -> None:
        self._folder = folder
        self._arms = arms

    def paths(self, domain: str, arm: str) -> list[Path]:
        """Its logs."""
        patterns = self._arms.get(arm, ())
        return [path for pattern in patterns for path in sorted(self._folder.glob(f"{pattern.format(domain)}*"))]

    def of(self, domain: str, arm: str) -> dict[int, RunRecord]:
        """Its runs by seed."""
        return {record.seed: record for record in map(_read, self.paths(domain, arm))}

    def difference(self, pair: Pair) -> Row:
        """Of two arms."""
        domain, what, against = pair
        return difference(domain, self.of(domain, what), self.of(domain, against), f"{what} - {against}")


def difference(domain: str, ours: Mapping[int, RunRecord], theirs: Mapping[int, RunRecord], name: str) -> Row:
    """A row. Raises SystemExit where the two have nothing in common: a table with a hole would pass for a whole one."""
    tested = split_of([*ours.values()]) == split_of([*theirs.values()]) == "test"
    split = "test" if tested else "validation"
    seeds = sorted(
        seed for seed in ours.keys() & theirs.keys() if ours[seed].chosen(split) and theirs[seed].chosen(split)
    )
    sides = [(outcomes(theirs[seed], split), outcomes(ours[seed], split)) for seed in seeds]
    found, drawn = paired_estimate(sides), paired_bootstrap(sides)
    if found is None or drawn is None:
        raise SystemExit(f"{domain}, {name}: no seeds and tasks in common")
    mark = "" if tested else " §"
    mark += " ‡" if any(_code(ours[seed]) != _code(theirs[seed]) for seed in seeds) else ""
    mark += " †" if not all(_code(run[seed]) for run in (ours, theirs) for seed in seeds) else ""
    says = "cannot tell"
    if min(found.low, drawn.low) > 0 or max(found.high, drawn.high) < 0:
        says = "above" if found.value > 0 else "below"
    if found.seeds == 1:
        says = "one seed"
    cells = f"{domain} | {name}{mark} | {_points(found)} | {_bounds(drawn)} | {found.seeds} | {says}"
    return Row(cells, says, found.low > 0 or found.high < 0)


@cache
def _read(path: Path) -> RunRecord:
    (record,) = find([str(path)]).records
    return record


def _code(run: RunRecord) -> str:
    return run.made_by.get("code", "")


def _points(found: Estimate) -> str:
    return f"{100 * found.value:+.1f} {_bounds(found)}"


def _bounds(found: Estimate) -> str:
    return f"[{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def tell(rows: Sequence[tuple[str, Row]]) -> None:
    """Print a table."""
    print("| question | domain | difference | points | bootstrap | seeds | these runs say |")
    print("|---|---|---|---|---|---|---|")
    last = ""
    for asked, row in rows:
        print(f"| {'' if asked == last else asked} | {row.cells} |")
        last = asked
    print()
    marks = {mark for _, row in rows for mark in re.findall("[§‡†]", row.cells)}
    if "§" in marks:
        print("- § on validation: runs behind it did not come to their test")
    if "‡" in marks:
        print("- ‡ the two sides were run by different code")
    if "†" in marks:
        print("- † by older code, which logs did not name yet, perhaps two codes; all without a mark are of one code")


def asked_of(results: Results) -> list[tuple[str, Pair, Row]]:
    return [(q.asked, pair, results.difference(pair)) for q in QUESTIONS for pair in q.pairs]


def repeated(folder: Path) -> list[tuple[str, Row]]:
    """Newest minus before, for all that was run more than once."""
    newest, rows = Results(folder, ARMS), []
    for arm in BEFORE:
        for earlier in (Results(folder, BEFORE), Results(folder, OTHERS)):
            rows += [
                (arm, difference(domain, newest.of(domain, arm), earlier.of(domain, arm), "newest - before"))
                for domain in ALL
                if earlier.paths(domain, arm)
            ]
    return rows


def before(folder: Path) -> list[tuple[str, Pair, Row]]:
    """The questions by the earlier runs; what was run once stays as it is, if the other side was run twice."""
    newest, earlier = Results(folder, ARMS), Results(folder, BEFORE)
    rows = []
    for question in QUESTIONS:
        for pair in question.pairs:
            domain, what, against = of_three_seeds(pair)
            first, second = earlier.of(domain, what), earlier.of(domain, against)
            if first or second:
                ours, theirs = first or newest.of(domain, what), second or newest.of(domain, against)
                row = difference(domain, ours, theirs, f"{what} - {against}")
                rows.append((question.asked, (domain, what, against), row))
    return rows


def of_three_seeds(pair: Pair) -> Pair:
    """The pair by arms that were run twice: seeds 4 and 5 of a side alone were run once."""
    domain, what, against = (re.sub(", seeds 1 to 5$", "", part) for part in pair)
    return domain, what, against


def agreement(newest: Sequence[tuple[str, Pair, Row]], earlier: Sequence[tuple[str, Pair, Row]]) -> str:
    """Which differences both tables call, and how many one of them alone."""
    signs = [
        {of_three_seeds(pair): row.says for _, pair, row in table if row.says in ("above", "below")}
        for table in (newest, earlier)
    ]
    there = {pair for _, pair, _ in earlier}
    both = [pair for pair, says in signs[0].items() if signs[1].get(pair) == says]
    alone = sum(pair in there and pair not in both for pair in signs[0]), sum(pair not in both for pair in signs[1])
    named = "; ".join(f"{domain}, {what} {signs[0][domain, what, against]} {against}" for domain, what, against in both)
    return (
        f"called by both tables: {named}. By the newest runs alone: {alone[0]}; by the earlier ones alone: {alone[1]}"
    )


def refused(folder: Path) -> str:
    """How many candidates of earlier FST runs were refused for leaving their space, of how many, and over all runs."""
    counts = []
    for results in (Results(folder, BEFORE), Results(folder, OTHERS)):
        for path in (path for domain in ALL for path in results.paths(domain, FST)):
            log = MemoryLog()
            log.restore(read_file(path))
            verdicts = [
                e.event for e in log.read() if isinstance(e.event, HarnessValidated) and e.event.candidate != "h0"
            ]
            counts.append((sum("this search may" in verdict.reason for verdict in verdicts), len(verdicts)))
    few, many = min(count for count, _ in counts), max(count for count, _ in counts)
    return f"{few} to {many} of {max(total for _, total in counts)} candidates, in {len(counts)} runs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "docs" / "results")
    folder: Path = parser.parse_args().results
    told = asked_of(Results(folder, ARMS))
    tell([(asked, row) for asked, _, row in told])
    print("- in this table ‡ is FST's alone: the others' code with one commit more: `mutation` stays in its space")
    both = [(pair, row) for _, pair, row in told if not any("search alone" in name for name in pair)]
    called = [pair for pair, row in both if row.says in ("above", "below")]
    excluded = sum(row.excluded for _, row in both)
    print(
        f"- {len(told)} differences, many of which share an arm. Of the {len(both)} that are not to search alone "
        f"{len(called)} are called, {sum('WHALE (0.2, 6)' in pair for pair in called)} of them with (0.2, 6); the "
        f"first interval alone leaves zero out in {excluded}, where {len(both) / 20:.1f} would without any difference"
    )
    print("\nWhat was run more than once, newest minus before:\n")
    tell(repeated(folder))
    print("\nThe same questions by the earlier runs:\n")
    earlier = before(folder)
    tell([(asked, row) for asked, _, row in earlier])
    print(f"- {agreement(told, earlier)}")
    print(f"- FST was hardly searched then: {refused(folder)}, were refused unscored for leaving the space")


if __name__ == "__main__":
    main()
