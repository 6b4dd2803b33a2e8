"""The engine on the real model: what transformers' own `generate` says is what must come out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from whale.rollout.chat import ReplyRecord
from whale.rollout.transformers_engine import TransformersEngine
from whale.rollout.types import GenerateRequest

pytestmark = pytest.mark.model

QUESTIONS = ("What is the capital of France?", "What is 7 + 5?", "Name a colour.", "Name a colour.")


@pytest.fixture(scope="module")
def engine(smollm2: Path) -> TransformersEngine:
    return TransformersEngine(smollm2, device="cpu", dtype="float32", threads=1)


def test_greedy_turns_of_the_real_model_are_transformers_own(smollm2: Path, engine: TransformersEngine) -> None:
    from transformers import AutoModelForCausalLM

    reference: Any = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    session = engine.session()
    first = [engine.chat.encode([{"role": "user", "content": q}], "The answer is") for q in QUESTIONS]
    done = session.generate([GenerateRequest(p.ids, 12, 0.0, 0) for p in first])
    assert "Paris" in engine.chat.decode(done[0].output_ids)
    turns = [
        engine.chat.encode(
            [
                {"role": "user", "content": question},
                ReplyRecord(prompt.prefix_ids, generation.output_ids),
                {"role": "user", "content": "Are you sure?"},
            ]
        )
        for question, prompt, generation in zip(QUESTIONS, first, done, strict=True)
    ]
    for turn, prompt, generation in zip(turns, first, done, strict=True):
        assert turn.ids[: len(prompt.ids) + len(generation.output_ids)] == prompt.ids + generation.output_ids
    before = session.prefilled
    again = session.generate([GenerateRequest(t.ids, 6, 0.0, 0) for t in turns])
    assert session.prefilled - before < sum(len(turn.ids) for turn in turns) // 3
    for prompt, generation in [*zip(first, done, strict=True), *zip(turns, again, strict=True)]:
        new = len(generation.output_ids)
        own = reference.generate(torch.tensor([prompt.ids]), max_new_tokens=new, do_sample=False)
        assert tuple(own[0, len(prompt.ids) :].tolist()) == generation.output_ids
        full = engine.logprobs([prompt.ids + generation.output_ids])[0]
        assert np.allclose(full[len(prompt.ids) - 1 :], generation.logprobs, atol=1e-3)


def test_the_real_model_stops_at_its_end_token(engine: TransformersEngine) -> None:
    prompt = engine.chat.encode([{"role": "user", "content": "Say yes."}], "Yes.")
    done = engine.session().generate([GenerateRequest(prompt.ids, 40, 0.0, 0)])[0]
    assert done.finish_reason == "stop"
    assert done.output_ids[-1] == 2
    assert 2 not in done.output_ids[:-1]
