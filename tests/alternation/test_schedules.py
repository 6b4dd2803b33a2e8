"""Each schedule against a trace that was computed by hand, and what must hold for any of them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.alternation.test_decide import Machine, Recorded, config
from whale.alternation import decide as d
from whale.alternation import schedule
from whale.alternation.state import State, reduce
from whale.config import Config
from whale.errors import UsageError
from whale.events import types as ev

N = 7
"""Questions of D_weight in `Machine`."""


def phases(machine: Machine) -> list[str]:
    return [entry for entry in machine.trace if entry.endswith(("/started", "/ended")) or entry == "stage/selected"]


def proposals(machine: Machine) -> list[str]:
    return [entry.removeprefix("propose ") for entry in machine.trace if entry.startswith("propose")]


class Remembering(Machine):
    """Keeps what it recorded."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self.seen: list[Recorded] = []
        super().__init__(*arguments, **more)

    def record(self, event: ev.Event, key: str = "", stream: str = "run") -> None:
        self.seen.append(Recorded(event, key, stream, len(self.seen) + 1))
        self.state = reduce(self.state, self.seen[-1])

    def ended(self, key: str) -> ev.PhaseEnded:
        return next(r.event for r in self.seen if r.key == f"{key}/ended" and isinstance(r.event, ev.PhaseEnded))

    def trained(self) -> list[tuple[int, int]]:
        return [(r.event.cycle, r.event.step) for r in self.seen if isinstance(r.event, ev.StepTrained)]


def adaptive(**schedule_: Any) -> Config:
    """Seven questions, one a step: W = T_min = P_w = 0.29 epoch is ⌈0.29 · 7⌉ = 3 steps."""
    own = {
        "kind": "adaptive", "cycles": 1, "window_epochs": "0.29", "min_epochs": "0.29", "patience_epochs": "0.29",
        "max_epochs": "2", "min_iterations": 2, "patience_iterations": 2, "max_iterations": 5,
    }  # fmt: skip
    return config(schedule=own | schedule_, weights={"batch": 1})


# --- adaptive: weight phases ---


def test_a_weight_phase_ends_three_steps_after_the_highest_mean_reward() -> None:
    """Rewards of 4:  0   1   2   3   3   2   2   2.  Means of the last three steps, in quarters:
    0, 1/2, 1, 2, 8/3, 8/3 (no new maximum), 7/3, 2: highest at step 5, so step 8 is the last."""
    passed = {(1, step): value for step, value in enumerate([0, 1, 2, 3, 3, 2, 2, 2, 4, 4], 1)}
    machine = Remembering(adaptive(), passed=passed)
    machine.run()
    assert machine.trained() == [(1, step) for step in range(1, 9)]
    ended = machine.ended("c001/weight")
    assert ended.reason == "patience: the mean reward of 3 steps was highest, 0.6667, 3 steps ago"
    assert ended.sampled == 8
    assert "checkpoint c001-s0008 end" in machine.trace


def test_no_phase_ends_before_its_least_length() -> None:
    """Rewards only fall: the maximum is at step 1; patience is over at step 4, T_min of 6 steps rules."""
    passed = {(1, step): max(0, 4 - step) for step in range(1, 20)}
    machine = Remembering(adaptive(min_epochs="0.8"), passed=passed)
    machine.run()
    assert machine.trained()[-1] == (1, 6)


def test_a_reward_that_rises_for_ever_meets_the_cap() -> None:
    """Two epochs of seven questions."""
    machine = Remembering(adaptive(window_epochs="0.1"), passed={(1, s): s for s in range(1, 30)})
    machine.run()
    assert machine.trained()[-1] == (1, 14)
    assert machine.ended("c001/weight").reason == "budget"


def test_equal_means_are_no_new_maximum() -> None:
    """The comparison is strict: a flat reward is highest at step 1, and step 4 is the last."""
    machine = Remembering(adaptive(), passed={})
    machine.run()
    assert machine.trained()[-1] == (1, 4)


def test_the_next_phase_samples_on_from_where_patience_ended_the_last() -> None:
    machine = Remembering(adaptive(cycles=3))
    machine.run()
    taken = [
        r.event.batch for r in machine.seen if isinstance(r.event, ev.RolloutsRecorded) and r.event.purpose == "train"
    ]
    assert machine.trained() == [(c, s) for c in (1, 2, 3) for s in (1, 2, 3, 4)]
    assert [machine.ended(f"c00{c}/weight").sampled for c in (1, 2, 3)] == [4, 8, 12]
    assert len(taken) == 12


