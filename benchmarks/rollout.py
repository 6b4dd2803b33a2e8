"""Our rollout loop on vLLM beside vLLM's own offline `generate`, in turns, in one process.

    python benchmarks/rollout.py [--episodes 512] [--rounds 3] [--kv-gb 16]
    python benchmarks/rollout.py --replicas 4 ...      # the same episodes at once, over engines that share the device
    python benchmarks/rollout.py --options '{"max_num_batched_tokens": 8192}'     # for ours and theirs
    python benchmarks/rollout.py --peer-core apart     # theirs with its core in a process of its own: vLLM's default

Ours: episodes of SearchQA's initial harness (two turns, one search) in the sandbox, `--episodes` of them at once,
forks, tools, logprobs, stop strings and verification counted. Theirs: one call of `LLM.generate` over the recorded
prompts of both turns, each to its recorded length, with the same max_num_seqs and prefix caching, and no logprobs;
then once more with them, which training needs and ours always has (`--no-logprobs` leaves that out). All begin with an
empty prefix cache. Prints tokens/s of each round, the ratio to the call without logprobs, and where our time went.

With `--replicas` the episodes are dealt over that many engines (`engine.replicas`), each a process; theirs stays one
call of one engine. Replicas on one GPU only compute side by side where NVIDIA's MPS runs.
"""

import argparse
import json
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from whale.config import EngineConfig
from whale.domains.base import Domain, Task
from whale.domains.registry import load_domain
from whale.rollout.devices import resolve_device
from whale.rollout.episodes import Limits, Sampling, run_micro_batch
from whale.rollout.memory_plan import MemoryPlan, plan_memory
from whale.rollout.models import EMBEDDED, model_digest, resolve_model
from whale.rollout.replica import SandboxedHarness
from whale.rollout.replica_messages import DomainOrigin
from whale.rollout.replicas import Replicas
from whale.rollout.sandbox.host import HarnessWorker, start_worker
from whale.rollout.sandbox.probe import best_tier
from whale.rollout.types import EpisodeSpec, Trajectory
from whale.rollout.vllm_engine import VllmEngine, model_shape

TEMPERATURE = 0.7


class Clock:
    """Seconds by part; a part inside another is taken off the outer one."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._inner: list[float] = []

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the seconds of the block."""
        started = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            took = time.perf_counter() - started
            self.spent[name] += took - self._inner.pop()
            self.calls[name] += 1
            if self._inner:
                self._inner[-1] += took

    def around(self, owner: Any, method: str, name: str) -> None:
        """Count the seconds of a method."""
        call: Callable[..., Any] = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(name):
                return call(*args, **kwargs)

        setattr(owner, method, timed)


