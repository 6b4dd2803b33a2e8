"""Our trainer's step beside TRL's SFTTrainer with packing, on the same rollouts, in one command.

    python benchmarks/train.py --model FOLDER                 # fp32 master weights of a real model
    python benchmarks/train.py --random qwen3-1.7b            # a model of that shape, random weights
    python benchmarks/train.py --tiny --device cpu            # the whole path, small

Data: `--questions` questions of SearchQA, `--samples` rollouts each, sampled by the embedded SmolLM2 under the
domain's initial harness (two turns, one search), all of them kept. So prompts, their sharing and lengths are
those of a run. One optimiser update over all of it is a step; the first `--warm` steps are left out.

- Ours: `Trainer.step`, packing included, micro-batches of `--pack` tree nodes.
- TRL: `SFTTrainer`, rows of `--pack` tokens packed beforehand (bfd: whole samples, padding-free), batch 1, as many
  accumulation steps as rows; fp32 weights, bf16 autocast (fp32 on a CPU), fused AdamW, clipping at 1, no
  recomputing of activations: as ours. Timed from the end of one step to the end of the next.

Both train the same tokens: the losses of the first steps are printed. TRL computes a prefix that samples share
once a sample, ours once a micro-batch. "samples' tokens/s" are the tokens of all samples over the seconds of a step,
the same work for both: that ratio counts. "computed/s" are tokens that went through the layers.

    MFU = (6 · body · computed + 6 · V · H · logits + 12 · layers · heads · d · pairs) / seconds / peak

A step of several updates copies its state first, to undo all of it if one fails: how long that takes is printed too,
and not part of a step here.

body: parameters without embeddings and head; logits: places the head is applied to, for ours those that predict a
trained token, for TRL all; pairs: of a query and a key that it sees. Nothing that is computed again is counted.
Each setting runs in a process of its own; one that fails, or that no time is left for, is named with its reason.
"""

import argparse
import builtins
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-1.7b": {
        "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40_960,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}, "tie_word_embeddings": True,
    },
    "tiny": {
        "vocab_size": 49_152, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
}  # fmt: skip

OURS: dict[str, dict[str, Any]] = {
    "whale": {},
    "whale, compiled": {"compile": True},
    "whale, activations recomputed": {"activation_checkpointing": True},
}
TRL: dict[str, dict[str, Any]] = {
    "trl packing, sdpa": {"attn": "sdpa"},
    "trl packing, sdpa, compiled": {"attn": "sdpa", "torch_compile": True},
    "trl packing, flex attention": {"attn": "flex_attention"},
    "trl packing, flash attention 2": {"attn": "flash_attention_2"},
    "trl packing, flash attention 2, compiled": {"attn": "flash_attention_2", "torch_compile": True},
    "trl packing, sdpa, chunked loss": {"attn": "sdpa", "loss_type": "chunked_nll"},
}


