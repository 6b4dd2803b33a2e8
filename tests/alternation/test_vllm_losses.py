"""One run on vllm and on transformers: their loss curves and pass rates agree.

Greedy, both say the same tokens, so the curves are compared number by number. Sampled, the engines draw different
random numbers, so the curves are compared within the spread that transformers alone has over seeds.
"""

import importlib.util
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.runs import WhaleProcess, events_of, toy_settings
from whale.alternation.run_folder import RunFolder
from whale.events import types as ev
from whale.rollout.models import write_tiny_model
from whale.rollout.parquet import decode_trajectories
from whale.rollout.types import Trajectory

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None,
        reason="vllm is not installed here; `make test-vllm` makes an environment that has it",
    ),
]

LOSS = 1e-4
"""Relative, of a step on equal tokens: what float32 kernels that add in another order leave after some updates."""
LOGPROB = 1e-3
"""Of one token on two engines in float32; and how far apart two words are that pass for equally likely."""
SIGMAS = 4.5
"""Of the difference of two means; with 16 degrees of freedom one in 2,700 is larger by chance."""


@dataclass(frozen=True)
class Step:
    """A weight step: what it logged and the rollouts behind it."""

    loss: float
    passed: int
    tokens: int
    rollouts: list[Trajectory]

    @property
    def rate(self) -> float:
        return self.passed / len(self.rollouts)

    @property
    def kept(self) -> list[tuple[Any, ...]]:
        return [_said(rollout) for rollout in self.rollouts if rollout.reward >= 1]


def _said(rollout: Trajectory) -> tuple[Any, ...]:
    return (rollout.task_id, rollout.sample, *((turn.prompt_ids, turn.output_ids) for turn in rollout.turns))


def curve(path: Path) -> list[Step]:
    folder = RunFolder(path)
    steps: list[Step] = []
    sampled: list[Trajectory] = []
    for event in events_of(folder):
        if isinstance(event, ev.RolloutsRecorded) and event.purpose == "train":
            sampled += decode_trajectories(folder.artifacts.get(event.artifact))
        elif isinstance(event, ev.StepTrained):
            assert event.loss is not None, "a step without a passed rollout compares nothing"
            steps.append(Step(event.loss, event.passed, event.trained_tokens, sampled))
            sampled = []
    return steps


def with_engine(settings: dict[str, Any], engine: str, folder: Path) -> str:
    """Write the same settings for an engine; returns the file's path."""
    own = {**settings["engine"], "name": engine, "dtype": "float32"}
    if engine == "vllm":
        own["kv_gb"] = 1.0
    path = folder / f"{engine}-{settings['seed']}.toml"
    path.write_text(tomli_w.dumps({**settings, "engine": own}), encoding="utf-8")
    return str(path)


def parting(one: Trajectory, other: Trajectory) -> float:
    """Where two rollouts of a task first say different words: how far apart in log-probability these are."""
    for a, b in zip(one.turns, other.turns, strict=False):
        assert a.prompt_ids == b.prompt_ids, f"{one.task_id}: asked otherwise before anything was said otherwise"
        for at, (x, y) in enumerate(zip(a.output_ids, b.output_ids, strict=False)):
            if x != y:
                return abs(a.logprobs[at] - b.logprobs[at])
        assert a.output_ids == b.output_ids, f"{one.task_id}: one engine ends a turn within the other's"
        assert a.logprobs == pytest.approx(b.logprobs, abs=LOGPROB)
    assert len(one.turns) == len(other.turns)
    return 0.0


