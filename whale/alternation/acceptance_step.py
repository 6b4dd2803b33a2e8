"""The runner's part of an acceptance: scorings that a rule ends or asks for, its verdict, what follows from it."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from whale.alternation import decide as d
from whale.alternation import judging
from whale.events import types as ev
from whale.search.estimates import noise_sd, scoring
from whale.search.scoring import summarise

if TYPE_CHECKING:
    from whale.alternation.runner import Runner


def stop_score(runner: "Runner", command: d.StopScore) -> None:
    """What was paid is kept; the candidate has no score."""
    state = runner.state
    outcomes = [outcome for batch in state.batches.values() for outcome in batch.outcomes]
    event = ev.CandidateStopped(
        candidate=command.candidate,
        tree=state.candidates[command.candidate].tree,
        weights=state.weights,
        cycle=state.cycle,
        iteration=command.iteration,
        n=len(outcomes),
        passed=sum(outcome.reward for outcome in outcomes),
        saved=command.saved,
        reason=command.reason,
    )
    runner.append(f"c{state.cycle:03d}/harness/{command.candidate}/stopped", event)
    runner.reporter.note(f"{command.candidate} is stopped: {command.reason}")


def complete_rescore(runner: "Runner", command: d.CompleteRescore) -> None:
    """Another scoring is complete: how far it lies from the first one is the noise."""
    state = runner.state
    outcomes = [outcome for batch in state.batches.values() for outcome in batch.outcomes]
    score = summarise(outcomes)
    noise = noise_sd(scoring(state.phase_outcomes[command.candidate]), scoring(outcomes))
    event = ev.CandidateRescored(
        candidate=command.candidate,
        tree=state.candidates[command.candidate].tree,
        weights=state.weights,
        cycle=state.cycle,
        replicate=command.replicate,
        purpose=command.purpose,
        n=score.n,
        passed=score.passed,
        score=score.score,
        low=score.low,
        high=score.high,
        noise=noise,
    )
    runner.append(f"c{state.cycle:03d}/harness/{command.candidate}/r{command.replicate}/scored", event)
    told = f", noise floor {noise:.4f}" if command.purpose == "noise" else ""
    runner.reporter.note(f"{command.candidate} again: {score.score:.3f} [{score.low:.3f}, {score.high:.3f}]{told}")


def judge(runner: "Runner", command: d.Judge) -> None:
    """The acceptance rule over the phase's board."""
    state = runner.state
    rule = judging.rule_of(runner.config)
    decision = rule.judge(judging.board_of(state, runner.config))
    event = ev.AcceptanceJudged(cycle=state.cycle, rule=rule.name, noise=state.noise, **asdict(decision))
    runner.append(f"c{state.cycle:03d}/harness/judged", event)
    figures = ""
    if decision.gain is not None and decision.corrected is not None:
        figures = (
            f"; {decision.challenger}: {decision.gain:+z.4f} [{decision.low:+z.4f}, {decision.high:+z.4f}], "
            f"{decision.corrected:+z.4f} without the winner's curse"
        )
    verb = "accepts" if decision.accepted else "retains"
    runner.reporter.note(f"{rule.name} {verb} {decision.candidate}: {decision.reason}{figures}")


def settle(runner: "Runner", command: d.Settle) -> None:
    """Carry out the verdict; the fold then asks for the commit."""
    state = runner.state
    incoming, verdict = state.accepted, state.verdict
    assert incoming is not None
    assert verdict is not None
    cycle = state.cycle
    if verdict.accepted and state.approved is not False:
        scored = state.phase_scores[verdict.candidate]
        runner.append(
            f"c{cycle:03d}/harness/settled",
            ev.HarnessAccepted(
                cycle=cycle,
                candidate=verdict.candidate,
                tree=scored.tree,
                previous=incoming,
                score=scored.score,
                incoming_score=state.phase_scores[incoming].score,
            ),
        )
        runner.reporter.note(f"accepted {verdict.candidate}")
    else:
        score = state.phase_scores[incoming].score
        runner.append(f"c{cycle:03d}/harness/settled", ev.HarnessRetained(cycle=cycle, candidate=incoming, score=score))
        runner.reporter.note(f"retained {incoming}")
