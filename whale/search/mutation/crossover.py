"""Crossover: one tree from two scored parents."""

import ast
from random import Random

from whale.search.mutation.operator import Change, Crossover
from whale.search.mutation.program import MAIN, Program


def _code_and_texts(first: Program, second: Program, rng: Random) -> Change | None:
    code = {path: content for path, content in first.files.items() if path.endswith(".py")}
    texts = {path: content for path, content in second.files.items() if not path.endswith(".py")}
    # The code may read files that only its own tree has.
    own = {path: content for path, content in first.files.items() if path not in second.files}
    return Change({**own, **texts, **code}, "code of the first parent, prompts and examples of the second")


def _files(first: Program, second: Program, rng: Random) -> Change | None:
    differing = [p for p in sorted(first.files) if p in second.files and first.files[p] != second.files[p]]
    if len(differing) < 2:
        return None
    taken = rng.sample(differing, rng.randint(1, len(differing) - 1))
    files = {**first.files, **{path: second.files[path] for path in taken}}
    return Change(files, f"the first parent with the second's {', '.join(sorted(taken))}")


def _attributes(first: Program, second: Program, rng: Random) -> Change | None:
    ours, theirs = first.attributes(), second.attributes()
    differing = [
        name
        for name in sorted(ours.keys() & theirs.keys())
        if isinstance(ours[name], ast.Constant)
        and isinstance(theirs[name], ast.Constant)
        and first.source.code(ours[name]) != second.source.code(theirs[name])
        # The number of turns belongs to the code that makes the calls.
        and name != "max_turns"
    ]
    if not differing:
        return None
    taken = rng.sample(differing, rng.randint(1, len(differing)))
    edits = [first.source.replace(ours[name], second.source.code(theirs[name])) for name in sorted(taken)]
    return Change(first.edited(edits), f"the first parent's {MAIN} with the second's {', '.join(sorted(taken))}")


CROSSOVERS = (
    Crossover(
        "crossover-code-texts",
        "crossover",
        "The code of one parent with the prompts and examples of another.",
        "What made each parent good adds up.",
        _code_and_texts,
    ),
    Crossover(
        "crossover-files",
        "crossover",
        "One parent with some of the differing files of another.",
        "What made each parent good adds up.",
        _files,
    ),
    Crossover(
        "crossover-attributes",
        "crossover",
        "One parent's code with some class attributes of another.",
        "What made each parent good adds up.",
        _attributes,
    ),
)
