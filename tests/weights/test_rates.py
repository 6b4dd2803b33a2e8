import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.weights.conftest import rollouts
from whale.errors import UsageError
from whale.weights.rates import rates
from whale.weights.trainer import Trainer, TrainerConfig
from whale.weights.types import Sample

Build = Callable[..., Trainer]
EMPTY: list[list[Sample]] = []
LINEAR = {"lr": 2**-7, "rate_schedule": "linear", "warmup_updates": 1, "decay_updates": 4, "decay_to": 0.0}
AS_LINEAR = [2**-8, 2**-7, 3 * 2**-9, 2**-8, 2**-9, 0.0, 0.0]
"""LINEAR's rates, by hand: 1/2 of lr in the warm-up, then 1, 3/4, 1/2, 1/4 and 0."""


def seen_by(learner: Trainer) -> list[float]:
    """The rate that AdamW has at each of the trainer's updates from now on."""
    seen: list[float] = []
    learner._optimizer.register_step_pre_hook(lambda adamw, *_: seen.append(adamw.param_groups[0]["lr"]))
    return seen


def digests(learner: Trainer) -> tuple[str, str]:
    return learner.weights_digest(), learner.trainer_digest()


@pytest.mark.parametrize(
    "schedule, warmup, decay, decay_to, expected",
    [
        ("constant", 3, 0, 0.1, [0.125, 0.25, 0.375, 0.5, 0.5, 0.5]),
        ("linear", 0, 4, 0.0, [0.5, 0.375, 0.25, 0.125, 0.0, 0.0]),
        ("linear", 1, 2, 0.5, [0.25, 0.5, 0.375, 0.25, 0.25]),
        ("linear", 0, 1, 1.0, [0.5, 0.5, 0.5]),
        ("cosine", 0, 4, 0.0, [0.5, 0.4267766953, 0.25, 0.0732233047, 0.0, 0.0]),  # (1 + cos(iπ/4)) / 4
        ("cosine", 2, 2, 0.2, [0.5 / 3, 1.0 / 3, 0.5, 0.3, 0.1, 0.1]),
    ],
)
def test_rates_by_hand(schedule: Any, warmup: int, decay: int, decay_to: float, expected: list[float]) -> None:
    rate = rates(0.5, schedule, warmup, decay, decay_to)
    assert rate is not None
    assert [rate(made) for made in range(len(expected))] == pytest.approx(expected, abs=1e-10)
    assert rate(10**6) == pytest.approx(expected[-1])


def test_each_update_has_its_rate_within_a_step_too(trainer: Build) -> None:
    learner = trainer(minibatch=2, **LINEAR)
    seen = seen_by(learner)
    results = [learner.step(rollouts(n, seed=n), seed=n) for n in (5, 2, 6)]  # 3, 1 and 3 updates
    assert seen == AS_LINEAR
    assert [result.learning_rate for result in results] == [3 * 2**-9, 2**-8, 0.0]


def test_a_schedule_trains_as_trainers_of_its_rates_one_after_the_other_do(trainer: Build) -> None:
    learner = trainer(weight_decay=0.1, **LINEAR)
    before = trainer()
    for number, rate in enumerate(AS_LINEAR):
        other = trainer(lr=rate, weight_decay=0.1)
        other.go_on_from(before)
        for one in (learner, other):
            one.step(rollouts(3, seed=number), seed=number)
        assert digests(learner) == digests(other)
        before = other


def test_a_step_without_an_update_moves_no_rate(trainer: Build) -> None:
    learner = trainer(**LINEAR)
    seen = seen_by(learner)
    results = [learner.step(batch, seed=0) for batch in (EMPTY, rollouts(2), EMPTY, EMPTY, rollouts(2))]
    assert seen == AS_LINEAR[:2]
    assert [result.learning_rate for result in results] == [None, 2**-8, None, None, 2**-7]


