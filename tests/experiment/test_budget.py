"""What a budget says against what the scheduler does, for schedules drawn at random."""

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.alternation.test_decide import Machine, config
from tests.alternation.test_schedules import N, any_schedule, passes, scores_of
from whale.experiment.budget import budget_of


@settings(max_examples=100, deadline=None)
@given(plan=any_schedule, batch=st.integers(1, 3), scores=scores_of, passed=passes)
def test_a_run_spends_its_budget_and_no_more(
    plan: dict[str, Any], batch: int, scores: dict[str, float], passed: dict[tuple[int, int], int]
) -> None:
    own = config(schedule=plan, weights={"batch": batch})
    budget = budget_of(own)
    machine = Machine(own, scores, passed)
    machine.run()
    questions, rounds = machine.state.sampled, machine.state.iterations_done
    if plan["kind"] == "adaptive":
        # Patience may end a phase early; each phase's cap is rounded up to whole questions.
        assert questions <= math.ceil(budget.epochs * N) + plan["cycles"]
        assert rounds <= budget.iterations
    else:
        assert questions == math.ceil(budget.epochs * N)
        assert rounds == budget.iterations
