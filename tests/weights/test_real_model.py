"""RSFT on the embedded model: needs `whale models fetch` to have run, and a minute of CPU."""

from typing import Any

import pytest

from tests.weights.conftest import rollouts
from whale.errors import WhaleError
from whale.rollout import models
from whale.weights.digest import weights_digest
from whale.weights.trainer import Trainer, TrainerConfig
from whale.weights.types import Sample

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def folder() -> Any:
    try:
        return models.resolve_model("smollm2-135m-instruct")
    except WhaleError as error:
        pytest.skip(str(error))


def test_rsft_lowers_the_loss_of_what_it_trained_on_and_the_engine_follows(folder: Any) -> None:
    from transformers import AutoTokenizer

    from whale.rollout.transformers_engine import TransformersEngine

    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = []
    for country, capital in (("France", "Paris"), ("Chile", "Santiago"), ("Kenya", "Nairobi")):
        prompt = tokenizer.encode(f"<|im_start|>user\nCapital of {country}?<|im_end|>\n<|im_start|>assistant\n")
        answer = tokenizer.encode(f"<answer>{capital}</answer><|im_end|>")
        mask = (False,) * len(prompt) + (True,) * len(answer)
        batch.append([Sample((*prompt, *answer), mask)])
    learner = Trainer(folder, TrainerConfig(lr=3e-5, dtype="float32"))
    assert learner._objective.packing == "tree"
    before = learner.weights_digest()
    losses = [learner.step(batch, seed=step).loss for step in range(3)]
    assert losses[0] is not None
    assert losses[2] is not None
    assert losses[2] < 0.8 * losses[0]
    assert learner.weights_digest() != before

    engine = TransformersEngine(folder, dtype="float32")
    sequences = [sample.token_ids for samples in batch for sample in samples]
    with pytest.raises(WhaleError, match="does not hold the trainer's weights"):
        learner.check_engine(engine, sequences, tolerance=0.01)
    engine.update_weights(learner.state_dict(), learner.weights_digest())
    assert learner.check_engine(engine, sequences, tolerance=0.01) < 0.01


def test_tree_and_rows_compute_the_same_loss_on_the_real_model(folder: Any) -> None:
    batch = [sample for samples in rollouts(3, shared=20) for sample in samples]
    losses = []
    for packing in ("tree", "rows"):
        learner = Trainer(folder, TrainerConfig(packing=packing, dtype="float32"))
        losses.append(sum(learner._objective.loss(layout).item() for layout in learner._objective.layouts(batch)))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert weights_digest(learner.state_dict()) == learner.weights_digest()
