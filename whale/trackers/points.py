"""The curves that a log holds. Pure: one event and the state after it give the points that it adds.

All curves share one axis, the rollouts paid so far, so that phases and runs can be compared by cost.
"""

import datetime
from dataclasses import dataclass
from typing import Any

from whale.alternation.state import State
from whale.events import types as ev


@dataclass(frozen=True, slots=True)
class Point:
    """A value of a curve."""

    name: str
    value: float
    step: int
    """Rollouts paid so far."""
    at: float
    """When it was recorded, in seconds since 1970."""


def points(recorded: Any, state: State) -> list[Point]:
    """What one recorded event (`whale.events.Recorded`) adds; `state` is the fold with it."""
    values = _values(recorded.event, recorded.meta, state)
    if not values:
        return []
    step = sum(totals.rollouts for totals in state.totals.values())
    at = datetime.datetime.fromisoformat(recorded.at).timestamp()
    return [Point(name, float(value), step, at) for name, value in values.items()]


def _values(event: ev.Event, meta: Any, state: State) -> dict[str, float]:
    match event:
        case ev.RolloutsRecorded(purpose=purpose, outcomes=outcomes) if outcomes:
            values = {
                f"rollouts/{purpose}/reward": sum(outcome.reward for outcome in outcomes) / len(outcomes),
                "cost/sampled tokens": sum(totals.generated for totals in state.totals.values()),
                "cost/prompt tokens": sum(totals.prompted for totals in state.totals.values()),
            }
            seconds = float(meta.get("seconds") or 0.0)
            return values | ({"rollouts/per second": len(outcomes) / seconds} if seconds else {})
        case ev.StepTrained():
            values = {
                "train/success": event.passed / event.rollouts if event.rollouts else 0.0,
                "train/kept": event.kept,
                "train/tokens": event.trained_tokens,
                **{f"train/{name}": value for name, value in event.metrics.items()},
            }
            return values | ({} if event.loss is None else {"train/loss": event.loss})
        case ev.CandidateScored():
            best = max(scored.score for scored in state.phase_scores.values())
            return {"search/score": event.score, "search/best": best, "search/turns": event.mean_turns}
        case ev.HarnessAccepted():
            return {"search/accepted": event.score}
        case ev.Evaluated(split=split):
            held_out = {"success": event.score, "low": event.low, "high": event.high, **event.metrics}
            return {f"{split}/{name}": value for name, value in held_out.items()} | {f"{split}/cycle": event.cycle}
        case ev.ProposerSessionEnded():
            return {"cost/proposer dollars": state.proposer_dollars, "cost/proposer tokens": state.proposer_tokens}
    return {}
