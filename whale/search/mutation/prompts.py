"""Prompt text: its sentences and lines, and where it stands among the messages."""

import ast
import re
from functools import partial
from random import Random

from whale.search.mutation.calls import Call, Roles
from whale.search.mutation.operator import Change, Material, Operator, Site
from whale.search.mutation.program import Program
from whale.search.mutation.snippets import missing
from whale.search.mutation.source import literal

TEXT_SUFFIXES = (".md", ".txt")
SLOT = re.compile(r"\{[^{}]*\}|\$\w+")
"""A place that the code fills in; text with one is moved, never deleted or doubled."""


def units(text: str) -> list[str]:
    """Sentences and lines, each with the white space before it; joined they are the text again."""
    return [unit for unit in re.split(r"(?<=[.!?])(?=\s)|(?<=[^.!?\s])(?=\n)", text) if unit]


def _prompt_files(program: Program) -> dict[str, list[str]]:
    found = {}
    for path in sorted(program.files):
        if path.endswith(TEXT_SUFFIXES):
            try:
                found[path] = units(program.files[path].decode().strip())
            except UnicodeDecodeError:
                continue
    return found


def _quoted(unit: str) -> str:
    text = " ".join(unit.split())
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _save(program: Program, path: str, parts: list[str], summary: str) -> Change:
    text = "".join(parts).strip("\n ")
    return Change(program.with_file(path, (text + "\n").encode()), summary)


def _delete(program: Program, path: str, parts: list[str], index: int, rng: Random) -> Change:
    return _save(program, path, parts[:index] + parts[index + 1 :], f"{path} without {_quoted(parts[index])}")


def _duplicate(program: Program, path: str, parts: list[str], index: int, rng: Random) -> Change:
    text = "".join(parts).rstrip()
    added = f"{text}\n{parts[index].strip()}"
    return _save(program, path, [added], f"{path} says {_quoted(parts[index])} again at its end")


def _move(program: Program, path: str, parts: list[str], index: int, rng: Random) -> Change | None:
    rest = [*(part.strip() for part in parts[:index]), *(part.strip() for part in parts[index + 1 :])]
    to = rng.choice([place for place in range(len(parts)) if place != index])
    rest.insert(to, parts[index].strip())
    # Each place keeps its own white space: the layout stays, the sentences change places.
    spaced = []
    for place, unit in zip(parts, rest, strict=True):
        lead = place[: len(place) - len(place.lstrip())]
        spaced.append(lead + unit + place[len(place.rstrip()) :])
    change = _save(program, path, spaced, f"{path} with {_quoted(parts[index])} moved to place {to + 1}")
    return change if change.files[path] != program.files[path] else None


def _delete_sites(program: Program, material: Material) -> list[Site]:
    return [
        Site(partial(_delete, program, path, parts, index))
        for path, parts in _prompt_files(program).items()
        if len(parts) > 1
        for index, unit in enumerate(parts)
        if unit.strip() and not SLOT.search(unit)
    ]


def _duplicate_sites(program: Program, material: Material) -> list[Site]:
    return [
        Site(partial(_duplicate, program, path, parts, index))
        for path, parts in _prompt_files(program).items()
        for index, unit in enumerate(parts)
        if unit.strip() and not SLOT.search(unit)
    ]


def _move_sites(program: Program, material: Material) -> list[Site]:
    return [
        Site(partial(_move, program, path, parts, index))
        for path, parts in _prompt_files(program).items()
        if len(parts) > 1
        for index, unit in enumerate(parts)
        if unit.strip()
    ]


def messages_of(call: Call) -> ast.expr | None:
    """The expression that gives a model call its messages."""
    if call.call.args and not isinstance(call.call.args[0], ast.Starred):
        return call.call.args[0]
    keyword = call.keyword("messages")
    return keyword.value if keyword else None


def _wrap(program: Program, messages: ast.expr, name: str, extra: str, summary: str) -> Change | None:
    snippets = missing(program.source.text, name)
    code = program.source.code(messages)
    if snippets is None or code.startswith(f"{name}("):
        return None
    edit = program.source.replace(messages, f"{name}({code}{extra})")
    return Change(program.edited([edit], snippets), summary)


def text_fields(program: Program, material: Material) -> tuple[str, ...]:
    """Fields of the task that hold text: those that the code reads, then those that the tasks have."""
    known = program.task_fields()
    if material.task_fields:
        return tuple(name for name in material.task_fields)
    return known


def _repeat_sites(program: Program, material: Material) -> list[Site]:
    sites = []
    for call in program.chats:
        task, messages = program.roles.get(call.function.name, Roles()).task, messages_of(call)
        if not task or messages is None:
            continue
        for name in text_fields(program, material):
            summary = f"the task's {name} again at the end of the last user message, model call {call.position + 1}"
            extra = f", {task}[{literal(name)}]"
            sites.append(Site(partial(_repeat, program, messages, extra, summary)))
    return sites


def _repeat(program: Program, messages: ast.expr, extra: str, summary: str, rng: Random) -> Change | None:
    return _wrap(program, messages, "_repeating", extra, summary)


def _system_sites(program: Program, material: Material) -> list[Site]:
    if not any(isinstance(node, ast.Constant) and node.value == "system" for node in ast.walk(program.module)):
        return []
    return [
        Site(partial(_fold_system, program, call, messages))
        for call in program.chats
        if (messages := messages_of(call)) is not None
    ]


def _fold_system(program: Program, call: Call, messages: ast.expr, rng: Random) -> Change | None:
    summary = f"the system text stands in the last user message of model call {call.position + 1}"
    return _wrap(program, messages, "_without_system", "", summary)


OPERATORS = (
    Operator(
        "prompt-delete",
        "prompts",
        "Delete a sentence or line of a prompt file; one with a slot such as {question} stays.",
        "The sentence does not help, and distracts.",
        _delete_sites,
    ),
    Operator(
        "prompt-duplicate",
        "prompts",
        "Say a sentence or line of a prompt file again at its end.",
        "What is said last is followed best.",
        _duplicate_sites,
    ),
    Operator(
        "prompt-move",
        "prompts",
        "Move a sentence or line of a prompt file to another place in it.",
        "The order of instructions matters.",
        _move_sites,
    ),
    Operator(
        "task-repeat",
        "prompts",
        "Repeat a text field of the task at the end of the last user message.",
        "The question is too far from where the answer begins.",
        _repeat_sites,
    ),
    Operator(
        "system-to-user",
        "prompts",
        "Move the system text into the last user message of a model call.",
        "The model attends to user messages more than to the system's.",
        _system_sites,
    ),
)
