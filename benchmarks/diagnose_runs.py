"""What `whale diagnose` said before anything was trained, beside what each side alone then reached.

    python benchmarks/diagnose_runs.py [--results docs/results]

Of each probe in RESULTS/diagnose.jsonl (`whale diagnose CONFIG --json`, a line each, with its domain and seed), and of
the runs of the same seed that had one side only, in RESULTS/sides and RESULTS/systems: the pair that validation
selected, on the test; on validation where the test was not read.
"""

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whale.events import MemoryLog
from whale.events import types as ev
from whale.events.transfer import read_file
from whale.report.results import pair_rows, read_results


@dataclass(frozen=True, slots=True)
class Measured:
    """What one side alone reached."""

    said: str
    gain: float
    rollouts: int
    paid: int
    """Of these, what the method paid: evaluations apart."""


def measured(path: Path) -> Measured:
    log = MemoryLog()
    log.restore(read_file(path))
    rows = [row for row in pair_rows(read_results(log)) if row.selected]
    row = rows[-1]  # the test's comes last
    recorded = [r.event for r in log.read() if isinstance(r.event, ev.RolloutsRecorded)]
    rollouts = sum(len(event.outcomes) for event in recorded)
    paid = sum(len(event.outcomes) for event in recorded if event.purpose != "evaluate")
    gain = row.gain.gain if row.gain is not None else 0.0
    said = "the first pair" if row.gain is None else shown(row.gain.gain, row.gain.low, row.gain.high)
    return Measured(said if row.evaluated.split == "test" else f"{said} §", gain, rollouts, paid)


def shown(gain: float, low: float, high: float) -> str:
    return f"{100 * gain:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def find(results: Path, domain: str, side: str, seed: int) -> Path:
    """The run of this seed; of the grid, where it is there as well."""
    name = f"{domain}-{side}-s{seed}.jsonl.xz"
    return next(path for folder in ("systems", "sides") if (path := results / folder / name).exists())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "docs" / "results")
    results: Path = parser.parse_args().results
    lines = (results / "diagnose.jsonl").read_text(encoding="utf-8").splitlines()
    probes: list[dict[str, Any]] = [json.loads(line) for line in lines]
    print("| domain | seed | the probe: search minus training | it says | search alone | training alone | ahead |")
    print("|---|---|---|---|---|---|---|")
    fates: dict[str, Counter[str]] = {}
    spent, paid = Counter[str](), Counter[str]()
    spent_apart, paid_apart = Counter[str](), Counter[str]()  # what measures left out, on both sides
    unread = False
    for probe in probes:
        domain, seed, verdict = probe["domain"], probe["seed"], probe["verdict"]
        harness, weights = (measured(find(results, domain, f"{side}-only", seed)) for side in ("harness", "weight"))
        ahead = "harness" if harness.gain > weights.gain else "weights"
        unread = unread or "§" in harness.said + weights.said
        fate = "undecided" if verdict["side"] == "undecided" else "right" if verdict["side"] == ahead else "wrong"
        fates.setdefault(domain, Counter())[fate] += 1
        spent[domain] += probe["rollouts"]
        paid[domain] += harness.rollouts + weights.rollouts
        spent_apart[domain] += probe["harness_rollouts"] + probe["weight_rollouts"]
        paid_apart[domain] += harness.paid + weights.paid
        difference = shown(*(verdict["difference"][key] for key in ("gain", "low", "high")))
        print(f"| {domain} | {seed} | {difference} | {verdict['side']} | {harness.said} | {weights.said} | {ahead} |")
    print()
    for domain, counted in fates.items():
        words = ", ".join(f"{counted[fate]} {fate}" for fate in ("right", "undecided", "wrong"))
        print(
            f"- {domain}: {words} of {counted.total()}; the probes took {spent[domain]:,} rollouts, "
            f"{100 * spent[domain] / paid[domain]:.1f} % of the {paid[domain]:,} of the runs; "
            f"without what only measures, on both sides, {100 * spent_apart[domain] / paid_apart[domain]:.1f} %"
        )
    if unread:
        print("- § on validation: the run did not come to its test")


if __name__ == "__main__":
    main()