def main() -> None:
    options = arguments()
    domain = load_domain("searchqa", {})
    tasks = list(domain.splits()["weight"])
    specs = [EpisodeSpec(tasks[i % len(tasks)].id, i // len(tasks), 1000 + i) for i in range(options.episodes)]
    if options.replicas > 1:
        several(options, domain, {task.id: task for task in tasks}, specs)
        return
    with start_worker(domain.h0(), limits=Limits()) as worker:  # before torch has threads
        started = time.perf_counter()
        common = {"max_num_seqs": options.max_num_seqs or options.episodes, **options.options}
        engine = VllmEngine(
            resolve_model(options.model), device=options.device, dtype=options.dtype,
            kv_bytes=int(options.kv_gb * 2**30), options=common,
        )  # fmt: skip
        print(f"vLLM {engine._library.version} on {engine.device}, {engine.dtype}; {engine.memory}")
        print(f"start: {time.perf_counter() - started:.1f} s")
        peer = offline_engine(options, engine.dtype, engine.memory, common)
        by_id = {task.id: task for task in tasks}
        warm = ours(engine, domain, by_id, specs[: max(2, options.episodes // 8)], worker, Clock())
        theirs(peer, warm, logprobs=None)
        ratios, scored_ratios, parts = list[float](), list[float](), []
        for number in range(1, options.rounds + 1):
            clock = Clock()
            engine._library.reset_cache()
            began = time.perf_counter()
            with clock.part("other"):
                done = ours(engine, domain, by_id, specs, worker, clock)
            seconds = time.perf_counter() - began
            plain = theirs(peer, done, logprobs=None)
            scored = theirs(peer, done, logprobs=0) if options.logprobs else None
            ratios.append(plain / seconds)
            parts.append((clock, seconds, plain))
            if scored is not None:
                scored_ratios.append(scored / seconds)
            tell_round(number, done, seconds, plain, scored)
        tell_ratios(ratios, scored_ratios)
        split(*parts[-1])
    engine.close()


def several(options: argparse.Namespace, domain: Domain, tasks: dict[str, Task], specs: Sequence[EpisodeSpec]) -> None:
    """The same with our episodes over several engines."""
    path = resolve_model(options.model)
    weights, version = load_file(path / "model.safetensors"), model_digest(path)
    harness = SandboxedHarness(domain.h0(), best_tier(), Limits())
    sampling = Sampling(TEMPERATURE, max_turns=2, max_generated_tokens=128, max_tokens_per_turn=32)
    at_once = options.max_num_seqs or options.episodes
    settings = EngineConfig(
        name="vllm", device=options.device, dtype=options.dtype, kv_gb=options.kv_gb / options.replicas,
        replicas=options.replicas, options={"max_num_seqs": -(-at_once // options.replicas), **options.options},
    )  # fmt: skip
    origin = DomainOrigin("searchqa", {}, Path.cwd(), apart=False, fingerprint=domain.fingerprint())
    started = time.perf_counter()
    engines = Replicas(settings, path, version, domain, origin, ranks=0)
    try:
        print(f"{options.replicas} engines on {engines.device}, {engines.dtype}: {time.perf_counter() - started:.1f} s")
        plan = plan_memory(
            model_shape(path), engines.dtype, resolve_device(options.device), int(options.kv_gb * 2**30), trainer=False
        )
        peer = offline_engine(options, engines.dtype, plan, {"max_num_seqs": at_once, **options.options})
        ratios, scored_ratios = list[float](), list[float]()
        for number in range(options.rounds + 1):  # the first warms up
            engines.update_weights(weights, version)  # the same ones: their caches are empty then
            engines.watch.lap()
            began = time.perf_counter()
            done = engines.sample(harness, tasks, specs, domain, sampling)
            seconds = time.perf_counter() - began
            spent = engines.watch.lap()
            plain = theirs(peer, done, logprobs=None)
            scored = theirs(peer, done, logprobs=0) if options.logprobs else None
            if number:
                ratios.append(plain / seconds)
                scored_ratios += [scored / seconds] if scored else []
                tell_round(number, done, seconds, plain, scored)
                print("  ours, replicas' mean: " + ", ".join(f"{part} {spent[part]:.2f} s" for part in sorted(spent)))
        tell_ratios(ratios, scored_ratios)
    finally:
        engines.close()


def tell_round(number: int, done: Sequence[Trajectory], seconds: float, plain: float, scored: float | None) -> None:
    tokens = sum(trajectory.generated for trajectory in done)
    prompted = sum(trajectory.prompted for trajectory in done)
    told = f", with logprobs {tokens / scored:,.0f} ({scored:.2f} s)" if scored is not None else ""
    print(
        f"round {number}: {tokens} sampled, {prompted} prompt tokens; ours {tokens / seconds:,.0f} tokens/s "
        f"({seconds:.2f} s), generate {tokens / plain:,.0f} ({plain:.2f} s){told}: {plain / seconds:.2f} x",
        flush=True,
    )
    bad = sum(trajectory.status != "ok" for trajectory in done)
    if bad:
        print(f"  {bad} episodes did not end well")


def tell_ratios(ratios: Sequence[float], scored: Sequence[float]) -> None:
    print(f"ratio, median of {len(ratios)}: {statistics.median(ratios):.2f} (least {min(ratios):.2f})")
    if scored:
        print(
            f"to generate with logprobs, median of {len(scored)}: {statistics.median(scored):.2f} "
            f"(least {min(scored):.2f})"
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-num-seqs", type=int, default=0, help="0: as many as episodes")
    parser.add_argument("--kv-gb", type=float, default=2.0, help="of all our engines together, and of theirs")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--options", type=json.loads, default={}, help="JSON: engine.options, for ours and theirs")
    parser.add_argument("--model", default=EMBEDDED)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--peer-core", choices=["here", "apart"], default="here", help="where theirs has its core")
    parser.add_argument(
        "--logprobs", action=argparse.BooleanOptionalAction, default=True, help="also time generate with logprobs"
    )
    return parser.parse_args()


def offline_engine(options: argparse.Namespace, dtype: torch.dtype, memory: MemoryPlan, common: dict[str, Any]) -> Any:
    """VLLM's own LLM object, with the same settings; in this process, as ours with one engine is, or its core apart."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1" if options.peer_core == "apart" else "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import LLM

    return LLM(
        model=str(resolve_model(options.model)),
        dtype=str(dtype).removeprefix("torch."),
        **({} if options.peer_core == "apart" else {"distributed_executor_backend": "uni"}),
        enable_prefix_caching=True,
        kv_cache_memory_bytes=memory.kv_bytes,
        gpu_memory_utilization=memory.share,
        enforce_eager=resolve_device(options.device).type == "cpu",
        use_tqdm_on_load=False,
        **common,
    )


def ours(
    engine: VllmEngine,
    domain: Domain,
    tasks: dict[str, Task],
    specs: Sequence[EpisodeSpec],
    worker: HarnessWorker,
    clock: Clock,
) -> list[Trajectory]:
    """One micro-batch through the one rollout path, watched."""
    sampling = Sampling(TEMPERATURE, max_turns=2, max_generated_tokens=128, max_tokens_per_turn=32)
    session = engine.session()
    watched = {name: getattr(worker, name) for name in ("poll", "open_episode", "answer", "abandon")}
    searches = domain.tools
    opened, verified, computed = engine.session, domain.verify, engine._library._core.get_output
    clock.around(engine._library._core, "get_output", "core: the rest")  # such as waiting for the device
    core = engine._library._core.engine_core
    inner = [(core.scheduler, "schedule"), (core.model_executor, "execute_model"),
             (core.model_executor, "sample_tokens"), (core.scheduler, "update_from_output")]  # fmt: skip
    for owner, name in inner:
        clock.around(owner, name, f"core: {name}")
    clock.around(session, "advance", "engine step")
    clock.around(session, "submit", "engine submit")
    clock.around(worker, "open_episode", "fork")
    clock.around(worker, "answer", "answer episodes")
    clock.around(worker, "abandon", "end episodes")
    clock.around(domain, "verify", "verify")

    def poll(wait: bool = True, **named: Any) -> Any:
        with clock.part("wait for harness" if wait else "look at harness"):
            return watched["poll"](wait, **named)

    def tools(task: Task) -> Any:
        found = dict(searches(task))
        for name, tool in found.items():
            found[name] = timed(clock, "tools", tool)
        return found

    worker.poll, engine.session, domain.tools = poll, lambda: session, tools  # type: ignore[method-assign]
    try:
        return run_micro_batch(engine, engine.chat, worker.files, tasks, specs, domain, sampling, worker.limits, worker)
    finally:
        for name, method in watched.items():
            setattr(worker, name, method)
        engine.session, domain.tools, domain.verify = opened, searches, verified  # type: ignore[method-assign]
        engine._library._core.get_output = computed
        for owner, name in inner:
            delattr(owner, name)  # the class has it


def timed(clock: Clock, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with clock.part(name):
            return call(*args, **kwargs)

    return wrapper


def theirs(peer: Any, done: Sequence[Trajectory], logprobs: int | None) -> float:
    """Seconds of one offline call over every recorded prompt."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    turns = [turn for trajectory in done for turn in trajectory.turns]
    prompts = [TokensPrompt(prompt_token_ids=list(turn.prompt_ids)) for turn in turns]
    params = [
        SamplingParams(
            max_tokens=len(turn.output_ids), ignore_eos=True, temperature=TEMPERATURE, detokenize=False,
            logprobs=logprobs,
        )
        for turn in turns
    ]  # fmt: skip
    assert peer.reset_prefix_cache()
    started = time.perf_counter()
    outputs = peer.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - started
    assert [len(o.outputs[0].token_ids) for o in outputs] == [len(turn.output_ids) for turn in turns]
    return seconds


def split(clock: Clock, seconds: float, plain: float) -> None:
    """Where our time went, beside theirs."""
    print(f"\nlast round, {seconds:.2f} s; generate took {plain:.2f} s")
    for name, spent in sorted(clock.spent.items(), key=lambda item: -item[1]):
        calls = clock.calls[name]
        print(f"  {name:18s} {spent:8.3f} s  {100 * spent / seconds:5.1f} %  {calls:7d} calls  "
              f"{1e6 * spent / calls:9.0f} us each")  # fmt: skip


if __name__ == "__main__":
    main()
