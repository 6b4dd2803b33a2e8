"""Short runs on the tiny model and the toy domain, as real processes and real folders."""

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from whale.alternation.run_folder import RunFolder
from whale.events import types as ev
from whale.rollout.models import write_tiny_model

TOY = Path(__file__).parent / "toy" / "domain.py"


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"), seed=3)


def toy_settings(model: Path) -> dict[str, Any]:
    """A config: two cycles with both phases, seconds in all."""
    return {
        "seed": 5,
        "domain": f"{TOY}:create",
        "model": str(model),
        "domain_options": {"weight": 6, "harness": 4, "validation": 4, "test": 2},
        "engine": {"device": "cpu", "threads": 1, "micro_batch": 3},
        "sampling": {"max_generated_tokens": 64, "max_tokens_per_turn": 16},
        "weights": {
            "batch": 2, "rollouts_per_prompt": 2, "minibatch": 2, "learning_rate": 1e-3,
            "checkpoint_every": 2, "filters": "paper",
        },
        "search": {"candidates": 2},
        "schedule": {"cycles": 2, "epochs": "0.5", "iterations": 1},
        "evaluate": {"samples": 1, "test_tasks": 2, "test_samples": 1},
    }  # fmt: skip


@pytest.fixture
def toy_config(tmp_path: Path, toy_model: Path) -> Path:
    """A whale.toml with `toy_settings`."""
    path = tmp_path / "toy.toml"
    path.write_text(tomli_w.dumps(toy_settings(toy_model)), encoding="utf-8")
    return path


WhaleProcess = Callable[..., "subprocess.CompletedProcess[str]"]


def events_of(folder: RunFolder) -> list[ev.Event]:
    """All that a run has recorded."""
    with folder.open_log(readonly=True) as log:
        return [record.event for record in log.read()]


def environment(runs: Path) -> dict[str, str]:
    return {
        **os.environ,
        "WHALE_RUNS": str(runs),
        "WHALE_ERROR_LOG": str(runs / "error.log"),
        "HF_HUB_OFFLINE": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
    }


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "whale", *arguments]


@pytest.fixture
def whale_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WhaleProcess:
    """As `whale`, in this process: it has torch already, and importing that takes longer than a toy run."""
    from whale.cli.__main__ import run

    runs = tmp_path / "runs"
    runs.mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for name, value in environment(runs).items():
        monkeypatch.setenv(name, value)

    def call(*arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        out, err = io.StringIO(), io.StringIO()
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(list(arguments))
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if check and code:
            raise AssertionError(f"whale {arguments} exited {code}\n{err.getvalue()}")
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    return call


@pytest.fixture
def whale(tmp_path: Path) -> WhaleProcess:
    """Run `whale ARGS` in a process of its own; returns what it printed and its exit code."""
    runs = tmp_path / "runs"
    runs.mkdir(exist_ok=True)

    def call(*arguments: str, check: bool = True, timeout: float = 300) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            command(*arguments),
            capture_output=True,
            text=True,
            env=environment(runs),
            cwd=tmp_path,
            timeout=timeout,
        )
        if check and done.returncode:
            error_log = runs / "error.log"
            detail = error_log.read_text() if error_log.exists() else ""
            raise AssertionError(f"whale {arguments} exited {done.returncode}\n{done.stderr}\n{detail}")
        return done

    return call
