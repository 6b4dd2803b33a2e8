"""A run that trains adapters: the same promises as one that trains all of θ."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
import torch

from tests.alternation.test_resume import KILL_AT, assert_same_end, ending, kill_then_resume, trained_again
from tests.runs import WhaleProcess, environment, toy_settings
from whale.alternation.run_folder import RunFolder
from whale.events import types as ev
from whale.weights.lora import Lora
from whale.weights.state import ADAPTER, read_tensors


@pytest.fixture
def config(tmp_path: Path, toy_model: Path) -> Path:
    raw = toy_settings(toy_model)
    raw["weights"] |= {"lora_rank": 4, "learning_rate": 1e-3}
    path = tmp_path / "lora.toml"
    path.write_text(tomli_w.dumps(raw), encoding="utf-8")
    return path


def test_a_run_with_lora_is_trained_again_killed_forked_and_exported(
    whale_here: WhaleProcess, config: Path, toy_model: Path, tmp_path: Path
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    whole = trained_again(whale_here, config, tmp_path / "runs")

    assert kill_then_resume(tmp_path / "runs", config, "checkpoint", 2), "the run must come as far as the kill"
    assert_same_end(whole, ending(tmp_path / "runs" / "killed"))

    for key, value in (("lora_rank", "0"), ("lora_alpha", "4"), ("lora_targets", '["q_proj"]')):
        change = ("--set", f"weights.{key}={value}")
        refused = whale_here("resume", "whole", *change, check=False)
        assert refused.returncode == 2 and "keeps the adapters that it began with" in refused.stderr
        refused = whale_here("fork", "whole", "--name", "other", *change, check=False)
        assert refused.returncode == 2 and f"--set weights.{key}: whole has trained steps" in refused.stderr
        assert not (tmp_path / "runs" / "other").exists()
    whale_here("fork", "whole", "--name", "same", "--set", "weights.lora_alpha=8")  # what 0 means
    whale_here("fork", "whole", "--name", "slower", "--set", "weights.learning_rate=1e-4")

    saved = [c for c in RunFolder(tmp_path / "runs" / "whole").state().checkpoints.values() if c.phase_end][-1]
    cycle = next(e.cycle for e in whole.facts.values() if isinstance(e, ev.Evaluated) and e.weights == saved.weights)
    whale_here("export", "whole", "--cycle", str(cycle), "-o", str(tmp_path / "pair"))
    adapter, merged = tmp_path / "pair" / "adapter", tmp_path / "pair" / "model"
    assert (tmp_path / "runs" / "whole" / "checkpoints" / saved.checkpoint / ADAPTER).exists()
    load = AutoModelForCausalLM.from_pretrained
    theirs = PeftModel.from_pretrained(load(toy_model, dtype=torch.float32), adapter)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        torch.testing.assert_close(
            theirs(ids).logits, load(merged, dtype=torch.float32)(ids).logits, rtol=1e-4, atol=1e-4
        )
    assert "`adapter/` (LoRA of rank 4, alpha 8," in (tmp_path / "pair" / "README.md").read_text(encoding="utf-8")
    kept = tmp_path / "runs" / "whole" / "checkpoints" / saved.checkpoint / ADAPTER
    whole_bytes = bytearray(kept.read_bytes())
    whole_bytes[-2] ^= 0x10
    kept.write_bytes(whole_bytes)
    refused = whale_here("export", "whole", "--cycle", str(cycle), "-o", str(tmp_path / "bad"), check=False)
    assert refused.returncode == 4 and f"{ADAPTER}: on {toy_model} it does not make" in refused.stderr
    assert not (tmp_path / "bad").exists()
    assert f"or {ADAPTER}: the digest is" in whale_here("replay", "whole", check=False).stderr
    assert any(tensor.abs().max() for name, tensor in _tensors(adapter).items() if "lora_B" in name)


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    return read_tensors(folder / "adapter_model.safetensors")


def test_a_killed_run_with_lora_goes_on_with_two_ranks(whale_here: WhaleProcess, config: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    killed = [sys.executable, str(KILL_AT), "checkpoint", "2", "run", str(config), "--name", "r", "--quiet"]
    assert subprocess.run(killed, env=environment(runs), timeout=600).returncode == -signal.SIGKILL
    whale_here("resume", "r", "--set", "weights.ranks=2", "--quiet")
    assert RunFolder(runs / "r").state().status == "completed"


def test_a_fork_before_the_first_step_may_bring_adapters(
    whale_here: WhaleProcess, tmp_path: Path, toy_model: Path
) -> None:
    path = tmp_path / "plain.toml"
    path.write_text(tomli_w.dumps(toy_settings(toy_model)), encoding="utf-8")
    whale_here("run", str(path), "--name", "plain", "--quiet")
    log = RunFolder(tmp_path / "runs" / "plain").open_log(readonly=True)
    first = next(r.position for r in log.read() if isinstance(r.event, ev.StepTrained))
    begun = next(r.position for r in log.read() if isinstance(r.event, ev.PhaseStarted) and r.position < first)
    log.close()
    whale_here("fork", "plain", "--at", str(begun - 1), "--name", "lora", "--set", "weights.lora_rank=4")
    whale_here("resume", "lora", "--quiet")
    state = RunFolder(tmp_path / "runs" / "lora").state()
    assert state.status == "completed" and state.weights != state.model
    assert (tmp_path / "runs" / "lora" / "checkpoints" / str(state.checkpoint) / ADAPTER).is_file()
    assert "steps trained again" in whale_here("replay", "lora", "--deep", "--quiet").stdout


def test_adapters_that_cannot_be_had_are_one_line(whale_here: WhaleProcess, config: Path) -> None:
    for setting, words in (
        ("weights.lora_rank=-1", "weights.lora_rank = -1: must be"),
        ("weights.lora_targets=q_proj", """weights.lora_targets = 'q_proj': give "all-linear", or a list"""),
        ("weights.lora_targets=[]", "give"),
        ('weights.lora_targets=["query"]', "'query' is no linear layer of the model; known there: down_proj"),
    ):
        refused = whale_here("run", str(config), "--name", "a", "--set", setting, check=False)
        assert refused.returncode == 2, refused.stderr
        assert words in refused.stderr
    for setting in ("weights.lora_alpha=8", 'weights.lora_targets=["q_proj"]'):
        refused = whale_here(
            "run", str(config), "--name", "b", "--set", "weights.lora_rank=0", "--set", setting, check=False
        )
        assert refused.returncode == 2 and "set weights.lora_rank, or leave it out" in refused.stderr


def test_the_settings_that_a_config_leaves_open() -> None:
    assert Lora(8).scale == 2.0 and Lora(8, 4.0).scale == 0.5
