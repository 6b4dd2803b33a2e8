"""What was run twice with one config and seed on a GPU, and whether it came out the same.

    python benchmarks/repeats.py [--results docs/results]

Searches with fixed weights, whose second run was by other code on another day: how many of their recorded batches have
the same rollouts, by success, end, turns and numbers of tokens. Training by one code: until it searches, stagewise
trains as training alone does; how many steps have the same loss, and both pairs (θ, h0) on validation.
"""

import argparse
from pathlib import Path

from whale.events import MemoryLog
from whale.events import types as ev
from whale.events.transfer import read_file
from whale.report.compare.sources import find

CYCLES = 2
"""Of stagewise, before its search begins."""


def recorded(path: Path) -> list[ev.Event]:
    log = MemoryLog()
    log.restore(read_file(path))
    return [one.event for one in log.read()]


def batches(path: Path) -> list[list[tuple[object, ...]]]:
    """Of each rollout what both codes recorded of it: success, end, turns and tokens."""
    return [
        [(o.task, o.sample, o.reward, o.status, o.turns, o.generated, o.prompted, o.truncated) for o in event.outcomes]
        for event in recorded(path)
        if isinstance(event, ev.RolloutsRecorded)
    ]


def losses(path: Path) -> list[float]:
    return [event.loss for event in recorded(path) if isinstance(event, ev.StepTrained)]


def validation(path: Path) -> float:
    """Success of the pair after `CYCLES` cycles."""
    (run,) = find([str(path)]).records
    return next(point.evaluated.score for point in run.on("validation") if point.evaluated.cycle == CYCLES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "docs" / "results")
    results: Path = parser.parse_args().results
    print("| search alone, SearchQA, seed | batches of rollouts | the same in both |\n|---|---|---|")
    for seed in range(6, 11):
        first = batches(results / f"search/searchqa-search-{seed}.jsonl.xz")
        again = batches(results / f"acceptance/searchqa-archive-best-s{seed}.jsonl.xz")
        print(f"| {seed} | {len(first)} | {sum(a == b for a, b in zip(first, again, strict=True))} |")
    print("\n| training, SearchQA, seed | steps until the losses differ, of 18 | after "
          f"{CYCLES} cycles, validation, % | the same once more |\n|---|---|---|---|")  # fmt: skip
    for seed in (1, 2, 3):
        paths = [
            results / f"{name}-s{seed}.jsonl.xz"
            for name in ("systems/searchqa-weight-only", "schedules/searchqa-stagewise")
        ]
        one, other = (losses(path) for path in paths)
        same = next((i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))
        shown = (f"{100 * validation(path):.1f}" for path in paths)
        print(f"| {seed} | {same} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
