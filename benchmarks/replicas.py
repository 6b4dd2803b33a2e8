"""Rollouts a second of one engine and of N, one per GPU, in turns.

    python benchmarks/replicas.py --device cuda --engine vllm [--replicas 2]
    python benchmarks/replicas.py --device cpu --tiny        # anywhere

The same episodes on both sides: SearchQA's initial harness in the sandbox, two turns and a search, tools and
verification counted, eight samples a question. One engine, in this process as in a run, takes `--at-once` of them at a
time until all are done; N replicas take N times as many at once, so that each engine is as full as the one. Every round
has new questions and seeds. Prints both rates, and how many times the rollouts of one engine N sample in the same time.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from whale.config import EngineConfig
from whale.domains.base import Domain
from whale.domains.registry import load_domain
from whale.rollout.engines import load_engine
from whale.rollout.episodes import Limits, Sampling
from whale.rollout.models import EMBEDDED, model_digest, resolve_model, write_tiny_model
from whale.rollout.replica import Replica, SandboxedHarness
from whale.rollout.replica_messages import DomainOrigin
from whale.rollout.replicas import Replicas
from whale.rollout.sandbox.probe import best_tier
from whale.rollout.types import EpisodeSpec, Trajectory

SAMPLES = 8


def main() -> int:
    options = arguments()
    settings = EngineConfig(
        name=options.engine,
        device=options.device,
        dtype=options.dtype,
        kv_gb=options.kv_gb if options.engine == "vllm" else 0.0,
        options={"max_num_seqs": options.at_once} if options.engine == "vllm" else {},
    )
    with tempfile.TemporaryDirectory() as place:
        folder = write_tiny_model(Path(place) / "model", head_dim=64) if options.tiny else resolve_model(options.model)
        return compare(options, settings, folder)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=["transformers", "vllm"], default="transformers")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--model", default=EMBEDDED)
    parser.add_argument("--at-once", type=int, help="episodes at once on each engine; by default 512 on a GPU, else 8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kv-gb", type=float, default=0.0, help="vllm: 16 on a GPU, 0.25 elsewhere")
    parser.add_argument("--tiny", action="store_true", help="a random model of some thousand parameters")
    options = parser.parse_args()
    on_gpu = load_device(options.device) == "cuda"
    options.at_once = options.at_once or (512 if on_gpu else 8)
    options.kv_gb = options.kv_gb or (16.0 if on_gpu else 0.25)
    return options


def load_device(name: str) -> str:
    from whale.rollout.devices import resolve_device

    return resolve_device(name).type


def compare(options: argparse.Namespace, settings: EngineConfig, folder: Path) -> int:
    domain, version = load_domain("searchqa", {}), model_digest(folder)
    harness = SandboxedHarness(domain.h0(), best_tier(), Limits())
    origin = DomainOrigin("searchqa", {}, Path.cwd(), apart=False, fingerprint=domain.fingerprint())
    several = options.replicas
    started = time.perf_counter()
    one = Replica(load_engine(settings, folder, version))
    print(f"{folder.name}, {options.engine} on {one.device.type}, {one.dtype}; "
          f"one engine started in {time.perf_counter() - started:.1f} s", flush=True)  # fmt: skip
    started = time.perf_counter()
    many = Replicas(msgspec.structs.replace(settings, replicas=several), folder, version, domain, origin)
    print(f"{several} replicas started side by side in {time.perf_counter() - started:.1f} s", flush=True)
    try:
        size = options.at_once * several
        rates: dict[int, list[float]] = {1: [], several: []}
        for number in range(options.rounds + 1):  # the first warms up
            for replicas, engine, at_once in ((1, one, options.at_once), (several, many, size)):
                began = time.perf_counter()
                done = sample(engine, harness, domain, number, size, at_once)
                seconds = time.perf_counter() - began
                if not number:
                    continue
                rates[replicas].append(size / seconds)
                tokens = sum(trajectory.generated for trajectory in done)
                bad = sum(trajectory.status != "ok" for trajectory in done)
                print(f"round {number}, {replicas} replica{'s' * (replicas > 1)}: {size / seconds:,.1f} rollouts/s, "
                      f"{tokens / seconds:,.0f} sampled tokens/s ({size} rollouts in {seconds:.2f} s"
                      f"{f', {bad} did not end well' if bad else ''})", flush=True)  # fmt: skip
    finally:
        many.close()
        one.close()
    ratios = [n / alone for n, alone in zip(rates[several], rates[1], strict=True)]
    print(f"{several} replicas sample {statistics.median(ratios):.2f} x the rollouts of 1 in the same time, "
          f"median of {len(ratios)} rounds (least {min(ratios):.2f}, most {max(ratios):.2f})")  # fmt: skip
    return 0


def sample(
    engine: Replica | Replicas, harness: SandboxedHarness, domain: Domain, number: int, size: int, at_once: int
) -> list[Trajectory]:
    """The round's episodes, `at_once` of them in a micro-batch."""
    pool = list(domain.splits()["weight"])
    first = number * size // SAMPLES
    tasks = [pool[(first + i // SAMPLES) % len(pool)] for i in range(size)]
    specs = [EpisodeSpec(task.id, i % SAMPLES, 1_000_000 * number + i) for i, task in enumerate(tasks)]
    sampling = Sampling(temperature=0.7, max_turns=2, max_generated_tokens=128, max_tokens_per_turn=32)
    by_id = {task.id: task for task in tasks}
    done: list[Trajectory] = []
    for start in range(0, size, at_once):
        done += engine.sample(harness, by_id, specs[start : start + at_once], domain, sampling)
    return done


if __name__ == "__main__":
    sys.exit(main())
