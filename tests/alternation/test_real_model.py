"""The whole loop on SmolLM2-135M, on CPU: two phases, an evaluation, a kill in the middle, the same end."""

import json
import subprocess
from pathlib import Path

import pytest
import tomli_w

from tests.alternation.test_resume import assert_same_end, ending, kill_then_resume
from tests.runs import WhaleProcess, command, environment

CONFIG = {
    "seed": 2,
    "domain": "searchqa",
    "domain_options": {"weight": 8, "harness": 4, "validation": 4, "two_hop_share": 0.0},
    "engine": {"device": "cpu", "dtype": "float32", "micro_batch": 8},
    "sampling": {"temperature": 0.7, "max_generated_tokens": 96, "max_tokens_per_turn": 24},
    "weights": {"batch": 4, "rollouts_per_prompt": 4, "minibatch": 8, "learning_rate": 1e-4},
    "search": {"candidates": 2},
    "schedule": {"cycles": 1, "epochs": "1", "iterations": 1},
    "evaluate": {"samples": 1},
}


@pytest.fixture
def real_config(tmp_path: Path, smollm2: Path) -> Path:
    path = tmp_path / "real.toml"
    path.write_text(tomli_w.dumps({**CONFIG, "model": str(smollm2)}), encoding="utf-8")
    return path


@pytest.mark.model
@pytest.mark.timeout(1800)
def test_a_cycle_on_the_real_model_trains_searches_and_replays_to_the_same_digests(
    real_config: Path, whale: WhaleProcess, tmp_path: Path
) -> None:
    whale("run", str(real_config), "--name", "real", "--quiet", timeout=1200)
    status = json.loads(whale("status", "real", "--json").stdout)
    assert status["status"] == "completed"
    assert status["weights"] != status["initial_weights"], "some rollout passed and θ moved"
    assert status["candidates"] == 3
    deep = whale("replay", "real", "--deep", "--quiet", timeout=1200).stdout
    assert "steps trained again: 2" in deep


@pytest.mark.model
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "point, nth", [("rollout", 7), ("train", 2), ("checkpoint", 1), ("git", 8), ("appended", 14), ("artifact", 6)]
)
def test_the_real_model_ends_the_same_after_a_kill(
    point: str,
    nth: int,
    real_config: Path,
    whale: WhaleProcess,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    runs = tmp_path / "runs"
    whale("run", str(real_config), "--name", "whole", "--quiet", timeout=1200)
    assert kill_then_resume(runs, real_config, point, nth)
    assert_same_end(ending(runs / "whole"), ending(runs / "killed"))


def test_an_interrupted_run_says_130_and_goes_on(whale: WhaleProcess, toy_config: Path, tmp_path: Path) -> None:
    import signal

    from tests.cli.test_cli import wait_until
    from whale.alternation.run_folder import RunFolder

    runs = tmp_path / "runs"
    process = subprocess.Popen(
        command("run", str(toy_config), "--name", "cut"),
        env=environment(runs), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    folder = RunFolder(runs / "cut")
    try:
        wait_until(lambda: folder.log_file.exists() and folder.state().phase is not None, process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        assert "whale resume" in errors
        assert "Traceback" not in errors
    finally:
        process.kill()
    # It came to its safe point: the log's last word is a whole fact, and the message says how to stop sooner.
    assert "Ctrl-C again stops at once" in errors
    whale("resume", "cut", "--quiet")
    assert folder.state().status == "completed"
