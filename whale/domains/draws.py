"""Reproducible draws: a stream of numbers that depends on a key alone, not on Python's version or platform."""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def digest(*key: object) -> int:
    """A pseudo-random number of 256 bits that depends on nothing but its arguments' texts."""
    return int.from_bytes(hashlib.sha256("\x1f".join(map(str, key)).encode("utf-8", "surrogatepass")).digest(), "big")


class Draws:
    """An endless stream of draws under one key."""

    def __init__(self, *key: object) -> None:
        self._key = key
        self._drawn = 0

    def below(self, n: int) -> int:
        """A number in [0, n)."""
        self._drawn += 1
        return digest(*self._key, self._drawn) % n

    def between(self, low: int, high: int) -> int:
        """A number in [low, high]."""
        return low + self.below(high - low + 1)

    def choice(self, values: Sequence[T]) -> T:
        """One of the values."""
        return values[self.below(len(values))]
