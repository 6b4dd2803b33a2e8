"""What each family of `mutation`'s operators is worth: whole harness searches with one family left out.

    python benchmarks/ablation.py examples/searchqa.toml --folder runs/ablation --seeds 1 2 3 4 5 --jobs 4
    python benchmarks/ablation.py examples/searchqa.toml --folder runs/ablation --seeds 1 2 3 4 5 --table

Each arm and seed is a harness-only run of the config (`--iterations`, one cycle, no test) in a process of its own:
`--jobs` at once, over the GPUs of `--devices` in turn. Further arguments `--set KEY=VALUE` go to every run. A run that
is there already is gone on with, or only read: the benchmark can be stopped and started again. Printed per arm: the
validation gain of the accepted harness over h0, its mean over the seeds, and the difference to the arm with all
operators, paired by seed, with a 95 % t-interval over seeds; an interval of few seeds is wide, and says so.
"""

import argparse
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from statistics import mean, stdev

from whale.alternation.run_folder import RunFolder
from whale.report.results import pair_rows, read_results
from whale.search.mutation import CROSSOVERS, OPERATORS

FAMILIES = tuple(dict.fromkeys([*(o.family for o in OPERATORS), *(c.family for c in CROSSOVERS)]))
ALL = "all"
T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Student's t, two-sided, for 1 to 9 degrees of freedom; beyond, 2.2 errs on the wide side."""


@dataclass(frozen=True)
class Outcome:
    """One run's end, on validation."""

    h0: float
    score: float
    tasks: int
    rollouts: int
    accepted: bool

    @property
    def gain(self) -> float:
        """Over h0."""
        return self.score - self.h0


def main() -> None:
    options = arguments()
    arms = [ALL, *(options.families or FAMILIES)]
    if not options.table:
        options.folder.mkdir(parents=True, exist_ok=True)
        run_all(options, [(arm, seed) for seed in options.seeds for arm in arms])
    found = {(arm, seed): read(options.folder / name(arm, seed)) for arm in arms for seed in options.seeds}
    print_table(arms, options.seeds, found)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs/ablation"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--families", nargs="+", choices=FAMILIES, help="arms besides `all` (default: every family)")
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--devices", nargs="+", default=[], help="GPUs by number, used in turn by the jobs")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run")
    parser.add_argument("--table", action="store_true", help="only read what is there")
    return parser.parse_args()


def name(arm: str, seed: int) -> str:
    return f"{arm if arm == ALL else 'without-' + arm}-s{seed}"


def run_all(options: argparse.Namespace, runs: Sequence[tuple[str, int]]) -> None:
    """Every run that is not through; a failed one is told and does not stop the others."""
    places: SimpleQueue[str] = SimpleQueue()
    for job in range(options.jobs):
        places.put(options.devices[job % len(options.devices)] if options.devices else "")

    def one(which: tuple[str, int]) -> None:
        place = places.get()
        try:
            carry_through(options, *which, place)
        finally:
            places.put(place)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, runs))


def carry_through(options: argparse.Namespace, arm: str, seed: int, device: str) -> None:
    path = options.folder / name(arm, seed)
    if path.exists():
        if RunFolder(path).state().status == "completed":
            return
        command = ["resume", path.name]
    else:
        left_out = "[]" if arm == ALL else f'["{arm}"]'
        settings = [
            f"seed={seed}", "schedule.kind=harness-only", "schedule.cycles=1",
            f"schedule.iterations={options.iterations}", "evaluate.test_tasks=0", "search.proposer=mutation",
            *options.set, f"search.options.without={left_out}",
        ]  # fmt: skip
        overrides = [part for setting in settings for part in ("--set", setting)]
        command = ["run", str(options.config), "--name", path.name, *overrides]
    environment = {**os.environ, "WHALE_RUNS": str(options.folder.resolve())}
    if device:
        environment["CUDA_VISIBLE_DEVICES"] = device
    done = subprocess.run(
        [sys.executable, "-m", "whale", *command, "--quiet"], env=environment, capture_output=True, text=True
    )
    told = "done" if done.returncode == 0 else f"exit {done.returncode}: {done.stderr.strip()[-300:]}"
    print(f"{path.name}: {told}", file=sys.stderr, flush=True)


def read(path: Path) -> Outcome | None:
    """A run's figures, or None if it is not through."""
    if not path.exists() or RunFolder(path).state().status != "completed":
        return None
    with RunFolder(path).open_log(readonly=True) as log:
        results = read_results(log)
    rows = [row for row in pair_rows(results) if row.evaluated.split == "validation"]
    first, last = rows[0].evaluated, rows[-1].evaluated
    rollouts = sum(totals.rollouts for totals in results.state.totals.values())
    return Outcome(first.score, last.score, last.tasks, rollouts, last.tree != first.tree)


def interval(values: Sequence[float]) -> str:
    """The mean with its 95 % t-interval, in points."""
    if not values:
        return "-"
    if len(values) == 1:
        return f"{100 * values[0]:+.1f} (one seed)"
    t = T95[len(values) - 2] if len(values) - 2 < len(T95) else 2.2
    half = t * stdev(values) / math.sqrt(len(values))
    return f"{100 * mean(values):+.1f} [{100 * (mean(values) - half):+.1f}, {100 * (mean(values) + half):+.1f}]"


def print_table(arms: Sequence[str], seeds: Sequence[int], found: dict[tuple[str, int], Outcome | None]) -> None:
    columns = ("operators", "gain by seed, points", "mean [95 %]", "less `all`, paired [95 %]", "accepted",
               "rollouts a run", "seeds")  # fmt: skip
    print("| " + " | ".join(columns) + " |")
    print("|---" * len(columns) + "|")
    for arm in arms:
        there = {seed: outcome for seed in seeds if (outcome := found[arm, seed]) is not None}
        paired = [o.gain - whole.gain for seed, o in there.items() if (whole := found[ALL, seed]) is not None]
        gains = [o.gain for o in there.values()]
        cells = [
            "all" if arm == ALL else f"without {arm}", ", ".join(f"{100 * gain:+.1f}" for gain in gains),
            interval(gains), "" if arm == ALL else interval(paired),
            f"{sum(o.accepted for o in there.values())} of {len(there)}",
            f"{mean(o.rollouts for o in there.values()):.0f}" if there else "-", ", ".join(map(str, there)) or "none",
        ]  # fmt: skip
        print("| " + " | ".join(cells) + " |")
    sizes = sorted({outcome.tasks for outcome in found.values() if outcome is not None})
    print(f"\nvalidation tasks: {', '.join(map(str, sizes)) or 'none'}")


if __name__ == "__main__":
    main()
