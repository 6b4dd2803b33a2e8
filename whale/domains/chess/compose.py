"""Positions composed at random, and what there is to find in them. Needed to build the data only.

Each draw depends on (seed, its number) alone: the engine that judges a position searches a fixed number of nodes on
one thread with an empty hash table. So the same engine finds the same puzzles, in any order and on any number of
processes.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whale.domains.chess.board import after, board_of, legal_moves
from whale.domains.chess.puzzle import Puzzle, right_moves
from whale.domains.chess.rules import RULES, VALUES, chance

if TYPE_CHECKING:
    import chess
    import chess.engine

ATTACKS = 0.4
"""The share of the positions in which one side is stronger; there only mates are looked for."""
UNEVEN = 2
"""Pawns by which the material of any other position may differ."""
OBVIOUS = 0.2
"""The share of the puzzles that the first rules solve which is taken: most positions hold nothing else."""
LOOK_NODES = 2_000
PROVE_NODES = 30_000
"""What a unique best move is checked with."""
GAP, SLACK = 250, 50
"""Centipawns that the best move is ahead of any other; the slack is for the first, shorter look."""
CLEARLY_WON = 400
"""Where a second move wins as clearly as this, the best one is a matter of taste."""
LOST = -300
"""Where even the best move loses, there is nothing to find."""
MATE = 100_000
FEWEST_MOVES, MOST_MOVES = 8, 30
LONGER = 0.4
"""How often a line that goes on with a second unique move is taken with it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A puzzle with the position before the opponent's move, as the database writes it."""

    puzzle: Puzzle
    before: str
    opponent: str


def puzzle_of_draw(engine: "chess.engine.SimpleEngine", seed: int, number: int) -> Found | None:
    """Compose position `number`, let the opponent make any move, and return the puzzle that it left, if one."""
    rng = random.Random(f"whale chess {seed} {number}")
    attack = rng.random() < ATTACKS
    board = _compose(rng, attack)
    if not board.is_valid() or board.is_check():
        return None
    moves = sorted(move.uci() for move in board.legal_moves)
    if not moves:
        return None
    before, move = board.fen(), rng.choice(moves)
    board.push_uci(move)
    if not (_has_mate(board) if attack else abs(_balance(board)) <= UNEVEN):
        return None
    line = _line(engine, board.fen(), rng)
    return (
        Found(Puzzle(f"{seed}-{number:06d}", f"{seed}-{number:06d}", board.fen(), line), before, move) if line else None
    )


def _compose(rng: random.Random, attack: bool) -> "chess.Board":
    """Two to four pieces a side beside kings and pawns, each more or less where such pieces stand."""
    import chess

    board = chess.Board(None)
    board.turn = rng.random() < 0.5

    def put(colour: bool, kind: int, ranks: Sequence[int]) -> None:
        rank, file = rng.choice(ranks), rng.randrange(8)
        square = chess.square(file, rank if colour else 7 - rank)
        if board.piece_at(square) is None:
            board.set_piece_at(square, chess.Piece(kind, colour))

    officers = (chess.QUEEN, chess.ROOK, chess.ROOK, chess.BISHOP, chess.BISHOP, chess.KNIGHT, chess.KNIGHT)
    pieces = rng.sample(officers, rng.randint(2, 4))
    for colour in (chess.WHITE, chess.BLACK):
        put(colour, chess.KING, (0, 0, 0, 0, 1, 1, 2))
        # The solver is the side that is not to move yet.
        stronger = [chess.QUEEN, chess.ROOK] if attack and colour != board.turn else []
        for kind in [*pieces, *stronger]:
            put(colour, kind, range(8))
        for _ in range(rng.randint(2, 5)):
            put(colour, chess.PAWN, (1, 1, 1, 2, 2, 3, 4, 5))
    return board


def _balance(board: "chess.Board") -> int:
    """White's material less Black's, in pawns."""
    import chess

    return sum(
        VALUES[chess.piece_name(piece.piece_type)] * (1 if piece.color else -1) for piece in board.piece_map().values()
    )


def _best(engine: "chess.engine.SimpleEngine", fen: str, nodes: int, lines: int) -> list[tuple[int, str]]:
    """The best moves with their scores for the side to move, best first."""
    import chess.engine

    board = board_of(fen)
    # A new game each time: the engine then empties its hash table.
    infos = engine.analyse(board, chess.engine.Limit(nodes=nodes), multipv=lines, game=object())
    return [
        (info["score"].pov(board.turn).score(mate_score=MATE), info["pv"][0].uci()) for info in infos if info.get("pv")
    ]


