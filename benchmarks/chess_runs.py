"""Which test puzzles the trained pairs of the published chess runs pass, beside the rule "first in the list".

python benchmarks/chess_runs.py [--results docs/results]
"""

import argparse
import re
from collections import defaultdict
from pathlib import Path

from whale.domains.chess.domain import ChessDomain, ChessOptions
from whale.domains.chess.report import rule_score
from whale.domains.chess.rules import RULES
from whale.report.compare.records import RunRecord
from whale.report.compare.sources import find
from whale.report.compare.success import outcomes

FOLDERS = ("systems", "explanations")
RULE = "first in the list"


def passed(run: RunRecord) -> frozenset[str]:
    """The puzzles that its selected pair passed on the test."""
    return frozenset(outcome.task for outcome in outcomes(run, "test") if outcome.reward)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "docs" / "results")
    results: Path = parser.parse_args().results
    arms: dict[str, list[RunRecord]] = defaultdict(list)
    for path in sorted(path for folder in FOLDERS for path in (results / folder).glob("chess-*")):
        arm = re.sub(r"^chess-(.*)-s\d+\..*$", rf"{path.parent.name}/\1", path.name)
        arms[arm] += find([str(path)]).records
    domain = ChessDomain(ChessOptions())
    puzzles = {task.id: domain.puzzle(task) for task in domain.splits()["test"]}
    print("| runs | seeds | test puzzles passed, by seed | those of the rule | runs that pass exactly those |")
    print("|---|---|---|---|---|")
    for arm, runs in arms.items():
        tasks = {outcome.task for outcome in outcomes(runs[0], "test")}
        by_rule = frozenset(name for name in tasks if rule_score(RULES[RULE], puzzles[name]) == 1)
        found = [passed(run) for run in runs]
        all_, ruled = (
            ", ".join(map(str, counts)) for counts in (map(len, found), (len(one & by_rule) for one in found))
        )
        print(f"| {arm} | {len(runs)} | {all_} | {ruled} of {len(by_rule)} | {sum(one == by_rule for one in found)} |")


if __name__ == "__main__":
    main()