def main() -> None:
    began = time.monotonic()
    options = arguments()
    if options.part:
        print(json.dumps(PARTS[options.part](options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        options.data = options.data or str(Path(folder) / "samples.json")
        about = run(options, "data", "", max(options.limit, 600))
        if "error" in about:
            sys.exit(f"no rollouts: {about['error']}")
        print(about["told"], flush=True)
        results = {}
        for part, settings in (("ours", OURS), ("trl", TRL)):
            for name in settings:
                if re.search(options.only, name):
                    left = min(options.limit, began + options.total - time.monotonic())
                    results[name] = report(name, run(options, part, name, left), options.peak)
    theirs = [name for name in TRL if results.get(name)]
    ran = [name for name in OURS if results.get(name)]
    if theirs and ran:
        best = max(theirs, key=lambda name: results[name])
        for name in ran:
            print(f"samples' tokens/s, {name} / best TRL ({best}): {results[name] / results[best]:.2f} x")
    else:
        print("no ratio: one side did not run")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="", help="a model folder; default: the embedded SmolLM2-135M")
    parser.add_argument("--random", choices=sorted(SHAPES), default="", help="random weights of this shape instead")
    parser.add_argument("--questions", type=int, default=96)
    parser.add_argument("--samples", type=int, default=4, help="rollouts a question")
    parser.add_argument("--pack", type=int, default=8192, help="tokens computed at once")
    parser.add_argument(
        "--lora-rank", type=int, default=0, help="ours with LoRA on all linear layers; MFU is then wrong"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--peak", type=float, default=989e12, help="FLOP/s of the device in bf16, dense")
    parser.add_argument("--limit", type=float, default=150, help="seconds of a setting's process")
    parser.add_argument("--total", type=float, default=570, help="seconds of all settings together")
    parser.add_argument("--only", default="", help="settings whose name this regular expression finds")
    parser.add_argument("--tiny", action="store_true", help="few questions, a tiny random model, short packs")
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    parser.add_argument("--setting", default="", help=argparse.SUPPRESS)
    parser.add_argument("--data", default="", help="a file of rollouts: read if it is there, else written")
    options = parser.parse_args()
    if options.tiny and not options.part:
        options.random, options.questions, options.samples = "tiny", 4, 3
        options.pack, options.rounds, options.warm = 2048, 2, 1
    return options


def run(options: argparse.Namespace, part: str, setting: str, limit: float) -> dict[str, Any]:
    """One part in a process of its own, so that its peak of memory is its own too."""
    command = [sys.executable, __file__, "--part", part, "--setting", setting]
    for name in ("model", "random", "questions", "samples", "pack", "lora_rank", "rounds", "warm", "device", "data"):
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))] if getattr(options, name) != "" else []
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    if limit < 1:
        return {"error": "no time left (--total)"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {limit:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        result: dict[str, Any] = json.loads(lines[-1])
        return result
    said = [line for line in done.stderr.strip().splitlines() if line.strip()]
    return {"error": said[-1] if said else f"exit {done.returncode}"}


def report(name: str, result: dict[str, Any], peak: float) -> float:
    """Print a setting's figures; return its samples' tokens per second, 0 if it did not run."""
    if "error" in result:
        print(f"{name}: did not run: {result['error']}", flush=True)
        return 0.0
    seconds = statistics.median(result["seconds"])
    spread = f"{min(result['seconds']):.3f} to {max(result['seconds']):.3f}"
    print(
        f"{name}: {result['tokens'] / seconds:,.0f} samples' tokens/s, {result['trained'] / seconds:,.0f} trained, "
        f"{result['computed'] / seconds:,.0f} computed, MFU {100 * result['flops'] / seconds / peak:.1f} %, "
        f"peak {result['memory'] / 2**30:.2f} GiB; step {seconds:.3f} s (n = {len(result['seconds'])}, {spread}), "
        f"start and warm-up {result['warm']:.0f} s; first loss {result['loss']:.4f}{result.get('told', '')}",
        flush=True,
    )
    rate: float = result["tokens"] / seconds
    return rate


def sampled(options: argparse.Namespace) -> list[list[list[Any]]]:
    """Rollouts of the embedded model under SearchQA's initial harness."""
    from whale.domains.registry import load_domain
    from whale.rollout.episodes import Limits, Sampling, run_micro_batch
    from whale.rollout.models import EMBEDDED, resolve_model
    from whale.rollout.sandbox.host import start_worker
    from whale.rollout.transformers_engine import TransformersEngine
    from whale.rollout.types import EpisodeSpec
    from whale.weights.samples import samples_from

    domain = load_domain("searchqa", {})
    tasks = list(domain.splits()["weight"])[: options.questions]
    specs = [EpisodeSpec(task.id, k, 1000 * i + k) for i, task in enumerate(tasks) for k in range(options.samples)]
    sampling = Sampling(0.7, max_turns=2, max_generated_tokens=128, max_tokens_per_turn=32)
    by_id = {task.id: task for task in tasks}
    done = []
    with start_worker(domain.h0(), limits=Limits()) as worker:
        engine = TransformersEngine(resolve_model(EMBEDDED), device=options.device)
        for start in range(0, len(specs), 32):  # each episode is a process of the sandbox
            done += run_micro_batch(
                engine,
                engine.chat,
                worker.files,
                by_id,
                specs[start : start + 32],
                domain,
                sampling,
                worker.limits,
                worker,
            )
    return [[[list(s.token_ids), list(s.loss_mask)] for s in samples_from(trajectory)] for trajectory in done]


def sample_data(options: argparse.Namespace) -> dict[str, Any]:
    """Roll out the initial harness with the embedded model; write the samples as [ids, mask] per rollout."""
    if not Path(options.data).exists():
        Path(options.data).write_text(json.dumps(sampled(options)), encoding="utf-8")
    rollouts = load(options)
    lengths = [len(ids) for rollout in rollouts for ids, _ in rollout]
    trained = sum(sum(mask) for rollout in rollouts for _, mask in rollout)
    return {
        "told": f"{len(rollouts)} rollouts of SearchQA, {options.samples} a question: {len(lengths)} samples, "
        f"{sum(lengths)} tokens ({min(lengths)} to {max(lengths)} each), {trained} of them sampled and trained"
    }


def ours(options: argparse.Namespace) -> dict[str, Any]:
    from whale.weights.lora import Lora
    from whale.weights.trainer import Trainer, TrainerConfig
    from whale.weights.types import Sample

    began = time.perf_counter()
    rollouts = [[Sample(tuple(ids), tuple(mask)) for ids, mask in rollout] for rollout in load(options)]
    trainer = Trainer(
        build(options, "sdpa"),
        TrainerConfig(
            lr=1e-6,
            minibatch=len(rollouts),
            micro_batch_tokens=options.pack,
            device=options.device,
            dtype="auto" if on_gpu(options) else "float32",
            lora=Lora(options.lora_rank) if options.lora_rank else None,
            **OURS[options.setting],
        ),
    )
    objective = trainer._objective
    layouts = list(objective.layouts([sample for rollout in rollouts for sample in rollout]))
    losses, seconds = [], []
    for number in range(options.warm + options.rounds):
        if number == options.warm:
            warm = time.perf_counter() - began
        synchronise()
        started = time.perf_counter()
        losses.append(trainer.step(rollouts, seed=number).loss)
        synchronise()
        seconds.append(time.perf_counter() - started)
    computed = sum(layout.nodes for layout in layouts)
    pairs = sum(depth + 1 for layout in layouts for depth in layout.depths) or sum(
        len(row) * (len(row) + 1) // 2 for layout in layouts for row in layout.rows
    )
    places = sum(len(layout.predictors) for layout in layouts)
    peak = memory()
    started = time.perf_counter()
    trainer._state.copy()
    synchronise()
    copied = time.perf_counter() - started
    ways = [objective.packing, "flex" if objective.flex else "dense", "compiled" if objective.compiled else "eager"]
    return {
        **work(options), "seconds": seconds[options.warm :], "warm": warm, "computed": computed, "loss": losses[0],
        "flops": flops(trainer.model, computed, places, pairs), "memory": peak,
        "told": f"; {', '.join(ways)}, {len(layouts)} micro-batches; its state copied in {copied:.3f} s"
        + "".join(f"; {note}" for note in objective.notes),
    }  # fmt: skip


def trl(options: argparse.Namespace) -> dict[str, Any]:
    import pyarrow

    if not hasattr(builtins, "MonthDayNano") and hasattr(pyarrow, "MonthDayNano"):
        builtins.MonthDayNano = pyarrow.MonthDayNano  # older datasets name it bare beside a newer pyarrow: a NameError
    from datasets import Dataset, concatenate_datasets
    from transformers import AutoTokenizer, TrainerCallback
    from trl import SFTConfig, SFTTrainer  # type: ignore[import-not-found]  # not a dependency: installed to measure
    from trl.data_utils import pack_dataset  # type: ignore[import-not-found]

    from whale.rollout.models import EMBEDDED, resolve_model

    began = time.perf_counter()
    setting = dict(TRL[options.setting])
    samples = [sample for rollout in load(options) for sample in rollout]
    rows = pack_dataset(
        Dataset.from_dict(
            {
                "input_ids": [ids for ids, _ in samples],
                "labels": [[i if on else -100 for i, on in zip(ids, mask, strict=True)] for ids, mask in samples],
            }
        ),
        options.pack,
        "bfd",
    )
    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            synchronise()
            times.append(time.perf_counter())

    steps = options.warm + options.rounds
    model = build(options, setting.pop("attn"))
    with tempfile.TemporaryDirectory() as folder:
        config = SFTConfig(
            output_dir=folder, per_device_train_batch_size=1, gradient_accumulation_steps=len(rows), max_steps=steps,
            learning_rate=1e-6, lr_scheduler_type="constant", optim="adamw_torch_fused", weight_decay=0.0,
            max_grad_norm=1.0, bf16=on_gpu(options), use_cpu=not on_gpu(options), gradient_checkpointing=False,
            packing=True, max_length=options.pack, dataset_kwargs={"skip_prepare_dataset": True},
            logging_steps=1, save_strategy="no", report_to="none", disable_tqdm=True,
            train_sampling_strategy="sequential", **setting,  # each step the same rows
        )  # fmt: skip
        trainer = SFTTrainer(
            model=model, args=config, train_dataset=concatenate_datasets([rows] * steps),
            processing_class=AutoTokenizer.from_pretrained(resolve_model(EMBEDDED)), callbacks=[Clock()],
        )  # fmt: skip
        trainer.train()
    seconds = [b - a for a, b in itertools.pairwise(times)][options.warm - 1 :]
    tokens = sum(len(ids) for ids, _ in samples)
    pairs = sum(len(ids) * (len(ids) + 1) // 2 for ids, _ in samples)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {
        **work(options), "seconds": seconds, "warm": times[options.warm - 1] - began, "computed": tokens,
        "flops": flops(model, tokens, tokens, pairs), "memory": memory(), "loss": losses[0],
        "told": f"; {len(rows)} rows",
    }  # fmt: skip


PARTS = {"data": sample_data, "ours": ours, "trl": trl}


def load(options: argparse.Namespace) -> list[list[list[Any]]]:
    rollouts: list[list[list[Any]]] = json.loads(Path(options.data).read_text(encoding="utf-8"))
    return rollouts


def work(options: argparse.Namespace) -> dict[str, int]:
    samples = [sample for rollout in load(options) for sample in rollout]
    return {"tokens": sum(len(ids) for ids, _ in samples), "trained": sum(sum(mask) for _, mask in samples)}


def build(options: argparse.Namespace, attention: str) -> Any:
    """The model in fp32, on the device."""
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen3Config

    from whale.rollout.models import EMBEDDED, resolve_model

    device = "cuda" if on_gpu(options) else "cpu"
    if options.random:
        torch.manual_seed(0)
        config = Qwen3Config(**SHAPES[options.random])
        with torch.device(device):
            return AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]  # transformers'
                config, dtype=torch.float32, attn_implementation=attention
            )
    folder = options.model or resolve_model(EMBEDDED)
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=attention, local_files_only=True
    )
    return model.to(device)  # type: ignore[arg-type]  # behind a decorator


def on_gpu(options: argparse.Namespace) -> bool:
    import torch

    return options.device != "cpu" and torch.cuda.is_available()


def flops(model: Any, computed: int, places: int, pairs: int) -> float:
    """As the docstring above has it."""
    config = model.config
    head = model.get_output_embeddings().weight
    ends = {model.get_input_embeddings().weight, head}
    body = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in ends)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    attention = 12 * config.num_hidden_layers * config.num_attention_heads * width * pairs
    return float(6 * body * computed + 6 * head.numel() * places + attention)


def memory() -> int:
    """Bytes at the peak: of the GPU what torch allocated, without one the process's resident set."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def synchronise() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
