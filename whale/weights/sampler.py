"""The persistent sampler: which question is trained on next, as a pure function of a position.

A *position* counts questions since the run began: question `p` of a split of `n` is number `p % n` of epoch
`p // n`, and each epoch is a permutation of its own. Nothing is stored but the position, so a resumed run
neither repeats nor skips a question (phase k takes the slice [kE, (k+1)E)). Torch-free.
"""

import hashlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from whale.errors import UsageError

Epochs = str | int | Decimal | Fraction
"""A number of epochs, exact: "0.6", 1, Decimal("0.2") or Fraction(3, 5). Not a float: its 0.6 is not 3/5."""


@dataclass(frozen=True, slots=True)
class Batch:
    """`count` questions from sampler position `start`."""

    start: int
    count: int


def order(seed: int, epoch: int, n: int) -> list[int]:
    """Return epoch `epoch`'s permutation of range(n).

    Seeded by SHA-256 and drawn by Python's `random.Random`, so it is the same on every machine.
    """
    if n < 0 or epoch < 0:
        raise ValueError("an epoch's number and its size cannot be negative")
    digest = hashlib.sha256(f"whale/sampler/{seed}/{epoch}/{n}".encode()).digest()
    questions = list(range(n))
    random.Random(int.from_bytes(digest, "big")).shuffle(questions)
    return questions


def take(seed: int, n: int, start: int, count: int) -> list[int]:
    """Return the indices of `count` questions from position `start` on, across epochs as needed."""
    if n < 1:
        raise UsageError("the weight split has no questions: nothing can be sampled from it")
    if start < 0 or count < 0:
        raise ValueError("a sampler position and a count cannot be negative")
    taken: list[int] = []
    while len(taken) < count:
        epoch, offset = divmod(start + len(taken), n)
        taken += order(seed, epoch, n)[offset : offset + count - len(taken)]
    return taken


def parse_epochs(epochs: Epochs) -> Fraction:
    """Return `epochs` as an exact fraction. Raises UsageError for a float, a non-number, zero or less."""
    try:
        if isinstance(epochs, (float, bool)):
            raise TypeError
        exact = Fraction(epochs)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise UsageError(f'epochs = {epochs!r} is not an exact number: write it as text, such as "0.6"') from None
    if exact <= 0:
        raise UsageError(f"epochs = {epochs} must be greater than 0")
    return exact


def bound(n: int, epochs: Epochs, phase: int) -> int:
    """Return the position at which phase `phase` of `epochs` epochs each begins: ⌈phase · E · n⌉.

    The cumulative bound is rounded, not the length: phases therefore meet exactly, and any number of them
    covers the same questions as one long phase.
    """
    if phase < 0:
        raise ValueError("phases are counted from 0")
    return math.ceil(phase * parse_epochs(epochs) * n)


def slice_bounds(n: int, epochs: Epochs, phase: int) -> tuple[int, int]:
    """Return phase `phase`'s positions [start, end)."""
    return bound(n, epochs, phase), bound(n, epochs, phase + 1)


def batches(start: int, end: int, size: int) -> Iterator[Batch]:
    """Cut the positions [start, end) into batches of `size` questions; the last one may be smaller.

    A batch may run over the end of an epoch: then it holds the last questions of one permutation and the
    first of the next, and a question that ends one and begins the other comes twice in it.
    """
    if size < 1:
        raise UsageError(f"a batch of {size} questions: it needs at least 1")
    for position in range(start, end, size):
        yield Batch(position, min(size, end - position))
