"""How often `whale diagnose` names a side on synthetic tasks whose true gains are known: the thresholds' evidence.

    python benchmarks/diagnose.py [--draws 4000] [--seed 1] [--tasks 64 128]

Tasks have success rates of their own (Beta(1, 3): many hard ones); a side's phase moves each rate towards 1 by what it
takes for the mean gain, on a random half of the tasks. One rollout a task, as in a probe. Rates with Wilson's 95 %
interval.
"""

import argparse

import numpy as np
from numpy.typing import NDArray

from whale.diagnosis.verdict import judge
from whale.events.types import Outcome
from whale.search.scoring import wilson

GAINS = ((0.0, 0.0), (0.1, 0.1), (0.2, 0.2), (0.05, 0.0), (0.1, 0.0), (0.2, 0.0), (0.3, 0.0), (0.2, 0.1), (0.3, 0.1))


def lifted(rates: NDArray[np.float64], gain: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """The rates after a phase of this mean gain: half of the tasks profit, in proportion to what they lack."""
    share = (1 - rates) * (rng.random(rates.size) < 0.5)
    total = share.mean()
    return np.minimum(1.0, rates + share * (gain / total if total else 0.0))


def sampled(rates: NDArray[np.float64], rng: np.random.Generator) -> list[Outcome]:
    """One rollout a task."""
    passes = rng.random(rates.size) < rates
    return [Outcome(str(i), 0, float(passed), "ok", 1, 1, 1, False, False) for i, passed in enumerate(passes)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tasks", type=int, nargs="+", default=[64, 128])
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    print(f"{arguments.draws} draws, seed {arguments.seed}")
    print("tasks  gain of search, of RSFT    search named             RSFT named               undecided")
    for tasks in arguments.tasks:
        for search, rsft in GAINS:
            counts = {"harness": 0, "weights": 0, "undecided": 0}
            for _ in range(arguments.draws):
                rates = rng.beta(1, 3, tasks)
                outcomes = [sampled(r, rng) for r in (rates, lifted(rates, search, rng), lifted(rates, rsft, rng))]
                counts[judge(*outcomes).side] += 1
            told = []
            for side in ("harness", "weights", "undecided"):
                low, high = wilson(counts[side], arguments.draws)
                told.append(f"{counts[side] / arguments.draws:6.1%} [{low:.1%}, {high:.1%}]")
            print(f"{tasks:5}  {search:+.2f}            {rsft:+.2f}    " + "   ".join(f"{cell:22}" for cell in told))


if __name__ == "__main__":
    main()