def test_a_step_that_is_undone_puts_the_rate_back(trainer: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, twin = trainer(minibatch=2, **LINEAR), trainer(minibatch=2, **LINEAR)
    for one in (learner, twin):
        one.step(rollouts(2), seed=0)
    whole, calls = learner._gradient, iter(range(9))

    def failing(*arguments: Any) -> tuple[float, float, Mapping[str, float]]:
        if next(calls) == 2:
            raise MemoryError
        return whole(*arguments)

    seen = seen_by(learner)
    monkeypatch.setattr(learner, "_gradient", failing)
    with pytest.raises(MemoryError):
        learner.step(rollouts(6), seed=1)
    monkeypatch.undo()
    assert learner.step(rollouts(6), seed=1) == twin.step(rollouts(6), seed=1)
    assert seen == AS_LINEAR[1:3] + AS_LINEAR[1:4]
    assert digests(learner) == digests(twin)


@pytest.mark.parametrize("how", ["loaded", "taken over"])
@pytest.mark.parametrize("made", [0, 3])
def test_a_trainer_that_goes_on_from_another_has_the_rate_that_was_there(
    trainer: Build, tmp_path: Path, how: str, made: int
) -> None:
    whole, later = trainer(**LINEAR), trainer(seed=1, **LINEAR)
    for number in range(made):
        whole.step(rollouts(3, seed=number), seed=number)
        whole.step(EMPTY, seed=number)
    later.step(rollouts(3), seed=0)  # a count of its own, until it goes on from the other's
    if how == "loaded":
        whole.save(tmp_path)
        later.load(tmp_path)
    else:
        later.go_on_from(whole)
    seen = seen_by(later)
    for number in range(made, 6):
        assert later.step(rollouts(3, seed=number), seed=number) == whole.step(rollouts(3, seed=number), seed=number)
        assert digests(later) == digests(whole)
    assert seen == AS_LINEAR[made:6]


def test_a_checkpoint_from_before_there_were_schedules_says_how_many_updates_it_has(
    trainer: Build, tmp_path: Path
) -> None:
    older = trainer(lr=2**-7, minibatch=2)
    older.step(rollouts(4), seed=0)
    older.step(EMPTY, seed=1)
    older.save(tmp_path)
    path = tmp_path / "trainer.json"
    summary = json.loads(path.read_text())
    config = {key: value for key, value in summary["config"].items() if key not in LINEAR}
    path.write_text(json.dumps(summary | {"config": config}))
    learner = trainer(**LINEAR)
    learner.load(tmp_path)
    assert learner.step(rollouts(3), seed=2).learning_rate == AS_LINEAR[2]


def test_without_a_schedule_an_update_is_adamws_to_the_bit_and_records_no_rate(trainer: Build) -> None:
    learner, twin = trainer(weight_decay=0.1), trainer(weight_decay=0.1)
    model = copy.deepcopy(twin.model)
    plain = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1, fused=True)
    for number in range(3):
        (update,) = rollouts(1, seed=number)
        twin._gradient(update, sum(sample.trained for sample in update), "")
        for mine, theirs in zip(model.parameters(), twin.model.parameters(), strict=True):
            mine.grad = theirs.grad
        plain.step()
        result = learner.step(rollouts(1, seed=number), seed=number)
        assert result.learning_rate is None
        twin = trainer(weight_decay=0.1)
        twin.go_on_from(learner)
        found = dict(learner.model.named_parameters())
        assert all(torch.equal(found[name], tensor) for name, tensor in model.named_parameters())


@pytest.mark.parametrize(
    "bad",
    [
        {"rate_schedule": "steps"},
        {"rate_schedule": "linear"},
        {"rate_schedule": "cosine", "decay_updates": 0},
        {"rate_schedule": "cosine", "decay_updates": 5, "decay_to": 1.5},
        {"warmup_updates": -1},
        {"decay_updates": -1},
    ],
)
def test_a_schedule_that_no_trainer_can_follow_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^trainer: rate_schedule"):
        TrainerConfig(**bad)
