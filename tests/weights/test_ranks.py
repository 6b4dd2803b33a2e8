"""Two real processes on the CPU, with gloo between them."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.weights import ranked_losses
from tests.weights.conftest import VOCABULARY, rollouts, tiny_llama
from tests.weights.ranked_losses import POISON
from tests.weights.test_rsft import reference
from whale.errors import UsageError, WhaleError
from whale.weights.dealing import deal
from whale.weights.grpo import GRPO
from whale.weights.objective import LossFunction, negative_log_likelihood
from whale.weights.packing import pack_rows, pack_trees
from whale.weights.ranks import Crew, RankedTrainer
from whale.weights.state import OPTIMIZER, read_tensors
from whale.weights.trainer import Trainer, TrainerConfig
from whale.weights.types import Sample

Build = Callable[..., Trainer | RankedTrainer]


def settings_of(**changes: Any) -> TrainerConfig:
    return TrainerConfig(**{"lr": 1e-2, "threads": 1, "dtype": "float32", "device": "cpu", **changes})


@pytest.fixture
def build(crew: Crew, folders: dict[bool, Path]) -> Build:
    def on(ranks: int, loss: LossFunction = negative_log_likelihood, tied: bool = True, **changes: Any) -> Any:
        config = settings_of(**changes)
        return Trainer(folders[tied], config, loss) if ranks == 1 else crew.trainer(folders[tied], config, loss)

    return on


def uneven(n: int) -> list[list[Sample]]:
    """Rollouts of equal length with unequal numbers of trained tokens: a mean of ranks' means would be wrong."""
    batch = []
    for i, (sample,) in enumerate(rollouts(n)):
        mask = [on and t % (i + 1) != 0 for t, on in enumerate(sample.loss_mask[:-1])]
        batch.append([Sample(sample.token_ids, (*mask, True))])
    return batch


def flat(batch: list[list[Sample]]) -> list[Sample]:
    return list(itertools.chain.from_iterable(batch))


def gradient_of(trainer: Trainer | RankedTrainer, folder: Path) -> dict[str, torch.Tensor]:
    """The first update's gradient, as AdamW kept it: its first moment is (1 - β1) times that."""
    trainer.save(folder)
    moments = read_tensors(folder / OPTIMIZER)
    return {name.rpartition("/")[0]: m / (1 - 0.9) for name, m in moments.items() if name.endswith("/exp_avg")}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("packing", ["tree", "rows"])
@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize("ranks", [1, 2])
def test_loss_gradient_and_update_are_those_of_the_equation_on_any_number_of_ranks(
    build: Build, tmp_path: Path, ranks: int, micro_batches: int, packing: str, tied: bool
) -> None:
    batch = uneven(4 * ranks)
    capacity = 10 if micro_batches == 4 else 1000
    pack = pack_trees if packing == "tree" else pack_rows
    parts = deal(flat(batch), ranks, shared=packing == "tree")
    assert [len(list(pack(part, capacity))) for part in parts] == [micro_batches] * ranks

    learner = build(ranks, packing=packing, micro_batch_tokens=capacity, tied=tied, grad_clip=None)
    result = learner.step(batch, seed=0)

    model = tiny_llama(tie_word_embeddings=tied)
    loss, expected = reference(model, flat(batch))
    norm = torch.stack([g.square().sum() for g in expected.values()]).sum().sqrt().item()
    assert result.loss == pytest.approx(loss, rel=1e-5)
    assert result.trained_tokens == sum(sample.trained for sample in flat(batch))
    assert result.grad_norm == pytest.approx(norm, rel=1e-5)
    found = gradient_of(learner, tmp_path)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert float((found[name].double() - gradient).norm()) <= 2e-5 * norm, name  # fp32 sums against float64

    plain = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0, fused=False)
    for name, parameter in model.named_parameters():
        parameter.grad = expected[name].float()
    plain.step()
    theta = learner.state_dict()
    for name, parameter in model.named_parameters():
        # A gradient near 0 has an undecided sign, and Adam's first step is lr times the sign.
        far = expected[name].abs() > 1e-4
        torch.testing.assert_close(theta[name][far], parameter.detach()[far], rtol=1e-4, atol=1e-5)


def same(one: Trainer | RankedTrainer, two: Trainer | RankedTrainer) -> None:
    ours, theirs = one.state_dict(), two.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-4)


def test_several_clipped_updates_of_one_step_are_those_of_one_rank(build: Build) -> None:
    one, two = (build(ranks, minibatch=3, grad_clip=0.5, weight_decay=0.1) for ranks in (1, 2))
    ours, theirs = one.step(uneven(8), seed=1), two.step(uneven(8), seed=1)
    assert ours.updates == theirs.updates == 3
    assert (ours.loss, ours.grad_norm) == pytest.approx((theirs.loss, theirs.grad_norm), rel=1e-4)
    same(one, two)


