"""The rollout path on a real transformers model, tiny and random: tokens are kept, and results repeat."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rollout.scripted import LIMITS, SAMPLING, FactsDomain, tree
from whale.domains.base import Task
from whale.rollout.chat import ChatCodec
from whale.rollout.episodes import run_micro_batch
from whale.rollout.sandbox.host import HarnessWorker
from whale.rollout.sandbox.probe import best_tier
from whale.rollout.transformers_engine import TransformersEngine
from whale.rollout.types import EpisodeSpec, Trajectory

BODY = """
opening = [{'role': 'user', 'content': task['question']}]
first = await model.chat(opening, prefix='Query:', max_tokens=5)
if task['question'] == 'break':
    raise ValueError('on purpose')
found = await tools.lookup(key='france')
return await model.chat([*opening, first, {'role': 'user', 'content': found[0]['text']}], max_tokens=7)
"""


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> TransformersEngine:
    return TransformersEngine(tiny_model, device="cpu", dtype="float32", threads=1)


def sample(engine: TransformersEngine, *questions: str) -> list[Trajectory]:
    tasks = {f"t{i}": Task(f"t{i}", {"question": question}, {}) for i, question in enumerate(questions)}
    specs = [EpisodeSpec(name, 0, seed) for seed, name in enumerate(tasks)]
    with HarnessWorker(tree(BODY), best_tier(), replace(LIMITS, cpu_seconds=5)) as worker:
        return run_micro_batch(
            engine,
            ChatCodec(engine.tokenizer),
            worker.files,
            tasks,
            specs,
            FactsDomain(),
            SAMPLING,
            worker.limits,
            worker,
        )


def test_equal_specs_give_equal_trajectories_on_a_real_model(engine: TransformersEngine) -> None:
    once = sample(engine, "one", "break", "three")

    assert once == sample(engine, "one", "break", "three")
    assert [trajectory.status for trajectory in once] == ["ok", "raised", "ok"]


def test_a_later_turn_begins_with_the_very_tokens_of_the_earlier_one(engine: TransformersEngine) -> None:
    (trajectory,) = sample(engine, "one")

    first, second = trajectory.turns
    whole = first.prompt_ids + first.output_ids
    assert second.prompt_ids[: len(whole)] == whole
    assert len(first.logprobs) == len(first.output_ids) <= 5
    assert first.weights == engine.weights_version