# --- adaptive: harness phases ---


@pytest.mark.parametrize(
    "best, counts, over",
    [
        ([0.1, 0.2], False, False),  # one round, J_min = 2
        ([0.1, 0.1, 0.1], False, True),  # two rounds without a new best
        ([0.1, 0.2, 0.2], False, False),  # the new best is one round old
        ([0.1, 0.2, 0.2, 0.2], False, True),
        ([0.1, 0.2, 0.3, 0.3], False, False),
        ([0.1, 0.1], True, False),  # one round and the incoming: J_min reached, patience not
        ([0.1, 0.1, 0.1], True, True),
    ],
)
def test_a_harness_phase_ends_when_the_best_is_two_iterations_old(best: list[float], counts: bool, over: bool) -> None:
    assert bool(schedule.harness_patience(best, adaptive(count_incoming=counts))) is over


def test_a_harness_phase_follows_its_archive() -> None:
    """Incoming 0; round 1 brings 0.25, round 2 brings 0.5, rounds 3 and 4 nothing better."""
    scores = {"c1i1m1": 0.25, "c1i2m2": 0.5, "c1i3m1": 0.5, "c1i4m1": 0.25}
    machine = Remembering(adaptive(), scores)
    machine.run()
    assert [e for e in machine.trace if e.startswith("propose")] == [
        "propose 1.1",
        "propose 1.2",
        "propose 1.3",
        "propose 1.4",
    ]
    assert machine.ended("c001/harness").reason == "patience: the best score, 0.5000, was reached 2 iterations ago"
    assert "accept 1 c1i2m2" in machine.trace


def test_a_score_that_always_rises_meets_the_cap_of_iterations() -> None:
    machine = Remembering(adaptive(), {f"c1i{i}m1": i / 10 for i in range(1, 9)})
    machine.run()
    assert proposals(machine)[-1] == "1.5"
    assert machine.ended("c001/harness").reason == "budget"


# --- one side only ---


def test_weight_only_never_proposes_and_harness_only_never_trains() -> None:
    weight = Remembering(config(schedule={"kind": "weight-only", "cycles": 2}))
    weight.run()
    assert proposals(weight) == []
    assert weight.trained() == [(1, 1), (1, 2), (2, 1), (2, 2)]
    harness = Remembering(config(schedule={"kind": "harness-only", "cycles": 2}))
    harness.run()
    assert harness.trained() == []
    assert harness.state.sampled == 0
    assert [e for e in harness.trace if e.startswith("propose")] == [
        "propose 1.1",
        "propose 1.2",
        "propose 2.1",
        "propose 2.2",
    ]


def test_while_no_weights_are_trained_the_search_goes_on_in_one_archive() -> None:
    """The incoming harness is scored once; c1i2m1 stays the best to beat, and the seeds stay the same."""
    scores = {"h0": 0.1, "c1i2m1": 0.5, "c2i1m1": 0.4}
    machine = Remembering(config(schedule={"kind": "harness-only", "cycles": 2}), scores)
    machine.run()
    assert [e for e in machine.trace if e.startswith("score h0")] == ["score h0 0"]
    assert not [e for e in machine.trace if e.startswith("score c1i2m1") and e != "score c1i2m1 2"]
    assert [e for e in machine.trace if e.startswith("accept")] == ["accept 0 h0", "accept 1 c1i2m1"]
    assert set(machine.state.phase_scores) >= {"h0", "c1i1m1", "c1i2m1", "c2i2m2"}


def test_after_training_each_phase_has_an_archive_of_its_own() -> None:
    machine = Remembering(config(), {"c1i1m1": 0.5})
    machine.run()
    assert set(machine.state.phase_scores) == {"c1i1m1", "c2i1m1", "c2i1m2", "c2i2m1", "c2i2m2"}


# --- stagewise ---


