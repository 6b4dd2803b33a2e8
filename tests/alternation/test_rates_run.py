"""A run whose learning rate follows a schedule: the same promises as one whose rate is constant."""

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.alternation.test_resume import Ending, assert_same_end, ending, kill_then_resume, reference
from tests.runs import WhaleProcess, events_of, toy_settings
from whale.alternation.run_folder import RunFolder
from whale.events import types as ev
from whale.trackers.points import points

LINEAR = {
    "learning_rate": 2**-7, "rate_schedule": "linear", "warmup_updates": 1, "decay_updates": 4, "decay_to": 0.5,
}  # fmt: skip
AS_LINEAR = [2**-8, 2**-7, 7 * 2**-10, 3 * 2**-9, 5 * 2**-10, 2**-8]
"""LINEAR's rates, by hand: half of the rate in the warm-up, then 8, 7, 6, 5 and 4 eighths of it."""


def config_at(path: Path, model: Path, **changes: Any) -> Path:
    raw = toy_settings(model)
    raw["weights"] |= changes
    raw["schedule"] |= {"epochs": "1", "iterations": 0}
    path.write_text(tomli_w.dumps(raw), encoding="utf-8")
    return path


@pytest.fixture
def linear(tmp_path: Path, toy_model: Path) -> Path:
    return config_at(tmp_path / "linear.toml", toy_model, **LINEAR)


@pytest.fixture(scope="module")
def uninterrupted() -> "dict[str, Ending]":
    return {}


def trained(path: Path) -> list[ev.StepTrained]:
    return [event for event in events_of(RunFolder(path)) if isinstance(event, ev.StepTrained)]


def recorded(steps: list[ev.StepTrained]) -> list[float | None]:
    return [step.metrics.get("learning_rate") for step in steps]


def rates_of(steps: list[ev.StepTrained], by_hand: list[float]) -> list[float | None]:
    """The rate of each step's last update, where updates have these rates and then the last of them."""
    made, result = 0, list[float | None]()
    for step in steps:
        made += step.updates
        result.append(by_hand[min(made, len(by_hand)) - 1] if step.updates else None)
    return result


@pytest.mark.parametrize("point, nth", [("train", 4), ("checkpoint", 2)])
def test_a_run_with_a_schedule_that_was_killed_ends_as_if_never_interrupted(
    point: str,
    nth: int,
    uninterrupted: "dict[str, Ending]",
    whale_here: WhaleProcess,
    linear: Path,
    tmp_path: Path,
) -> None:
    whole = reference(uninterrupted, whale_here, linear, tmp_path / "runs")
    assert kill_then_resume(tmp_path / "runs", linear, point, nth), "the run must come as far as the kill"
    assert_same_end(whole, ending(tmp_path / "runs" / "killed"))


def test_a_run_records_its_rates_is_trained_again_to_its_digests_and_told_apart(
    whale_here: WhaleProcess, linear: Path, tmp_path: Path
) -> None:
    path = tmp_path / "runs" / "whole"
    told = whale_here("run", str(linear), "--name", "whole").stderr
    steps = trained(path)
    assert recorded(steps) == rates_of(steps, AS_LINEAR)
    assert sum(step.updates for step in steps) > 3, "the decay is seen"
    assert f", learning_rate {steps[0].metrics['learning_rate']:.3g}" in told
    with RunFolder(path).open_log(readonly=True) as log:
        state = RunFolder(path).state()
        curve = [p.value for r in log.read() for p in points(r, state) if p.name == "train/learning_rate"]
    assert curve == [rate for rate in recorded(steps) if rate is not None]
    again = whale_here("replay", "whole", "--deep", "--quiet").stdout
    assert f"steps trained again: {len(steps)}" in again
    assert "weights.decay_updates=4" in whale_here("report", str(path)).stdout
    refused = whale_here("resume", "whole", "--set", "weights.decay_updates=9", check=False)
    assert refused.returncode == 2
    assert "keeps what it began with" in refused.stderr


def test_a_fork_may_go_on_with_a_schedule_which_begins_at_the_runs_first_update(
    whale_here: WhaleProcess, tmp_path: Path, toy_model: Path
) -> None:
    constant = config_at(tmp_path / "constant.toml", toy_model, learning_rate=2**-7)
    whale_here("run", str(constant), "--name", "first", "--quiet")
    runs = tmp_path / "runs"
    with RunFolder(runs / "first").open_log(readonly=True) as log:
        at = next(r.position for r in log.read() if isinstance(r.event, ev.PhaseEnded) and r.event.cycle == 1)
    changes = [word for key, value in LINEAR.items() for word in ("--set", f"weights.{key}={value}")]
    whale_here("fork", "first", "--name", "other", "--at", str(at), *changes, "--set", "weights.decay_updates=64")
    whale_here("resume", "other", "--quiet")
    steps = trained(runs / "other")
    before = [step for step in steps if step.cycle == 1]
    assert any(step.updates for step in before)
    slower = [2**-8] + [2**-7 * (1 - made / 128) for made in range(64)]
    assert recorded(steps) == [None] * len(before) + rates_of(steps, slower)[len(before) :]
    assert f"steps trained again: {len(steps)}" in whale_here("replay", "other", "--deep", "--quiet").stdout


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"rate_schedule": "linear"}, 'weights.rate_schedule = "linear" needs weights.decay_updates'),
        ({"rate_schedule": "cosine", "decay_updates": 0}, 'weights.rate_schedule = "cosine" needs weights.decay_upd'),
        ({"decay_updates": 5}, 'weights.decay_updates = 5: with weights.rate_schedule = "constant" nothing decays'),
        ({"decay_to": 0.0}, 'weights.decay_to = 0.0: with weights.rate_schedule = "constant" nothing decays'),
        ({"warmup_updates": -1}, "weights.warmup_updates = -1: must be a number of at least 0"),
        (LINEAR | {"decay_updates": -4}, "weights.decay_updates = -4: must be a number of at least 0"),
        (LINEAR | {"decay_to": 1.5}, "weights.decay_to = 1.5: must be a number from 0 to 1"),
        (LINEAR | {"decay_to": -0.5}, "weights.decay_to = -0.5: must be a number of at least 0"),
        ({"rate_schedule": "steps"}, "weights.rate_schedule: invalid enum value 'steps'"),
    ],
)
def test_a_schedule_that_cannot_be_followed_is_one_line(
    changes: dict[str, Any], words: str, whale_here: WhaleProcess, toy_model: Path, tmp_path: Path
) -> None:
    config = config_at(tmp_path / "bad.toml", toy_model, **changes)
    told = whale_here("run", str(config), "--name", "bad", check=False)
    assert told.returncode == 2
    assert words in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "runs" / "bad").exists()
