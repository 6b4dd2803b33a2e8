"""A run whose engine has two replicas: the same promises as with one."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import tomli_w
import torch

from tests.alternation.test_resume import KILL_AT, assert_same_end, ending
from tests.runs import WhaleProcess, environment, toy_settings
from whale.alternation.run_folder import RunFolder
from whale.events import types as ev
from whale.rollout.replicas import Replicas


@pytest.fixture
def config(tmp_path: Path, toy_model: Path) -> Path:
    raw = toy_settings(toy_model)
    raw["engine"] |= {"replicas": 2, "micro_batch": 4}
    raw["schedule"]["cycles"] = 1
    path = tmp_path / "replicas.toml"
    path.write_text(tomli_w.dumps(raw), encoding="utf-8")
    return path


@contextmanager
def killing_replica(number: int, passage: int) -> Iterator[None]:
    """Have a replica die of SIGKILL in the middle of its share of the n-th micro-batch."""
    sample, passed = Replicas.sample, 0

    def deadly(self: Replicas, *arguments: Any) -> Any:
        nonlocal passed
        passed += 1
        if passed == passage:
            os.kill(self.pids[number], signal.SIGSTOP)
            threading.Timer(0.5, os.kill, (self.pids[number], signal.SIGKILL)).start()
        return sample(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replicas, "sample", deadly)
        yield


def test_a_run_whose_replica_was_killed_ends_as_if_never_interrupted_and_replays(
    whale_here: WhaleProcess, config: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    whale_here("run", str(config), "--name", "whole", "--quiet")
    whole = ending(runs / "whole")
    assert any(isinstance(fact, ev.StepTrained) and fact.updates for fact in whole.facts.values())
    assert "steps trained again" in whale_here("replay", "whole", "--deep", "--quiet").stdout

    with killing_replica(1, 7):
        failed = whale_here("run", str(config), "--name", "cut", "--quiet", check=False)
    assert failed.returncode == 1
    assert (
        failed.stderr.strip()
        .splitlines()[-1]
        .startswith("whale: replica 1 of the engine's 2 has ended (killed by signal 9); `whale resume` goes on")
    )
    assert RunFolder(runs / "cut").state().status == "running"
    whale_here("resume", "cut", "--quiet")
    assert_same_end(whole, ending(runs / "cut"))
    assert not list(psutil.Process().children(recursive=True)), "no process is left"


def test_a_killed_run_leaves_no_replica_and_goes_on_with_another_number_of_them(
    whale_here: WhaleProcess, config: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    killed = subprocess.Popen(
        [sys.executable, str(KILL_AT), "append", "12", "run", str(config), "--name", "r", "--quiet"],
        env={**environment(runs), "TMPDIR": str(tmp_path)},
    )
    assert killed.wait(timeout=600) == -signal.SIGKILL
    mine = [process for process in psutil.process_iter() if str(tmp_path) in " ".join(_told(process))]
    assert not psutil.wait_procs(mine, timeout=60)[1]
    assert not list(tmp_path.glob("whale-*"))
    whale_here("resume", "r", "--set", "engine.replicas=1", "--quiet")
    assert RunFolder(runs / "r").state().status == "completed"


def _told(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def test_a_replica_that_did_not_take_the_new_weights_stops_the_run_and_is_named(
    whale_here: WhaleProcess, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = Replicas.update_weights

    def half(self: Replicas, state_dict: Any, version: str) -> None:
        update(self, state_dict, version)
        others = {name: tensor * 1.5 for name, tensor in state_dict.items()}
        self._ask("call", {1: ("update_weights", others, version)})

    monkeypatch.setattr(Replicas, "update_weights", half)
    failed = whale_here("run", str(config), "--name", "half", "--quiet", check=False)
    assert failed.returncode == 1
    assert "engine transformers (replica 1) does not hold the trainer's weights" in failed.stderr


def test_replicas_that_cannot_be_had_are_said_before_a_run_is_made(
    whale_here: WhaleProcess, config: Path, tmp_path: Path
) -> None:
    for settings, words in (
        (("engine.device=cuda:1",), "names one device and engine.replicas = 2 takes several: give 'cuda'"),
        (("engine.replicas=0",), "engine.replicas = 0: must be"),
        (("engine.name=vllm-server", "engine.url=http://127.0.0.1:1"), "a vllm-server is one address"),
        *([] if torch.cuda.is_available() else [(("engine.device=cuda", "engine.replicas=64"), "cuda")]),
    ):
        changed = [word for setting in settings for word in ("--set", setting)]
        refused = whale_here("run", str(config), "--name", "a", *changed, check=False)
        assert refused.returncode == 2
        assert words in refused.stderr.lower() or words in refused.stderr
        assert not (tmp_path / "runs" / "a").exists()
