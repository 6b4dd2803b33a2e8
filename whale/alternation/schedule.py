"""Schedules: which phase comes next, how long it may be, and when it is over. Pure functions of config and state.

One runner carries out all of them. What a schedule needs to remember is in the fold: steps with their rewards,
scores with their iterations, the sampler's position. So its counters survive any restart and any fork.
"""

import math
from decimal import Decimal

from msgspec.structs import replace

from whale.alternation import units
from whale.alternation.state import State
from whale.config import Config
from whale.events import types as ev
from whale.weights import sampler

NO_BUDGET = "no budget"
"""The reason of a phase that may do nothing at all, such as E = 0."""


def cycles(state: State, config: Config) -> int:
    """How many cycles there will be, those that were added included."""
    schedule = config.schedule
    planned = schedule.weight_cycles + schedule.harness_cycles if schedule.kind == "stagewise" else schedule.cycles
    return planned + state.extra_cycles


def phases(state: State, config: Config, cycle: int) -> tuple[ev.PhaseName, ...]:
    """The phases of a cycle, in order. Cycle 0 is the evaluation of (θ0, h0)."""
    if cycle == 0:
        return ("evaluate",)
    planned: tuple[ev.PhaseName, ...] = ("weight", "harness", "evaluate")
    if config.schedule.kind == "stagewise":
        planned = ("weight", "evaluate") if cycle <= config.schedule.weight_cycles else ("harness", "evaluate")
    return ("tasks", *planned) if "weight" in planned and tasks_due(state, config, cycle) else planned


def spent(state: State, config: Config) -> bool:
    """Whether a total budget is set on both sides and used up: then no other cycle begins."""
    left_weight, left_harness = epochs_left(state, config), rounds_left(state, config)
    return left_weight == 0 and left_harness == 0


def selects_stage(state: State, config: Config) -> bool:
    """Stagewise, between its stages: the best training point E* is taken before any search."""
    # Later than that cycle: a fork that has become stagewise.
    return config.schedule.kind == "stagewise" and state.cycle >= config.schedule.weight_cycles and not state.stage


# --- tasks phases: slower than both ---


def tasks_due(state: State, config: Config, cycle: int) -> bool:
    """Whether passed questions of D_weight are replaced before the weight phase of `cycle`.

    The rule of patience, one level up: the mean training reward of a whole weight phase, since the last tasks
    phase, has set no new maximum for `tasks_patience` of them. Nothing of `cycle` itself enters, so the answer is
    the same all through it.
    """
    patience = config.schedule.tasks_patience
    ended = state.phases_ended if cycle == state.cycle else ()
    if not patience or (ended and "tasks" not in ended):
        return False
    since = max((done for done in state.task_cycles if done < cycle), default=1)
    means = []
    for earlier in range(since, cycle):
        steps = [step for step in state.steps if step.cycle == earlier]
        if rollouts := sum(step.rollouts for step in steps):
            means.append(sum(step.passed for step in steps) / rollouts)
    return len(means) - _best_at(means) >= patience


# --- weight phases ---


def epochs_left(state: State, config: Config) -> int | None:
    """Questions that the total budget of epochs leaves; None without one."""
    budget = config.schedule.budget_epochs
    if not budget:
        return None
    n = state.splits["weight"]
    return max(0, math.ceil(Decimal(budget) * n) - state.sampled)


def weight_steps(state: State, config: Config) -> list[sampler.Batch]:
    """All steps that the phase of the current cycle may have; a patient phase may end before the last."""
    n, budget = state.splits["weight"], config.schedule.budget_epochs
    steps = units.training_steps(config, n, state.cycle, state.sampler_origin)
    if not budget or not steps:
        return steps
    # The budget ends in the middle of a step at most once: that step is cut.
    start, end = steps[0].start, steps[-1].start + steps[-1].count
    return list(sampler.batches(start, min(end, math.ceil(Decimal(budget) * n)), config.weights.batch))


def weight_over(state: State, config: Config, steps: list[sampler.Batch]) -> str | None:
    """Why the weight phase is over after the steps trained so far; None if another one follows."""
    if not steps:
        return NO_BUDGET
    if state.step >= len(steps):
        return "budget"
    if config.schedule.kind != "adaptive":
        return None
    return weight_patience(rewards(state), config, state.splits["weight"])


def rewards(state: State) -> list[float]:
    """Mean verifier reward of each step of the current weight phase."""
    own = [step for step in state.steps if step.cycle == state.cycle]
    return [step.passed / step.rollouts if step.rollouts else 0.0 for step in own]