def _is_only(scores: Sequence[tuple[int, str]], gap: int) -> bool:
    if len(scores) < 2:
        return False
    best, second = scores[0][0], scores[1][0]
    return best - second >= gap and best >= LOST and second <= CLEARLY_WON


def _only_move(engine: "chess.engine.SimpleEngine", fen: str, wanted: Callable[[str], bool]) -> str | None:
    """The one best move, where there is such a move: looked for, then proved by a longer search."""
    if not FEWEST_MOVES <= len(legal_moves(fen)) <= MOST_MOVES:
        return None
    look = _best(engine, fen, LOOK_NODES, 2)
    if not _is_only(look, GAP - SLACK) or not wanted(look[0][1]):
        return None
    proof = _best(engine, fen, PROVE_NODES, 2)
    return proof[0][1] if _is_only(proof, GAP) and proof[0][1] == look[0][1] else None


def _is_obvious(fen: str, move: str) -> bool:
    """Whether the best trade, or the most valuable piece, leads to the move."""
    moves = legal_moves(fen)
    rules = ("take the most valuable piece", "take where the trade gains most")
    return any(chance(RULES[name], moves, {move}) >= 0.5 for name in rules)


def _line(engine: "chess.engine.SimpleEngine", fen: str, rng: random.Random) -> tuple[str, ...]:
    """The line that solves the position, or nothing where it is no puzzle."""
    moves = legal_moves(fen)
    if not FEWEST_MOVES <= len(moves) <= MOST_MOVES or not any(move.takes for move in moves):
        return ()
    line: tuple[str, ...] = ()
    if mates := _mates(fen):
        line = (mates[0],)
    elif only := _only_move(engine, fen, lambda move: rng.random() < OBVIOUS or not _is_obvious(fen, move)):
        line = _mate_in_two(fen, only) or (only, *_more(engine, after(fen, only), rng))
    return line if line and _has_distractors(fen, line[0]) else ()


def _more(engine: "chess.engine.SimpleEngine", fen: str, rng: random.Random) -> tuple[str, ...]:
    """The opponent's best reply and a second move to find, or nothing."""
    if rng.random() > LONGER or not legal_moves(fen):
        return ()
    reply = _best(engine, fen, PROVE_NODES, 1)[0][1]
    fen = after(fen, reply)
    second = min(_mates(fen), default=None) or _only_move(engine, fen, lambda _: True)
    return (reply, second) if second else ()


def _mate_in_two(fen: str, key: str) -> tuple[str, ...] | None:
    """The line of a mate in two that begins with `key`, if that is the only move to force it. By trying every move."""
    if mates_in_two(fen, [key]) != [key] or mates_in_two(fen) != [key]:
        return None
    fen = after(fen, key)
    # The reply that leaves the fewest mates: the hardest to answer by chance.
    _, reply = min((len(_mates(after(fen, move.uci))), move.uci) for move in legal_moves(fen))
    return (key, reply, min(_mates(after(fen, reply))))


def _mates(fen: str) -> list[str]:
    return [move.uci for move in legal_moves(fen) if move.mate]


def mates_in_two(fen: str, keys: Sequence[str] | None = None) -> list[str]:
    """The first moves, of `keys` or of all, after which every reply can be answered by mate. Exhaustive."""
    found = []
    for key in keys or [move.uci for move in legal_moves(fen)]:
        next_fen = after(fen, key)
        replies = legal_moves(next_fen)
        if replies and all(_has_mate(board_of(after(next_fen, reply.uci))) for reply in replies):
            found.append(key)
    return found


def _has_mate(board: "chess.Board") -> bool:
    for move in board.legal_moves:
        if board.gives_check(move):
            board.push(move)
            mate = board.is_checkmate()
            board.pop()
            if mate:
                return True
    return False


def _has_distractors(fen: str, reference: str) -> bool:
    """Whether there are wrong captures, and wrong checks beside a mate: what a one-line rule would take."""
    moves = legal_moves(fen)
    right = right_moves(fen, reference)
    wrong = [move for move in moves if move.uci not in right]
    captures, checks = sum(bool(move.takes) for move in wrong), sum(move.check for move in wrong)
    if any(move.mate for move in moves):
        return len(right) <= 2 and checks >= 2 and captures >= 1
    return captures >= 1


def themes(puzzle: Puzzle) -> Iterator[str]:
    """What the first move looks like: "mate", then "capture", "check" and "promotion", or "quiet"."""
    first = next(move for move in legal_moves(puzzle.fen) if move.uci == puzzle.line[0])
    if puzzle.group.startswith("mate"):
        yield "mate"
    marks = [name for name, holds in (("capture", first.takes), ("check", first.check)) if holds]
    yield from marks or ["quiet"]
    if len(first.uci) == 5:
        yield "promotion"
