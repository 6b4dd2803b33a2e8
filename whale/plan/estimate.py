"""A plan: amounts times rates. What is not known stays unknown; no price and no rate is invented."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from whale.config import Config
from whale.plan.amounts import Amounts
from whale.plan.rates import Rates
from whale.search.agentic.proposers import Options

STATE_COPIES = 3
"""A checkpoint holds θ and AdamW's two moments, in float32."""


@dataclass(frozen=True, slots=True)
class Range:
    """From the least to the most; equal where the schedule leaves nothing open."""

    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run takes. None: not known, and `unknown` says what would tell it."""

    rollouts: Range
    most: Amounts
    sampled_tokens: Range | None
    sampled_tokens_cap: int
    """No rollout can sample more than the config allows."""
    prompt_tokens: Range | None
    seconds: Range | None
    proposer_dollars: Range | None
    machine_dollars: Range | None
    disk_bytes: int | None
    rates: Rates
    unknown: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        result: dict[str, Any] = msgspec.to_builtins(asdict(self))
        return result


def estimate(
    config: Config, least: Amounts, most: Amounts, rates: Rates, weights: int | None, dollars_per_hour: float | None
) -> Plan:
    """Multiply. `weights` is the number of the model's parameters, where it is known."""
    unknown: list[str] = []
    rollouts = Range(least.rollouts, most.rollouts)
    seconds = _seconds(config, least, most, rates, unknown)
    dollars = proposer_dollars(config, least, most, rates, unknown)
    per_second = None if dollars_per_hour is None else dollars_per_hour / 3600
    return Plan(
        rollouts=rollouts,
        most=most,
        sampled_tokens=_times(rollouts, rates.sampled_tokens),
        sampled_tokens_cap=most.rollouts * config.sampling.max_generated_tokens,
        prompt_tokens=_times(rollouts, rates.prompt_tokens),
        seconds=seconds,
        proposer_dollars=dollars,
        machine_dollars=None if seconds is None else _times(seconds, per_second),
        disk_bytes=_disk(most, rates, weights, bool(config.weights.lora_rank), unknown),
        rates=rates,
        unknown=tuple(unknown),
    )


def _times(value: Range, factor: float | None) -> Range | None:
    return None if factor is None else Range(value.least * factor, value.most * factor)


def _seconds(config: Config, least: Amounts, most: Amounts, rates: Rates, unknown: list[str]) -> Range | None:
    """Sampling, and training: RSFT on as many as were measured to pass at the least, on all of them at the most.

    GRPO trains on failed rollouts too, and on none of a question whose rollouts all did the same: at the least, none.
    """
    if rates.seconds_per_rollout is None:
        unknown.append("time and tokens: --probe measures them here, --like RUN takes them from a run")
        return None
    if most.steps and rates.seconds_per_kept is None:
        unknown.append("training time: nothing was trained on where the rates come from; give --seconds-per-kept")
        return None
    kept = rates.seconds_per_kept or 0.0
    share = (rates.passed or 0.0) if config.weights.method == "rsft" else 0.0
    low = least.rollouts * rates.seconds_per_rollout + least.train * share * kept
    return Range(low, most.rollouts * rates.seconds_per_rollout + most.train * kept)


def proposer_dollars(config: Config, least: Amounts, most: Amounts, rates: Rates, unknown: list[str]) -> Range | None:
    """What the proposer's sessions cost: nothing for one that is no model, else by a rate or the budget."""
    if config.search.proposer not in ("anthropic", "openai") or not most.rounds:
        return Range(0.0, 0.0)
    if rates.dollars_per_round is not None:
        return Range(least.rounds * rates.dollars_per_round, most.rounds * rates.dollars_per_round)
    options = msgspec.convert(config.search.options, Options)
    budget, prices = options.budget, options.prices
    if budget.dollars:
        # A session ends with the reply that passes its budget.
        unknown.append(f"proposer: at most its budget of ${budget.dollars:g} a session, and the reply that passes it")
        return Range(0.0, most.rounds * budget.dollars)
    if budget.tokens and prices.input and prices.output:
        unknown.append(f"proposer: at most its budget of {budget.tokens} tokens a session at the dearest price")
        return Range(0.0, most.rounds * budget.tokens * prices.dearest / 1e6)
    unknown.append(
        "the proposer's dollars: give --dollars-per-round, or [search.options.budget] dollars with "
        "[search.options.prices]"
    )
    return None


def _disk(most: Amounts, rates: Rates, weights: int | None, lora: bool, unknown: list[str]) -> int | None:
    """Checkpoints that are kept, one more inside a phase, one that is being written; rollouts."""
    if rates.bytes_per_rollout is None or weights is None:
        unknown.append("disk: --probe or --like RUN measures what a rollout takes")
        return None
    written = most.checkpoints + 2 if most.steps else 0
    copies = 1 if lora else STATE_COPIES  # adapters and their moments are small
    return int(written * copies * 4 * weights + most.rollouts * rates.bytes_per_rollout)


def parameters(model: Path) -> int | None:
    """The number of a model's parameters, from the heads of its safetensors files; None if there are none."""
    from safetensors import safe_open

    total = 0
    for path in model.glob("*.safetensors"):
        with safe_open(path, framework="numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a mapping
                size = 1
                for length in tensors.get_slice(name).get_shape():
                    size *= length
                total += size
    return total or None
