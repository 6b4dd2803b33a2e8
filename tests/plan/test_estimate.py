"""What a plan makes of rates: nothing that is not known is invented."""

from typing import Any

import pytest

from tests.alternation.test_decide import config
from tests.plan.test_amounts import SPLITS
from whale.plan.amounts import amounts
from whale.plan.estimate import Plan, Range, estimate
from whale.plan.rates import Rates

RATES = Rates(
    source="a test", rollouts=8, seconds_per_rollout=2.0, seconds_per_kept=1.0, passed=0.25, prompt_tokens=100.0,
    sampled_tokens=10.0, bytes_per_rollout=1000.0,
)  # fmt: skip


def plan(rates: Rates, dollars_per_hour: float | None = None, **tables: Any) -> Plan:
    own = config(**tables)
    most, least = amounts(own, SPLITS), amounts(own, SPLITS, earliest=True)
    return estimate(own, least, most, rates, 1_000_000, dollars_per_hour)


def test_amounts_times_rates() -> None:
    found = plan(RATES, dollars_per_hour=36.0)
    n, trained = found.most.rollouts, found.most.train
    assert found.sampled_tokens == Range(n * 10, n * 10)
    assert found.seconds == Range(n * 2.0 + trained * 0.25, n * 2.0 + trained)
    assert found.machine_dollars is not None and found.seconds is not None
    assert found.machine_dollars.most == pytest.approx(found.seconds.most / 100)
    # Two phase ends, one inside a phase, one being written: θ and two moments of a million float32 each.
    assert found.disk_bytes == 4 * 3 * 4_000_000 + n * 1000
    assert found.unknown == ()


def test_grpo_may_train_on_no_rollout_or_on_all_of_them() -> None:
    found = plan(RATES, weights={"method": "grpo"})
    n, trained = found.most.rollouts, found.most.train
    assert found.seconds == Range(n * 2.0, n * 2.0 + trained)


def test_without_rates_there_is_no_time_and_the_way_to_get_one() -> None:
    found = plan(Rates(), dollars_per_hour=36.0)
    assert (found.seconds, found.machine_dollars, found.prompt_tokens, found.disk_bytes) == (None, None, None, None)
    assert "--probe" in found.unknown[0]
    assert found.sampled_tokens_cap == found.most.rollouts * 256


PRICES = {"input": 1, "output": 2}


@pytest.mark.parametrize(
    "options, rates, dollars, told",
    [
        ({"model": "m"}, Rates(), None, "--dollars-per-round"),
        ({"model": "m"}, Rates(dollars_per_round=2.0), Range(8.0, 8.0), ""),
        ({"model": "m", "budget": {"dollars": 3.0}, "prices": PRICES}, Rates(), Range(0, 12), "$3"),
        (
            {"model": "m", "budget": {"tokens": 1000}, "prices": PRICES},
            Rates(),
            Range(0, 0.008),
            "dear",
        ),
        ({"model": "m", "budget": {"tokens": 1000}}, Rates(), None, "--dollars-per-round"),
    ],
)
def test_a_proposers_dollars_come_from_a_rate_or_its_budget_or_are_not_known(
    options: dict[str, Any], rates: Rates, dollars: Range | None, told: str
) -> None:
    found = plan(rates.over(RATES), search={"proposer": "anthropic", "options": options})
    assert found.proposer_dollars == dollars
    assert told in " ".join(found.unknown)


def test_a_proposer_that_is_no_model_costs_nothing() -> None:
    assert plan(RATES).proposer_dollars == Range(0, 0)
