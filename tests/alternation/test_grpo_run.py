"""A run by GRPO: the same promises as one by RSFT."""

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.alternation.test_resume import Ending, assert_same_end, ending, kill_then_resume, reference
from tests.runs import WhaleProcess, toy_settings
from whale.alternation.run_folder import RunFolder
from whale.events import types as ev

CHANGES = {"method": "grpo", "rollouts_per_prompt": 4, "minibatch": 3, "learning_rate": 1e-2}


def config_at(path: Path, model: Path, **changes: Any) -> Path:
    raw = toy_settings(model)
    raw["weights"] |= CHANGES | changes
    path.write_text(tomli_w.dumps(raw), encoding="utf-8")
    return path


@pytest.fixture
def grpo_config(tmp_path: Path, toy_model: Path) -> Path:
    return config_at(tmp_path / "grpo.toml", toy_model)


@pytest.fixture(scope="module")
def uninterrupted() -> "dict[str, Ending]":
    return {}


def trained(whole: Ending) -> list[ev.StepTrained]:
    return [fact for fact in whole.facts.values() if isinstance(fact, ev.StepTrained)]


@pytest.mark.parametrize("point, nth", [("train", 3), ("checkpoint", 2)])
def test_a_run_by_grpo_that_was_killed_ends_as_if_never_interrupted(
    point: str,
    nth: int,
    uninterrupted: "dict[str, Ending]",
    whale_here: WhaleProcess,
    grpo_config: Path,
    tmp_path: Path,
) -> None:
    whole = reference(uninterrupted, whale_here, grpo_config, tmp_path / "runs")
    assert kill_then_resume(tmp_path / "runs", grpo_config, point, nth), "the run must come as far as the kill"
    assert_same_end(whole, ending(tmp_path / "runs" / "killed"))


def test_a_run_by_grpo_is_recorded_trained_again_to_the_same_digests_and_told_apart(
    whale_here: WhaleProcess, grpo_config: Path, tmp_path: Path
) -> None:
    whale_here("run", str(grpo_config), "--name", "whole", "--quiet")
    steps = trained(ending(tmp_path / "runs" / "whole"))
    assert any(step.kept > step.passed for step in steps), "failed rollouts are trained on too"
    for step in steps:
        assert step.kept + sum(step.dropped.values()) == step.rollouts
        assert set(step.dropped) <= {"same_reward"}
        assert (step.updates > 0) is (step.kept > 0)
        assert set(step.metrics) == ({"clipped", "log_ratio"} if step.updates else set())
    # Nothing has moved before a step's first update: engine and trainer agree on what was sampled.
    alone = [step for step in steps if step.updates == 1]
    assert all(step.metrics["log_ratio"] < 1e-4 and step.metrics["clipped"] == 0 for step in alone)
    told = whale_here("replay", "whole", "--deep", "--quiet").stdout
    assert f"steps trained again: {len(steps)}" in told
    assert "with grpo" in whale_here("report", str(tmp_path / "runs" / "whole")).stdout


def test_a_fork_may_go_on_with_the_other_method_and_the_same_optimiser(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    whale_here("run", str(toy_config), "--name", "first", "--quiet")
    folder = RunFolder(tmp_path / "runs" / "first")
    with folder.open_log(readonly=True) as log:
        at = next(r.position for r in log.read() if isinstance(r.event, ev.PhaseEnded) and r.event.cycle == 1)
    whale_here("fork", "first", "--name", "other", "--at", str(at), "--set", "weights.method=grpo")
    whale_here("resume", "other", "--quiet")
    told = whale_here("replay", "other", "--deep", "--quiet").stdout  # each step by the method that it had
    steps = trained(ending(tmp_path / "runs" / "other"))
    assert f"steps trained again: {len(steps)}" in told
    assert [bool(step.metrics) for step in steps if step.updates] == [step.cycle > 1 for step in steps if step.updates]


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"rollouts_per_prompt": 1}, 'weights.method = "grpo" compares the rollouts of a question'),
        ({"clip_low": 1.5}, "weights.clip_low = 1.5: must be a number from 0 to 1"),
        ({"clip_high": -0.1}, "weights.clip_high = -0.1: must be a number of at least 0"),
        ({"method": "ppo"}, "weights.method: invalid enum value 'ppo'"),
        ({"clip": 0.2}, "unknown key weights.clip"),
    ],
)
def test_a_config_that_grpo_cannot_run_with_is_one_line(
    changes: dict[str, Any], words: str, whale_here: WhaleProcess, toy_model: Path, tmp_path: Path
) -> None:
    config = config_at(tmp_path / "bad.toml", toy_model, **changes)
    told = whale_here("run", str(config), "--name", "bad", check=False)
    assert told.returncode == 2
    assert words in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "runs" / "bad").exists()
