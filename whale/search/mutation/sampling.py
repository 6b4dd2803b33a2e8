"""How the model is asked: temperature, token limit, stop strings, the opened prefix of a turn."""

import ast
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from whale.search.mutation.calls import Call
from whale.search.mutation.evidence import Heard, goes_on_after, heard_at, limit_matters, share_cut, stopped_at
from whale.search.mutation.mining import common_beginning, common_ending, replies_at
from whale.search.mutation.operator import Change, Material, Operator, Site
from whale.search.mutation.program import Program
from whale.search.mutation.source import Edit, literal

TEMPERATURES = (0.0, 0.3, 0.7, 1.0)
TOKEN_LIMITS = (16, 24, 32, 48, 64, 96, 128, 192, 256)


def _where(call: Call) -> str:
    return f"in model call {call.position + 1}"


def _put(program: Program, call: Call, name: str, code: str) -> Edit:
    keyword = call.keyword(name)
    if keyword is None:
        return program.source.add_argument(call.call, f"{name}={code}")
    return program.source.replace(keyword.value, code)


def _take(program: Program, call: Call, keyword: ast.keyword) -> Edit:
    return program.source.remove_item(keyword, [*call.call.args, *call.call.keywords])


def strings_of(node: ast.expr | None) -> list[str] | None:
    """The strings of a literal tuple or list, or of a literal string; None if it is no such literal."""
    if isinstance(node, ast.Tuple | ast.List):
        values = [e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
        return values if len(values) == len(node.elts) else None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    return None


def _each_call(
    apply: Callable[[Program, Material, Call, Random], Change | None],
    bears: Callable[[Sequence[Heard]], float] = lambda heard: 0.0,
) -> Callable[..., Sequence[Site]]:
    def sites(program: Program, material: Material) -> list[Site]:
        return [
            Site(partial(apply, program, material, call), bears(heard_at(program, material, call)))
            for call in program.chats
        ]

    return sites


def _temperature(program: Program, material: Material, call: Call, rng: Random) -> Change | None:
    keyword = call.keyword("temperature")
    if keyword is not None and rng.random() < 1 / 3:
        files = program.edited([_take(program, call, keyword)])
        return Change(files, f"the run's own temperature {_where(call)}")
    old = keyword.value.value if keyword and isinstance(keyword.value, ast.Constant) else None
    new = rng.choice([t for t in TEMPERATURES if t != old])
    return Change(program.edited([_put(program, call, "temperature", str(new))]), f"temperature {new} {_where(call)}")


def _token_limit(program: Program, material: Material, call: Call, rng: Random) -> Change | None:
    keyword = call.keyword("max_tokens")
    old = keyword.value.value if keyword and isinstance(keyword.value, ast.Constant) else None
    heard = heard_at(program, material, call)
    options = [n for n in TOKEN_LIMITS if n != old and limit_matters(heard, old, n)]
    if not options:
        return None  # no reply comes near any of them
    new = rng.choice(options)
    return Change(program.edited([_put(program, call, "max_tokens", str(new))]), f"max_tokens {new} {_where(call)}")


def _stop_add(program: Program, material: Material, call: Call, rng: Random) -> Change | None:
    found = common_ending(replies_at(program, material, call))
    keyword = call.keyword("stop")
    if found is None or not goes_on_after(heard_at(program, material, call), found):
        return None
    if keyword is None:
        edit = _put(program, call, "stop", f"({literal(found)},)")
    else:
        held = strings_of(keyword.value)
        if held is not None and any(found.endswith(stop) for stop in held):
            return None  # what is there stops the turn no later
        if held is not None:
            code = "(" + ", ".join(literal(s) for s in [*held, found]) + ")"
        else:
            code = f"(*{program.source.code(keyword.value)}, {literal(found)})"
        edit = program.source.replace(keyword.value, code)
    return Change(program.edited([edit]), f"stop at {found!r} {_where(call)}, as passed replies end")


def _stop_remove(program: Program, material: Material, call: Call, rng: Random) -> Change | None:
    keyword = call.keyword("stop")
    if keyword is None:
        return None
    strings = strings_of(keyword.value)
    if strings is not None and not stopped_at(heard_at(program, material, call), strings):
        return None  # no reply met one
    held = program.source.code(keyword.value)
    return Change(program.edited([_take(program, call, keyword)]), f"no stop string {held} {_where(call)}")


def _prefix_add(program: Program, material: Material, call: Call, rng: Random) -> Change | None:
    found = common_beginning(replies_at(program, material, call))
    keyword = call.keyword("prefix")
    if found is None or (keyword is not None and strings_of(keyword.value) == [found]):
        return None
    heard = heard_at(program, material, call)
    if heard and all(reply.text.startswith(found) for reply in heard):
        return None  # every reply opens so by itself
    files = program.edited([_put(program, call, "prefix", literal(found))])
    return Change(files, f"the turn opens with {found!r} {_where(call)}, as passed replies do")


def _prefix_remove(program: Program, material: Material, call: Call, rng: Random) -> Change | None:
    keyword = call.keyword("prefix")
    if keyword is None:
        return None
    held = program.source.code(keyword.value)
    return Change(program.edited([_take(program, call, keyword)]), f"no prefix {held} {_where(call)}")


OPERATORS = (
    Operator(
        "temperature",
        "sampling",
        "Set a model call's temperature to 0, 0.3, 0.7 or 1, or leave it to the run.",
        "The call was too random, or not random enough.",
        _each_call(_temperature),
    ),
    Operator(
        "token-limit",
        "sampling",
        "Set a model call's `max_tokens` to a value between 16 and 256.",
        "Replies were cut short, or ran on after what mattered.",
        _each_call(_token_limit, share_cut),
    ),
    Operator(
        "stop-add",
        "sampling",
        "Stop a model call at the string with which passed replies of that call commonly end.",
        "The model runs on after it has answered.",
        _each_call(_stop_add),
    ),
    Operator(
        "stop-remove",
        "sampling",
        "Take the stop strings off a model call.",
        "The stop string cuts replies that would have been right.",
        _each_call(_stop_remove),
    ),
    Operator(
        "prefix-add",
        "sampling",
        "Open the assistant's turn with the text with which passed replies of that call commonly begin.",
        "Failures are often failures of form, which an opened turn prevents.",
        _each_call(_prefix_add),
    ),
    Operator(
        "prefix-remove",
        "sampling",
        "Take the prefix off a model call.",
        "The model answers better when it opens the turn itself.",
        _each_call(_prefix_remove),
    ),
)
