"""Which proposal brought each line of a harness, and what it did to the score."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from whale.harness_repo.notes import records

ARGUMENTS = ("blame", "--porcelain", "--root", "--no-progress")

_HEADER = re.compile(r"([0-9a-f]{40}) \d+ (\d+)(?: \d+)?")


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """A proposal's score beside that of what it came from, under the same weights."""

    before: float
    after: float
    weights: str

    @property
    def gain(self) -> float:
        """How much better it is."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class BlamedLine:
    """A line of a file."""

    number: int
    """From 1."""
    text: str
    """As it is in the file: clean it (`visible`) before it reaches a terminal."""
    candidate: str
    """The proposal that brought it; a commit's id where that has no name here."""
    score: float | None
    """That proposal's latest score."""
    change: ScoreChange | None
    """None for a root, and where both were never scored under the same weights."""


def read_porcelain(output: bytes) -> Iterator[tuple[str, int, str]]:
    """(commit, line number, text) of each line in the output of `git blame --porcelain`."""
    sha, number = "", 0
    for line in output.decode("utf-8", "replace").split("\n"):
        if line.startswith("\t"):
            yield sha, number, line[1:]
        elif match := _HEADER.fullmatch(line):
            sha, number = match[1], int(match[2])


def score_change(note: Mapping[str, Any] | None, parent: Mapping[str, Any] | None) -> ScoreChange | None:
    """The latest pair of scores that a candidate and its parent got under the same weights."""
    before = {r.get("weights"): r.get("score") for r in records(parent)}
    for record in reversed(records(note)):
        weights, after = record.get("weights"), record.get("score")
        old = before.get(weights)
        if weights and isinstance(old, int | float) and isinstance(after, int | float):
            return ScoreChange(before=float(old), after=float(after), weights=str(weights))
    return None
