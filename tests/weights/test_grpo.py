import copy
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from tests.weights.conftest import VOCABULARY, tiny_llama
from tests.weights.test_rsft import assert_gradients_close
from tests.weights.test_samples import rollout, turn
from whale.config import WeightsConfig
from whale.errors import WhaleError
from whale.rollout.types import Trajectory
from whale.weights.grpo import GRPO, advantages
from whale.weights.method import WeightMethod, method_of
from whale.weights.objective import Objective
from whale.weights.trainer import Trainer, TrainerConfig
from whale.weights.types import Sample

LOW, HIGH = 0.2, 0.3
END = 2


def reference(
    model: PreTrainedModel, samples: Sequence[Sample], low: float = LOW, high: float = HIGH
) -> tuple[float, dict[str, torch.Tensor]]:
    """L(θ) and its gradient in float64, one token at a time, as the equation is written."""
    exact = copy.deepcopy(model).double()
    exact.set_attn_implementation("eager")
    total = torch.zeros((), dtype=torch.float64)
    for sample in samples:
        logp = exact(input_ids=torch.tensor([sample.token_ids])).logits[0].log_softmax(-1)
        assert sample.advantage is not None
        for t, on in enumerate(sample.loss_mask):
            if on:
                ratio = (logp[t - 1, sample.token_ids[t]] - sample.logprobs[t]).exp()
                clipped = min(max(ratio.item(), 1 - low), 1 + high)
                if ratio.item() * sample.advantage <= clipped * sample.advantage:
                    total = total - ratio * sample.advantage
                else:
                    total = total - clipped * sample.advantage
    loss = total / sum(sample.trained for sample in samples)
    if loss.requires_grad:
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return loss.item(), {
        n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in exact.named_parameters() if p.requires_grad
    }


def own_logprobs(model: PreTrainedModel, ids: Sequence[int]) -> tuple[float, ...]:
    """What the model itself says: 0 for the first token."""
    with torch.no_grad():
        logp = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    return (0.0, *(float(logp[t - 1, ids[t]]) for t in range(1, len(ids))))


@st.composite
def rated_samples(draw: st.DrawFn) -> list[Sample]:
    """Samples whose recorded logprobs are up to a factor of e away from the model's; contexts often repeat."""
    model = tiny_llama()
    samples = []
    for _ in range(draw(st.integers(1, 6))):
        ids = tuple(draw(st.lists(st.integers(0, 3), min_size=2, max_size=12)))
        mask = (False, *draw(st.lists(st.booleans(), min_size=len(ids) - 1, max_size=len(ids) - 1)))
        shifts = draw(st.lists(st.sampled_from([-1.0, -0.1, 0.1, 1.0]), min_size=len(ids), max_size=len(ids)))
        recorded = tuple(own + shift for own, shift in zip(own_logprobs(model, ids), shifts, strict=True))
        samples.append(Sample(ids, mask, draw(st.sampled_from([-1.5, -0.5, 0.5, 1.0])), recorded))
    if not any(sample.trained for sample in samples):
        samples.append(Sample((1, 2), (False, True), 1.0, (0.0, -3.0)))
    return samples


