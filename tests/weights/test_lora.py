"""LoRA against the equation: θ = W + (alpha / rank) · B A, with W as it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from tests.weights.conftest import rollouts, tiny_llama
from tests.weights.test_ranks import flat, settings_of, uneven
from whale.errors import UsageError, WhaleError
from whale.rollout.tiny_model import write_tiny_model
from whale.rollout.transformers_engine import TransformersEngine
from whale.weights import layers
from whale.weights.checkpoints import CheckpointStore
from whale.weights.digest import weights_digest
from whale.weights.lora import Lora, merge, require_peft, write_peft
from whale.weights.objective import negative_log_likelihood
from whale.weights.ranks import Crew, RankedTrainer
from whale.weights.state import ADAPTER, OPTIMIZER, WEIGHTS, read_summary, read_tensors
from whale.weights.trainer import Trainer, TrainerConfig
from whale.weights.types import Sample

LORA = Lora(rank=3, alpha=5.0, seed=7)
SCALE = 5.0 / 3


Build = Callable[..., Any]


@pytest.fixture
def build(crew: Crew, folders: dict[bool, Path]) -> Build:
    def on(ranks: int = 1, tied: bool = True, **changes: Any) -> Trainer | RankedTrainer:
        config = settings_of(**{"lora": LORA, **changes})
        return Trainer(folders[tied], config) if ranks == 1 else crew.trainer(folders[tied], config)

    return on


def adapters_of(learner: Trainer | RankedTrainer, folder: Path) -> dict[str, torch.Tensor]:
    learner.save(folder)
    return read_tensors(folder / ADAPTER)


def by_the_equation(
    adapters: dict[str, torch.Tensor], samples: list[Sample], tied: bool
) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and adapters' gradients in float64, a sample at a time, through a θ that is put together by hand."""
    model = tiny_llama(tie_word_embeddings=tied).double()
    leaves = {name: tensor.double().requires_grad_() for name, tensor in adapters.items()}
    theta = {
        name: parameter.detach()
        + (
            SCALE * leaves[name.replace("weight", "lora_B.weight")] @ leaves[name.replace("weight", "lora_A.weight")]
            if name.replace("weight", "lora_A.weight") in leaves
            else 0
        )
        for name, parameter in model.named_parameters()
    }
    total = torch.zeros((), dtype=torch.float64)
    for sample in samples:
        ids = torch.tensor([sample.token_ids])
        logits = torch.func.functional_call(model, theta, (ids,), {"use_cache": False}).logits[0, :-1]
        chosen = logits.log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
        total = total - chosen[torch.tensor(sample.loss_mask[1:])].sum()
    loss = total / sum(sample.trained for sample in samples)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return loss.item(), {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("packing", ["tree", "rows"])
@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize("ranks", [1, 2])
def test_loss_and_the_adapters_gradient_are_those_of_the_equation(
    build: Build, tmp_path: Path, ranks: int, micro_batches: int, packing: str, tied: bool
) -> None:
    capacity = 10 if micro_batches == 4 else 1000
    learner = build(ranks, tied, packing=packing, micro_batch_tokens=capacity, grad_clip=None, betas=(0.0, 0.9))
    learner.step(rollouts(4, seed=5), seed=0)  # B leaves 0, and A gets a gradient
    adapters = adapters_of(learner, _new(tmp_path / "before"))
    batch = uneven(4 * ranks)
    result = learner.step(batch, seed=0)
    learner.save(_new(tmp_path / "after"))

    loss, expected = by_the_equation(adapters, flat(batch), tied)
    norm = torch.stack([gradient.square().sum() for gradient in expected.values()]).sum().sqrt().item()
    assert result.loss == pytest.approx(loss, rel=1e-5)
    assert result.grad_norm == pytest.approx(norm, rel=1e-5)
    moments = read_tensors(tmp_path / "after" / OPTIMIZER)
    found = {name.rpartition("/")[0]: m for name, m in moments.items() if name.endswith("/exp_avg")}
    assert found.keys() == expected.keys() == adapters.keys()
    for name, gradient in expected.items():  # without momentum the first moment is the gradient
        assert float((found[name].double() - gradient).norm()) <= 2e-5 * norm, name


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("tied", [True, False])
def test_theta_is_the_untouched_base_plus_what_the_adapters_make(
    build: Build, tmp_path: Path, ranks: int, tied: bool
) -> None:
    base = tiny_llama(tie_word_embeddings=tied)
    learner = build(ranks, tied)
    assert learner.weights_digest() == weights_digest(base.state_dict())  # B is 0
    for seed in range(3):
        learner.step(rollouts(4, seed=seed), seed=seed)
    adapters = adapters_of(learner, tmp_path)
    theta = learner.state_dict()
    assert theta.keys() == {name for name, _ in base.named_parameters()}
    for name, weight in base.named_parameters():
        a, b = (adapters.get(name.replace("weight", f"lora_{kind}.weight")) for kind in "AB")
        if a is None or b is None:
            assert torch.equal(theta[name], weight), name
        else:
            assert not torch.equal(theta[name], weight), name
            torch.testing.assert_close(theta[name], weight.detach() + SCALE * (b @ a), rtol=1e-5, atol=1e-6)
    assert learner.weights_digest() == weights_digest(theta) == weights_digest(read_tensors(tmp_path / WEIGHTS))


def test_one_and_two_ranks_begin_with_the_same_adapters_and_merge_them_to_the_same_bits(
    build: Build, tmp_path: Path
) -> None:
    one = build()
    one.step(rollouts(4), seed=0)
    one.save(_new(tmp_path / "one"))
    two = build(2)
    assert torch.equal(
        adapters_of(two, _new(tmp_path / "two"))["model.layers.0.mlp.up_proj.lora_A.weight"],
        adapters_of(build(), _new(tmp_path / "fresh"))["model.layers.0.mlp.up_proj.lora_A.weight"],
    )
    two.load(tmp_path / "one")
    assert (two.weights_digest(), two.trainer_digest()) == (one.weights_digest(), one.trainer_digest())


def test_a_merge_has_the_same_bits_with_any_number_of_threads_and_leaves_a_negative_zero() -> None:
    draw = torch.Generator().manual_seed(0)
    base, a, b = (torch.randn(shape, generator=draw) for shape in ((300, 200), (16, 200), (300, 16)))
    base[0, 0], b[0] = -0.0, 0
    merged = merge(base, a, b, 2.0)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        assert torch.equal(merge(base, a, b, 2.0), merged)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(merged[0].view(torch.int32), base[0].view(torch.int32))
    torch.testing.assert_close(merged.double(), base.double() + 2.0 * b.double() @ a.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"activation_checkpointing": True}, {"minibatch": 2, "lr": 1e-3}])
