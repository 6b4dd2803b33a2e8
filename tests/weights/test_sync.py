"""The check after a sync: what it is compared with, and that a stale engine stops the run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.runs import WhaleProcess
from whale.alternation.compute import Compute
from whale.rollout.transformers_engine import TransformersEngine
from whale.weights.sync import reference_logprobs
from whale.weights.trainer import Trainer, TrainerConfig
from whale.weights.types import Sample


def test_a_plain_forward_pass_says_what_the_trainer_says(tiny_model: Path) -> None:
    trainer = Trainer(tiny_model, TrainerConfig(lr=1e-2, dtype="float32", device="cpu", threads=1))
    probe = [list(range(3, 60)), [5, 4]]
    before = trainer.logprobs(probe)
    trainer.step([[Sample(tuple(range(3, 40)), (False,) * 5 + (True,) * 32)]], seed=1)
    ours = reference_logprobs(tiny_model, trainer.state_dict(), probe, torch.device("cpu"))
    for expected, found in zip(trainer.logprobs(probe), ours, strict=True):
        assert np.allclose(expected, found, atol=1e-4)
    assert not np.allclose(before[0], ours[0], atol=1e-2), "the step moved what is compared"


@pytest.fixture(params=["trainer", "no trainer"])
def compared_with(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh process in a harness phase has a checkpoint's weights and no trainer to ask."""
    if request.param == "no trainer":
        checked = Compute._check_sync

        def without(compute: Compute, engine: Any, trainer: Trainer | None, given: Mapping[str, Any]) -> None:
            checked(compute, engine, None, given)

        monkeypatch.setattr(Compute, "_check_sync", without)
        monkeypatch.setattr(TransformersEngine, "deterministic", False)
    return str(request.param)


STEP = ("--quiet", "--set", "weights.learning_rate=0.05", "--set", "engine.dtype=float32")


def test_an_engine_that_keeps_old_weights_stops_the_run_with_the_cause(
    compared_with: str, toy_config: Path, whale_here: WhaleProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(engine: TransformersEngine, weights: object, version: str) -> None:
        engine._version = version

    monkeypatch.setattr(TransformersEngine, "update_weights", forget)
    done = whale_here("run", str(toy_config), "--name", "stale", *STEP, check=False)
    assert done.returncode == 1
    assert "engine transformers does not hold the trainer's weights" in done.stderr


def test_an_engine_that_takes_new_weights_passes(
    compared_with: str, toy_config: Path, whale_here: WhaleProcess
) -> None:
    whale_here("run", str(toy_config), "--name", "fine", *STEP)