@pytest.mark.model
@pytest.mark.vllm_sample
def test_greedy_runs_on_both_engines_have_one_loss_curve(smollm2: Path, whale: WhaleProcess, tmp_path: Path) -> None:
    """SearchQA with the real model; the same questions, tools, verdicts and updates.

    A step's losses are compared as long as both have trained on the same tokens until then. Where float32 cannot tell
    two words apart the engines may say different ones, and only there.
    """
    settings = {
        "seed": 2,
        "domain": "searchqa",
        "model": str(smollm2),
        "domain_options": {"weight": 48, "harness": 4, "validation": 4, "two_hop_share": 0.0},
        "engine": {"device": "cpu", "micro_batch": 16},
        "sampling": {"temperature": 0.0, "max_generated_tokens": 96, "max_tokens_per_turn": 24},
        "weights": {"batch": 12, "rollouts_per_prompt": 1, "minibatch": 16, "learning_rate": 1e-4},
        "schedule": {"kind": "weight-only", "cycles": 1, "epochs": "1"},
        "evaluate": {"samples": 1},
    }
    for engine in ("transformers", "vllm"):
        whale("run", with_engine(settings, engine, tmp_path), "--name", engine, "--quiet", timeout=900)
    ours, theirs = (curve(tmp_path / "runs" / engine) for engine in ("transformers", "vllm"))
    assert len(ours) == len(theirs) == 4
    alike = 0
    for one, other in zip(ours, theirs, strict=True):
        for a, b in zip(one.rollouts, other.rollouts, strict=True):
            assert parting(a, b) < LOGPROB, f"{a.task_id}: the engines say different words, and not for a tie"
        print(f"transformers {one.loss:.6f} ({one.passed} passed), vllm {other.loss:.6f} ({other.passed} passed)")
        if one.kept != other.kept:
            break  # from here on θ is another
        assert (one.passed, one.tokens) == (other.passed, other.tokens)
        assert other.loss == pytest.approx(one.loss, rel=LOSS)
        alike += 1
    assert alike >= 2, "the loss under new weights must be among what is compared"


def test_sampled_runs_on_both_engines_agree_within_the_spread_over_seeds(
    whale: WhaleProcess, whale_here: WhaleProcess, tmp_path: Path
) -> None:
    """The mean curves over seeds; the scale is how much transformers' own runs differ, pooled over the steps.

    Rollouts of another temperature lie far outside: at 1 instead of 0.7 the loss is 0.9 higher. Few steps and a small
    learning rate, since runs of a model that overfits part from each other; what old weights do, the greedy runs show.
    """
    settings = toy_settings(write_tiny_model(tmp_path / "model", seed=3, head_dim=64))
    settings["domain_options"] |= {"weight": 64, "validation": 1, "test": 1}
    settings["engine"]["micro_batch"] = 128
    settings["sampling"]["temperature"] = 0.7
    settings["weights"] |= {
        "batch": 16, "rollouts_per_prompt": 8, "minibatch": 128, "learning_rate": 2e-4, "checkpoint_every": 99,
    }  # fmt: skip
    settings["schedule"] = {"kind": "weight-only", "cycles": 1, "epochs": "1"}
    settings["evaluate"] = {"samples": 1}
    curves: dict[str, list[list[Step]]] = {}
    for engine, seeds, start in (("transformers", range(1, 6), whale_here), ("vllm", range(11, 14), whale)):
        for seed in seeds:
            name = f"{engine}-{seed}"
            start("run", with_engine({**settings, "seed": seed}, engine, tmp_path), "--name", name, "--quiet")
            curves.setdefault(engine, []).append(curve(tmp_path / "runs" / name))

    ours, theirs = curves["transformers"], curves["vllm"]
    assert {len(steps) for steps in ours + theirs} == {4}
    for what in ("loss", "rate"):
        a = [[getattr(step, what) for step in steps] for steps in ours]
        b = [[getattr(step, what) for step in steps] for steps in theirs]
        spread = math.sqrt(statistics.mean(statistics.variance(at) for at in zip(*a, strict=True)))
        tolerance = SIGMAS * spread * math.sqrt(1 / len(a) + 1 / len(b))
        print(f"{what}: transformers {means(a)}, vllm {means(b)}, within {tolerance:.3f}")
        assert means(b) == pytest.approx(means(a), abs=tolerance)


def means(curves: Sequence[Sequence[float]]) -> list[float]:
    """The mean over seeds at each step."""
    return [round(statistics.mean(at), 4) for at in zip(*curves, strict=True)]
