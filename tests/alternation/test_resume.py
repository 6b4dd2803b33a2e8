"""Kill it anywhere with SIGKILL; resumed, it ends as if it had never been interrupted."""

import random
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.alternation.kill_at import POINTS
from tests.runs import WhaleProcess, command, environment
from whale.alternation.run_folder import RunFolder
from whale.events import types as ev

KILL_AT = Path(__file__).parent / "kill_at.py"
OTHER_BITS = Path(__file__).parent / "other_bits.py"


@dataclass(frozen=True)
class Ending:
    """What must be equal between a run that was killed and one that was not."""

    facts: dict[str, Any]
    rollouts: list[str]
    weights: str
    accepted_tree: str


def ending(path: Path) -> Ending:
    folder = RunFolder(path)
    log = folder.open_log(readonly=True)
    try:
        log.verify()
        recorded = list(log.read())
    finally:
        log.close()
    state = folder.state()
    assert state.status == "completed"
    steering = (ev.ControlHandled, ev.RunInterrupted)
    return Ending(
        facts={
            r.key: r.event
            for r in recorded
            if r.stream == "run" and not isinstance(r.event, (*steering, ev.RunStarted))
        },
        rollouts=[r.event.batch for r in recorded if isinstance(r.event, ev.RolloutsRecorded)],
        weights=state.weights,
        accepted_tree=state.accepted_tree,
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, toy_model: Path) -> "dict[str, Ending]":
    return {}


def reference(cache: "dict[str, Ending]", whale: WhaleProcess, config: Path, runs: Path) -> Ending:
    """The uninterrupted run, once per module."""
    if "ending" not in cache:
        whale("run", str(config), "--name", "whole", "--quiet")
        cache["ending"] = ending(runs / "whole")
    return cache["ending"]


def trained_again(whale: WhaleProcess, config: Path, runs: Path) -> Ending:
    """A run that `replay --deep` trains again to its digests."""
    whale("run", str(config), "--name", "whole", "--quiet")
    whole = ending(runs / "whole")
    steps = [fact for fact in whole.facts.values() if isinstance(fact, ev.StepTrained)]
    assert any(step.updates for step in steps)
    told = whale("replay", "whole", "--deep", "--quiet").stdout
    assert f"steps trained again: {len(steps)}" in told
    return whole


def assert_same_end(one: Ending, other: Ending) -> None:
    assert other.rollouts == one.rollouts, "each micro-batch is recorded once, in the same order"
    assert other.weights == one.weights
    assert other.accepted_tree == one.accepted_tree
    assert other.facts == one.facts


def kill_then_resume(runs: Path, config: Path, point: str, nth: int) -> bool:
    """Returns whether the run came as far as the kill."""
    done = subprocess.run(
        [sys.executable, str(KILL_AT), point, str(nth), "run", str(config), "--name", "killed", "--quiet"],
        capture_output=True, text=True, env=environment(runs), timeout=1200,
    )  # fmt: skip
    if done.returncode == 0:
        return False
    assert done.returncode == -signal.SIGKILL, done.stderr
    resumed = subprocess.run(
        command("resume", "killed", "--quiet"),
        capture_output=True,
        text=True,
        env=environment(runs),
        timeout=1200,
    )
    assert resumed.returncode == 0, resumed.stderr
    return True


@pytest.mark.parametrize(
    "point, nth",
    [
        ("rollout", 6),
        ("artifact", 5),
        ("checkpoint", 2),
        ("train", 3),
        ("git", 9),
        ("append", 20),
        ("appended", 31),
    ],
)
def test_resume_after_kill_ends_as_if_never_interrupted(
    point: str,
    nth: int,
    uninterrupted: "dict[str, Ending]",
    whale: WhaleProcess,
    toy_config: Path,
    tmp_path: Path,
) -> None:
    runs = tmp_path / "runs"
    whole = reference(uninterrupted, whale, toy_config, runs)
    assert kill_then_resume(runs, toy_config, point, nth), "the run must come as far as the kill"
    assert_same_end(whole, ending(runs / "killed"))


def test_a_killed_run_goes_on_where_training_again_gives_other_bits_and_says_so(
    whale: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    """A GPU's sums have no fixed order, and a run folder may go on under another processor."""
    runs = tmp_path / "runs"
    settings = ("weights.checkpoint_every=100", "weights.minibatch=100", "schedule.epochs=1.5", "schedule.cycles=1")
    changed = [word for setting in settings for word in ("--set", setting)]
    arguments = ["train", "3", "run", str(toy_config), "--name", "killed", "--quiet", *changed]
    killed = subprocess.run([sys.executable, str(KILL_AT), *arguments], env=environment(runs), timeout=1200)
    assert killed.returncode == -signal.SIGKILL
    before = RunFolder(runs / "killed").state()
    assert before.untracked_steps, "it was killed with steps that no checkpoint holds"
    resumed = subprocess.run(
        [sys.executable, str(OTHER_BITS), "resume", "killed"],
        capture_output=True, text=True, env=environment(runs), timeout=1200,
    )  # fmt: skip
    assert resumed.returncode == 0, resumed.stderr
    assert "trained again has other bits" in resumed.stderr
    whale("events", "verify", "killed")
    folder = RunFolder(runs / "killed")
    log = folder.open_log(readonly=True)
    events = [recorded.event for recorded in log.read() if recorded.stream == "run"]
    log.close()
    (at,) = [i for i, event in enumerate(events) if isinstance(event, ev.StepsRetrained)]
    retrained, saved = events[at], next(e for e in events[at:] if isinstance(e, ev.CheckpointSaved))
    assert isinstance(retrained, ev.StepsRetrained)
    assert retrained.lost == before.weights != retrained.weights
    assert (saved.weights, saved.step) == (retrained.weights, retrained.step), "it is not trained a third time"
    after = {e.weights for e in events[at:] if isinstance(e, ev.RolloutsRecorded)}
    assert after and retrained.lost not in after, "it samples with what it has"
    assert folder.state().status == "completed"
    deep = subprocess.run(command("replay", "killed", "--deep"), capture_output=True, text=True, env=environment(runs))
    assert deep.returncode == 0, deep.stderr
    assert "has other bits from here on" in deep.stderr


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_resume_after_any_kill_ends_as_if_never_interrupted(
    seed: int, uninterrupted: "dict[str, Ending]", whale: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    whole = reference(uninterrupted, whale, toy_config, runs)
    rng = random.Random(seed)
    point = sorted(POINTS)[seed % len(POINTS)]
    if not kill_then_resume(runs, toy_config, point, rng.randint(1, 40)):
        (runs / "killed").rename(runs / "unharmed")
        assert kill_then_resume(runs, toy_config, point, 1)
    assert_same_end(whole, ending(runs / "killed"))


def test_the_toy_run_changes_both_sides(
    uninterrupted: "dict[str, Ending]", whale: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    """Otherwise the comparisons above would compare nothing."""
    whole = reference(uninterrupted, whale, toy_config, tmp_path / "runs")
    trained = [fact for fact in whole.facts.values() if isinstance(fact, ev.StepTrained)]
    assert any(step.updates for step in trained)
    assert any(isinstance(fact, ev.HarnessAccepted) for fact in whole.facts.values())
