"""What difference between two systems a comparison can show, from the spread that published runs have.

    python benchmarks/power.py [LOGS ...] [--seeds 3 5 10] [--tasks 256 1024] [--power 0.8]

For each domain and each two systems of it (three seeds or more of both), the paired differences of the selected pairs
are taken apart into what seeds, tasks and the rest add to their variance (method of moments, as in the report's
intervals). With these components and S seeds on T tasks, the table has the smallest true difference whose 95 %
interval lies above zero with the wanted probability: a two-sided t test with Satterthwaite's degrees of freedom, by
200,000 draws. Components from a few seeds are themselves uncertain: read the table as an order of magnitude.
"""

import argparse
import math
from itertools import combinations

import numpy as np

from whale.report.compare.intervals import Matrix, paired_matrix, t_quantile
from whale.report.compare.sources import find
from whale.report.compare.success import outcomes, split_of
from whale.report.compare.systems import System, group

DRAWS = 200_000
LEAST_SEEDS = 3


def differences(one: System, other: System) -> tuple[str, Matrix] | None:
    split = split_of([*one.runs, *other.runs])
    by_seed = [{run.seed: run for run in system.runs if run.chosen(split)} for system in (one, other)]
    common = sorted(by_seed[0].keys() & by_seed[1].keys())
    values = paired_matrix([(outcomes(by_seed[0][s], split), outcomes(by_seed[1][s], split)) for s in common])
    return None if values is None or len(values) < LEAST_SEEDS else (split, values)


def components(values: Matrix) -> tuple[float, float, float]:
    """Variances that a seed, a task and the rest add to one difference."""
    seeds, tasks = values.shape
    mean = values.mean()
    of_seeds, of_tasks = values.mean(axis=1) - mean, values.mean(axis=0) - mean
    rest = values - mean - of_seeds[:, None] - of_tasks[None, :]
    m_rest = float((rest * rest).sum()) / ((seeds - 1) * (tasks - 1))
    m_seeds = tasks * float(of_seeds @ of_seeds) / (seeds - 1)
    m_tasks = seeds * float(of_tasks @ of_tasks) / (tasks - 1)
    return max(0.0, (m_seeds - m_rest) / tasks), max(0.0, (m_tasks - m_rest) / seeds), m_rest


def detectable(parts: tuple[float, float, float], seeds: int, tasks: int, power: float, seed: int = 0) -> float:
    """The smallest difference that is shown with probability `power`."""
    of_seed, of_task, rest = parts
    squares = {
        "tasks": (rest + seeds * of_task, tasks - 1.0),
        "seeds": (rest + tasks * of_seed, seeds - 1.0),
        "rest": (rest, (seeds - 1.0) * (tasks - 1.0)),
    }
    total = squares["tasks"][0] + squares["seeds"][0] - rest
    used = squares.values() if of_seed > 0 else [squares["tasks"]]
    freedom = total * total / math.fsum(square * square / degrees for square, degrees in used)
    error = math.sqrt(total / (seeds * tasks))
    rng = np.random.default_rng(seed)
    noise, scale = rng.normal(size=DRAWS), np.sqrt(rng.chisquare(freedom, DRAWS) / freedom)
    quantile = t_quantile(freedom)
    # (δ/error + noise) / scale exceeds the quantile in the wanted share of the draws.
    return error * float(np.quantile(quantile * scale - noise, power))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="*", default=["docs/results/systems"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 5, 10])
    parser.add_argument("--tasks", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--power", type=float, default=0.8)
    arguments = parser.parse_args()
    settings = [(seeds, tasks) for tasks in arguments.tasks for seeds in arguments.seeds]
    head = ["domain", "systems", "split", "SD of seeds", "of tasks", "of the rest"]
    head += [f"{seeds} seeds, {tasks} tasks" for seeds, tasks in settings]
    print("| " + " | ".join(head) + " |")
    print("|---" * len(head) + "|")
    for domain, systems in group(find(arguments.logs).records).by_domain().items():
        for one, other in combinations(systems, 2):
            found = differences(one, other)
            if found is None:
                continue
            split, values = found
            parts = components(values)
            cells = [domain, f"{other.name} against {one.name}", split, *(f"{100 * math.sqrt(v):.1f}" for v in parts)]
            cells += [f"{100 * detectable(parts, *setting, arguments.power):.1f}" for setting in settings]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
