"""Numbers: class attributes, keywords of model and tool calls, bounds of slices."""

import ast
from collections.abc import Iterator
from functools import partial
from random import Random

from whale.search.mutation.evidence import heard_at, limit_matters
from whale.search.mutation.operator import Change, Material, Operator, Site
from whale.search.mutation.program import Program
from whale.search.mutation.source import Edit

LIMIT = 4096
"""No number is raised above this, nor lowered to 0 or below."""

SMALL = 8
"""Up to here one more or one less is a change that can be felt."""

SKIPPED = frozenset({"max_turns", "temperature", "seed"})
"""Moved by other operators, or not a size."""


def nudged(value: int | float, rng: Random) -> int | float:
    """Another value of the same type: a factor or a step, within 1..LIMIT (ints) or above 0 (floats)."""
    if isinstance(value, int):
        options = {value * 2, value // 2, round(value * 1.5), round(value * 0.75)}
        if value <= SMALL:
            options |= {value + 1, value - 1}
        allowed: list[int | float] = sorted(v for v in options if 1 <= v <= LIMIT and v != value)
    else:
        scaled = {float(f"{value * factor:.4g}") for factor in (0.5, 0.8, 1.25, 2.0)}
        allowed = sorted(v for v in scaled if 0 < v <= LIMIT and v != value)
    return rng.choice(allowed) if allowed else value


def _felt(program: Program, material: Material, node: ast.Constant, new: int | float) -> bool:
    """Whether a new value is felt; one that is a call's token limit may be out of every reply's reach."""
    name = next((name for name, value in program.attributes().items() if value is node), None)
    limited = [call for call in program.chats if _is_limit(call.keyword("max_tokens"), node, name)]
    return not limited or any(limit_matters(heard_at(program, material, c), node.value, new) for c in limited)


def _is_limit(keyword: ast.keyword | None, node: ast.Constant, attribute: str | None) -> bool:
    if keyword is None:
        return False
    value = keyword.value
    return value is node or (attribute is not None and isinstance(value, ast.Attribute) and value.attr == attribute)


def _change(program: Program, material: Material, node: ast.Constant, label: str, rng: Random) -> Change | None:
    old = node.value
    assert isinstance(old, int | float)
    new = nudged(old, rng)
    turns = more_turns(program, node, int(new) - int(old))
    if new == old or turns is None or not _felt(program, material, node, new):
        return None
    files = program.edited([program.source.replace(node, repr(new)), *turns])
    return Change(files, f"{label} from {old} to {new}")


def more_turns(program: Program, node: ast.Constant, added: int) -> list[Edit] | None:
    """Edits that raise `max_turns` if a class attribute bounds a loop of model calls; None if that fails."""
    name = next((name for name, value in program.attributes().items() if value is node), None)
    calls = [
        call
        for call in program.chats
        if any(
            isinstance(loop, ast.For | ast.While | ast.ListComp)
            and any(isinstance(n, ast.Attribute) and n.attr == name for n in _head(loop))
            for loop in call.path
        )
    ]
    if name is None or not calls or added <= 0:
        return []
    return program.more_turns(calls[0], added * len(calls), per_loop=False)


def _head(loop: ast.For | ast.While | ast.ListComp) -> Iterator[ast.AST]:
    heads = [loop.iter] if isinstance(loop, ast.For) else []
    heads += [loop.test] if isinstance(loop, ast.While) else []
    heads += [generator.iter for generator in loop.generators] if isinstance(loop, ast.ListComp) else []
    for head in heads:
        yield from ast.walk(head)


def is_number(node: ast.expr | None) -> bool:
    """Whether a node is a plain number literal; True and False are none."""
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value > 0  # type: ignore[operator]  # checked by type()


def _attribute_sites(program: Program, material: Material) -> list[Site]:
    sites = []
    for name, value in program.attributes().items():
        if name not in SKIPPED and isinstance(value, ast.Constant) and is_number(value):
            sites.append(Site(partial(_change, program, material, value, f"{program.cls.name}.{name}")))
    return sites


def _inline_numbers(program: Program) -> Iterator[tuple[ast.Constant, str]]:
    for call in (*program.chats, *program.tool_calls):
        for keyword in call.call.keywords:
            if keyword.arg and keyword.arg not in SKIPPED and isinstance(keyword.value, ast.Constant):
                yield keyword.value, f"{keyword.arg} of {call.tool or 'the model'} call {call.position + 1}"
    for function in program.functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Slice):
                for bound in (node.lower, node.upper):
                    if isinstance(bound, ast.Constant):
                        yield bound, f"a slice's bound in {function.name}"


def _inline_sites(program: Program, material: Material) -> list[Site]:
    return [
        Site(partial(_change, program, material, node, label))
        for node, label in _inline_numbers(program)
        if is_number(node)
    ]


OPERATORS = (
    Operator(
        "number-attribute",
        "numbers",
        "Scale or step a numeric class attribute, in its type and above zero.",
        "The size was not at its best value.",
        _attribute_sites,
    ),
    Operator(
        "number-inline",
        "numbers",
        "Scale or step a number in a model or tool call, or a slice's bound.",
        "The size was not at its best value.",
        _inline_sites,
    ),
)
