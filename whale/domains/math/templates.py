"""Templates of word problems: texts with slots, and the steps that solve them (templates.json)."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TEMPLATES = Path(__file__).with_name("templates.json")
_STEP = re.compile(r"(\w+) = (\w+) ([-+*/]) (\w+)")


@dataclass(frozen=True, slots=True)
class Step:
    """One operation on slots, earlier results or a constant."""

    name: str
    left: str
    sign: str
    right: str

    def value(self, known: Mapping[str, int]) -> int | None:
        """The result, or None where it is no whole number above 0."""
        left, right = (int(part) if part.isdigit() else known[part] for part in (self.left, self.right))
        if self.sign == "/":
            return left // right if left % right == 0 else None
        result = {"+": left + right, "-": left - right, "*": left * right}[self.sign]
        return result if result > 0 else None


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of problem. Its level is the number of its steps."""

    id: str
    steps: tuple[Step, ...]
    ranges: Mapping[str, tuple[int, int]]
    """Slot -> lowest and highest number."""
    texts: tuple[str, ...]
    """Wordings: {name} and {other} are two people; {a} ... are the numbers; the rest are words."""
    new: bool
    """Kept for the test split: no other split has a problem of this kind."""

    @property
    def level(self) -> int:
        """How many operations solve it."""
        return len(self.steps)

    def solve(self, numbers: Mapping[str, int]) -> tuple[int, ...] | None:
        """The result of each step, the answer last; None where one is no whole number above 0."""
        known = dict(numbers)
        for step in self.steps:
            value = step.value(known)
            if value is None:
                return None
            known[step.name] = value
        return tuple(known[step.name] for step in self.steps)


@dataclass(frozen=True, slots=True)
class Words:
    """What fills the slots that are no numbers: a word, or a singular with its plural."""

    choices: Mapping[str, tuple[str | tuple[str, str], ...]]


@cache
def load_templates() -> tuple[tuple[Template, ...], Words]:
    """The shipped templates and their words, read once per process."""
    raw = json.loads(TEMPLATES.read_text(encoding="utf-8"))
    templates = tuple(
        Template(
            id=item["id"],
            steps=tuple(_step(text) for text in item["steps"]),
            ranges={slot: (low, high) for slot, (low, high) in item["ranges"].items()},
            texts=tuple(item["texts"]),
            new=item.get("new", False),
        )
        for item in raw["templates"]
    )
    words = {
        kind: tuple(value if isinstance(value, str) else (value[0], value[1]) for value in values)
        for kind, values in raw["words"].items()
    }
    return templates, Words(words)


def _step(text: str) -> Step:
    match = _STEP.fullmatch(text)
    if match is None:
        raise ValueError(f"{TEMPLATES.name}: not a step: {text!r}")
    return Step(*match.groups())
