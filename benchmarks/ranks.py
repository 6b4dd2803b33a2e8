"""The gradient of several ranks beside that of one, and how many more tokens a second they train.

    python benchmarks/ranks.py [--model NAME_OR_FOLDER] [--ranks 2] [--device cuda] [--repeat 5]
    python benchmarks/ranks.py --device cpu --tiny

Rollouts have the shape of a SearchQA run: one long prompt for all, a question for each group, short answers, of
random token ids. The gradients are compared in fp32, as AdamW's first moment holds them; speed is measured at
`--dtype`, one update a step, the way of the samples to the ranks included. Exit 1 if the gradients differ.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from whale.rollout.models import EMBEDDED, resolve_model, write_tiny_model
from whale.weights.ranks import Crew, RankedTrainer
from whale.weights.state import OPTIMIZER, read_tensors
from whale.weights.trainer import Trainer, TrainerConfig
from whale.weights.types import Sample

TOLERANCE = 1e-4
"""|g - g'| / |g| over all parameters: fp32 sums in another order, over some thousand tokens."""


def rollouts(n: int, vocabulary: int, prompt: int, question: int, answer: int, group: int = 8) -> list[list[Sample]]:
    """`n` rollouts of one sample each; answers have half of `answer` tokens to all of it."""
    draw = random.Random(0)

    def ids(length: int) -> tuple[int, ...]:
        return tuple(draw.randrange(vocabulary) for _ in range(length))

    result, common, asked = [], ids(prompt), ids(question)
    for number in range(n):
        if number % group == 0:
            asked = ids(question)
        said = ids(draw.randint(answer // 2, answer))
        context = common + asked
        result.append([Sample(context + said, (False,) * len(context) + (True,) * len(said))])
    return result


def gradient(trainer: Trainer | RankedTrainer, batch: list[list[Sample]]) -> dict[str, torch.Tensor]:
    trainer.step(batch, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        trainer.save(folder)
        moments = read_tensors(Path(folder) / OPTIMIZER)
        return {name: tensor.clone() / 0.1 for name, tensor in moments.items() if name.endswith("/exp_avg")}


def seconds(trainer: Trainer | RankedTrainer, batch: list[list[Sample]], repeat: int) -> float:
    times = []
    for number in range(repeat + 1):  # the first warms up
        started = time.perf_counter()
        trainer.step(batch, seed=number)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=EMBEDDED)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--rollouts", type=int, default=256)
    parser.add_argument("--micro-batch-tokens", type=int)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--tiny", action="store_true", help="a random model of some thousand parameters, short rollouts"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = write_tiny_model(Path(place) / "model") if options.tiny else resolve_model(options.model)
        return compare(options, folder)


def compare(options: argparse.Namespace, folder: Path) -> int:
    shape = (
        {"prompt": 20, "question": 6, "answer": 8} if options.tiny else {"prompt": 600, "question": 60, "answer": 60}
    )
    micro = options.micro_batch_tokens or (64 if options.tiny else None)
    exact, fast = (
        TrainerConfig(lr=0.0, minibatch=10**6, micro_batch_tokens=micro, device=options.device, dtype=dtype,
                      grad_clip=None)
        for dtype in ("float32", options.dtype)
    )  # fmt: skip
    crew = Crew(options.ranks, options.device)  # first: a wrong number of devices is said at once
    alone = Trainer(folder, exact)
    vocabulary = int(alone.model.config.vocab_size)
    batch = rollouts(32 if options.tiny else options.rollouts, vocabulary, **shape)
    tokens = sum(sample.trained for (sample,) in batch)
    one = gradient(alone, batch)
    two = gradient(crew.trainer(folder, exact), batch)
    apart = sum(float((one[name] - two[name]).double().square().sum()) for name in one) ** 0.5
    norm = sum(float(tensor.double().square().sum()) for tensor in one.values()) ** 0.5
    agree = one.keys() == two.keys() and apart <= TOLERANCE * norm
    print(f"{folder.name}, {alone.device.type}, {len(batch)} rollouts, {tokens:,} trained tokens an update")
    print(f"gradient, fp32: |g1 - g{options.ranks}| / |g1| = {apart / norm:.2g} over {len(one)} parameters "
          f"(tolerance {TOLERANCE:g}): {'equal' if agree else 'DIFFERENT'}")  # fmt: skip
    del alone, one, two
    times = {}
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    times[options.ranks] = seconds(crew.trainer(folder, fast), batch, options.repeat)
    crew.close()
    times[1] = seconds(Trainer(folder, fast), batch, options.repeat)
    for ranks in (1, options.ranks):
        print(f"{ranks} rank{'s' * (ranks > 1)}: {tokens / times[ranks]:,.0f} trained tokens/s, "
              f"median of {options.repeat} steps")  # fmt: skip
    print(f"{options.ranks} ranks train {times[1] / times[options.ranks]:.2f} x the tokens of 1 in the same time")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