def weight_patience(rewards: list[float], config: Config, n: int) -> str | None:
    """The adaptive rule of a weight phase (Adaptive WHALE), on the training reward alone.

    r̄_t is the mean reward of the last W steps (of all, while there are fewer). From step T_min on the phase
    ends when r̄ has not set a new, strictly greater, maximum for P_w steps.
    """
    schedule, t = config.schedule, len(rewards)
    window, least, patience = (
        steps_of(length, n, config.weights.batch)
        for length in (schedule.window_epochs, schedule.min_epochs, schedule.patience_epochs)
    )
    if t < least:
        return None
    recent = [rewards[max(0, at - window) : at] for at in range(1, t + 1)]
    means = [sum(some) / len(some) for some in recent]
    best_at = _best_at(means)
    if t - best_at < patience:
        return None
    return f"patience: the mean reward of {window} steps was highest, {means[best_at - 1]:.4f}, {t - best_at} steps ago"


def _best_at(means: list[float]) -> int:
    """Which of them, from 1, set the last new, strictly greater, maximum; 0 if there are none."""
    best, best_at = -1.0, 0
    for at, mean in enumerate(means, 1):
        if mean > best + 1e-12:  # sums of the same rewards in another order are no new maximum
            best, best_at = mean, at
    return best_at


def steps_of(epochs: str, n: int, batch: int) -> int:
    """A length in epochs as whole steps, at least one."""
    return max(1, math.ceil(Decimal(epochs) * n / batch))


def sampled_after(state: State, steps: list[sampler.Batch]) -> int:
    """The sampler's position after the steps trained so far."""
    return steps[state.step - 1].start + steps[state.step - 1].count if state.step else state.sampled


# --- harness phases ---


def rounds_left(state: State, config: Config) -> int | None:
    """Proposal rounds that the total budget leaves; None without one."""
    budget = config.schedule.budget_iterations
    return max(0, budget - state.iterations_done) if budget else None


def rounds(state: State, config: Config) -> int:
    """Proposal rounds that the harness phase may have.

    With `count_incoming` the scoring of the incoming harness is the first of I, as in the paper's public code.
    """
    schedule = config.schedule
    if schedule.kind == "weight-only":
        return 0
    most = schedule.max_iterations if schedule.kind == "adaptive" else schedule.iterations
    most = max(0, most - int(schedule.count_incoming))
    left = rounds_left(state, config)
    # What this phase has used already counts against the budget and against the phase alike.
    return most if left is None else min(most, state.iteration + left)


def searches_first(config: Config) -> bool:
    """Whether proposals come before any training: h0 may then be one that they have to mend."""
    start = State()
    trains = config.epochs > 0 and "weight" in phases(start, config, 1)
    return not trains and rounds(start, config) > 0


def another_round(state: State, config: Config) -> bool:
    """Whether a proposal round may still come, so that a human's harness can enter with it."""
    last = cycles(state, config)
    unused = rounds(replace(state, iteration=0), config)
    if unused and any("harness" in phases(state, config, cycle) for cycle in range(state.cycle + 1, last + 1)):
        return True
    if state.cycle > last or "harness" not in phases(state, config, state.cycle) or "harness" in state.phases_ended:
        return False
    if state.phase == "harness":
        return not state.settled and state.iteration + bool(state.iteration_candidates) < rounds(state, config)
    return unused > 0


def harness_over(state: State, config: Config) -> str | None:
    """Why no other proposal round follows; None if one does."""
    most = rounds(state, config)
    if most == 0:
        return NO_BUDGET
    if state.iteration >= most:
        return "budget"
    if config.schedule.kind != "adaptive":
        return None
    return harness_patience(best_scores(state), config)


def best_scores(state: State) -> list[float]:
    """The archive's best score when the incoming harness was scored, and after each iteration."""
    scores = [0.0] * (state.iteration + 1)
    for scored in state.phase_scores.values():
        if scored.iteration <= state.iteration:
            scores[scored.iteration] = max(scores[scored.iteration], scored.score)
    return [max(scores[: i + 1]) for i in range(len(scores))]


def harness_patience(best: list[float], config: Config) -> str | None:
    """The adaptive rule of a harness phase: at least J_min iterations, then until P_h of them bring no new best.

    `best` has the archive's best score after 0, 1, 2, … proposal rounds; `count_incoming` shifts the count.
    """
    schedule = config.schedule
    done = len(best) - 1
    if done + int(schedule.count_incoming) < schedule.min_iterations:
        return None
    reached = next(i for i, score in enumerate(best) if score >= best[-1])
    if done - reached < schedule.patience_iterations:
        return None
    return f"patience: the best score, {best[-1]:.4f}, was reached {done - reached} iterations ago"
