"""The check for puzzles smuggled into a harness that it will be scored or tested on."""

import re
from collections.abc import Iterable

from whale.domains.base import Split
from whale.domains.chess.board import canonical, drawing, legal_moves, pieces
from whale.domains.chess.puzzle import Puzzle, positions

_FEN = re.compile(r"(?:[KQRBNPkqrbnp1-8]{1,8}/){7}[KQRBNPkqrbnp1-8]{1,8}")
_BOARD = re.compile(r"(?:(?:[KQRBNPkqrbnp.] ){7}[KQRBNPkqrbnp.]\s+){7}(?:[KQRBNPkqrbnp.] ){7}[KQRBNPkqrbnp.]")
_PIECES = re.compile(r"[KQRBNP][a-h][1-8](?:[ ,]+[KQRBNP][a-h][1-8])+")
_MOVES = re.compile(r"[a-h][1-8][a-h][1-8][qrbn]?(?:[\s,;]+[a-h][1-8][a-h][1-8][qrbn]?)+")
_SEPARATOR = re.compile(r"[\s,;]+")
_ESCAPE = re.compile(r"\\[nrt]")


class LeakCheck:
    """Looks for the positions of hidden splits: as FEN, as a drawn board, as lists of pieces or of legal moves.

    It finds what is written in clear, mirror images of a FEN included, not what is encoded. Positions along the lines
    of the hidden puzzles count as well as those they start with.
    """

    def __init__(self, hidden: Iterable[tuple[Split, Puzzle]]) -> None:
        self._boards: dict[str, Split] = {}
        self._drawings: dict[str, Split] = {}
        self._pieces: dict[str, Split] = {}
        self._moves: dict[str, Split] = {}
        for split, puzzle in hidden:
            for fen in positions(puzzle):
                self._boards[canonical(fen)] = split
                self._drawings[drawing(fen)] = split
                self._moves[" ".join(move.uci for move in legal_moves(fen))] = split
                # Of a lone king no position is known.
                self._pieces |= {own: split for own in pieces(fen).values() if len(own.split()) > 2}

    def __call__(self, text: str) -> str | None:
        """The reason, naming the split but not the position; None if it is clean."""
        text = _ESCAPE.sub("\n", text)
        for placement in set(_FEN.findall(text)):
            for turn in "wb":
                if split := self._boards.get(canonical(f"{placement} {turn}")):
                    return f"it contains a position of the {split} split"
        for board in _BOARD.findall(text):
            lines = "\n".join(" ".join(line.split()) for line in board.splitlines() if line.strip())
            if split := self._drawings.get(lines):
                return f"it contains a board of the {split} split"
        # Both sides of a hidden position: one side alone comes up by chance.
        sides = {" ".join(_SEPARATOR.split(found)) for found in _PIECES.findall(text)}
        known = [self._pieces[side] for side in sides if side in self._pieces]
        if len(known) >= 2:
            return f"it contains the pieces of a position of the {known[0]} split"
        for found in _MOVES.findall(text):
            if split := self._moves.get(" ".join(_SEPARATOR.split(found))):
                return f"it contains the legal moves of a position of the {split} split"
        return None
