"""A Llama of 20,000 parameters and samples for it."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from whale.weights.ranks import Crew
from whale.weights.trainer import Trainer, TrainerConfig
from whale.weights.types import Sample

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

VOCABULARY = 48
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
}
"""A tiny model's, in the words of a transformers config."""


def tiny_llama(seed: int = 0, **changes: Any) -> PreTrainedModel:
    settings = {**SHAPE, "tie_word_embeddings": True, **changes}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(**settings))  # type: ignore[no-untyped-call]  # transformers'


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    two = Crew(2, "cpu")
    yield two
    two.close()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """The tiny Llama on disk, by whether its head is tied."""
    result = {}
    for tied in (True, False):
        result[tied] = tmp_path_factory.mktemp("tiny")
        tiny_llama(tie_word_embeddings=tied).save_pretrained(result[tied])
    return result


def rollouts(n: int, seed: int = 0, shared: int = 6, own: int = 5) -> list[list[Sample]]:
    """`n` rollouts of one sample each: a common prompt, then tokens of their own, all of these trained."""
    draw = random.Random(seed)
    prompt = tuple(draw.randrange(VOCABULARY) for _ in range(shared))
    return [
        [
            Sample(
                prompt + tuple(draw.randrange(VOCABULARY) for _ in range(own)),
                (False,) * shared + (True,) * own,
            )
        ]
        for _ in range(n)
    ]


@pytest.fixture
def trainer() -> Callable[..., Trainer]:
    def build(seed: int = 0, model: PreTrainedModel | None = None, **settings: Any) -> Trainer:
        config = TrainerConfig(**{"lr": 1e-2, "threads": 1, "dtype": "float32", "device": "cpu", **settings})
        return Trainer(tiny_llama(seed) if model is None else model, config)

    return build