def test_only_adapters_are_trained_whatever_the_way(build: Build, changes: dict[str, Any]) -> None:
    learner = build(**changes)
    before = {n: p.detach().clone() for n, p in learner.model.named_parameters() if not p.requires_grad}
    learner.step(rollouts(4), seed=0)
    for name, parameter in learner.model.named_parameters():
        assert parameter.requires_grad == (".lora_" in name)
        if not parameter.requires_grad:
            assert parameter.grad is None and torch.equal(parameter, before[name]), name
    moments = sum(t.numel() for t in learner._state.optimizer_tensors().values() if t.ndim)
    assert moments == 2 * sum(p.numel() for p in learner.model.parameters() if p.requires_grad)


def test_recomputed_activations_chunked_logits_and_compiled_layers_change_nothing(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = build()
    plain.step(rollouts(4), seed=0)
    again = build(activation_checkpointing=True)
    again.step(rollouts(4), seed=0)
    assert again.trainer_digest() == plain.trainer_digest()
    compiled = build(compile=True)
    assert compiled._objective.compiled, compiled.notes()
    compiled.step(rollouts(4), seed=0)
    monkeypatch.setattr("whale.weights.head.LOGITS", {"cpu": 48 * 3, "cuda": 1})
    chunked = build()
    assert chunked._objective.chunked
    chunked.step(rollouts(4), seed=0)
    ids = [list(rollouts(1)[0][0].token_ids)]
    for other in (compiled, chunked):
        assert other.logprobs(ids)[0] == pytest.approx(plain.logprobs(ids)[0], abs=1e-4)


@pytest.mark.parametrize("wrong", ["lora_A", "lora_B"])
def test_compiled_layers_with_a_wrong_gradient_of_an_adapter_are_not_taken(
    build: Build, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """Of A it is 0 while B is."""
    plain = layers.arrange

    def arrange(model: PreTrainedModel, recompute: bool, compiled: bool) -> None:
        plain(model, recompute, False)
        parameter = next(p for n, p in model.named_parameters() if wrong in n)
        if compiled:
            parameter.register_hook(lambda gradient: 1.5 * gradient)  # type: ignore[no-untyped-call]  # torch's

    monkeypatch.setattr(layers, "arrange", arrange)
    learner = build(compile=True)
    assert not learner._objective.compiled
    (note,) = learner.notes()
    assert wrong in note
    assert learner.weights_digest() == build().weights_digest(), "B is 0 again"


def test_an_engine_with_the_merged_weights_says_what_the_trainer_says(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "model")
    learner = Trainer(folder, settings_of(lora=Lora(4), lr=1e-2))
    engine = TransformersEngine(folder, device="cpu", dtype="float32", threads=1)
    learner.step(rollouts(8), seed=0)
    ids = [list(sample.token_ids) for (sample,) in rollouts(2, seed=3)]
    with pytest.raises(WhaleError, match="does not hold the trainer's weights"):
        learner.check_engine(engine, ids, 1e-4)
    engine.update_weights(learner.state_dict(), learner.weights_digest())
    assert learner.check_engine(engine, ids, 1e-4) < 1e-5


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_checkpoint_goes_on_to_the_bit_on_any_number_of_ranks(build: Build, tmp_path: Path, ranks: int) -> None:
    store = CheckpointStore(tmp_path)
    whole = build(ranks)
    whole.step(rollouts(4), seed=0)
    saved = store.save("one", whole)
    whole.step(rollouts(4, seed=1), seed=1)
    after = whole.weights_digest(), whole.trainer_digest()

    assert store.verify("one", saved["weights"], saved["trainer"])
    other = build(3 - ranks)
    other.load(store.open("one"))
    assert {"weights": other.weights_digest(), "trainer": other.trainer_digest()} == saved
    again = build(ranks)
    again.load(store.open("one"))
    again.step(rollouts(4, seed=1), seed=1)
    assert (again.weights_digest(), again.trainer_digest()) == after
    adapters = sum(t.numel() for t in read_tensors(store.path("one") / ADAPTER).values())
    moments = sum(t.numel() for t in read_tensors(store.path("one") / OPTIMIZER).values() if t.ndim)
    assert moments == 2 * adapters


def test_the_trainers_digest_covers_the_adapters(build: Build, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    saved = store.save("one", build())
    assert store.verify("one", saved["weights"], saved["trainer"])
    file = store.path("one") / ADAPTER
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(WhaleError, match="the log says"):
        store.verify("one", saved["weights"], saved["trainer"])


def test_a_step_that_fails_in_a_later_update_is_undone(build: Build) -> None:
    learner = build(minibatch=2)
    learner.step(rollouts(2), seed=0)
    before = learner.trainer_digest()
    calls = 0

    def failing(terms: Any) -> Any:
        nonlocal calls
        calls += 1
        loss = negative_log_likelihood(terms)
        return type(loss)(loss.total * float("nan")) if calls == 2 else loss

    learner._loss = failing
    with pytest.raises(WhaleError, match="update 2 of 2"):
        learner.step(rollouts(4), seed=1)
    assert learner.trainer_digest() == before


def test_a_trainer_takes_over_another_one_of_the_same_adapters_only(build: Build) -> None:
    one = build()
    one.step(rollouts(4), seed=0)
    two = build(lr=1e-3)
    two.go_on_from(one)
    assert two.trainer_digest() == one.trainer_digest()
    with pytest.raises(WhaleError, match=r"LoRA of rank 3.*cannot go on from one of all of θ"):
        two.go_on_from(build(lora=None))


def test_a_checkpoint_of_other_adapters_or_another_base_is_refused(
    build: Build, tmp_path: Path, trainer: Callable[..., Trainer]
) -> None:
    kinds = {"lora": build(), "full": build(lora=None), "alpha": build(lora=Lora(3, 6.0, seed=7))}
    for name, learner in kinds.items():
        learner.step(rollouts(4), seed=0)
        learner.save(_new(tmp_path / name))
    for into, folder, words in (
        ("full", "lora", "is of a trainer of LoRA of rank 3, alpha 5, targets all-linear; this one is of all of θ"),
        ("lora", "full", "is of a trainer of all of θ; this one is of LoRA of rank 3, alpha 5"),
        ("lora", "alpha", "alpha 6"),
    ):
        before = kinds[into].trainer_digest()
        with pytest.raises(WhaleError, match=words):
            kinds[into].load(tmp_path / folder)
        assert kinds[into].trainer_digest() == before
    other = trainer(seed=1, lora=LORA)
    before = other.trainer_digest()
    with pytest.raises(WhaleError, match="another base"):
        other.load(tmp_path / "lora")
    assert other.trainer_digest() == before
    assert read_summary(tmp_path / "lora")["lora"] == {"rank": 3, "alpha": 5.0, "targets": "all-linear"}


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens", "query", "self_attn"])
def test_a_target_that_is_no_inner_linear_layer_is_named(target: str) -> None:
    model = tiny_llama(tie_word_embeddings=False)
    with pytest.raises(UsageError, match=f"{target}.*known there: down_proj, gate_proj, k_proj"):
        Trainer(model, settings_of(lora=Lora(2, targets=("q_proj", target))))


def test_named_targets_alone_are_trained(build: Build, tmp_path: Path) -> None:
    learner = build(lora=Lora(2, targets=("q_proj", "v_proj")))
    learner.step(rollouts(4), seed=0)
    modules = {name.rsplit(".", 2)[0].rpartition(".")[2] for name in adapters_of(learner, tmp_path)}
    assert modules == {"q_proj", "v_proj"}


def test_a_missing_package_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'whale-evolve\[lora\]'"):
        require_peft()


def test_peft_itself_reads_the_adapters_and_gives_the_same_logits(tmp_path: Path) -> None:
    from peft import PeftModel

    folder = write_tiny_model(tmp_path / "model")
    learner = Trainer(folder, settings_of(lora=LORA))
    learner.step(rollouts(8), seed=0)
    learner.save(_new(tmp_path / "saved"))
    facts, adapters = read_summary(tmp_path / "saved")["lora"], read_tensors(tmp_path / "saved" / ADAPTER)
    write_peft(tmp_path / "adapter", "base", facts, adapters)

    base = _load(folder)
    theirs = PeftModel.from_pretrained(_load(folder), tmp_path / "adapter")
    merged = _load(tmp_path / "saved")
    ids = torch.tensor([rollouts(1)[0][0].token_ids])
    with torch.no_grad():
        expected = merged(ids).logits
        torch.testing.assert_close(theirs(ids).logits, expected, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(base(ids).logits, expected, atol=1e-2)


def _load(folder: Path) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return model


def test_without_lora_a_trainer_saves_what_it_always_did(build: Build, tmp_path: Path) -> None:
    build(lora=None).save(tmp_path)
    assert "lora" not in read_summary(tmp_path)
    assert not (tmp_path / ADAPTER).exists()
    assert TrainerConfig().lora is None
