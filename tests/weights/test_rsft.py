import copy
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from tests.weights.conftest import VOCABULARY, rollouts, tiny_llama
from whale.errors import UsageError, WhaleError
from whale.weights.objective import Objective
from whale.weights.trainer import Trainer, TrainerConfig
from whale.weights.types import Sample

Build = Callable[..., Trainer]


def reference(model: PreTrainedModel, samples: Sequence[Sample]) -> tuple[float, dict[str, torch.Tensor]]:
    """L(θ) and its gradient in float64, one sample at a time, as the equation is written."""
    exact = copy.deepcopy(model).double()
    exact.set_attn_implementation("eager")
    total = torch.zeros((), dtype=torch.float64)
    for sample in samples:
        logp = exact(input_ids=torch.tensor([sample.token_ids])).logits[0].log_softmax(-1)
        for t, on in enumerate(sample.loss_mask):
            if on:
                total = total - logp[t - 1, sample.token_ids[t]]
    loss = total / sum(sample.trained for sample in samples)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return loss.item(), {n: p.grad for n, p in exact.named_parameters() if p.grad is not None}


def assert_gradients_close(model: PreTrainedModel, expected: Mapping[str, torch.Tensor]) -> None:
    norm = math.sqrt(sum(float(g.square().sum()) for g in expected.values()))
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        difference = float((parameter.grad.double() - expected[name]).norm())
        assert difference <= 2e-5 * norm, name  # fp32 sums against float64


@st.composite
def sample_sets(draw: st.DrawFn) -> list[Sample]:
    samples = []
    for _ in range(draw(st.integers(1, 7))):
        ids = tuple(draw(st.lists(st.integers(0, 3), min_size=2, max_size=14)))
        mask = draw(st.lists(st.booleans(), min_size=len(ids) - 1, max_size=len(ids) - 1))
        samples.append(Sample(ids, (False, *mask)))
    if not any(sample.trained for sample in samples):
        samples.append(Sample((1, 2), (False, True)))
    return samples


@pytest.mark.parametrize("packing", ["tree", "rows"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(samples=sample_sets(), capacity=st.integers(1, 60), block=st.integers(1, 20))
def test_packing_and_micro_batches_never_change_loss_or_gradient(
    packing: Literal["tree", "rows"], samples: list[Sample], capacity: int, block: int
) -> None:
    torch.set_num_threads(1)
    model = tiny_llama()
    expected_loss, expected = reference(model, samples)
    objective = Objective(model, torch.float32, capacity, packing)
    objective._block = block
    tokens = sum(sample.trained for sample in samples)
    loss = 0.0
    for layout in objective.layouts(samples):
        part = objective.loss(layout) / tokens
        part.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        loss += part.item()
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert_gradients_close(model, expected)


@pytest.mark.parametrize("changes", [{"tie_word_embeddings": False}, {"num_key_value_heads": 4}])
def test_gradients_are_exact_for_untied_heads_and_without_grouped_queries(changes: dict[str, Any]) -> None:
    samples = [sample for samples in rollouts(5) for sample in samples]
    model = tiny_llama(**changes)
    _, expected = reference(model, samples)
    objective = Objective(model, torch.float32, 20, "tree")
    for layout in objective.layouts(samples):
        (objective.loss(layout) / sum(s.trained for s in samples)).backward()  # type: ignore[no-untyped-call]
    assert_gradients_close(model, expected)


def test_a_step_reports_the_loss_of_the_equation_before_the_update(trainer: Build) -> None:
    batch = rollouts(6)
    batch[0] = [Sample(batch[0][0].token_ids[:8], batch[0][0].loss_mask[:8])]  # unequal lengths
    expected, gradient = reference(tiny_llama(), [s for r in batch for s in r])
    result = trainer(grad_clip=None).step(batch, seed=0)
    assert result.loss == pytest.approx(expected, rel=1e-5)
    assert (result.trained_tokens, result.updates) == (27, 1)
    assert result.grad_norm == pytest.approx(
        math.sqrt(sum(float(g.square().sum()) for g in gradient.values())), rel=1e-4
    )


def test_one_pass_makes_as_many_updates_as_minibatches_and_uses_each_rollout_once(trainer: Build) -> None:
    result = trainer(minibatch=4).step(rollouts(9), seed=3)
    assert (result.updates, result.trained_tokens) == (3, 45)


def test_an_update_equals_adamw_on_the_reference_gradient(trainer: Build) -> None:
    batch = rollouts(5)
    model = tiny_llama()
    _, gradient = reference(model, [s for r in batch for s in r])
    plain = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.8, 0.9), weight_decay=0.1, fused=False)
    for name, parameter in model.named_parameters():
        parameter.grad = gradient[name].float()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    plain.step()
    ours = trainer(betas=(0.8, 0.9), weight_decay=0.1, grad_clip=0.5)
    ours.step(batch, seed=0)
    for name, parameter in model.named_parameters():
        # A gradient near 0 has an undecided sign, and Adam's first step is lr times the sign.
        far = gradient[name].abs() > 1e-5
        torch.testing.assert_close(ours.state_dict()[name][far], parameter.detach()[far], rtol=1e-3, atol=1e-4)


