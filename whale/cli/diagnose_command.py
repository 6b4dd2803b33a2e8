"""`whale diagnose`: which side holds a pair back now, by a cheap probe on training tasks."""

import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whale.alternation.run_folder import RunFolder
from whale.cli.output import print_json, print_table, print_text
from whale.cli.progress import reporter
from whale.config import Config, load_config

if TYPE_CHECKING:
    from whale.diagnosis.probe import Diagnosis, Sizes
    from whale.search.scoring import PairedGain


def diagnose(target: str, overrides: list[str], sizes: "Sizes", json: bool, quiet: bool) -> None:
    """Probe both sides in a folder that is thrown away, and say what came out."""
    from whale.alternation.progress import Silent
    from whale.alternation.started_in import config_domain
    from whale.diagnosis.probe import diagnose as probe
    from whale.diagnosis.probe import probe_config
    from whale.diagnosis.verdict import suggestion
    from whale.plan.amounts import amounts

    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="whale-diagnose-") as name:
        place = Path(name)
        if Path(target).is_file():
            config, harness, about = load_config(Path(target), overrides), None, "(θ0, h0)"
        else:
            config, harness, about = _of_run(target, overrides, place / "pair")
        splits = {str(split): len(tasks) for split, tasks in config_domain(config).splits().items()}
        base = probe_config(config, sizes, splits["weight"], harness)
        measured = min(sizes.measure, splits["weight"] // 2)
        if measured < sizes.measure and not quiet:
            print(
                f"D_weight has {splits['weight']} questions: {measured} measure the pairs (--measure {sizes.measure}), "
                f"the other {splits['weight'] - measured} are trained on, with up to {sizes.rollouts} rollouts",
                file=sys.stderr,
            )
        found = probe(base, sizes, place, reporter(quiet) or Silent())
    planned = amounts(config, splits).rollouts
    words, settings = suggestion(found.verdict.side)
    seconds = time.monotonic() - started
    if json:
        print_json(
            {
                "target": target, "pair": about, **msgspec.to_builtins(asdict(found)),
                "suggestion": list(settings), "planned_rollouts": planned, "seconds": round(seconds, 1),
            }
        )  # fmt: skip
        return
    _print(target, about, found)
    print_text(f"suggested: {words}")
    print_text("  " + " ".join(f"--set {setting}" for setting in settings))
    paid = f", ${found.dollars:.2f} to the proposer" if found.dollars else ""
    print_text(
        f"cost: {found.rollouts} rollouts ({100 * found.rollouts / max(1, planned):.1f} % of the {planned} that "
        f"{target} is planned to take), {seconds:.0f} s{paid}"
    )


def _of_run(run: str, overrides: list[str], pair: Path) -> tuple[Config, Path, str]:
    """A run's newest evaluated pair, written to a folder to begin the probe with."""
    from whale.alternation.movable import present_config
    from whale.cli.pair_commands import harness_files
    from whale.config import apply_overrides, config_from, load_around, to_builtins
    from whale.pair.bundle import HARNESS, MODEL
    from whale.pair.choice import choose
    from whale.pair.export import export
    from whale.report.tables import folder_results

    folder = RunFolder.find(run)
    results = folder_results(folder)
    cycles = [e.cycle for e in results.state.evaluations if e.split == "validation"]
    chosen = choose(results, cycle=max(cycles) if cycles else None)
    export(folder, results, (0, ""), pair, chosen, harness_files(folder, chosen.tree))
    raw = apply_overrides(to_builtins(present_config(folder, results.state)), overrides)
    raw |= {"model": str(pair / MODEL), "started_in": load_around(folder.config_file).started_in}
    return config_from(raw, folder.name), pair / HARNESS, f"cycle {chosen.cycle}, harness {chosen.candidate}"


def _print(target: str, about: str, found: "Diagnosis") -> None:
    verdict = found.verdict
    rows = [
        [f"search, {found.candidates} candidates", _points(verdict.harness), str(found.harness_rollouts)],
        [f"training, {found.steps} steps", _points(verdict.weights), str(found.weight_rollouts)],
        ["search minus training", _points(verdict.difference), ""],
    ]
    title = f"{target}: {about}, measured on {found.measured} training tasks that neither side was given"
    print_table(["side", "gain in points, paired 95 %", "rollouts"], rows, title=title)
    side = "undecided" if verdict.side == "undecided" else f"the {verdict.side} side is the bottleneck"
    print_text(f"{side}: {verdict.reason}")


def _points(gain: "PairedGain") -> str:
    return f"{100 * gain.gain:+z.1f} [{100 * gain.low:+z.1f}, {100 * gain.high:+z.1f}]"
