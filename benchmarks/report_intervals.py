"""How often a report's 95 % interval holds the truth, in simulated experiments where the truth is known.

    python benchmarks/report_intervals.py --experiments 400 --seed 1
    python benchmarks/report_intervals.py --experiments 400 --seed 1 --paired

An experiment has some seeds, each with an effect of its own, that meet the same tasks, each with a difficulty of its
own (both normal, on the logit scale). The truth is the mean success over all seeds and tasks there could be. Beside
the report's interval stand a bootstrap over seeds and tasks, and the usual one that takes every rollout for a task of
its own (Wilson's).

With --paired: two systems without a true difference meet the same tasks, each with seed effects of its own, and a sign
is called where the interval of the paired difference leaves zero out; by the report's interval, by the bootstrap, by
both at once.
"""

import argparse

import numpy as np
from numpy.typing import NDArray

from whale.events.types import Outcome
from whale.report.compare.intervals import estimate, paired_bootstrap, paired_estimate
from whale.search.scoring import wilson

CENTRE, TASKS_SD = -0.8, 1.5
SETTINGS = [(seeds, tasks, sd) for sd in (0.1, 0.4) for seeds, tasks in ((1, 64), (2, 64), (3, 64), (3, 256), (5, 256))]


PAIRED = [(seeds, sd) for sd in (0.1, 0.2, 0.4) for seeds in (3, 5)]
PAIRED_TASKS = 256


def success(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-logits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--paired", action="store_true", help="how often a sign is called where there is none")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    if arguments.paired:
        false_signs(rng, arguments.experiments)
        return
    print("| SD of seeds | seeds | tasks | report's interval holds the truth | bootstrap | rollouts as tasks |")
    print("|---" * 6 + "|")
    for seeds, tasks, sd in SETTINGS:
        far = rng.normal(size=(4_000_000,))
        truth = float(success(CENTRE + np.hypot(TASKS_SD, sd) * far).mean())
        held = {"report": 0, "bootstrap": 0, "rollouts": 0}
        for _ in range(arguments.experiments):
            logits = CENTRE + TASKS_SD * rng.normal(size=(1, tasks)) + sd * rng.normal(size=(seeds, 1))
            rewards = (rng.random((seeds, tasks)) < success(logits)).astype(float)
            runs = [[outcome(task, reward) for task, reward in enumerate(run)] for run in rewards]
            nothing = [outcome(task, 0.0) for task in range(tasks)]
            found, drawn = estimate(runs), paired_bootstrap([(nothing, run) for run in runs])
            assert found is not None
            assert drawn is not None
            low, high = wilson(float(rewards.sum()), rewards.size)
            held["report"] += found.low <= truth <= found.high
            held["bootstrap"] += drawn.low <= truth <= drawn.high
            held["rollouts"] += low <= truth <= high
        cells = [f"{sd:g}", str(seeds), str(tasks), *(share(times, arguments.experiments) for times in held.values())]
        print("| " + " | ".join(cells) + " |", flush=True)


def false_signs(rng: np.random.Generator, experiments: int) -> None:
    print("| SD of seeds | seeds | tasks | a sign by the report's interval | by the bootstrap | by both |")
    print("|---" * 6 + "|")
    for seeds, sd in PAIRED:
        called = {"report": 0, "bootstrap": 0, "both": 0}
        for _ in range(experiments):
            tasks = CENTRE + TASKS_SD * rng.normal(size=(1, PAIRED_TASKS))
            sides = []
            for logits in (tasks + sd * rng.normal(size=(seeds, 1)) for _ in range(2)):
                rewards = (rng.random(logits.shape) < success(logits)).astype(float)
                sides.append([[outcome(task, reward) for task, reward in enumerate(run)] for run in rewards])
            pairs = list(zip(*sides, strict=True))
            found, drawn = paired_estimate(pairs), paired_bootstrap(pairs)
            assert found is not None
            assert drawn is not None
            report, bootstrap = (not interval.low <= 0 <= interval.high for interval in (found, drawn))
            called["report"] += report
            called["bootstrap"] += bootstrap
            called["both"] += report and bootstrap
        cells = [f"{sd:g}", str(seeds), str(PAIRED_TASKS), *(share(times, experiments) for times in called.values())]
        print("| " + " | ".join(cells) + " |", flush=True)


def outcome(task: int, reward: float) -> Outcome:
    return Outcome(str(task), 0, reward, "ok", 1, 1, 1, False, False)


def share(held: int, n: int) -> str:
    low, high = wilson(held, n)
    return f"{100 * held / n:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


if __name__ == "__main__":
    main()