def test_training_on_samples_lowers_their_loss(trainer: Build) -> None:
    learner, batch = trainer(), rollouts(4)
    losses = [learner.step(batch, seed=step).loss for step in range(8)]
    assert losses[0] is not None
    assert losses[-1] is not None
    assert losses[-1] < losses[0] / 2


def embedding(learner: Trainer) -> torch.nn.Parameter:
    weight = learner.model.get_input_embeddings().weight
    assert isinstance(weight, torch.nn.Parameter)
    return weight


def state(learner: Trainer) -> tuple[str, str]:
    return learner.weights_digest(), learner.trainer_digest()


@pytest.mark.parametrize("batch", [[], [[]], [[Sample((1, 2, 3), (False,) * 3)]], [[], [Sample((1,), (False,))]]])
def test_a_step_with_nothing_to_train_changes_nothing_and_counts(trainer: Build, batch: Any) -> None:
    learner = trainer(weight_decay=0.5)
    learner.step(rollouts(2), seed=0)
    before = state(learner)
    result = learner.step(batch, seed=1)
    assert (result.loss, result.trained_tokens, result.updates) == (None, 0, 0)
    assert state(learner) == before
    assert learner.steps == 2


def test_a_masked_out_rollout_beside_others_changes_no_digest(trainer: Build) -> None:
    one, two = trainer(), trainer()
    one.step(rollouts(3), seed=0)
    two.step([*rollouts(3), [Sample((1, 2), (False, False))]], seed=0)
    assert one.weights_digest() == two.weights_digest()


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_names_the_step_and_leaves_everything_untouched(
    trainer: Build, poison: float
) -> None:
    learner = trainer()
    learner.step(rollouts(2), seed=0)
    weight = embedding(learner)
    with torch.no_grad():
        weight[0, 0] = poison
    before = state(learner)
    with pytest.raises(WhaleError, match=r"^cycle 1, step 4, update 1 of 1: the (loss|gradient)") as caught:
        learner.step(rollouts(2), seed=1, label="cycle 1, step 4")
    assert "\n" not in str(caught.value)
    assert state(learner) == before
    assert learner.steps == 1


def test_a_gradient_that_is_not_finite_is_caught_although_the_loss_is(trainer: Build) -> None:
    learner = trainer()
    weight = embedding(learner)
    weight.register_hook(lambda gradient: gradient * math.inf)  # type: ignore[no-untyped-call]
    before = state(learner)
    with pytest.raises(WhaleError, match="step 1, update 1 of 1: the gradient's norm"):
        learner.step(rollouts(2), seed=0)
    assert state(learner) == before


