import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import flex_attention as torchs
from torch.nn.attention.flex_attention import create_mask
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.modeling_layers import GradientCheckpointingLayer

from tests.weights.conftest import VOCABULARY, rollouts, tiny_llama
from tests.weights.test_rsft import assert_gradients_close, reference, sample_sets
from whale.weights import flex, layers
from whale.weights.attention import Tree
from whale.weights.objective import Objective
from whale.weights.packing import pack_trees
from whale.weights.trainer import Trainer, TrainerConfig
from whale.weights.types import Sample

SAMPLES = [sample for samples in rollouts(5) for sample in samples]
DEVICE = torch.device("cpu")


def gradient(objective: Objective, samples: list[Sample]) -> float:
    loss, tokens = 0.0, sum(sample.trained for sample in samples)
    for layout in objective.layouts(samples):
        part = objective.loss(layout) / tokens
        part.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        loss += part.item()
    return loss


def calls_of(model: PreTrainedModel, recompute: bool) -> int:
    """How often the layers' MLPs run in one forward and backward pass of one micro-batch."""
    objective = Objective(model, torch.float32, 200, "tree", recompute)
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    hooks = [m.register_forward_pre_hook(count) for name, m in model.named_modules() if name.endswith(".mlp")]
    gradient(objective, SAMPLES)
    for hook in hooks:
        hook.remove()
    return calls


def test_activation_checkpointing_computes_each_layer_twice_although_the_model_is_not_in_train_mode() -> None:
    model = tiny_llama().train(False)
    assert calls_of(model, recompute=False) == 2
    assert calls_of(model, recompute=True) == 4
    assert calls_of(model, recompute=False) == 2, "another objective undoes it"


@pytest.mark.parametrize("packing", ["tree", "rows"])
def test_activation_checkpointing_changes_no_bit_of_the_result(packing: Any) -> None:
    digests = set()
    for on in (False, True):
        settings = {"lr": 1e-2, "threads": 1, "dtype": "float32", "device": "cpu", "packing": packing}
        learner = Trainer(tiny_llama(), TrainerConfig(**settings, activation_checkpointing=on))
        for step in range(2):
            learner.step(rollouts(5), seed=step)
        digests.add(learner.trainer_digest())
    assert len(digests) == 1


@settings(max_examples=40, deadline=None)
@given(samples=sample_sets(), window=st.one_of(st.none(), st.integers(1, 6)))
def test_the_relation_of_flex_attention_is_that_of_the_samples_and_padding_is_apart(
    samples: list[Sample], window: int | None
) -> None:
    """Each node by brute force: its ancestors are the prefixes of its own context."""
    for layout in pack_trees(samples, 200):
        contexts: list[tuple[int, ...]] = []
        path: list[int] = []
        for token, depth in zip(layout.rows[0], layout.depths, strict=True):
            path = [*path[:depth], token]
            contexts.append(tuple(path))
        tree = Tree.flexible(layout, DEVICE, [window])
        nodes = len(tree.ends)
        assert nodes % flex.BLOCK == 0
        mask = create_mask(flex.relation(tree.depths, tree.ends, window), None, None, nodes, nodes, "cpu")[0, 0]
        for i in range(nodes):
            for j in range(nodes) if i < len(contexts) else (i,):
                if max(i, j) >= len(contexts):
                    expected = i == j
                else:
                    near = window is None or len(contexts[i]) - len(contexts[j]) < window
                    expected = near and contexts[i][: len(contexts[j])] == contexts[j]
                assert bool(mask[i, j]) is expected
        assert int(mask[len(contexts) :].sum()) == nodes - len(contexts)


@pytest.fixture
def flex_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch refuses flex attention's backward on a CPU for want of a kernel; its plain form has one."""
    monkeypatch.setattr(torchs, "_validate_device", lambda *_: None)


def flexible(model: PreTrainedModel, recompute: bool = False) -> Objective:
    objective = Objective(model, torch.float32, 240, "tree", recompute)
    assert objective._go([(True, False)], recompute), objective.notes
    return objective


def windowed() -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = Qwen2Config(
            vocab_size=VOCABULARY, hidden_size=48, intermediate_size=48, num_hidden_layers=2, num_attention_heads=6,
            num_key_value_heads=2, initializer_range=0.2, sliding_window=4, use_sliding_window=True,
            max_window_layers=1, layer_types=["full_attention", "sliding_attention"],
        )  # fmt: skip
        model: PreTrainedModel = Qwen2ForCausalLM(config)  # type: ignore[no-untyped-call]  # transformers'
        model.train(False)
        return model


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("build", [tiny_llama, windowed])
def test_flex_attention_in_its_plain_form_gives_loss_and_gradient_of_the_equation(
    flex_on_cpu: None, build: Any, recompute: bool
) -> None:
    draw = random.Random(0)
    prompt = tuple(draw.randrange(VOCABULARY) for _ in range(6))
    samples = [
        Sample(prompt + tuple(draw.randrange(VOCABULARY) for _ in range(n)), (False,) * 6 + (True,) * n)
        for n in (5, 20, 40, 50, 50, 50)
    ]
    model = build()
    expected_loss, expected = reference(model, samples)
    objective = flexible(model, recompute)
    assert max(len(layout.ends) for layout in objective.layouts(samples)) > flex.BLOCK
    assert gradient(objective, samples) == pytest.approx(expected_loss, rel=1e-5)
    assert_gradients_close(model, expected)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_where_flex_attention_does_not_work_the_objective_says_why_and_goes_on() -> None:
    objective = Objective(tiny_llama(), torch.float32, 150, "tree")
    before = gradient(objective, SAMPLES)
    assert not objective._go([(True, False)], False)
    assert not objective.flex
    (note,) = objective.notes
    assert note.startswith("no flex attention: ")
    assert gradient(objective, SAMPLES) == before


