"""New weights in a live vLLM engine, its cache cleared, beside starting the engine anew.

    python benchmarks/weight_sync.py [--repeat 5] [--kv-gb 2]

The weights are the trainer's: fp32, on the engine's device. The check of the log-probabilities is timed apart.
"""

import argparse
import statistics
import time

from whale.rollout.models import EMBEDDED, resolve_model
from whale.rollout.types import GenerateRequest
from whale.rollout.vllm_engine import VllmEngine
from whale.weights.trainer import Trainer, TrainerConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=EMBEDDED)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--kv-gb", type=float, default=2.0)
    parser.add_argument("--dtype", default="auto")
    options = parser.parse_args()
    folder = resolve_model(options.model)
    trainer = Trainer(folder, TrainerConfig(dtype="float32"))
    started = time.perf_counter()
    engine = VllmEngine(folder, dtype=options.dtype, kv_bytes=int(options.kv_gb * 2**30))
    restart = time.perf_counter() - started
    probe = [list(engine.chat.encode([{"role": "user", "content": "Name the capital of France."}]).ids)]
    syncs, checks, differences = [], [], []
    for number in range(options.repeat):
        engine.session().generate([GenerateRequest(tuple(probe[0]), 8, 0.0, 0)])
        started = time.perf_counter()
        engine.update_weights(trainer.state_dict(), str(number))
        syncs.append(time.perf_counter() - started)
        started = time.perf_counter()
        differences.append(trainer.check_engine(engine, probe, 0.1))
        checks.append(time.perf_counter() - started)
    print(f"vLLM {engine._library.version} on {engine.device}, {engine.dtype}, {options.repeat} syncs")
    print(f"sync and cache reset: median {statistics.median(syncs):.3f} s, most {max(syncs):.3f} s")
    print(f"check on {len(probe[0])} tokens: median {statistics.median(checks):.3f} s, "
          f"mean difference {differences[-1]:.2g}")  # fmt: skip
    print(f"engine restart: {restart:.1f} s, {restart / statistics.median(syncs):.0f} x a sync")
    engine.close()


if __name__ == "__main__":
    main()
