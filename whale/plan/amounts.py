"""How much a config asks for: a walk through its schedule with the schedule's own functions, and no model.

Every budget is asked of `whale.alternation.schedule`, so that a plan and a run cannot disagree on one.
"""

from dataclasses import dataclass
from dataclasses import replace as replace_fields
from types import SimpleNamespace

from msgspec.structs import replace

from whale.alternation import schedule
from whale.alternation.judging import rule_of
from whale.alternation.state import State, reduce
from whale.config import Config, for_the_log
from whale.events import types as ev


@dataclass(slots=True)
class Amounts:
    """Rollouts by what they are for, and what else costs."""

    cycles: int = 0
    train: int = 0
    candidates: int = 0
    """First scorings of candidates."""
    incoming: int = 0
    """Scorings of each phase's incoming harness, and what an acceptance rule may ask for beyond the first ones."""
    noise_floor: int = 0
    """The second scoring of h0."""
    smoke: int = 0
    evaluate: int = 0
    test: int = 0
    steps: int = 0
    """Steps of weight phases."""
    rounds: int = 0
    """Proposal rounds: sessions, where the proposer is a model."""
    checkpoints: int = 0
    """Those that a run keeps: one a weight phase."""

    @property
    def score(self) -> int:
        """All that a search scores."""
        return self.candidates + self.incoming + self.noise_floor

    @property
    def rollouts(self) -> int:
        """All of them."""
        return self.train + self.score + self.smoke + self.evaluate + self.test


def amounts(config: Config, splits: dict[str, int], *, earliest: bool = False) -> Amounts:
    """What a run of this config takes at most; with `earliest`, at least: each patient phase ends as soon as it may.

    "At most": invalid and duplicate candidates, racing, and pairs that stay as they are save some of it. Harnesses
    that people propose, trials inside a proposer's session, and what h0 is tried by where its first smoke run fails
    come on top.

    Under a total budget, phases that end early leave more of it, and so more cycles: what is paid once a cycle
    (evaluations, the incoming harness's scoring, checkpoints) is highest where each phase is shortest.
    """
    longest, shortest = _walk(config, splits, earliest=False), _walk(config, splits, earliest=True)
    of_phases, of_cycles = (shortest, longest) if earliest else (longest, shortest)
    return replace_fields(
        of_phases,
        cycles=of_cycles.cycles,
        evaluate=of_cycles.evaluate,
        incoming=of_cycles.incoming,
        checkpoints=of_cycles.checkpoints,
    )


def _walk(config: Config, splits: dict[str, int], *, earliest: bool) -> Amounts:
    """The amounts of one run through the schedule, in which each patient phase is as long or as short as it may be."""
    state = State(status="running", config=for_the_log(config), splits=splits)
    total = Amounts(smoke=1)
    archive = False
    scoring = splits["harness"] * config.search.rollouts_per_task
    while state.cycle < schedule.cycles(state, config) or not state.phases_ended:
        if state.phases_ended:
            if state.cycle and schedule.spent(state, config):
                break
            state = replace(state, cycle=state.cycle + 1, phases_ended=(), step=0, iteration=0)
        if schedule.selects_stage(state, config):
            state = replace(state, stage=ev.StageSelected(cycle=0, weights="", checkpoint=None, score=0.0))
            archive = False
        for phase in schedule.phases(state, config, state.cycle):
            sampled = None
            if phase == "weight":
                steps = schedule.weight_steps(state, config)
                if earliest:
                    steps = steps[: _first_stop(config, splits["weight"], len(steps))]
                total.train += sum(step.count for step in steps) * config.weights.rollouts_per_prompt
                total.steps += len(steps)
                total.checkpoints += bool(steps)
                sampled = steps[-1].start + steps[-1].count if steps else state.sampled
                archive = archive and not steps
            elif phase == "harness":
                rounds = schedule.rounds(state, config)
                if earliest:
                    rounds = _first_round(config, rounds)
                if rounds:
                    candidates = rounds * config.search.candidates
                    total.incoming += (0 if archive else scoring) + _asked_by_rule(config) * scoring
                    total.candidates += candidates * scoring
                    total.noise_floor = scoring if config.search.noise_floor else 0
                    total.smoke += candidates
                    total.rounds += rounds
                    archive = True
                state = replace(state, iteration=rounds, iterations_done=state.iterations_done + rounds)
            elif phase == "evaluate":
                total.evaluate += _held_out(splits["validation"], config.evaluate.tasks, config.evaluate.samples)
            state = _ended(state, phase, sampled)
        total.cycles = state.cycle
    if config.evaluate.test_tasks:
        total.test = 2 * _held_out(splits["test"], config.evaluate.test_tasks, config.evaluate.test_samples)
    return total


def _ended(state: State, phase: ev.PhaseName, sampled: int | None) -> State:
    """The fold's own account of a phase's end: it moves the sampler."""
    event = ev.PhaseEnded(cycle=state.cycle, phase=phase, reason="planned", sampled=sampled)
    return reduce(state, SimpleNamespace(event=event, stream="run", key=""))


def _first_stop(config: Config, n: int, steps: int) -> int:
    """The step after which patience may end a weight phase at the earliest: rewards that never rise."""
    if config.schedule.kind != "adaptive":
        return steps
    stops = (t for t in range(1, steps) if schedule.weight_patience([0.0] * t, config, n) is not None)
    return next(stops, steps)


def _first_round(config: Config, rounds: int) -> int:
    """The same for a harness phase: scores that never rise."""
    if config.schedule.kind != "adaptive":
        return rounds
    stops = (done for done in range(rounds) if schedule.harness_patience([0.0] * (done + 1), config) is not None)
    return next(stops, rounds)


def _asked_by_rule(config: Config) -> int:
    """Further scorings a phase that the acceptance rule may ask for beyond what it saves."""
    rule = rule_of(config)
    # `confirm` scores the winner and the incoming harness again; `racing` spends a part of what it saved.
    return 2 * int(getattr(rule, "rounds", 0)) if rule.name == "confirm" else 0


def _held_out(size: int, tasks: int, samples: int) -> int:
    return (min(size, tasks) if tasks else size) * samples
