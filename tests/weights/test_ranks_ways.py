"""Two ranks with what saves memory or time on one: the head in chunks, layers computed again or compiled."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.weights.conftest import VOCABULARY, tiny_llama
from tests.weights.ranked_losses import InChunks
from tests.weights.test_ranks import flat, gradient_of, settings_of, uneven
from tests.weights.test_rsft import reference
from whale.weights.ranks import Crew


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    """Of its own: `InChunks` changes its processes."""
    two = Crew(2, "cpu")
    yield two
    two.close()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("packing", ["tree", "rows"])
def test_two_ranks_with_the_head_in_chunks_have_the_gradient_of_the_equation(
    crew: Crew, tmp_path: Path, packing: str, recompute: bool, tied: bool
) -> None:
    tiny_llama(tie_word_embeddings=tied).save_pretrained(tmp_path / "model")
    config = settings_of(packing=packing, grad_clip=None, activation_checkpointing=recompute)
    learner = crew.trainer(tmp_path / "model", config, InChunks(3 * VOCABULARY))
    batch = uneven(6)
    result = learner.step(batch, seed=0)
    model = tiny_llama(tie_word_embeddings=tied)
    loss, expected = reference(model, flat(batch))
    norm = torch.stack([g.square().sum() for g in expected.values()]).sum().sqrt().item()
    assert result.loss == pytest.approx(loss, rel=1e-5)
    found = gradient_of(learner, tmp_path)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert float((found[name].double() - gradient).norm()) <= 2e-5 * norm, name


@pytest.mark.long
@pytest.mark.parametrize("recompute", [True, False])
def test_two_ranks_with_compiled_layers_train_as_two_without(crew: Crew, tmp_path: Path, recompute: bool) -> None:
    tiny_llama().save_pretrained(tmp_path / "model")
    results = []
    for compiled in (False, True):
        config = settings_of(compile=compiled, activation_checkpointing=recompute)
        learner = crew.trainer(tmp_path / "model", config)
        assert learner.notes() == []
        results.append([learner.step(uneven(n), seed=n) for n in (6, 9)])  # trees of other sizes
    for ours, theirs in zip(*results, strict=True):
        assert (ours.loss, ours.grad_norm) == pytest.approx((theirs.loss, theirs.grad_norm), rel=1e-4)
