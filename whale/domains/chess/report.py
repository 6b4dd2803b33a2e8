"""Chess's own figures: legality, and what a choice without skill would have scored under the same harness.

A harness chooses what the model sees. If it lists two moves of which one is right, half of the puzzles are solved by
a coin. So each rollout is counted beside a uniform choice among the legal moves that its harness showed.
"""

import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from whale.domains.base import Task
from whale.domains.chess.board import legal_moves
from whale.domains.chess.puzzle import Puzzle, positions, right_moves, start
from whale.domains.chess.rules import RULES, Rule, chance
from whale.domains.chess.verifier import PLAY, play_reply
from whale.rollout.types import Completion, Trajectory, Turn

ALL = "all"
UCI = re.compile(r"(?<![A-Za-z0-9])[a-h][1-8][a-h][1-8][qrbn]?(?![A-Za-z0-9])", re.ASCII)


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """What happened to the rollouts of one group of tasks. Counts of rollouts, but for the two expectations."""

    n: int
    passed: int
    formatted: int
    """Whose turns all held one UCI move."""
    legal: int
    """Whose turns were all legal moves."""
    truncated: int
    fabricated: int
    """Passed, with a right move singled out in text that the harness wrote."""
    chance_shown: float
    """How many a uniform choice among the moves that the harness showed would pass, expected."""
    chance_legal: float
    """The same among all legal moves."""


def count(
    tasks: Sequence[Task], puzzles: Mapping[str, Puzzle], trajectories: Sequence[Trajectory]
) -> dict[str, GroupCounts]:
    """Counts by group, and over all as "all"; `trajectories` in any order, several a task are fine.

    `puzzles` by task id. Raises KeyError for a rollout of a task that is not in `tasks`.
    """
    groups = {task.id: task.group for task in tasks}
    rows: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        rows[groups[trajectory.task_id]].append(trajectory)
        rows[ALL].append(trajectory)
    return {group: _counts(puzzles, rows[group]) for group in sorted(rows, key=lambda name: (name == ALL, name))}


def _counts(puzzles: Mapping[str, Puzzle], seen: Sequence[Trajectory]) -> GroupCounts:
    return GroupCounts(
        n=len(seen),
        passed=sum(trajectory.reward >= 1 for trajectory in seen),
        formatted=sum(trajectory.metrics.get("format", 0.0) >= 1 for trajectory in seen),
        legal=sum(trajectory.metrics.get("legal", 0.0) >= 1 for trajectory in seen),
        truncated=sum(trajectory.truncated for trajectory in seen),
        fabricated=sum(trajectory.fabricated for trajectory in seen),
        chance_shown=math.fsum(chance_shown(puzzles[trajectory.task_id], trajectory) for trajectory in seen),
        chance_legal=math.fsum(rule_score(RULES["any legal move"], puzzles[t.task_id]) for t in seen),
    )


def rule_score(rule: Rule, puzzle: Puzzle) -> float:
    """The chance that a rule plays the whole line of a puzzle."""
    return math.prod(
        chance(rule, legal_moves(fen), right_moves(fen, reference))
        for fen, reference in zip(positions(puzzle), puzzle.line[::2], strict=True)
    )


def chance_shown(puzzle: Puzzle, trajectory: Trajectory) -> float:
    """The chance that a uniform choice among the moves that the harness showed plays the whole line.

    A turn that the rollout did not come to counts as a choice among all legal moves there.
    """
    shown = _shown_by_turn(puzzle, trajectory)
    score = 1.0
    for index, (fen, reference) in enumerate(zip(positions(puzzle), puzzle.line[::2], strict=True)):
        legal = {move.uci for move in legal_moves(fen)}
        drawn: Collection[str] = shown_moves(shown[index], legal) if index < len(shown) else legal
        score *= len(right_moves(fen, reference) & set(drawn)) / len(drawn)
    return score


def _shown_by_turn(puzzle: Puzzle, trajectory: Trajectory) -> list[Turn]:
    """The model calls whose replies were the solver's turns, as far as the game stayed on the line."""
    completion = trajectory.completion
    replies = [action.reply for action in completion.actions if action.tool == PLAY] if completion else []
    if completion and all(reply.turn != completion.turn for reply in replies):
        replies.append(completion)
    if not replies:
        # Nothing was played: what the first call showed is what there was to choose from.
        return list(trajectory.turns[:1])
    game, turns = start(puzzle), []
    for reply in replies:
        if not game.over:
            game = play_reply(game, Completion(reply.prefix, reply.sampled))
            turns.append(trajectory.turns[reply.turn])
    return turns


def shown_moves(turn: Turn, legal: Collection[str]) -> set[str]:
    """The legal moves that the prompt named last: in the opened turn, else in the latest message that names any.

    A prompt that names none leaves the choice among all.
    """
    texts = [turn.prefix, *(m["content"] for m in reversed(turn.messages) if m["role"] != "assistant")]
    for text in texts:
        named = set(UCI.findall(text)) & set(legal)
        if named:
            return named
    return set(legal)


def no_skill(puzzles: Sequence[Puzzle]) -> dict[str, float]:
    """What each one-line rule scores on these puzzles, from 0 to 1, by the rule's name."""
    return {name: math.fsum(rule_score(rule, p) for p in puzzles) / len(puzzles) for name, rule in RULES.items()}
