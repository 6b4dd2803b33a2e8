"""What stands on a board and which moves are legal: facts by the rules of chess, no evaluation.

The only module that speaks with python-chess, which is GPL-3 and therefore an extra of this project. Everything else
of the domain deals in FEN and UCI strings.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from whale.errors import UsageError

if TYPE_CHECKING:
    import chess


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """One legal move and what is seen of it on the board."""

    uci: str
    piece: str
    """"pawn", "knight", "bishop", "rook", "queen" or "king": what moves."""
    takes: str
    """What it takes, empty if nothing."""
    check: bool
    attacked: bool
    """Whether the opponent's pieces attack the square that it goes to, once it stands there."""
    mate: bool
    """The verifier's and the builder's: a harness is never told."""


def python_chess() -> None:
    """Raise UsageError, in one line with the command to run, where python-chess is missing."""
    try:
        import chess  # noqa: F401
    except ImportError:
        raise UsageError(
            "chess: the domain needs python-chess (GPL-3): pip install 'whale-evolve[chess]', or pip install chess"
        ) from None


def board_of(fen: str) -> "chess.Board":
    """The board of a FEN. Raises ValueError for what is no position that can arise."""
    import chess

    board = chess.Board(fen)
    if not board.is_valid():
        raise ValueError(f"not a legal position: {fen}")
    return board


@lru_cache(maxsize=4096)
def legal_moves(fen: str) -> tuple[MoveFacts, ...]:
    """All legal moves of a position, in the order of their UCI strings (which says nothing of their worth)."""
    return tuple(sorted(_facts(board_of(fen)), key=lambda move: move.uci))


def _facts(board: "chess.Board") -> Iterator[MoveFacts]:
    import chess

    for move in board.legal_moves:
        moved = board.piece_type_at(move.from_square)
        taken = chess.PAWN if board.is_en_passant(move) else board.piece_type_at(move.to_square)
        board.push(move)
        attacked = board.is_attacked_by(board.turn, move.to_square)
        check, mate = board.is_check(), board.is_checkmate()
        board.pop()
        yield MoveFacts(
            uci=move.uci(),
            piece=chess.piece_name(moved or chess.PAWN),
            takes=chess.piece_name(taken) if taken else "",
            check=check,
            attacked=attacked,
            mate=mate,
        )


def after(fen: str, uci: str) -> str:
    """The position after a legal move. Raises ValueError for any other move."""
    board = board_of(fen)
    board.push(_legal(board, uci))
    return str(board.fen())


def _legal(board: "chess.Board", uci: str) -> "chess.Move":
    # Compared as strings: python-chess's own parser also takes a king that "takes" its rook for castling.
    for move in board.legal_moves:
        if move.uci() == uci:
            return move
    raise ValueError(f"{uci} is not legal in {board.fen()}")


def colour(fen: str) -> str:
    """Whose move it is, "white" or "black"."""
    return "white" if fen.split()[1] == "w" else "black"


def drawing(fen: str) -> str:
    """The board as eight lines of text, rank 8 first; capitals are White's, a dot is an empty square."""
    ranks = fen.split()[0].split("/")
    return "\n".join(" ".join("".join("." * int(mark) if mark.isdigit() else mark for mark in rank)) for rank in ranks)


def pieces(fen: str) -> dict[str, str]:
    """The pieces of each side, such as {"white": "Ke1 Qd1 Pa2", "black": ...}: king first, pawns last."""
    sides: dict[str, list[str]] = {"white": [], "black": []}
    for row, rank in enumerate(fen.split()[0].split("/")):
        column = 0
        for mark in rank:
            if mark.isdigit():
                column += int(mark)
                continue
            sides["white" if mark.isupper() else "black"].append(f"{mark.upper()}{'abcdefgh'[column]}{8 - row}")
            column += 1
    order = "KQRBNP"
    return {side: " ".join(sorted(own, key=lambda p: (order.index(p[0]), p[1:]))) for side, own in sides.items()}


def canonical(fen: str) -> str:
    """One name for a position and its mirror images: colours exchanged, files reversed, or both.

    The side to move becomes White. Castling and en-passant rights do not count: two positions that differ in these
    alone are near-duplicates.
    """
    placement, turn = fen.split()[:2]
    ranks = ["".join("." * int(mark) if mark.isdigit() else mark for mark in rank) for rank in placement.split("/")]
    if turn == "b":
        ranks = [rank.swapcase() for rank in reversed(ranks)]
    return min("/".join(ranks), "/".join(rank[::-1] for rank in ranks))