def test_stagewise_searches_on_the_best_training_point() -> None:
    """Three weight phases with success 0.2, 0.6, 0.4; E* is the second. Then two searches: 0.7, 0.8; I* the second."""
    success = {"w0": 0.1, "w1.2": 0.2, "w2.2": 0.6, "w3.2": 0.4}
    machine = Remembering(
        config(schedule={"kind": "stagewise", "weight_cycles": 3, "harness_cycles": 2, "iterations": 1}),
        {"c4i1m1": 0.7, "c5i1m2": 0.8},
        success=success,
    )
    machine.run()
    assert phases(machine) == [
        "c000/evaluate/started", "c000/evaluate/ended",
        "c001/weight/started", "c001/weight/ended", "c001/evaluate/started", "c001/evaluate/ended",
        "c002/weight/started", "c002/weight/ended", "c002/evaluate/started", "c002/evaluate/ended",
        "c003/weight/started", "c003/weight/ended", "c003/evaluate/started", "c003/evaluate/ended",
        "stage/selected",
        "c004/harness/started", "c004/harness/ended", "c004/evaluate/started", "c004/evaluate/ended",
        "c005/harness/started", "c005/harness/ended", "c005/evaluate/started", "c005/evaluate/ended",
    ]  # fmt: skip
    stage = machine.state.stage
    assert stage is not None
    assert (stage.cycle, stage.weights, stage.checkpoint) == (2, "w2.2", "c002-s0002")
    assert machine.state.weights == "w2.2"
    assert {s.weights for s in machine.state.phase_scores.values()} == {"w2.2"}


def test_stagewise_may_find_that_no_training_was_best() -> None:
    machine = Remembering(
        config(schedule={"kind": "stagewise", "weight_cycles": 2, "harness_cycles": 1}),
        success={"w0": 0.5, "w1.2": 0.2, "w2.2": 0.2},
    )
    machine.run()
    stage = machine.state.stage
    assert stage is not None
    assert (stage.cycle, stage.weights, stage.checkpoint, machine.state.checkpoint) == (0, "w0", None, None)


# --- what must hold for any schedule ---

any_schedule = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["fixed", "adaptive", "weight-only", "harness-only", "stagewise"]),
        "cycles": st.integers(1, 4),
        "epochs": st.sampled_from(["0", "0.15", "0.5", "1", "1.3"]),
        "iterations": st.integers(0, 3),
        "count_incoming": st.booleans(),
        "max_epochs": st.sampled_from(["0.3", "1"]),
        "max_iterations": st.integers(1, 4),
        "min_iterations": st.integers(1, 3),
        "patience_iterations": st.integers(1, 2),
        "weight_cycles": st.integers(1, 3),
        "harness_cycles": st.integers(1, 2),
        "budget_epochs": st.sampled_from(["", "0.4", "1.5"]),
        "budget_iterations": st.integers(0, 5),
    }
)
scores_of = st.dictionaries(
    st.sampled_from([f"c{c}i{i}m{m}" for c in range(1, 5) for i in range(1, 4) for m in (1, 2)]), st.floats(0, 1)
)
passes = st.dictionaries(st.tuples(st.integers(1, 4), st.integers(1, 9)), st.integers(0, 4))


@settings(max_examples=150, deadline=None)
@given(plan=any_schedule, batch=st.integers(1, 3), scores=scores_of, passed=passes)
def test_budgets_hold_slices_meet_and_a_restart_decides_the_same(
    plan: dict[str, Any], batch: int, scores: dict[str, float], passed: dict[tuple[int, int], int]
) -> None:
    own = config(schedule=plan, weights={"batch": batch})
    machine = Remembering(own, scores, passed)
    planned: list[tuple[int, int]] = []
    while True:
        again = State()
        for recorded in machine.seen:
            again = reduce(again, recorded)
        command = d.decide(again, own)
        assert command == d.decide(machine.state, own), "a restart folds the log and decides the same"
        if isinstance(command, d.Train):
            part = schedule.weight_steps(machine.state, own)[command.step - 1]
            planned.append((part.start, part.count))
        if not machine.step():
            break
    state = machine.state
    assert state.status == "completed"
    position = 0
    for start, count in planned:
        assert start == position, "no question is skipped, and none comes twice"
        position += count
    assert state.sampled == position
    if plan["budget_epochs"]:
        assert position <= -(-N * float(plan["budget_epochs"]) // 1)
    if plan["budget_iterations"]:
        assert state.iterations_done <= plan["budget_iterations"]
    if plan["kind"] == "weight-only":
        assert state.iterations_done == 0
    if plan["kind"] == "harness-only":
        assert position == 0
    if plan["kind"] in ("fixed", "weight-only") and not plan["budget_epochs"]:
        assert position == -(-N * plan["cycles"] * round(float(plan["epochs"]) * 100) // 100)


@pytest.mark.parametrize("key", ["window_epochs", "min_epochs", "patience_epochs", "max_epochs", "budget_epochs"])
def test_a_length_that_is_no_number_is_named(key: str) -> None:
    with pytest.raises(UsageError, match=f"schedule.{key}"):
        config(schedule={key: "much"})
