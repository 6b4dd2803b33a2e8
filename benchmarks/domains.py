"""Score harness folders on a domain's held-out tasks: success with its interval, format, truncation, by group.

    python benchmarks/domains.py math --harness h0 --harness examples/harnesses/math-calculator --tasks 256

`h0` is the domain's own initial harness. `--set` gives domain options. The weights are those of `--model`, a
folder or the embedded model's name, or of `--run RUN`: the ones that a run of the same domain has reached. Rules
without skill, where the domain knows some, are printed below. The rollout path is the one of training; every
harness meets the same tasks under the same seeds. Prints Markdown; `--json FILE` also writes the figures.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whale.alternation.units import derive_seed
from whale.config import apply_overrides
from whale.domains.apart import judged_apart
from whale.domains.base import Domain, Task
from whale.domains.groups import GroupFigures, by_group
from whale.domains.registry import load_domain
from whale.errors import WhaleError
from whale.rollout.episodes import Limits, Sampling, run_micro_batch
from whale.rollout.models import EMBEDDED, resolve_model
from whale.rollout.sandbox.host import start_worker
from whale.rollout.sandbox.probe import best_tier
from whale.rollout.transformers_engine import TransformersEngine
from whale.rollout.types import EpisodeSpec, Trajectory
from whale.search.scoring import wilson

COLUMNS = ("harness", "group", "n", "success", "95 % interval", "format", "truncated", "failed", "fabricated",
           "turns", "tokens", "tool calls")  # fmt: skip


def main() -> None:
    try:
        measure(arguments())
    except WhaleError as error:
        raise SystemExit(f"domains.py: {error}") from None


def measure(options: argparse.Namespace) -> None:
    given = apply_overrides({}, options.set)
    domain = judged_apart(load_domain(options.domain, given), options.domain, given)
    tasks = list(domain.splits()[options.split])[: options.tasks]
    tier = best_tier(allow_unsandboxed=options.allow_unsandboxed)
    engine = load_engine(options)
    sampling = Sampling(options.temperature, options.max_turns, options.max_generated_tokens, options.max_turn_tokens)
    results: dict[str, dict[str, GroupFigures]] = {}
    for name in options.harness:
        trajectories = []
        with start_worker(harness_files(domain, name), tier, Limits()) as worker:
            specs = [
                EpisodeSpec(task.id, sample, derive_seed(options.seed, "benchmark", task.id, sample))
                for task in tasks
                for sample in range(options.samples)
            ]
            for start in range(0, len(specs), options.micro_batch):
                batch = specs[start : start + options.micro_batch]
                trajectories += run(engine, domain, tasks, batch, sampling, worker)
                print(f"\r{name}: {len(trajectories)} of {len(specs)}", end="", file=sys.stderr)
        print(file=sys.stderr)
        results[name] = by_group(tasks, trajectories)
        if options.show:
            show(trajectories[: options.show], tasks)
    print_results(options, domain, results)
    if options.json:
        figures = {name: {group: asdict(f) for group, f in groups.items()} for name, groups in results.items()}
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("domain", help="a name, or path/to/module.py:factory")
    parser.add_argument("--harness", action="append", help="h0 or a folder; may be repeated (default: h0)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a domain option")
    parser.add_argument("--split", default="validation", choices=("validation", "test"))
    parser.add_argument("--tasks", type=int, default=256)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default=EMBEDDED)
    parser.add_argument("--run", help="a run whose current weights are taken")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--micro-batch", type=int, default=32)
    parser.add_argument("--max-turns", type=int, default=8)
    parser.add_argument("--max-generated-tokens", type=int, default=256)
    parser.add_argument("--max-turn-tokens", type=int, default=96)
    parser.add_argument("--allow-unsandboxed", action="store_true", help="where this machine has no sandbox")
    parser.add_argument("--show", type=int, default=0, help="print so many rollouts of each harness to stderr")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    options.harness = options.harness or ["h0"]
    return options


def load_engine(options: argparse.Namespace) -> TransformersEngine:
    engine = TransformersEngine(resolve_model(options.model), device=options.device, dtype=options.dtype)
    if options.run:
        from whale.alternation.run_folder import RunFolder
        from whale.weights.checkpoints import CheckpointStore

        folder = RunFolder.find(options.run)
        state, store = folder.state(), CheckpointStore(folder.checkpoints)
        if state.weights != state.model:
            holding = [c.checkpoint for c in state.checkpoints.values() if c.weights == state.weights]
            kept = [checkpoint for checkpoint in holding if store.exists(checkpoint)]
            if not kept:
                raise WhaleError(
                    f"{folder.name}: no checkpoint in {folder.checkpoints} has its weights {state.weights[:12]}; an "
                    "imported run has none, and one inside a phase may have an older one: name the run that it was "
                    "exported from, or resume it to the end of the phase"
                )
            engine.update_weights(store.weights_of(kept[-1]), state.weights)
    return engine


def harness_files(domain: Domain, name: str) -> Mapping[str, bytes]:
    if name == "h0":
        return domain.h0()
    folder = Path(name)
    if not (folder / "harness.py").is_file():
        raise SystemExit(f"{folder}: there is no harness.py; give h0 or the folder of a harness")
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def run(
    engine: TransformersEngine,
    domain: Domain,
    tasks: Sequence[Task],
    specs: Sequence[EpisodeSpec],
    sampling: Sampling,
    worker: Any,
) -> list[Trajectory]:
    by_id = {task.id: task for task in tasks}
    return run_micro_batch(engine, engine.chat, worker.files, by_id, specs, domain, sampling, worker.limits, worker)


def show(trajectories: Sequence[Trajectory], tasks: Sequence[Task]) -> None:
    by_id = {task.id: task for task in tasks}
    for trajectory in trajectories:
        task = by_id[trajectory.task_id]
        print(f"--- {task.id}: reward {trajectory.reward:g}, {trajectory.status} {trajectory.reason}", file=sys.stderr)
        print(f"    {dict(task.public)} -> {dict(task.private)}", file=sys.stderr)
        for turn in trajectory.turns:
            print(f"    [{turn.prefix}]{turn.text!r} ({turn.finish_reason})", file=sys.stderr)


def print_results(
    options: argparse.Namespace, domain: Domain, results: Mapping[str, Mapping[str, GroupFigures]]
) -> None:
    weights = f"the weights of the run {options.run}" if options.run else options.model
    print(
        f"{domain.name}, {options.split}, {weights}, temperature {options.temperature:g}, "
        f"{options.samples} rollout(s) a task, seed {options.seed}\n"
    )
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for name, groups in results.items():
        for group, f in groups.items():
            # Several rollouts of one task say less than as many tasks: the interval is over tasks.
            low, high = wilson(f.passed / f.n * f.tasks, f.tasks)
            cells = [
                name, group, str(f.n), percent(f.passed, f.n), f"[{100 * low:.1f}, {100 * high:.1f}]",
                percent(f.formatted, f.n), percent(f.truncated, f.n), percent(f.failed, f.n),
                f"{f.fabricated} of {f.passed:g}", f"{f.turns:.1f}", f"{f.tokens:.0f}", f"{f.calls:.1f}",
            ]  # fmt: skip
            print("| " + " | ".join(cells) + " |")
    no_skill = getattr(domain, "no_skill", None)
    if no_skill is not None:
        print("\n| rule without skill | success on the whole split |\n|---|---|")
        for rule, rate in no_skill(options.split).items():
            print(f"| {rule} | {100 * rate:.1f} % |")


def percent(part: float, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


if __name__ == "__main__":
    main()