def test_a_failure_in_a_later_update_undoes_the_whole_step(trainer: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, twin = trainer(minibatch=2), trainer(minibatch=2)
    for one in (learner, twin):
        one.step(rollouts(4), seed=0)
    before = state(learner)
    whole = learner._gradient
    calls = iter(range(9))

    def failing(*arguments: Any) -> tuple[float, float, Mapping[str, float]]:
        if next(calls) == 2:
            raise MemoryError
        return whole(*arguments)

    monkeypatch.setattr(learner, "_gradient", failing)
    with pytest.raises(MemoryError):
        learner.step(rollouts(6), seed=1)
    assert state(learner) == before
    monkeypatch.undo()
    assert learner.step(rollouts(6), seed=1) == twin.step(rollouts(6), seed=1)
    assert state(learner) == state(twin)


def test_equal_inputs_and_threads_give_equal_digests_in_another_process(trainer: Build) -> None:
    code = (
        "from tests.weights.conftest import rollouts, tiny_llama\n"
        "from whale.weights.trainer import Trainer, TrainerConfig\n"
        "config = TrainerConfig(\n"
        "    lr=1e-2, threads=1, dtype='float32', minibatch=3, micro_batch_tokens=30, device='cpu'\n)\n"
        "learner = Trainer(tiny_llama(), config)\n"
        "for s in range(3): learner.step(rollouts(8, seed=s), seed=s)\n"
        "print(learner.weights_digest(), learner.trainer_digest())"
    )
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    learner = trainer(minibatch=3, micro_batch_tokens=30)
    for step in range(3):
        learner.step(rollouts(8, seed=step), seed=step)
    assert tuple(run.stdout.split()) == state(learner)


def test_seed_and_config_seed_decide_which_rollouts_share_an_update(trainer: Build) -> None:
    digests = set()
    for config_seed, seed in ((0, 0), (0, 1), (1, 0)):
        learner = trainer(minibatch=2, seed=config_seed)
        learner.step(rollouts(8), seed=seed)
        digests.add(learner.weights_digest())
    assert len(digests) == 3


def test_samples_of_another_model_or_too_long_ones_are_refused_before_anything_changes(
    trainer: Build,
) -> None:
    learner = trainer()
    before = state(learner)
    for ids, words in (
        ((1, VOCABULARY), "outside the model's 48"),
        ((1,) * 65, "65 tokens, the model takes 64"),
    ):
        with pytest.raises(WhaleError, match=words):
            learner.step([[Sample(ids, (False,) + (True,) * (len(ids) - 1))]], seed=0)
    assert state(learner) == before


def test_logprobs_are_those_of_the_model(trainer: Build) -> None:
    learner = trainer()
    ids = [3, 1, 4, 1, 5]
    logp = tiny_llama()(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1).detach()
    expected = [float(logp[t - 1, ids[t]]) for t in range(1, 5)]
    assert learner.logprobs([ids, [7]]) == [pytest.approx(expected, abs=1e-5), []]


class OtherEngine:
    """Stands for an engine by a second model."""

    name = "other"

    def __init__(self, model: PreTrainedModel) -> None:
        self.trainer = Trainer(model, TrainerConfig(dtype="float32", device="cpu", packing="rows"))

    def logprobs(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        return self.trainer.logprobs(token_ids)


def test_the_engine_check_catches_a_head_that_stayed_old_and_passes_equal_weights(trainer: Build) -> None:
    learner = trainer(model=tiny_llama(tie_word_embeddings=False))
    old_head = tiny_llama(tie_word_embeddings=False).lm_head
    learner.step(rollouts(4), seed=0)
    engine: Any = OtherEngine(copy.deepcopy(learner.model))
    assert learner.check_engine(engine, [[1, 2, 3], [4, 5]], tolerance=1e-4) < 1e-4
    engine.trainer.model.lm_head = old_head
    with pytest.raises(WhaleError, match="does not hold the trainer's weights"):
        learner.check_engine(engine, [[1, 2, 3], [4, 5]], tolerance=1e-4)
    with torch.no_grad():
        engine.trainer.model.lm_head.weight.fill_(math.nan)
    with pytest.raises(WhaleError):
        learner.check_engine(engine, [[1, 2, 3]], tolerance=1e9)


def test_auto_packing_falls_back_to_rows_where_a_tree_does_not_fit(trainer: Build) -> None:
    assert trainer()._objective.packing == "tree"
    hybrid = tiny_llama()
    hybrid.config.layer_types = ["linear_attention", "full_attention"]
    assert trainer(model=hybrid)._objective.packing == "rows"
    with pytest.raises(UsageError, match="does not fit"):
        trainer(model=hybrid, packing="tree")


def test_a_model_that_ignores_the_tree_is_found_out_by_the_probe(trainer: Build) -> None:
    deaf = tiny_llama()
    forward = deaf.forward

    def without_tree(**arguments: Any) -> Any:
        if arguments.pop("tree", None) is not None:
            deaf.set_attn_implementation("sdpa")  # computes something, but along the row
        return forward(**arguments)

    deaf.forward = without_tree
    assert trainer(model=deaf)._objective.packing == "rows"


@pytest.mark.parametrize("bad", [{"lr": -1.0}, {"lr": math.nan}, {"minibatch": 0}, {"dtype": "int8"}])
def test_settings_that_no_step_can_run_with_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="trainer"):
        TrainerConfig(**bad)


def test_a_missing_model_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(WhaleError, match=r"nowhere: no model folder"):
        Trainer(tmp_path / "nowhere")


def test_the_shared_tiny_model_trains_in_a_tree(tiny_model: Path) -> None:
    learner = Trainer(tiny_model, TrainerConfig(threads=1, device="cpu"))
    before = learner.weights_digest()
    assert learner.step([[Sample((1, 5, 6, 2), (False, False, True, True))]], seed=0).updates == 1
    assert learner.weights_digest() != before
    assert learner._objective.packing == "tree"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_bfloat16_products_keep_weights_and_optimiser_in_fp32(trainer: Build) -> None:
    learner = trainer(dtype="bfloat16")
    exact = trainer().step(rollouts(4), seed=0).loss
    assert learner.step(rollouts(4), seed=0).loss == pytest.approx(exact, rel=2e-2)
    tensors = [*learner.state_dict().values(), *learner._state.optimizer_tensors().values()]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}
