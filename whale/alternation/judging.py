"""The phase as its acceptance rule sees it. Pure: a function of state and config."""

from whale.alternation.state import State
from whale.alternation.units import Unit
from whale.config import Config
from whale.search.acceptance import AcceptanceRule, acceptance_rule
from whale.search.board import Board, Contender
from whale.search.estimates import scoring


def rule_of(config: Config) -> AcceptanceRule:
    """The config's acceptance rule. Raises UsageError for an unknown name or option."""
    return acceptance_rule(config.search.acceptance, config.search.acceptance_options)


def looks(config: Config, tasks: int) -> list[int]:
    """The numbers of tasks, of so many, after which the rule looks at a scoring in progress; none for most rules."""
    rule = rule_of(config)
    found = []
    last = rule.look(tasks)
    while last > 0:
        found.append(last)
        last = rule.look(last - 1)
    return found[::-1]


def board_of(state: State, config: Config) -> Board:
    """The contenders of the open harness phase: fully scored under the current weights, not barred, not guarded."""
    coverage = state.splits["harness"] * config.search.rollouts_per_task
    contenders = tuple(
        Contender(
            candidate,
            scored.tree,
            (scoring(state.phase_outcomes[candidate]), *map(scoring, state.phase_rescored.get(candidate, ()))),
            scored.mean_turns,
            scored.mean_tokens,
        )
        for candidate, scored in state.phase_scores.items()
        if scored.n >= coverage > 0 and scored.tree not in state.barred and candidate not in state.guarded
    )
    assert state.accepted is not None
    return Board(
        contenders,
        incoming=state.accepted,
        samples=config.search.rollouts_per_task,
        planned=coverage * (len(state.phase_scores) + len(state.phase_stopped)),
        saved=sum(stopped.saved for stopped in state.phase_stopped.values()),
        rescored=state.rule_rescored,
        noise=state.noise,
    )


def early_stop(state: State, config: Config, unit: Unit) -> str | None:
    """Why the rule ends the open scoring here, or None. `unit` is the candidate's first scoring."""
    rule = rule_of(config)
    samples = config.search.rollouts_per_task
    outcomes = [outcome for batch in state.batches.values() for outcome in batch.outcomes]
    tasks = rule.look(len(outcomes) // samples)
    if not tasks or len(outcomes) >= unit.rollouts:
        return None
    contenders = board_of(state, config).contenders
    if not contenders:
        return None
    leader = max(contenders, key=lambda contender: contender.score).scorings[0]
    # Every block that is complete is looked at once, so that the sizes of micro-batches decide nothing.
    looked = rule.look((len(outcomes) - len(list(state.batches.values())[-1].outcomes)) // samples)
    vector = scoring(outcomes[: tasks * samples])
    for seen in range(looked + 1, tasks + 1):
        if rule.look(seen) == seen:
            reason = rule.stop(vector[:seen], leader)
            if reason is not None:
                return reason
    return None
