"""Worked examples: add mined ones, replace, remove, reorder."""

from functools import partial
from random import Random

from whale.search.mutation.operator import Change, Material, Operator, Site
from whale.search.mutation.program import Program
from whale.search.worked_examples import Example, example_files, mine, render_examples

AT_ONCE = (1, 2, 3, 4)


def _add(program: Program, material: Material, path: str, held: list[Example], rng: Random) -> Change | None:
    room = material.max_examples - len(held)
    wanted = rng.choice(AT_ONCE)
    mined = _mined(material, rng, min(wanted, room), held) if room > 0 else []
    if not mined:
        return None
    # The newest example stands nearest to the question, or furthest from it.
    examples = [*held, *mined] if rng.random() < 0.5 else [*mined, *held]
    return Change(
        program.with_file(path, render_examples(examples)),
        f"{len(mined)} worked example(s) from passed rollouts added to {path} ({len(examples)} in all)",
    )


def _replace(program: Program, material: Material, path: str, held: list[Example], rng: Random) -> Change | None:
    count = rng.choice([1, len(held), *AT_ONCE])
    mined = _mined(material, rng, min(count, material.max_examples), held)
    if not mined:
        return None
    if count == 1 and len(held) > 1:
        examples = list(held)
        examples[rng.randrange(len(held))] = mined[0]
        return Change(program.with_file(path, render_examples(examples)), f"one worked example of {path} replaced")
    return Change(
        program.with_file(path, render_examples(mined)),
        f"the worked examples of {path} replaced by {len(mined)} from passed rollouts",
    )


def _remove(program: Program, material: Material, path: str, held: list[Example], rng: Random) -> Change | None:
    examples = list(held)
    examples.pop(rng.randrange(len(examples)))
    return Change(
        program.with_file(path, render_examples(examples)),
        f"one worked example removed from {path} ({len(examples)} left)",
    )


def _reorder(program: Program, material: Material, path: str, held: list[Example], rng: Random) -> Change | None:
    examples = list(held)
    rng.shuffle(examples)
    if examples == held:
        examples.reverse()
    if examples == held:
        return None
    return Change(program.with_file(path, render_examples(examples)), f"the worked examples of {path} reordered")


def _mined(material: Material, rng: Random, count: int, held: list[Example]) -> list[Example]:
    return mine(material.passed, rng, count, exclude=held, max_chars=material.max_example_chars)


def _add_sites(program: Program, material: Material) -> list[Site]:
    files = example_files(program.files)
    return [Site(partial(_add, program, material, path, held)) for path, held in files.items()]


def _replace_sites(program: Program, material: Material) -> list[Site]:
    files = example_files(program.files)
    return [Site(partial(_replace, program, material, path, held)) for path, held in files.items() if held]


def _remove_sites(program: Program, material: Material) -> list[Site]:
    files = example_files(program.files)
    return [Site(partial(_remove, program, material, path, held)) for path, held in files.items() if held[1:]]


def _reorder_sites(program: Program, material: Material) -> list[Site]:
    files = example_files(program.files)
    return [Site(partial(_reorder, program, material, path, held)) for path, held in files.items() if held[1:]]


OPERATORS = (
    Operator(
        "examples-add",
        "examples",
        "Add 1 to 4 worked examples mined from rollouts that passed on D_weight.",
        "The model follows shown work better than described work.",
        _add_sites,
    ),
    Operator(
        "examples-replace",
        "examples",
        "Replace one worked example, or all, by mined ones.",
        "The model's own passed work is a better pattern than the present examples.",
        _replace_sites,
    ),
    Operator(
        "examples-remove",
        "examples",
        "Remove one of several worked examples.",
        "The example misleads, or only makes the prompt longer.",
        _remove_sites,
    ),
    Operator(
        "examples-reorder",
        "examples",
        "Put the worked examples in another order.",
        "The example next to the question weighs most.",
        _reorder_sites,
    ),
)