@pytest.mark.parametrize("packing", ["tree", "rows"])
def test_a_rank_with_nothing_to_do_changes_nothing(build: Build, packing: str) -> None:
    batch = rollouts(1)
    one, two = (build(ranks, packing=packing, micro_batch_tokens=4) for ranks in (1, 2))
    ours, theirs = one.step(batch, seed=0), two.step(batch, seed=0)
    assert (ours.loss, ours.grad_norm) == pytest.approx((theirs.loss, theirs.grad_norm), rel=1e-5)
    same(one, two)


def test_grpo_and_its_figures_are_those_of_one_rank(build: Build) -> None:
    batch = [
        [Sample(s.token_ids, s.loss_mask, 1.5 - i, tuple(-3.0 * on for on in s.loss_mask))]
        for i, (s,) in enumerate(rollouts(5))
    ]
    one, two = (build(ranks, GRPO().loss) for ranks in (1, 2))
    ours, theirs = one.step(batch, seed=0), two.step(batch, seed=0)
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-4)
    assert ours.metrics == pytest.approx(theirs.metrics, rel=1e-4)
    assert ours.metrics["clipped"] > 0
    same(one, two)


def test_rates_are_those_of_one_rank_also_from_a_checkpoint_of_another_number(build: Build, tmp_path: Path) -> None:
    changes = {"rate_schedule": "linear", "warmup_updates": 2, "decay_updates": 4, "minibatch": 2}
    for first, then in ((1, 2), (2, 1)):
        (folder := tmp_path / str(first)).mkdir()
        learner = build(first, **changes)
        found = [learner.step(uneven(n), seed=n).learning_rate for n in (3, 0, 5)]
        # Updates 1 to 5: 1/3, 2/3 and all of the rate, then less by a quarter of 0.9 each. Of a step the last is told.
        assert found == [pytest.approx(1e-2 * 2 / 3), None, pytest.approx(1e-2 * 0.55)]
        learner.save(folder)
        later = build(then, **changes)
        later.load(folder)
        assert later.step(uneven(1), seed=9).learning_rate == pytest.approx(1e-2 * 0.325)
        assert later.step(uneven(3), seed=9).learning_rate == pytest.approx(1e-2 * 0.1)


@pytest.mark.parametrize("batch", [[], [[]], [[Sample((1, 2, 3), (False,) * 3)]]])
def test_nothing_passed_is_a_step_without_an_update(build: Build, batch: Any) -> None:
    learner = build(2)
    before = learner.trainer_digest()
    result = learner.step(batch, seed=0)
    assert (result.loss, result.updates, learner.steps) == (None, 0, 1)
    assert learner.trainer_digest() == before


def poisoned(n: int) -> list[list[Sample]]:
    """Rollouts of which the second alone has the poison to train on."""
    return [
        [Sample(s.token_ids, s.loss_mask, POISON if i == 1 else 1.0, (0.0,) * len(s.token_ids))]
        for i, (s,) in enumerate(rollouts(n))
    ]


@pytest.mark.parametrize("loss, words", [("nan_at_the_poison", "the loss"), ("steep_at_the_poison", "the gradient")])
def test_what_is_not_finite_on_one_rank_leaves_all_ranks_as_they_were(build: Build, loss: str, words: str) -> None:
    learner, twin = (build(ranks, getattr(ranked_losses, loss), minibatch=2) for ranks in (2, 1))
    clean = poisoned(6)[2:]
    for one in (learner, twin):
        one.step(clean, seed=0)
    before = learner.trainer_digest()
    with pytest.raises(WhaleError, match=rf"^cycle 1, step 4, update [23] of 3: {words}") as caught:
        learner.step(poisoned(6), seed=2, label="cycle 1, step 4")
    assert "\n" not in str(caught.value)
    assert learner.trainer_digest() == before
    assert learner.steps == 1
    for one in (learner, twin):
        one.step(clean, seed=1)
    same(learner, twin)


def test_samples_of_another_model_are_refused_by_all_ranks_and_they_go_on(build: Build) -> None:
    learner = build(2)
    with pytest.raises(WhaleError, match="outside the model's 48"):
        learner.step([[Sample((1, VOCABULARY), (False, True))]], seed=0)
    assert learner.step(rollouts(2), seed=0).updates == 1


def test_logprobs_are_those_of_one_rank_and_training_goes_on(build: Build) -> None:
    one, two = build(1), build(2)
    for learner in (one, two):
        learner.step(rollouts(3), seed=0)
    ids = [[3, 1, 4, 1, 5], [7], [2, 7]]
    for ours, theirs in zip(one.logprobs(ids), two.logprobs(ids), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-3)
    for learner in (one, two):
        learner.step(rollouts(3), seed=1)
    same(one, two)


