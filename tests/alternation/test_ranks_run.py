"""A run whose trainer is on two ranks: the same promises as on one."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w

from tests.alternation.test_resume import KILL_AT, assert_same_end, ending, kill_then_resume, trained_again
from tests.runs import WhaleProcess, environment, toy_settings
from whale.alternation.run_folder import RunFolder


@pytest.fixture
def config(tmp_path: Path, toy_model: Path) -> Path:
    raw = toy_settings(toy_model)
    raw["weights"]["ranks"] = 2
    path = tmp_path / "ranks.toml"
    path.write_text(tomli_w.dumps(raw), encoding="utf-8")
    return path


def test_a_run_on_two_ranks_is_trained_again_to_its_digests(
    whale_here: WhaleProcess, config: Path, tmp_path: Path
) -> None:
    trained_again(whale_here, config, tmp_path / "runs")


@pytest.mark.long
def test_a_run_on_two_ranks_that_was_killed_ends_as_if_never_interrupted(
    whale_here: WhaleProcess, config: Path, tmp_path: Path
) -> None:
    whale_here("run", str(config), "--name", "whole", "--quiet")
    assert kill_then_resume(tmp_path / "runs", config, "checkpoint", 2), "the run must come as far as the kill"
    assert_same_end(ending(tmp_path / "runs" / "whole"), ending(tmp_path / "runs" / "killed"))


def test_a_killed_run_goes_on_with_another_number_of_ranks(
    whale_here: WhaleProcess, config: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    killed = [sys.executable, str(KILL_AT), "checkpoint", "2", "run", str(config), "--name", "r", "--quiet"]
    assert subprocess.run(killed, env=environment(runs), timeout=600).returncode == -signal.SIGKILL
    whale_here("resume", "r", "--set", "weights.ranks=1", "--quiet")
    assert RunFolder(runs / "r").state().status == "completed"


def test_ranks_that_cannot_be_had_are_said_before_a_run_is_made(
    whale_here: WhaleProcess, config: Path, tmp_path: Path
) -> None:
    for settings, words in (
        (("engine.device=cuda:1",), "names one device and weights.ranks = 2 takes several: give 'cuda'"),
        (("weights.ranks=0",), "weights.ranks = 0: must be"),
        (("engine.device=cuda", "weights.ranks=64"), "cuda"),
    ):
        changed = [word for setting in settings for word in ("--set", setting)]
        refused = whale_here("run", str(config), "--name", "a", *changed, check=False)
        assert refused.returncode == 2
        assert words in refused.stderr
        assert not (tmp_path / "runs" / "a").exists()
