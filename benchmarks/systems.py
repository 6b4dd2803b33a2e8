"""Held-out success by system and seed, from exported logs: success, the gain over (θ0, h0) with its interval, cost.

    python benchmarks/systems.py docs/results/embedded/*.jsonl.gz

Each log is checked against its hash chain first. The gain is paired: same tasks, same sampling seeds. `selected` is
the pair with the best validation success; the test was read once, after the last cycle.
"""

import sys
from pathlib import Path

from whale.events import MemoryLog
from whale.events.transfer import read_file
from whale.report.results import PairRow, pair_rows, read_results


def main(files: list[str]) -> None:
    if not files:
        raise SystemExit(__doc__)
    print("| domain | system | seed | split | (θ0, h0) | pair | gain, points [95 %] | n | rollouts | accepted |")
    print("|---" * 10 + "|")
    for file in sorted(files, key=order):
        log = MemoryLog()
        log.restore(read_file(Path(file)))
        results = read_results(log)
        state, rows = results.state, pair_rows(results)
        tested = [row for row in rows if row.evaluated.split == "test"]
        # A run that was cut short has no test: its newest validation is shown, and said to be one.
        first, last = (tested or rows)[0].evaluated, (tested or rows)[-1]
        accepted = sum(fate.startswith("accepted") for fate in results.fates.values())
        cells = [
            state.config["domain"], state.config["schedule"]["kind"], str(state.config["seed"]),
            "test" if tested else f"validation, cut short in cycle {state.cycle}",
            percent(first.score), percent(last.evaluated.score), gain(last), str(first.n),
            str(sum(totals.rollouts for totals in state.totals.values())),
            f"{accepted} of {len(results.fates)} cycles" if results.fates else "",
        ]  # fmt: skip
        print("| " + " | ".join(cells) + " |")


def order(file: str) -> tuple[str, int, str]:
    name = Path(file).name
    domain, _, rest = name.partition("-")
    return domain, ["weight-only", "harness-only", "fixed"].index(rest.rsplit("-", 1)[0]), name


def gain(row: PairRow) -> str:
    if row.gain is None:
        return "0 (the first pair was best)"
    return f"{100 * row.gain.gain:+.1f} [{100 * row.gain.low:+.1f}, {100 * row.gain.high:+.1f}]"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


if __name__ == "__main__":
    main(sys.argv[1:])
