"""Word problems drawn from templates, and the split that each one belongs to for good.

A problem is its template with its numbers; names and nouns are dress. Its split is a function of these alone,
so that no seed, size or other option can bring a problem of one split into another one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from whale.domains.base import SPLITS, Split
from whale.domains.draws import Draws, digest
from whale.domains.math.templates import Template, Words, load_templates

SHARES: Mapping[Split, int] = {"weight": 55, "harness": 15, "validation": 15, "test": 15}
"""Percent of the problems of a template that each split owns; test owns all of a new template."""
MAX_TRIES = 3_000
TRIES_PER_TEMPLATE = 100
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Problem:
    """One word problem with its solution."""

    id: str
    template: str
    level: int
    new: bool
    """Whether no other split has problems of its template."""
    text: str
    numbers: tuple[int, ...]
    """The numbers of the text in the order of its slots' names."""
    solution: tuple[str, ...]
    """One equation per step."""
    answer: int

    @property
    def group(self) -> str:
        """The subset by which reports break scores down."""
        return f"level {self.level}{', new kind' if self.new else ''}"


class NotEnoughProblems(Exception):
    """A split has not as many different problems as were asked for."""


def split_of(template: Template, numbers: Mapping[str, int]) -> Split:
    """The split that owns a problem, whatever its wording."""
    if template.new:
        return "test"
    place = digest("split", template.id, *sorted(numbers.items())) % 100
    for split in SPLITS:
        if place < SHARES[split]:
            return split
        place -= SHARES[split]
    raise AssertionError("the shares add up to 100")


def draw_problems(split: Split, count: int, levels: Sequence[int], seed: int) -> tuple[Problem, ...]:
    """`count` different problems of a split, the levels in turn. In the test split every other one is of a new kind.

    Raises NotEnoughProblems where the templates have not that many.
    """
    templates, words = load_templates()
    draws = Draws("math", seed, split)
    kinds = [
        [t for t in templates if t.level == level and t.new == new]
        for new in ((False, True) if split == "test" else (False,))
        for level in levels
    ]
    problems: list[Problem] = []
    seen: set[tuple[str, tuple[int, ...]]] = set()
    while len(problems) < count:
        problem = _draw(draws, split, kinds[len(problems) % len(kinds)], words, len(problems), seen)
        problems.append(problem)
        seen.add((problem.template, problem.numbers))
    return tuple(problems)


def draw_harder(level: int, seed: int) -> Problem | None:
    """A problem of D_weight with one more step than `level`; None if there are no such templates."""
    templates, words = load_templates()
    kinds = [template for template in templates if template.level == level + 1 and not template.new]
    if not kinds:
        return None
    found = _draw(Draws("math", "harder", seed), "weight", kinds, words, 0, set())
    # Its id is its content: the same numbers in other words are the same problem.
    return replace(found, id=f"weight-{found.template}-{'-'.join(map(str, found.numbers))}")


def _draw(
    draws: Draws,
    split: Split,
    templates: Sequence[Template],
    words: Words,
    index: int,
    seen: set[tuple[str, tuple[int, ...]]],
) -> Problem:
    # A kind is drawn first, so that one whose numbers are hard to find is as frequent as the others.
    template = draws.choice(templates)
    for attempt in range(1, MAX_TRIES + 1):
        if attempt % TRIES_PER_TEMPLATE == 0:
            template = draws.choice(templates)
        numbers = {slot: draws.between(low, high) for slot, (low, high) in template.ranges.items()}
        values = template.solve(numbers)
        key = (template.id, tuple(numbers.values()))
        # Neither a repeated number nor an answer that stands in the text: copying a number never passes.
        if values is None or values[-1] in numbers.values() or len(set(numbers.values())) < len(numbers):
            continue
        if key in seen or split_of(template, numbers) != split:
            continue
        return Problem(
            id=f"{split}-{index:05d}",
            template=template.id,
            level=template.level,
            new=template.new,
            text=_write(draws.choice(template.texts), numbers, words, draws),
            numbers=tuple(numbers.values()),
            solution=tuple(_equations(template, numbers, values)),
            answer=values[-1],
        )
    raise NotEnoughProblems(f"the {split} split has only {index} different problems of these levels")


def _equations(template: Template, numbers: Mapping[str, int], values: Sequence[int]) -> Iterator[str]:
    known = dict(numbers)
    for step, value in zip(template.steps, values, strict=True):
        left, right = (part if part.isdigit() else str(known[part]) for part in (step.left, step.right))
        known[step.name] = value
        yield f"{left} {step.sign} {right} = {value}"


def _write(text: str, numbers: Mapping[str, int], words: Words, draws: Draws) -> str:
    filled = {slot: str(number) for slot, number in numbers.items()}
    for slot in dict.fromkeys(_SLOT.findall(text)):
        if slot in filled:
            continue
        kind = {"other": "name"}.get(slot, slot if slot in words.choices else slot.removesuffix("s"))
        word = draws.choice([w for w in words.choices[kind] if w not in filled.values()])
        if isinstance(word, str):
            filled[slot] = word
        else:
            filled[kind], filled[f"{kind}s"] = word
    written = _SLOT.sub(lambda match: filled[match.group(1)], text)
    return written[0].upper() + written[1:]
