"""What a config may spend on either side, and whether the systems of an experiment may spend the same."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from whale.config import Config, to_builtins
from whale.errors import UsageError
from whale.experiment.grid import Cell, Experiment

SHARED = ("model", "domain", "domain_options", "sampling", "evaluate")
"""What systems of a domain share: θ0, h0 and the data, how the model is sampled, what is held out."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a run may spend, over all its phases."""

    epochs: Decimal
    """Of D_weight."""
    iterations: int
    """Proposal rounds."""
    weight_rollouts: int
    """Per question of D_weight: G."""
    candidate_rollouts: int
    """Per proposal round and task of D_harness: M times the rollouts per task."""


@dataclass(frozen=True, slots=True)
class Planned:
    """Rollouts that a run will need at most, if no candidate is invalid and no rule asks for more."""

    train: int
    search: int
    evaluate: int
    smoke: int = 0
    """One of each harness before it is scored; more of h0 only where its first fails."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.train + self.search + self.evaluate + self.smoke


def budget_of(config: Config) -> Budget:
    """The budget of a config: its schedule's phases together, within its total budgets."""
    schedule = config.schedule
    weight_phases, harness_phases = phases_of(config)
    epochs = config.epochs * weight_phases
    if schedule.budget_epochs:
        epochs = min(epochs, Decimal(schedule.budget_epochs))
    most = schedule.max_iterations if schedule.kind == "adaptive" else schedule.iterations
    iterations = max(0, most - int(schedule.count_incoming)) * harness_phases
    if schedule.budget_iterations:
        iterations = min(iterations, schedule.budget_iterations)
    return Budget(
        epochs.normalize(),
        iterations,
        config.weights.rollouts_per_prompt,
        config.search.candidates * config.search.rollouts_per_task,
    )


def phases_of(config: Config) -> tuple[int, int]:
    """How many weight and harness phases a config has at most."""
    schedule = config.schedule
    if schedule.kind == "stagewise":
        return schedule.weight_cycles, schedule.harness_cycles
    return (
        0 if schedule.kind == "harness-only" else schedule.cycles,
        0 if schedule.kind == "weight-only" else schedule.cycles,
    )


def planned(config: Config, splits: Mapping[str, int]) -> Planned:
    """Rollouts by purpose, from the sizes of the domain's splits."""
    budget, evaluate = budget_of(config), config.evaluate
    phases = phases_of(config)
    scored = splits["harness"] * config.search.rollouts_per_task
    # Where weights move in between, each harness phase scores the incoming harness anew.
    incoming = (phases[1] if budget.epochs and config.schedule.kind != "stagewise" else 1) + config.search.noise_floor
    search = budget.iterations * splits["harness"] * budget.candidate_rollouts + incoming * scored
    cycles = max(phases) if config.schedule.kind != "stagewise" else sum(phases)
    tests = (cycles + 1 if evaluate.select == "test" else 2) if evaluate.test_tasks else 0
    return Planned(
        math.ceil(budget.epochs * splits["weight"]) * budget.weight_rollouts,
        search if budget.iterations else 0,
        (cycles + 1) * min(evaluate.tasks or splits["validation"], splits["validation"]) * evaluate.samples
        + tests * min(evaluate.test_tasks, splits["test"]) * evaluate.test_samples,
        1 + budget.iterations * config.search.candidates,
    )


def check_matched(experiment: Experiment) -> None:
    """In a matched experiment, the systems of a domain share what they must and may spend the same.

    A side that a system does not have (weight-only's search) is not compared.

    Raises:
        UsageError: they do not; it names two systems and the difference.
    """
    if not experiment.matched:
        return
    first_of: dict[tuple[str, int], list[Cell]] = {}
    for cell in experiment.cells:
        others = first_of.setdefault((cell.domain, cell.seed), [])
        for other in others:
            difference = _difference(other, cell)
            if difference:
                raise UsageError(
                    f"{experiment.path}: {other.system} and {cell.system} do not match in domain {cell.domain}: "
                    f"{difference}; make them equal, or say matched = false"
                )
        others.append(cell)


def _difference(one: Cell, other: Cell) -> str | None:
    tables = to_builtins(one.config), to_builtins(other.config)
    for key in SHARED:
        if tables[0][key] != tables[1][key]:
            return f"another {key}"
    a, b = budget_of(one.config), budget_of(other.config)
    if a.epochs and b.epochs:
        if a.epochs != b.epochs:
            return f"{a.epochs:f} epochs of training against {b.epochs:f}"
        if a.weight_rollouts != b.weight_rollouts:
            return f"{a.weight_rollouts} rollouts per question against {b.weight_rollouts}"
    if a.iterations and b.iterations:
        if a.iterations != b.iterations:
            return f"{a.iterations} iterations of search against {b.iterations}"
        if a.candidate_rollouts != b.candidate_rollouts:
            return f"{a.candidate_rollouts} rollouts per iteration and task against {b.candidate_rollouts}"
    return None
