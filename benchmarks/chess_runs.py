"""Which held-out puzzles the selected pairs of the published chess runs pass, beside the rule "first in the list".

python benchmarks/chess_runs.py [--results docs/results]
"""

import argparse
import re
from collections import Counter, defaultdict
from pathlib import Path

from whale.domains.base import Split
from whale.domains.chess.domain import ChessDomain, ChessOptions
from whale.domains.chess.report import rule_score
from whale.domains.chess.rules import RULES
from whale.report.compare.records import RunRecord
from whale.report.compare.sources import find
from whale.report.compare.success import outcomes

FOLDERS = ("systems", "explanations")
RULE = "first in the list"
SPLITS: tuple[Split, ...] = ("test", "validation")
UNTRAINED = "systems/harness-only"


def passed(run: RunRecord, split: str) -> frozenset[str]:
    """The puzzles that its selected pair passed."""
    return frozenset(outcome.task for outcome in outcomes(run, split) if outcome.reward)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "docs" / "results")
    results: Path = parser.parse_args().results
    arms: dict[str, list[RunRecord]] = defaultdict(list)
    for path in sorted(path for folder in FOLDERS for path in (results / folder).glob("chess-*")):
        arm = re.sub(r"^chess-(.*)-s\d+\..*$", rf"{path.parent.name}/\1", path.name)
        arms[arm] += find([str(path)]).records
    domain = ChessDomain(ChessOptions())
    puzzles = {split: {task.id: domain.puzzle(task) for task in domain.splits()[split]} for split in SPLITS}
    print("| runs | split | puzzles passed, by seed | those of the rule | runs that pass exactly those |")
    print("|---|---|---|---|---|")
    exact, trained = Counter[str](), 0
    for arm, runs in arms.items():
        trained += len(runs) * (arm != UNTRAINED)
        for split in SPLITS:
            tasks = {outcome.task for outcome in outcomes(runs[0], split)}
            by_rule = frozenset(name for name in tasks if rule_score(RULES[RULE], puzzles[split][name]) == 1)
            found = [passed(run, split) for run in runs]
            every, ruled = (
                ", ".join(map(str, counts)) for counts in (map(len, found), (len(one & by_rule) for one in found))
            )
            same = sum(one == by_rule for one in found)
            exact[split] += same * (arm != UNTRAINED)
            print(f"| {arm} | {split} | {every} | {ruled} of {len(by_rule)} | {same} |")
    told = " and ".join(f"{exact[split]} on {split}" for split in SPLITS)
    print(f"\n- of the {trained} runs that train, those that pass exactly what the rule passes: {told}")


if __name__ == "__main__":
    main()
