"""A puzzle: a position, the line that solves it, and the one rule by which the game goes on.

The rule is the same wherever a game is played: the `play` tool holds a `Game` for an episode, and the verifier plays
the recorded replies again from the start.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from whale.domains.chess.board import after, legal_moves

Outcome = Literal["running", "solved", "wrong", "illegal", "no_move"]
"""How a game stands. "wrong" = legal and not the line's; "no_move" = the reply held no UCI move."""


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A row of the database, from the solver's side."""

    id: str
    game: str
    """The game that the position is from; splits never share one."""
    fen: str
    """The position in which the solver is to move."""
    line: tuple[str, ...]
    """UCI moves in turn: the solver's, the opponent's reply, the solver's, ...; the solver's is the last."""
    themes: tuple[str, ...] = ()
    rating: int | None = None

    def __post_init__(self) -> None:
        """Reject a line that does not end with the solver's own move."""
        if len(self.line) % 2 != 1:
            raise ValueError(f"puzzle {self.id}: its line of {len(self.line)} moves does not end with the solver's")

    @property
    def moves(self) -> int:
        """How many moves the solver has to find."""
        return (len(self.line) + 1) // 2

    @property
    def group(self) -> str:
        """Where the line ends in mate "mate-1", "mate-2", ..., by the moves to find; else "line-1", "line-2", ..."""
        last = positions(self)[-1]
        mate = any(move.mate for move in legal_moves(last) if move.uci == self.line[-1])
        return f"{'mate' if mate else 'line'}-{self.moves}"


@dataclass(frozen=True, slots=True)
class Game:
    """A puzzle as far as it has been played. Immutable: each move makes a new one."""

    fen: str
    left: tuple[str, ...]
    """What is left of the line, the solver's move first; empty once it is solved."""
    outcome: Outcome = "running"
    reply: str = ""
    """The opponent's answer to the solver's last move, empty at the start and where the game is over."""
    right: int = 0
    """How many of the solver's moves were right so far."""

    @property
    def over(self) -> bool:
        """Whether no further move counts."""
        return self.outcome != "running"

    def play(self, move: str | None) -> "Game":
        """The game after the solver's turn; `None` is a turn without a move. Raises ValueError where it is over.

        One turn, one move: whatever is not the line's move ends the game. Where the line mates, any mate is right.
        """
        if self.over:
            raise ValueError("the game is over")
        if move is None:
            return replace(self, outcome="no_move", reply="")
        if all(known.uci != move for known in legal_moves(self.fen)):
            return replace(self, outcome="illegal", reply="")
        fen, left = after(self.fen, move), self.left[1:]
        if move not in right_moves(self.fen, self.left[0]):
            return replace(self, fen=fen, outcome="wrong", reply="")
        if not left:
            return replace(self, fen=fen, left=(), outcome="solved", reply="", right=self.right + 1)
        return replace(self, fen=after(fen, left[0]), left=left[1:], reply=left[0], right=self.right + 1)


def start(puzzle: Puzzle) -> Game:
    """The game before the first move."""
    return Game(puzzle.fen, puzzle.line)


def right_moves(fen: str, reference: str) -> frozenset[str]:
    """The moves that count as the line's: the line's own, or any mate where it mates."""
    mates = frozenset(move.uci for move in legal_moves(fen) if move.mate)
    return mates if reference in mates else frozenset((reference,))


def positions(puzzle: Puzzle) -> tuple[str, ...]:
    """The positions in which the solver is to move, along the line. Raises ValueError for an illegal line."""
    fens = [puzzle.fen]
    for own, reply in zip(puzzle.line[::2], puzzle.line[1::2], strict=False):
        fens.append(after(after(fens[-1], own), reply))
    after(fens[-1], puzzle.line[-1])
    return tuple(fens)


def play_all(puzzle: Puzzle, moves: Sequence[str | None]) -> Game:
    """The game after these turns; turns after its end change nothing."""
    game = start(puzzle)
    for move in moves:
        if not game.over:
            game = game.play(move)
    return game
