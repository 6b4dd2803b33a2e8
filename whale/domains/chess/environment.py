"""The tools of an episode: the board as it stands, the legal moves, and the one way to move."""

from collections.abc import Mapping
from typing import Any

from whale.domains.base import ToolFunction
from whale.domains.chess.board import colour, drawing, legal_moves, pieces
from whale.domains.chess.puzzle import Puzzle, start
from whale.domains.chess.verifier import PLAY, play_reply
from whale.rollout.types import Completion


def observation(fen: str) -> dict[str, Any]:
    """A position as harnesses see it: facts that stand on the board, and no evaluation."""
    legal = legal_moves(fen)
    return {
        "fen": fen,
        "turn": colour(fen),
        "board": drawing(fen),
        "pieces": pieces(fen),
        "legal": " ".join(move.uci for move in legal),
    }


def described(fen: str) -> list[dict[str, Any]]:
    """The legal moves with what is seen of each. Squares stand apart: a program that writes a move wrote it itself."""
    return [
        {
            "from": move.uci[:2],
            "to": move.uci[2:4],
            "promotes": move.uci[4:],
            "piece": move.piece,
            "takes": move.takes,
            "check": move.check,
            "attacked": move.attacked,
        }
        for move in legal_moves(fen)
    ]


def tools(puzzle: Puzzle) -> Mapping[str, ToolFunction]:
    """Fresh tools for one episode; they share its game, which only `play` moves on.

    `position()`, `moves()`: see `observation` and `described`; of a game that is over, its last position.
    `play(reply)`: takes one reply of the model as a turn; {"over": bool, "reply": the opponent's move or ""}.
    Whether the move was right is not said, nor can it be taken back.
    """
    game = start(puzzle)
    used: set[int] = set()

    def position() -> dict[str, Any]:
        return observation(game.fen)

    def moves() -> list[dict[str, Any]]:
        return described(game.fen)

    def play(reply: Completion) -> dict[str, Any]:
        nonlocal game
        if not isinstance(reply, Completion):
            raise ValueError("play: pass a Reply of the model, not a text")
        if reply.turn in used:
            raise ValueError("play: this reply was a turn already")
        game = play_reply(game, reply)
        used.add(reply.turn)
        return {"over": game.over, "reply": game.reply}

    return {"position": position, "moves": moves, PLAY: play}
