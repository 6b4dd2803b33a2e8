"""Splits by game: two puzzles of one game are never in different splits, nor are near-duplicates."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from whale.domains.base import SPLITS, Split
from whale.domains.chess.board import canonical
from whale.domains.chess.puzzle import Puzzle, positions

SHARES: Mapping[Split, float] = {"weight": 0.45, "harness": 0.12, "validation": 0.2, "test": 0.23}
"""The share of the games that a split gets where no sizes are asked for."""
_ORDER: tuple[Split, ...] = ("test", "validation", "harness", "weight")
"""Which split keeps a position that several have: what is measured comes first, what is trained on last."""


def draw(*key: object) -> int:
    """A pseudo-random number of 64 bits that depends on nothing but its arguments."""
    return int.from_bytes(hashlib.sha256("\x1f".join(map(str, key)).encode()).digest()[:8], "big")


def split_of(game: str) -> Split:
    """The split of a game: fixed, so that all runs on a database speak of the same splits."""
    place = draw("game", game) / 2**64
    for split in SPLITS:
        place -= SHARES[split]
        if place < 0:
            return split
    return SPLITS[-1]


def without_duplicates(chosen: Mapping[Split, Sequence[Puzzle]]) -> dict[Split, list[Puzzle]]:
    """Drop every puzzle that meets a position of another one, mirror images included; the order stays."""
    seen: set[str] = set()
    kept: dict[Split, list[Puzzle]] = {}
    for split in _ORDER:
        kept[split] = []
        for puzzle in chosen[split]:
            names = set(_names(puzzle))
            if not names & seen:
                kept[split].append(puzzle)
                seen |= names
    return {split: kept[split] for split in SPLITS}


def _names(puzzle: Puzzle) -> Iterable[str]:
    return (canonical(fen) for fen in positions(puzzle))
