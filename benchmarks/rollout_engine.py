"""Our batched decode loop beside `model.generate` on the same prompts, in one run: tokens/s and their ratio.

    python benchmarks/rollout_engine.py [--rows 32] [--shared 120] [--own 60] [--new 24] [--questions 8]

`--questions` = distinct prompts; the others repeat one of them, as the G rollouts of a question do.
"""

import argparse
import random
import time

import torch

from whale.rollout.models import EMBEDDED, resolve_model
from whale.rollout.transformers_engine import TransformersEngine
from whale.rollout.types import GenerateRequest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rows", 32), ("shared", 120), ("own", 60), ("new", 24), ("questions", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    engine = TransformersEngine(resolve_model(EMBEDDED), device="auto")
    rng = random.Random(0)

    def draw(count: int) -> list[int]:
        return [rng.randrange(100, 40_000) for _ in range(count)]

    shared = draw(options.shared)
    questions = [shared + draw(options.own) for _ in range(options.questions)]
    prompts = [questions[i % options.questions] for i in range(options.rows)]

    def ours() -> int:
        session = engine.session()
        requests = [GenerateRequest(tuple(p), options.new, 0.7, seed) for seed, p in enumerate(prompts)]
        done = session.generate(requests)
        session.close()
        return sum(len(generation.output_ids) for generation in done)

    def theirs() -> int:
        ids = torch.tensor(prompts, device=engine.device)
        with torch.inference_mode():
            out = engine.model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=options.new,
                min_new_tokens=options.new, do_sample=True, temperature=0.7,
            )  # fmt: skip
        return int(out.shape[0] * (out.shape[1] - ids.shape[1]))

    ours()  # the first call packs weights and warms caches
    rates = {}
    for name, run in (("ours", ours), ("generate", theirs)):
        started = time.perf_counter()
        tokens = run()
        seconds = time.perf_counter() - started
        rates[name] = tokens / seconds
        print(f"{name:9s} {tokens:6d} tokens in {seconds:6.2f} s: {rates[name]:8.1f} tokens/s")
    print(f"ratio     {rates['ours'] / rates['generate']:.2f}  ({torch.get_num_threads()} threads, {engine.dtype})")


if __name__ == "__main__":
    main()
