"""The verifier: one move a turn, read from tokens that the model sampled; the whole line or nothing."""

import re

from whale.domains.base import Verdict
from whale.domains.chess.puzzle import Game, Puzzle, start
from whale.domains.tags import last_span
from whale.rollout.types import Completion

PLAY = "play"
"""The tool that takes a turn."""
TAG = "move"
_UCI = re.compile(r"[a-h][1-8][a-h][1-8][qrbn]?", re.ASCII)
"""Lower case, as UCI has it: "e7e8q". "0000", "e7e8Q", "e8=Q", "O-O" and "exd6 e.p." are no UCI moves."""
_LONGEST = 20
"""Characters of a span, blanks around the move included."""


def read_move(completion: Completion) -> str | None:
    """The UCI move in the last `<move>...</move>` that the model sampled, or None. Linear in the text."""
    span = last_span(completion, TAG)
    if span is None or len(span) > _LONGEST:
        return None
    move = span.strip()
    return move if _UCI.fullmatch(move) else None


def play_reply(game: Game, reply: Completion) -> Game:
    """The environment's transition: the game after the model's turn. Raises ValueError where it is over."""
    return game.play(read_move(reply))


def final_game(puzzle: Puzzle, completion: Completion) -> Game:
    """The game at the end of an episode: every reply that was played, then the answer, if it was not played yet."""
    game = start(puzzle)
    played: set[int] = set()
    for action in completion.actions:
        if action.tool == PLAY and not game.over:
            game = play_reply(game, action.reply)
            played.add(action.reply.turn)
    if completion.turn not in played and not game.over:
        game = play_reply(game, completion)
    return game


def verify(puzzle: Puzzle, completion: Completion) -> Verdict:
    """Reward 1 if the whole line was played. Total on any text.

    Metrics: "format" (every turn held one UCI move), "legal" (every turn was a legal move), "progress" (the share of
    the solver's moves that were found, in order).
    """
    game = final_game(puzzle, completion)
    return Verdict(
        float(game.outcome == "solved"),
        {
            "format": float(game.outcome != "no_move"),
            "legal": float(game.outcome not in ("no_move", "illegal")),
            "progress": game.right / puzzle.moves,
        },
    )
