"""Guards: what no accepted harness may make worse, whatever its score."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from whale.config import Guards
from whale.events.types import Outcome
from whale.search.scoring import Score


def refusal(
    guards: Guards,
    before: tuple[Score, Sequence[Outcome]],
    after: tuple[Score, Sequence[Outcome]],
    groups: Mapping[str, str],
) -> str | None:
    """Why a candidate (`after`) may not replace the incoming harness (`before`), or None.

    `groups` maps a task's id to its subset; tasks without one are one subset more.
    """
    own, new = before[0], after[0]
    if guards.tokens >= 0 and new.mean_tokens > guards.tokens * own.mean_tokens:
        return f"{new.mean_tokens:.1f} generated tokens per rollout, the limit is {guards.tokens * own.mean_tokens:.1f}"
    if guards.turns >= 0 and new.mean_turns > guards.turns * own.mean_turns:
        return f"{new.mean_turns:.2f} turns per rollout, the limit is {guards.turns * own.mean_turns:.2f}"
    if guards.fabricated >= 0 and new.fabricated > guards.fabricated:
        share, limit = f"{new.fabricated:.0%}", f"{guards.fabricated:.0%}"
        return f"{share} of the passes have an answer that the harness wrote, the limit is {limit}"
    if guards.subset >= 0:
        old_rates, new_rates = _rates(before[1], groups), _rates(after[1], groups)
        for group in sorted(old_rates):
            fall = old_rates[group] - new_rates.get(group, 0.0)
            if fall > guards.subset:
                return f"{fall:.4f} worse on the subset {group or '(none)'}, the limit is {guards.subset:.4f}"
    return None


def _rates(outcomes: Sequence[Outcome], groups: Mapping[str, str]) -> dict[str, float]:
    rewards: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        rewards[groups.get(outcome.task, "")].append(outcome.reward)
    return {group: math.fsum(values) / len(values) for group, values in rewards.items()}
