"""One-line rules that choose a move without thinking. What they score is what code alone can do with the facts.

A rule says which legal moves it would draw from; its score on a position is the chance that a uniform draw among them
is right. The embedded puzzles are chosen so that none of these rules gets far (`MAX_RULE_SCORE`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from whale.domains.chess.board import MoveFacts

MAX_RULE_SCORE = 0.25
"""No rule may solve more than this share of an embedded split."""

Rule = Callable[[Sequence[MoveFacts]], Sequence[MoveFacts]]
VALUES = {"": 0, "pawn": 1, "knight": 3, "bishop": 3, "rook": 5, "queen": 9, "king": 0}
"""Of pieces, as every beginner's book gives them."""


def _most(moves: Sequence[MoveFacts], worth: Callable[[MoveFacts], int]) -> list[MoveFacts]:
    best = max(map(worth, moves), default=0)
    return [move for move in moves if worth(move) == best]


def _taking(moves: Sequence[MoveFacts]) -> list[MoveFacts]:
    return [move for move in moves if move.takes]


def _safe(moves: Sequence[MoveFacts]) -> list[MoveFacts]:
    return [move for move in moves if not move.attacked]


def _checking(moves: Sequence[MoveFacts]) -> list[MoveFacts]:
    return [move for move in moves if move.check]


def gain(move: MoveFacts) -> int:
    """What a trade on the square brings if the opponent takes back."""
    return VALUES[move.takes] - (VALUES[move.piece] if move.attacked else 0)


RULES: Mapping[str, Rule] = {
    "any legal move": lambda moves: moves,
    "first in the list": lambda moves: moves[:1],
    "last in the list": lambda moves: moves[-1:],
    "take something": _taking,
    "take the most valuable piece": lambda moves: _most(_taking(moves), lambda move: VALUES[move.takes]),
    "take without being retaken": lambda moves: _most(_safe(_taking(moves)), lambda move: VALUES[move.takes]),
    "take where the trade gains most": lambda moves: _most(_taking(moves), gain),
    "give check": _checking,
    "give check on a safe square": lambda moves: _safe(_checking(moves)),
    "give check with the strongest piece": lambda moves: _most(_checking(moves), lambda move: VALUES[move.piece]),
    "take with check": lambda moves: _checking(_taking(moves)),
    "check, take, or anything": lambda moves: _checking(moves) or _taking(moves) or moves,
    "safe check, best trade, or anything": lambda moves: _safe(_checking(moves)) or _most(moves, gain),
    "promote": lambda moves: [move for move in moves if len(move.uci) == 5],
    "move the queen": lambda moves: [move for move in moves if move.piece == "queen"],
    "neither take nor check": lambda moves: [move for move in moves if not move.takes and not move.check],
}
"""By what a player would call them. A rule that finds no move falls back on any legal one."""


def chance(rule: Rule, moves: Sequence[MoveFacts], right: Collection[str]) -> float:
    """The share of right moves among those that a rule draws from."""
    drawn = rule(moves) or moves
    return sum(move.uci in right for move in drawn) / len(drawn)
