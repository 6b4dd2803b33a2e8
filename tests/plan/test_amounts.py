"""A plan's amounts against what the decisions of a run then ask for, on every kind of schedule."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.alternation.test_decide import Machine, config
from tests.alternation.test_schedules import any_schedule, passes, scores_of
from whale.alternation.state import Totals
from whale.plan.amounts import Amounts, amounts

SPLITS = {"weight": 7, "harness": 4, "validation": 5, "test": 3}


def spent(machine: Machine) -> dict[str, int]:
    totals = machine.state.totals
    return {purpose: totals.get(purpose, Totals()).rollouts for purpose in ("train", "score", "evaluate")}


def planned(of: Amounts) -> dict[str, int]:
    return {"train": of.train, "score": of.score, "evaluate": of.evaluate + of.test}


@settings(max_examples=150, deadline=None)
@given(
    plan=any_schedule,
    batch=st.integers(1, 3),
    scores=scores_of,
    passed=passes,
    search=st.sampled_from(
        [
            {},
            {"noise_floor": True},
            {"acceptance": "confirm"},
            {"acceptance": "racing", "acceptance_options": {"block": 2}},
        ]
    ),
    test_tasks=st.sampled_from([0, 2]),
)
def test_no_run_takes_more_than_its_plan_says_nor_fewer_steps_and_rounds_than_the_least(
    plan: dict[str, Any],
    batch: int,
    scores: dict[str, float],
    passed: dict[tuple[int, int], int],
    search: dict[str, Any],
    test_tasks: int,
) -> None:
    own = config(
        schedule=plan, weights={"batch": batch}, search=search, evaluate={"test_tasks": test_tasks, "test_samples": 1}
    )
    most, least = amounts(own, SPLITS), amounts(own, SPLITS, earliest=True)
    machine = Machine(own, scores, passed)
    machine.run()
    assert machine.state.status == "completed"
    used = spent(machine)
    assert all(used[purpose] <= number for purpose, number in planned(most).items()), (used, most)
    assert most.steps >= len(machine.state.steps) >= least.steps
    assert most.rounds >= machine.state.iterations_done >= least.rounds
    assert most.cycles >= machine.state.cycle >= least.cycles
    assert len([c for c in machine.state.checkpoints.values() if c.phase_end]) <= most.checkpoints


def test_a_fixed_schedule_is_planned_to_the_rollout() -> None:
    """Two cycles of half an epoch of 7 questions (4 and 3), 2 rollouts each; 2 rounds of 2 candidates on 4 tasks."""
    own = config(search={"noise_floor": True}, evaluate={"test_tasks": 2, "test_samples": 3})
    plan = amounts(own, SPLITS)
    assert plan.train == 7 * 2
    assert plan.steps == 2 + 2
    # The incoming harness in each cycle, four candidates in each, and the noise floor once.
    assert plan.score == (2 + 2 * 4 + 1) * 4
    assert plan.smoke == 1 + 2 * 4
    assert plan.evaluate == 3 * 5
    assert plan.test == 2 * 2 * 3
    assert (plan.rounds, plan.checkpoints, plan.cycles) == (4, 2, 2)
    assert amounts(own, SPLITS, earliest=True) == plan


def test_a_search_on_weights_that_stay_scores_the_incoming_harness_once() -> None:
    own = config(schedule={"kind": "harness-only", "cycles": 3, "iterations": 1})
    assert amounts(own, SPLITS).score == (1 + 3 * 2) * 4


def test_phases_that_end_early_leave_a_total_budget_for_more_cycles() -> None:
    """One round in cycle 1 leaves one for cycle 2, whose weights are others: the incoming harness is scored twice."""
    own = config(
        schedule={
            "kind": "adaptive", "cycles": 2, "max_epochs": "0.3", "max_iterations": 2, "min_iterations": 1,
            "patience_iterations": 1, "budget_iterations": 2,
        },
        weights={"batch": 1},
    )  # fmt: skip
    most, least = amounts(own, SPLITS), amounts(own, SPLITS, earliest=True)
    assert (most.rounds, most.score) == (2, 2 * 2 * 4 + 2 * 4)
    assert least.score == 2 * 2 * 4 + 4
    machine = Machine(own, {}, {})
    machine.run()
    assert spent(machine)["score"] == most.score


def test_patience_is_planned_from_its_earliest_end_to_its_cap() -> None:
    own = config(
        schedule={
            "kind": "adaptive", "cycles": 1, "window_epochs": "0.29", "min_epochs": "0.29", "patience_epochs": "0.29",
            "max_epochs": "2", "min_iterations": 2, "patience_iterations": 2, "max_iterations": 5,
        },
        weights={"batch": 1},
    )  # fmt: skip
    least, most = amounts(own, SPLITS, earliest=True), amounts(own, SPLITS)
    # Three steps of patience after the first, which is a maximum; two rounds without a new best.
    assert (least.steps, least.rounds) == (4, 2)
    assert (most.steps, most.rounds) == (14, 5)
