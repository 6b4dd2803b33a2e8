"""A whole run on the vllm engine: started, killed in the middle of a micro-batch, resumed."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w

from tests.alternation.test_replicas_run import killing_replica
from tests.alternation.test_resume import KILL_AT
from tests.runs import WhaleProcess, command, environment, events_of, toy_settings
from tests.vllm_process import vllm_server
from whale.alternation.run_folder import RunFolder
from whale.events import types as ev
from whale.rollout.models import write_tiny_model
from whale.rollout.parquet import decode_trajectories

FAULT_AT = Path(__file__).parent / "fault_at.py"

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None,
        reason="vllm is not installed here; `make test-vllm` makes an environment that has it",
    ),
]


@pytest.fixture
def vllm_config(tmp_path: Path) -> Path:
    settings = toy_settings(write_tiny_model(tmp_path / "model", seed=3, head_dim=64))
    settings["engine"] |= {"name": "vllm", "dtype": "float32", "kv_gb": 0.0625}
    path = tmp_path / "toy.toml"
    path.write_text(tomli_w.dumps(settings), encoding="utf-8")
    return path


def rollouts(folder: RunFolder) -> list[ev.RolloutsRecorded]:
    log = folder.open_log(readonly=True)
    try:
        log.verify()
        return [r.event for r in log.read() if isinstance(r.event, ev.RolloutsRecorded)]
    finally:
        log.close()


@pytest.mark.parametrize("nth", [40])
def test_a_run_killed_among_its_rollouts_loses_none_and_pays_none_twice(
    nth: int, vllm_config: Path, whale: WhaleProcess, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    killed = subprocess.run(
        [sys.executable, str(KILL_AT), "vllm", str(nth), "run", str(vllm_config), "--name", "cut", "--quiet"],
        capture_output=True, text=True, env=environment(runs), timeout=900,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folder = RunFolder(runs / "cut")
    paid = rollouts(folder)
    assert paid, "the kill must come after something was recorded"

    whale("resume", "cut", "--quiet", timeout=900)
    assert json.loads(whale("status", "cut", "--json").stdout)["status"] == "completed"
    after = rollouts(folder)
    assert after[: len(paid)] == paid
    batches = [recorded.batch for recorded in after]
    assert len(batches) == len(set(batches)), "no micro-batch is recorded twice"
    state = folder.state()
    assert state.weights != state.model, "some rollout passed and θ moved"
    for recorded in after:
        for trajectory in decode_trajectories(folder.artifacts.get(recorded.artifact)):
            assert {turn.weights for turn in trajectory.turns} <= {recorded.weights}
    assert len({recorded.weights for recorded in after}) > 1, "later rollouts are under later weights"


def test_a_run_on_two_replicas_of_which_one_is_killed_loses_nothing_and_goes_on(
    vllm_config: Path, whale_here: WhaleProcess, tmp_path: Path
) -> None:
    with killing_replica(1, 6):
        failed = whale_here(
            "run", str(vllm_config), "--name", "two", "--quiet", "--set", "engine.replicas=2", check=False
        )
    assert failed.returncode == 1
    assert "replica 1 of the engine's 2 has ended (killed by signal 9)" in failed.stderr
    folder = RunFolder(tmp_path / "runs" / "two")
    paid = rollouts(folder)
    assert paid
    whale_here("resume", "two", "--quiet")
    assert folder.state().status == "completed"
    after = rollouts(folder)
    assert after[: len(paid)] == paid
    assert len({recorded.batch for recorded in after}) == len(after), "no micro-batch is recorded twice"
    assert len({recorded.weights for recorded in after}) > 1, "later rollouts are under later weights"


def test_a_cache_that_does_not_fit_is_one_clear_line(vllm_config: Path, whale: WhaleProcess) -> None:
    done = whale("run", str(vllm_config), "--name", "big", "--set", "engine.kv_gb=100000", check=False, timeout=900)
    assert done.returncode == 1
    assert "lower engine.kv_gb" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_run_on_a_server_trains_and_syncs_as_one_in_its_own_process(
    vllm_config: Path, whale: WhaleProcess, tmp_path: Path
) -> None:
    with vllm_server(tmp_path / "model", tmp_path / "log", "--dtype", "float32") as (url, _):
        whale(
            "run", str(vllm_config), "--name", "apart", "--quiet", "--set", "engine.name=vllm-server",
            "--set", f"engine.url={url}", "--set", "engine.kv_gb=0", timeout=900,
        )  # fmt: skip
    folder = RunFolder(tmp_path / "runs" / "apart")
    state = folder.state()
    assert state.status == "completed"
    assert state.weights != state.model, "some rollout passed and θ moved"
    recorded = rollouts(folder)
    assert {batch.weights for batch in recorded} >= {state.model, state.weights}


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_a_runs_losses_are_those_of_the_logprobs_that_its_engine_recorded(
    engine: str, vllm_config: Path, whale: WhaleProcess, tmp_path: Path
) -> None:
    """With one update a step, the trainer scores what the engine sampled, under the weights that it was sampled from.

    So on either engine the curve is what transformers computes on the engine's own samples, step by step, and not only
    within the noise of sampling. An engine that kept older weights, or another model's, is off by far more.
    """
    settings = toy_settings(tmp_path / "model")
    settings["domain_options"]["weight"] = 24
    settings["engine"] |= {"name": engine, "dtype": "float32", "micro_batch": 16}
    settings["engine"] |= {"kv_gb": 0.0625} if engine == "vllm" else {}
    settings["weights"] |= {"batch": 4, "rollouts_per_prompt": 4, "minibatch": 16}
    settings["schedule"] = {"kind": "weight-only", "cycles": 1, "epochs": "1"}
    path = tmp_path / "losses.toml"
    path.write_text(tomli_w.dumps(settings), encoding="utf-8")
    whale("run", str(path), "--name", "losses", "--quiet", timeout=900)
    folder = RunFolder(tmp_path / "runs" / "losses")

    logged: list[float] = []
    recorded: list[float] = []
    passed: list[float] = []
    for event in events_of(folder):
        if isinstance(event, ev.RolloutsRecorded) and event.purpose == "train":
            done = decode_trajectories(folder.artifacts.get(event.artifact))
            kept = [turn for trajectory in done if trajectory.reward >= 1 for turn in trajectory.turns]
            passed += [logprob for turn in kept for logprob in turn.logprobs]
        elif isinstance(event, ev.StepTrained):
            assert event.trained_tokens == len(passed)
            if event.loss is not None:
                assert event.updates == 1
                logged.append(event.loss)
                recorded.append(-sum(passed) / len(passed))
            passed = []
    assert len(logged) >= 4
    assert logged == pytest.approx(recorded, abs=1e-4)
    assert len({round(loss, 3) for loss in logged}) == len(logged), "no step's loss would pass for another's"


@pytest.mark.parametrize(
    "point, words",
    [
        ("memory", "vLLM ran out of memory (CUDA out of memory. Tried to allocate 2.00 GiB.): lower it, `whale resume"),
        ("core", "died while sampling (RuntimeError: the core is gone); nothing recorded is lost: `whale resume` goes"),
    ],
)
def test_an_engine_that_fails_among_a_runs_rollouts_is_one_line_and_the_run_goes_on(
    point: str, words: str, vllm_config: Path, whale: WhaleProcess, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    failed = subprocess.run(
        [sys.executable, str(FAULT_AT), point, "200", "run", str(vllm_config), "--name", "cut", "--quiet"],
        capture_output=True, text=True, env=environment(runs), timeout=900,
    )  # fmt: skip
    assert failed.returncode == 1, failed.stderr
    assert words in failed.stderr.strip().splitlines()[-1]
    assert "Traceback" not in failed.stderr
    goes_on(RunFolder(runs / "cut"), lambda: whale("resume", "cut", "--quiet", "--set", "engine.kv_gb=0.125"))


def test_a_run_that_began_with_options_that_vllm_cannot_take_goes_on_with_others(
    vllm_config: Path, whale: WhaleProcess, tmp_path: Path
) -> None:
    options = "engine.options={max_num_seqs=8, max_num_batched_tokens=4}"
    refused = whale("run", str(vllm_config), "--name", "r", "--quiet", "--set", options, check=False, timeout=900)
    assert refused.returncode == 2 and "cannot take them" in refused.stderr
    folder = RunFolder(tmp_path / "runs" / "r")
    assert not rollouts(folder)
    other = "engine.options={max_num_seqs=8, max_num_batched_tokens=1024}"
    whale("resume", "r", "--quiet", "--set", other, timeout=900)
    assert folder.state().status == "completed" and rollouts(folder)


def test_a_run_whose_server_is_killed_goes_on_with_another(
    vllm_config: Path, whale: WhaleProcess, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    with vllm_server(tmp_path / "model", tmp_path / "log", "--dtype", "float32") as (url, server):
        run = subprocess.Popen(
            [*command("run"), str(vllm_config), "--name", "cut", "--quiet", "--set", "engine.name=vllm-server",
             "--set", f"engine.url={url}", "--set", "engine.kv_gb=0"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(runs), cwd=tmp_path,
        )  # fmt: skip
        try:
            folder = RunFolder(runs / "cut")
            while not (folder.log_file.exists() and folder.state().weights != folder.state().model):
                assert run.poll() is None, run.communicate()
                time.sleep(0.05)
            os.killpg(server.pid, signal.SIGKILL)
            _, errors = run.communicate(timeout=900)
        finally:
            run.kill()
    assert run.returncode == 1, errors
    assert "the vLLM server does not answer" in errors.strip().splitlines()[-1]
    assert "Traceback" not in errors
    with vllm_server(tmp_path / "model", tmp_path / "log", "--dtype", "float32") as (url, _):
        goes_on(folder, lambda: whale("resume", "cut", "--quiet", "--set", f"engine.url={url}", timeout=900))


def goes_on(folder: RunFolder, resume: Callable[[], object]) -> None:
    """Resume a run that failed, to its end: what was paid stands, and nothing is paid again."""
    assert folder.state().status == "running"
    paid = rollouts(folder)
    assert paid, "the fault must come after something was recorded"
    resume()
    after = rollouts(folder)
    assert folder.state().status == "completed"
    assert after[: len(paid)] == paid
    assert len({recorded.batch for recorded in after}) == len(after), "no micro-batch is recorded twice"