@pytest.mark.filterwarnings("ignore")
def test_compiled_layers_give_the_same_and_are_not_compiled_again_for_each_size(flex_on_cpu: None) -> None:
    """Through the graph that a GPU's kernels are made from; making them needs a GPU."""
    torch._dynamo.reset()
    model = tiny_llama()
    objective = flexible(model)
    graphs = 0

    def backend(graph: Any, inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return graph

    layers.arrange(model, False, True, backend=backend)  # type: ignore[arg-type]  # torch takes a function too
    draw = random.Random(0)
    for total in (1, 2, 4, 6, 7):
        samples = [
            Sample(tuple(draw.randrange(VOCABULARY) for _ in range(60)), (False,) + (True,) * 59) for _ in range(total)
        ]
        objective._capacity = 1000
        model.zero_grad()
        expected_loss, expected = reference(tiny_llama(), samples)
        assert gradient(objective, samples) == pytest.approx(expected_loss, rel=1e-5)
        assert_gradients_close(model, expected)
    assert graphs <= 2, "one for the first size, one for all others"
    torch._dynamo.reset()


def other_layers(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    """In the place of the compiler's: each layer's forward as `change` makes it."""
    plain = layers.arrange

    def arrange(model: PreTrainedModel, recompute: bool, compiled: bool) -> None:
        plain(model, recompute, False)
        for layer in model.modules() if compiled else ():
            if isinstance(layer, GradientCheckpointingLayer):
                layer.forward = change(layer.forward)

    monkeypatch.setattr(layers, "arrange", arrange)


def rounding_less(forward: Any) -> Any:
    """As a compiler does that keeps float32 between fused operations."""
    return torch.autocast("cpu", enabled=False)(forward)


def cutting_the_gradient(forward: Any) -> Any:
    """The right loss; what lies below a layer learns from nothing but what goes around it."""

    def cut(hidden: torch.Tensor, *rest: Any, **named: Any) -> Any:
        found = forward(hidden.detach(), *rest, **named)
        return found + (hidden - hidden.detach())

    return cut


@pytest.mark.model
@pytest.mark.parametrize(("change", "taken"), [(rounding_less, True), (cutting_the_gradient, False)])
def test_on_a_real_model_in_bf16_other_rounding_is_taken_and_a_wrong_gradient_is_not(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch, change: Any, taken: bool
) -> None:
    """In bf16 some gradients are mostly rounding; which they are must not decide whether compiling pays."""
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    other_layers(monkeypatch, change)
    objective = Objective(model, torch.bfloat16, 1024, "tree", compile=True)
    assert objective.compiled is taken, objective.notes
    if not taken:
        (note,) = objective.notes
        assert note.startswith("no compiled layers: the gradient of model.")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("factor", [0.0, -1.0, 1.5, float("nan")])
@pytest.mark.parametrize("wrong", ["v_proj", "layers.1.mlp.down_proj", "embed_tokens"])
@pytest.mark.parametrize("after", [0, 2])
def test_no_tensors_gradient_may_be_wrong(
    monkeypatch: pytest.MonkeyPatch, after: int, wrong: str, factor: float, dtype: torch.dtype
) -> None:
    """Also in one tensor alone, and in the largest of the probes alone, whose shape is the one that training meets."""
    plain = layers.arrange

    def scale() -> Callable[[torch.Tensor], torch.Tensor]:
        seen = 0

        def hook(gradient: torch.Tensor) -> torch.Tensor:
            nonlocal seen
            seen += 1
            return gradient * factor if seen > after else gradient

        return hook

    def arrange(model: PreTrainedModel, recompute: bool, compiled: bool) -> None:
        plain(model, recompute, False)
        for name, parameter in model.named_parameters() if compiled else ():
            if wrong in name:
                parameter.register_hook(scale())  # type: ignore[no-untyped-call]  # torch leaves it untyped

    monkeypatch.setattr(layers, "arrange", arrange)
    objective = Objective(tiny_llama(), dtype, 1024, "tree", compile=True)
    assert not objective.compiled
    (note,) = objective.notes
    assert "gradient" in note


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_all_ways_are_measured_by_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the probes that go through the model in float32 beside a bfloat16 trainer's own."""
    other_layers(monkeypatch, cutting_the_gradient)
    objective = Objective(tiny_llama(), torch.bfloat16, 1024, "tree")
    trials: Any = Objective._trials
    tried: list[torch.dtype] = []

    def counted(self: Objective, dtype: torch.dtype, places: Any) -> Any:
        tried.append(dtype)
        return trials(self, dtype, places)

    monkeypatch.setattr(Objective, "_trials", counted)
    assert not objective._go([(True, True), (True, False), (False, True)], False)
    assert [note.partition(":")[0] for note in objective.notes] == [
        "no flex attention and compiled layers", "no flex attention", "no compiled layers",
    ]  # fmt: skip
    assert tried == [torch.float32, torch.bfloat16] + 3 * [torch.bfloat16], "each way's own, beside the first two"


def test_a_vocabulary_too_small_to_try_compiling_on_is_a_note() -> None:
    config = LlamaConfig(
        vocab_size=8, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1,
    )  # fmt: skip
    objective = Objective(LlamaForCausalLM(config), torch.float32, 64, "tree", compile=True)  # type: ignore[no-untyped-call]  # transformers'
    assert not objective.compiled
    assert objective.notes == ["no compiled layers: a vocabulary of less than 11 ids is not tried"]
