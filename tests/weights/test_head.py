import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    PreTrainedModel,
)

from tests.weights.conftest import SHAPE, VOCABULARY, rollouts, tiny_llama
from tests.weights.test_rsft import assert_gradients_close, reference
from whale.weights import head
from whale.weights.head import Targets, in_chunks
from whale.weights.objective import Objective
from whale.weights.types import Sample


@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4)), min_size=1, max_size=30),
    rows=st.integers(1, 12),
    seed=st.integers(0, 9),
)
def test_chunks_give_the_logprobs_and_gradients_of_all_logits_at_once(
    pairs: list[tuple[int, int]], rows: int, seed: int
) -> None:
    """In float64; a place may predict several tokens, one token twice, or none."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    hidden, weight, credit = draw(9, 6).requires_grad_(), draw(5, 6).requires_grad_(), draw(len(pairs))
    pairs = sorted(pairs)
    index, token = (torch.tensor(column) for column in zip(*pairs, strict=True))
    expected = (hidden @ weight.T).log_softmax(-1)[index, token]
    wanted = torch.autograd.grad((credit * expected.exp()).sum(), (hidden, weight))  # not linear in log π
    chosen, lse = in_chunks(hidden, weight, Targets.of(pairs, 9, rows, torch.device("cpu")), torch.float64)
    found = chosen - lse[index]
    got = torch.autograd.grad((credit * found.double().exp()).sum(), (hidden, weight))
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)  # the log-sum-exp is kept in fp32


def test_no_tensor_of_a_training_step_has_more_logits_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(head.LOGITS, "cpu", 4 * VOCABULARY)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, (tuple, list)) else (result,):
                logits = isinstance(tensor, torch.Tensor) and tensor.dim() == 2 and tensor.shape[-1] == VOCABULARY
                if logits and func is not torch.ops.aten.t.default:  # the head's weight, turned
                    largest = max(largest, len(tensor))
            return result

    objective = Objective(tiny_llama(intermediate_size=40), torch.float32, 200, "tree")
    samples = [sample for samples in rollouts(8) for sample in samples]
    (layout,) = objective.layouts(samples)
    assert len(layout.predictors) > 30
    with Watch():  # type: ignore[no-untyped-call]  # torch's
        objective.loss(layout).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert largest == 4


ENDED: dict[str, Any] = {**SHAPE, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def model_of(kind: str) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "capped":
            config = Gemma2Config(**ENDED, head_dim=8, final_logit_softcapping=2.0, attn_logit_softcapping=None)
            return Gemma2ForCausalLM(config)  # type: ignore[no-untyped-call]  # transformers'
        if kind == "divided":
            return GraniteForCausalLM(GraniteConfig(**ENDED, logits_scaling=4.0))  # type: ignore[no-untyped-call]
        if kind == "multiplied":
            return CohereForCausalLM(CohereConfig(**ENDED, logit_scale=0.25))  # type: ignore[no-untyped-call]
        model = tiny_llama(tie_word_embeddings=False)
        model.lm_head = torch.nn.Linear(32, VOCABULARY)  # with a bias
        return model


@pytest.mark.parametrize("kind", ["capped", "divided", "multiplied", "biased"])
def test_a_head_that_does_more_than_one_product_is_found_out_and_trained_as_it_is(kind: str) -> None:
    samples = [sample for samples in rollouts(5) for sample in samples]
    model = model_of(kind).train(False)
    expected_loss, expected = reference(copy.deepcopy(model), samples)
    objective = Objective(model, torch.float32, 30, "auto")
    assert not objective.chunked
    loss = 0.0
    for layout in objective.layouts(samples):
        part = objective.loss(layout) / sum(s.trained for s in samples)
        part.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        loss += part.item()
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert_gradients_close(model, expected)


@pytest.mark.parametrize("packing", ["tree", "rows"])
def test_logits_that_fit_are_kept_and_more_are_computed_in_chunks_with_the_same_gradient(
    monkeypatch: pytest.MonkeyPatch, packing: Any
) -> None:
    samples = [sample for samples in rollouts(5) for sample in samples]
    expected_loss, expected = reference(tiny_llama(), samples)
    for fits in (False, True):
        model = tiny_llama()
        (layout,) = Objective(model, torch.float32, 200, packing).layouts(samples)
        places = len(layout.rows) * len({column for _, column in layout.predictors})
        monkeypatch.setitem(head.LOGITS, "cpu", (places if fits else places - 1) * VOCABULARY)
        objective = Objective(model, torch.float32, 200, packing)
        assert objective.chunked
        calls = 0
        monkeypatch.setattr(head, "in_chunks", lambda *given, usual=head.in_chunks: counted(usual(*given)))

        def counted(result: Any) -> Any:
            nonlocal calls
            calls += 1
            return result

        loss = objective.loss(layout) / sum(sample.trained for sample in samples)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        monkeypatch.undo()
        assert calls == (0 if fits else 1)
        assert loss.item() == pytest.approx(expected_loss, rel=1e-5)
        assert_gradients_close(model, expected)
        assert "forward" not in vars(model.lm_head), "the head is left as it was"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gradients_are_summed_over_chunks_in_fp32_although_products_are_bfloat16(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """bf16 sums of many chunks would lose what one chunk keeps."""
    samples = [Sample(tuple(range(1, 41)), (False,) + (True,) * 39)]
    gradients = []
    for rows in (1, 64):
        monkeypatch.setitem(head.LOGITS, "cpu", rows * VOCABULARY)
        model = tiny_llama(tie_word_embeddings=False)
        objective = Objective(model, torch.bfloat16, 64, "tree")
        for layout in objective.layouts(samples):
            objective.loss(layout).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        weight: Any = model.lm_head.weight
        assert weight.grad.dtype is torch.float32
        gradients.append(weight.grad)
    difference = (gradients[0] - gradients[1]).norm() / gradients[1].norm()
    assert difference < 3e-3