@pytest.mark.parametrize("packing", ["tree", "rows"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(samples=rated_samples(), capacity=st.integers(1, 60))
def test_loss_and_gradient_are_those_of_the_equation_however_the_samples_are_packed(
    packing: Literal["tree", "rows"], samples: list[Sample], capacity: int
) -> None:
    torch.set_num_threads(1)
    model = tiny_llama()
    expected_loss, expected = reference(model, samples)
    objective = Objective(model, torch.float32, capacity, packing)
    method = GRPO(clip_low=LOW, clip_high=HIGH)
    tokens = sum(sample.trained for sample in samples)
    loss = 0.0
    for layout in objective.layouts(samples):
        part = method.loss(objective.terms(layout)).total / tokens
        part.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        loss += part.item()
    assert loss == pytest.approx(expected_loss, rel=1e-4, abs=1e-5)
    assert_gradients_close(model, expected)


def test_where_nothing_has_changed_since_sampling_the_gradient_is_the_policy_gradient() -> None:
    model, draw = tiny_llama(), random.Random(4)
    samples, plain = [], torch.zeros(())
    for advantage in (1.2, -0.4, -0.8):
        ids = tuple(draw.randrange(VOCABULARY) for _ in range(9))
        samples.append(Sample(ids, (False,) * 3 + (True,) * 6, advantage, own_logprobs(model, ids)))
        logp = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        plain = plain - advantage * torch.stack([logp[t - 1, ids[t]] for t in range(3, 9)]).sum()
    (plain / 18).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    expected = {
        name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    learner = Trainer(tiny_llama(), TrainerConfig(dtype="float32", device="cpu", grad_clip=None), GRPO().loss)
    loss, _, sums = learner._gradient(samples, 18, "here")
    assert_gradients_close(learner.model, expected)
    assert loss == pytest.approx(0.0, abs=1e-6), "the advantages, weighted by tokens, sum to 0"
    assert sums["clipped"] == 0
    assert sums["log_ratio"] / 18 < 1e-5


@pytest.mark.parametrize(
    "advantage, ratio, moves",
    [(1.0, 1.4, False), (1.0, 1.2, True), (1.0, 0.5, True), (-1.0, 0.5, False), (-1.0, 0.9, True), (-1.0, 1.4, True)],
)
def test_the_clip_stops_a_token_only_in_the_direction_in_which_it_has_gone_far_enough(
    advantage: float, ratio: float, moves: bool
) -> None:
    model = tiny_llama()
    recorded = own_logprobs(model, (1, 2))[1] - math.log(ratio)
    learner = Trainer(model, TrainerConfig(device="cpu", dtype="float32"), GRPO(clip_low=LOW, clip_high=HIGH).loss)
    _, norm, sums = learner._gradient([Sample((1, 2), (False, True), advantage, (0.0, recorded))], 1, "here")
    assert (norm > 0) is moves
    assert sums == {"clipped": float(not moves), "log_ratio": pytest.approx(abs(math.log(ratio)), abs=1e-5)}


@pytest.mark.parametrize("advantage, recorded", [(1.0, -2000.0), (-1.0, -2000.0), (1.0, 0.0), (-1.0, 0.0)])
def test_a_recorded_logprob_far_from_the_models_gives_no_nan(advantage: float, recorded: float) -> None:
    learner = Trainer(tiny_llama(), TrainerConfig(device="cpu", dtype="float32"), GRPO().loss)
    result = learner.step([[Sample((1, 2), (False, True), advantage, (0.0, recorded))]], seed=0)
    assert result.loss is not None
    assert all(math.isfinite(figure) for figure in (result.loss, result.grad_norm or 0.0, *result.metrics.values()))
    assert all(torch.isfinite(tensor).all() for tensor in learner.state_dict().values())


def of(task: str, reward: float, *, sample: int = 0, **changes: Any) -> Trajectory:
    made = rollout(turn((1, 5), (3, END)), reward=reward)
    return Trajectory(task, sample, 0, made.turns, (), "ok", "", 0, reward=reward, **changes)


def test_advantages_by_hand() -> None:
    # Question a: mean 1/4, std sqrt(3)/4. Question b: all fail. Question c: all pass. d: partial rewards.
    a = [of("a", 1.0), of("a", 0.0), of("a", 0.0), of("a", 0.0)]
    d = [of("d", 0.2), of("d", 0.6)]
    got = advantages([*a, of("b", 0.0), of("b", 0.0), of("c", 1.0), of("c", 1.0), *d])
    assert got[:4] == [pytest.approx(math.sqrt(3))] + [pytest.approx(-1 / math.sqrt(3))] * 3
    assert got[4:8] == [None] * 4
    assert got[8:] == [pytest.approx(-1.0), pytest.approx(1.0)]


def test_a_spread_too_small_for_a_number_is_none() -> None:
    assert advantages([of("a", 0.0), of("a", 1e-300)]) == [None, None]


def test_rollouts_of_a_question_are_its_group_wherever_they_stand_in_the_step() -> None:
    mixed = [of("a", 1.0), of("b", 0.0), of("a", 0.0), of("b", 1.0)]
    assert advantages(mixed) == [1.0, -1.0, -1.0, 1.0]


@given(st.lists(st.integers(0, 10).map(lambda tenths: tenths / 10), min_size=2, max_size=12), st.randoms())
def test_a_groups_advantages_have_mean_0_and_variance_1_and_do_not_depend_on_the_order(
    rewards: list[float], shuffle: Any
) -> None:
    got = advantages([of("a", reward) for reward in rewards])
    if len(set(rewards)) == 1:
        assert got == [None] * len(rewards)
        return
    order = list(range(len(rewards)))
    shuffle.shuffle(order)
    again = advantages([of("a", rewards[i]) for i in order])
    assert again == [got[i] for i in order]
    values = [value for value in got if value is not None]
    assert math.fsum(values) / len(values) == pytest.approx(0, abs=1e-6)
    assert math.fsum(value**2 for value in values) / len(values) == pytest.approx(1, rel=1e-6)


def test_what_is_dropped_is_counted_by_the_rule_and_still_counts_in_its_group() -> None:
    long = turn((1, 5), (3, 4), "length")
    truncated = Trajectory("a", 1, 0, (long,), (), "ok", "", 0, reward=0.0)
    errored = Trajectory("a", 2, 0, (turn((1, 5), (3, END)),), (), "raised", "", None, reward=0.0)
    empty = Trajectory("a", 3, 0, (turn((1, 5), (END,), text=" "),), (), "ok", "", 0, reward=0.0)
    step = [of("a", 1.0), truncated, errored, empty, of("b", 0.0), of("b", 0.0)]
    chosen = GRPO().select(step)
    assert chosen.dropped == {"empty": 1, "errored": 1, "same_reward": 2, "truncated": 1}
    ((sample,),) = chosen.rollouts
    assert sample.advantage == pytest.approx(math.sqrt(3)), "one of four passed, the three that are dropped included"
    by_paper = GRPO(filters="paper").select(step)
    assert (len(by_paper.rollouts), by_paper.dropped) == (4, {"same_reward": 2})


def test_failed_rollouts_are_trained_on_too_with_the_logprobs_of_sampling() -> None:
    good, bad = GRPO().select([of("a", 1.0), of("a", 0.0)]).rollouts
    assert [(s.advantage, s.logprobs) for s in (*good, *bad)] == [(1.0, (0, 0, -1, -1)), (-1.0, (0, 0, -1, -1))]


def test_a_step_without_spread_makes_no_update_and_counts() -> None:
    learner = Trainer(tiny_llama(), TrainerConfig(device="cpu", dtype="float32"), GRPO().loss)
    before = learner.weights_digest()
    chosen = GRPO().select([of("a", 0.0), of("a", 0.0), of("b", 1.0), of("b", 1.0)])
    result = learner.step(chosen.rollouts, seed=0)
    assert (result.loss, result.updates, result.metrics) == (None, 0, {})
    assert (learner.weights_digest(), learner.steps, chosen.dropped) == (before, 1, {"same_reward": 4})


def sampled(model: PreTrainedModel, outputs: Mapping[tuple[int, ...], float]) -> list[list[Sample]]:
    prompt = (1, 7, 9)
    return [
        [
            Sample(
                prompt + output,
                (False,) * 3 + (True,) * len(output),
                advantage,
                own_logprobs(model, prompt + output),
            )
        ]
        for output, advantage in outputs.items()
    ]


def test_steps_make_the_better_rollout_likelier_and_the_worse_one_less_likely_and_the_clip_ends_it() -> None:
    better, worse = (1, 7, 9, 11, END), (1, 7, 9, 12, END)
    learner = Trainer(tiny_llama(), TrainerConfig(lr=3e-3, device="cpu", dtype="float32"), GRPO().loss)
    batch = sampled(tiny_llama(), {better[3:]: 1.0, worse[3:]: -1.0})
    start = learner.logprobs([better, worse])
    results = [learner.step(batch, seed=step) for step in range(12)]
    end = learner.logprobs([better, worse])
    assert sum(end[0][2:]) > sum(start[0][2:])
    assert sum(end[1][2:]) < sum(start[1][2:])
    assert results[0].metrics["clipped"] == 0
    assert results[-1].metrics["clipped"] > 0.5, "the same rollouts can be used up"


def test_a_loss_that_is_not_finite_leaves_everything_untouched() -> None:
    learner = Trainer(tiny_llama(), TrainerConfig(device="cpu", dtype="float32"), GRPO().loss)
    before = learner.trainer_digest()
    with pytest.raises(WhaleError, match=r"^step 1, update 1 of 1: the loss is nan"):
        learner.step([[Sample((1, 2), (False, True), math.nan, (0.0, -1.0))]], seed=0)
    assert learner.trainer_digest() == before


def test_equal_rollouts_give_equal_digests_and_a_checkpoint_goes_on_as_if_never_left(tmp_path: Any) -> None:
    def build() -> Trainer:
        return Trainer(tiny_llama(), TrainerConfig(lr=1e-2, minibatch=2, threads=1, device="cpu"), GRPO().loss)

    batch = sampled(tiny_llama(), {(11, END): 1.0, (12, END): -1.0, (13, 14, END): 0.5})
    one, two = build(), build()
    one.step(batch, seed=1)
    one.save(tmp_path)
    two.load(tmp_path)
    assert one.step(batch, seed=2) == two.step(batch, seed=2)
    assert one.trainer_digest() == two.trainer_digest()


def test_the_config_names_the_method() -> None:
    config = WeightsConfig(method="grpo", filters="paper", train_turns="answer", clip_low=0.1, clip_high=0.28)
    expected: WeightMethod = GRPO("paper", "answer", 0.1, 0.28)
    assert method_of(config) == expected
    assert method_of(WeightsConfig()).name == "rsft"