@pytest.mark.parametrize("first, then", [(1, 2), (2, 1)])
def test_a_checkpoint_loads_on_another_number_of_ranks_with_equal_digests(
    build: Build, tmp_path: Path, first: int, then: int
) -> None:
    one = build(first)
    one.step(uneven(5), seed=0)
    digests = one.save(tmp_path)
    assert digests == {"weights": one.weights_digest(), "trainer": one.trainer_digest()}
    saved = one.state_dict()
    two = build(then, lr=1e-3)
    two.load(tmp_path)
    assert {"weights": two.weights_digest(), "trainer": two.trainer_digest()} == digests
    assert all(torch.equal(tensor, saved[name]) for name, tensor in two.state_dict().items())
    assert two.steps == 1
    beside = Trainer(tiny_llama(), settings_of(lr=1e-3))
    beside.load(tmp_path)
    for learner in (two, beside):
        learner.step(uneven(5), seed=1)
    same(two, beside)


def test_a_checkpoint_of_another_model_is_refused_by_all_ranks_and_nothing_has_changed(
    build: Build, tmp_path: Path
) -> None:
    other = Trainer(tiny_llama(hidden_size=16), settings_of())
    other.step(rollouts(2), seed=0)
    other.save(tmp_path)
    learner = build(2)
    before = learner.trainer_digest()
    with pytest.raises(WhaleError, match="of another model"):
        learner.load(tmp_path)
    assert learner.trainer_digest() == before


@pytest.mark.parametrize(
    "loss, cause", [("killed_at_the_poison", "killed by signal 9"), ("broken_at_the_poison", "no room for the poison")]
)
def test_a_rank_that_dies_in_the_middle_of_an_update_ends_all_with_one_line(
    folders: dict[bool, Path], loss: str, cause: str
) -> None:
    crew = Crew(2, "cpu")
    learner = crew.trainer(folders[True], settings_of(micro_batch_tokens=4), getattr(ranked_losses, loss))
    processes = [psutil.Process(pid) for pid in crew.pids]
    with pytest.raises(
        WhaleError, match=rf"^rank [01] of the trainer's 2 has ended \(.*{cause}.*whale resume"
    ) as caught:
        learner.step(poisoned(4), seed=0)
    assert "\n" not in str(caught.value)
    assert not any(process.is_running() for process in processes)
    with pytest.raises(WhaleError, match="have ended"):
        learner.step(rollouts(2), seed=0)


def test_no_rank_and_no_file_outlives_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "from whale.weights.ranks import Crew\n"
        "import time\n"
        "crew = Crew(2, 'cpu')\n"
        "print(*crew.pids, flush=True)\n"
        "time.sleep(600)"
    )  # fmt: skip
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert parent.stdout is not None
    ranks = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
    assert len(ranks) == 2
    assert all(rank.is_running() for rank in ranks)
    assert list(tmp_path.glob("whale-ranks-*"))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(ranks, timeout=60)
    assert not alive
    assert not list(tmp_path.glob("whale-ranks-*"))


@pytest.mark.parametrize("device", ["cuda:1", "cpu:0"])
def test_a_device_of_one_rank_is_refused_for_several(device: str) -> None:
    with pytest.raises(UsageError, match="rank i takes device i"):
        Crew(2, device)


@pytest.mark.skipif(torch.cuda.device_count() > 63, reason="has the devices")
def test_more_ranks_than_devices_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^weights.ranks = 64: this machine has \d+ CUDA devices"):
        Crew(64, "cuda")


@st.composite
def samples(draw: st.DrawFn) -> list[Sample]:
    result = []
    for _ in range(draw(st.integers(0, 9))):
        ids = tuple(draw(st.lists(st.integers(0, 2), min_size=2, max_size=12)))
        mask = draw(st.lists(st.booleans(), min_size=len(ids) - 1, max_size=len(ids) - 1))
        result.append(Sample(ids, (False, *mask)))
    return result


@settings(max_examples=200, deadline=None)
@given(update=samples(), ranks=st.integers(1, 5), shared=st.booleans())
def test_each_trained_sample_is_dealt_to_one_rank_and_ranks_are_even(
    update: list[Sample], ranks: int, shared: bool
) -> None:
    parts = deal(update, ranks, shared)
    trained = [sample for sample in update if sample.trained]
    assert len(parts) == ranks
    assert sorted(map(repr, flat(parts))) == sorted(map(repr, trained))
    assert deal(update[::-1], ranks, shared) == parts
    pack = pack_trees if shared else pack_rows

    def nodes(part: list[Sample]) -> int:
        return sum(layout.nodes for layout in pack(part, 10**6))

    longest = max((nodes([sample]) for sample in trained), default=0)
    # Cutting where a part is full leaves none longer than its share and one sample.
    assert max(map(nodes, parts)) <= nodes(trained) / ranks + longest


def test_the_benchmark_finds_the_gradients_of_one_and_two_ranks_equal() -> None:
    program = Path(__file__).parents[2] / "benchmarks" / "ranks.py"
    arguments = [sys.executable, str(program), "--device", "cpu", "--tiny", "--repeat", "1"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert ": equal" in done.stdout and "2 ranks train" in done.stdout
