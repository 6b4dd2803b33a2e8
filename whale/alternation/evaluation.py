"""The runner's part of an evaluation: held-out success of a pair, from its recorded rollouts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from whale.alternation import decide as d
from whale.events import types as ev
from whale.search.scoring import summarise

if TYPE_CHECKING:
    from whale.alternation.runner import Runner


def complete_evaluation(runner: "Runner", command: d.CompleteEvaluation) -> None:
    """Record the success of a pair; an equal pair's figures are taken over, since nothing was sampled again."""
    state = runner.state
    if command.reuse is not None:
        event = msgspec.structs.replace(command.reuse, cycle=command.cycle, candidate=command.candidate)
    else:
        outcomes = [outcome for batch in state.batches.values() for outcome in batch.outcomes]
        score = summarise(outcomes)
        event = ev.Evaluated(
            cycle=command.cycle,
            split=command.split,
            candidate=command.candidate,
            tree=state.candidates[command.candidate].tree,
            weights=command.weights,
            n=score.n,
            tasks=len({outcome.task for outcome in outcomes}),
            passed=score.passed,
            score=score.score,
            low=score.low,
            high=score.high,
            metrics=mean_metrics(outcomes),
        )
    runner.append(f"c{command.cycle:03d}/evaluate/{command.split}/evaluated", event)
    runner.reporter.note(
        f"{command.split} success {event.score:.3f} [{event.low:.3f}, {event.high:.3f}], n = {event.n}"
    )


def mean_metrics(outcomes: Sequence[ev.Outcome]) -> dict[str, float]:
    """Means over all rollouts: what verifier and domain measured, and how the rollouts ran.

    A rollout that failed has no verdict and counts as 0. A figure that only some judged rollouts have, such as
    extraction where the answer was found, is a mean over those.
    """
    n = len(outcomes)
    judged = [outcome for outcome in outcomes if outcome.status == "ok"]
    means = {}
    for name in sorted({name for outcome in outcomes for name in outcome.metrics}):
        values = [outcome.metrics[name] for outcome in outcomes if name in outcome.metrics]
        everyone = all(name in outcome.metrics for outcome in judged)
        means[name] = sum(values) / (n if everyone else len(values))
    means["truncated"] = sum(outcome.truncated for outcome in outcomes) / n
    means["failed"] = sum(outcome.status != "ok" for outcome in outcomes) / n
    means["turns"] = sum(outcome.turns for outcome in outcomes) / n
    means["tokens"] = sum(outcome.generated for outcome in outcomes) / n
    return means
