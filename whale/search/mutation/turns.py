"""Turns: ask again, sample and vote, drop a step. `max_turns` follows."""

import ast
from functools import partial
from random import Random
from typing import TypeGuard

from whale.search.mutation.calls import Call, Function, Roles
from whale.search.mutation.evidence import heard_at, share_without
from whale.search.mutation.mining import common_ending, replies_at
from whale.search.mutation.operator import Change, Material, Operator, Site
from whale.search.mutation.program import Program, blocks
from whale.search.mutation.prompts import messages_of, text_fields
from whale.search.mutation.sampling import strings_of
from whale.search.mutation.snippets import missing
from whale.search.mutation.source import Edit, literal

VOTES = (3, 5)


def _whole_statements(program: Program) -> list[Call]:
    """Model calls that are `X = await ...` or `return await ...`, on lines of their own."""
    return [
        call
        for call in program.chats
        if (call.target or call.returned) and program.source.indent(call.statement) is not None
    ]


def _is_greedy(call: Call) -> bool:
    keyword = call.keyword("temperature")
    return keyword is not None and isinstance(keyword.value, ast.Constant) and keyword.value.value == 0


def _expected(program: Program, material: Material, call: Call) -> str | None:
    """The string that a good reply of this call holds: its stop string, or a mined one."""
    keyword = call.keyword("stop")
    held = strings_of(keyword.value) if keyword else None
    return held[0] if held else common_ending(replies_at(program, material, call))


def _ask_again_sites(program: Program, material: Material) -> list[Site]:
    sites = []
    for call in _whole_statements(program):
        expected = _expected(program, material, call)
        lacking = share_without(heard_at(program, material, call), expected) if expected else None
        if expected and lacking != 0.0:
            sites.append(Site(partial(_ask_again, program, call, expected), lacking or 0.0))
    return sites


def _ask_again(program: Program, call: Call, expected: str, rng: Random) -> Change | None:
    turns, messages = program.more_turns(call, 1), messages_of(call)
    indent = program.source.indent(call.statement)
    if turns is None or messages is None or indent is None:
        return None
    source = program.source
    name = call.target or program.fresh("reply")
    asked = source.code(call.node)
    remind = _is_greedy(call) or rng.random() < 0.5
    if remind:
        start, end = source.span(call.node)
        at = source.span(messages)
        request = literal(f"Answer again in the same form as above, and end with {expected}")
        longer = f'[*{source.code(messages)}, {name}, {{"role": "user", "content": {request}}}]'
        again = source.text[start : at[0]] + longer + source.text[at[1] : end]
    else:
        again = asked
    lines = [f"if {literal(expected)} not in {name}.text:", f"    {name} = {again}"]
    if call.target:
        edits = [source.after(call.statement, lines, indent)]
    else:
        edits = [
            source.before(call.statement, [f"{name} = {asked}", *lines], indent),
            source.replace(call.node, name),
        ]
    how = "with a reminder" if remind else "with the same messages"
    return Change(
        program.edited([*edits, *turns]),
        f"model call {call.position + 1} is asked again {how} if the reply lacks {expected!r}",
    )


def _vote_sites(program: Program, material: Material) -> list[Site]:
    return [Site(partial(_vote, program, call)) for call in _whole_statements(program) if not _is_greedy(call)]


def _vote(program: Program, call: Call, rng: Random) -> Change | None:
    count = rng.choice(VOTES)
    turns = program.more_turns(call, count - 1)
    snippets = missing(program.source.text, "_majority")
    indent = program.source.indent(call.statement)
    if turns is None or snippets is None or indent is None:
        return None
    source, replies = program.source, program.fresh("replies")
    index = "_" if "_" not in program.names else program.fresh("turn")
    lines = [f"{replies} = [{source.code(call.node)} for {index} in range({count})]"]
    edits = [source.before(call.statement, lines, indent), source.replace(call.node, f"_majority({replies})")]
    return Change(
        program.edited([*edits, *turns], snippets),
        f"model call {call.position + 1} is sampled {count} times and the majority's text is taken",
    )


def _drop_sites(program: Program, material: Material) -> list[Site]:
    sites = []
    for function in program.functions:
        sites += [Site(partial(_drop, program, s)) for s in _droppable(program, function, function.body)]
        sites += [
            Site(partial(_drop_item, program, display, item))
            for display in _message_lists(function)
            for item in display.elts
        ]
    for call in _whole_statements(program):
        task = program.roles.get(call.function.name, Roles()).task
        if call.target and task:
            sites += [
                Site(partial(_drop_call, program, call, f"{task}[{literal(name)}]"))
                for name in text_fields(program, material)
            ]
    return sites


def _droppable(program: Program, function: Function, body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements without which every name is still bound and every block still has a statement."""
    found: list[ast.stmt] = []
    for statement in body:
        for block in blocks(statement):
            found += _droppable(program, function, block)
        if len(body) < 2 or program.source.indent(statement) is None:
            continue
        stores = {
            node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        bound = program.kinds_at(function, statement).keys()
        leaves = any(isinstance(n, ast.Return | ast.Raise | ast.Break | ast.Continue) for n in ast.walk(statement))
        docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        simple = isinstance(statement, ast.Expr | ast.Assign | ast.AugAssign)
        plain_if = isinstance(statement, ast.If) and not statement.orelse
        # A kept name that is only read in place of being set again is what "dropping the step" means.
        if stores <= bound and not leaves and not docstring and (simple or plain_if):
            found.append(statement)
    return found


def _drop(program: Program, statement: ast.stmt, rng: Random) -> Change | None:
    line = " ".join(program.source.code(statement).split())
    edit = program.source.remove_statement(statement)
    return Change(program.edited([edit]), f"without the step {line if len(line) <= 70 else line[:67] + '...'}")


def _message_lists(function: Function) -> list[ast.List]:
    """Lists of messages: displays of at least two items, one of which is a dict with a role."""
    return [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.List) and len(node.elts) > 1 and any(map(_is_message, node.elts))
    ]


def _is_message(node: ast.expr) -> bool:
    return isinstance(node, ast.Dict) and any(isinstance(k, ast.Constant) and k.value == "role" for k in node.keys)


def _drop_item(program: Program, display: ast.List, item: ast.expr, rng: Random) -> Change | None:
    line = " ".join(program.source.code(item).split())
    edit = program.source.remove_item(item, display.elts)
    return Change(program.edited([edit]), f"without the message {line if len(line) <= 70 else line[:67] + '...'}")


def _drop_call(program: Program, call: Call, instead: str, rng: Random) -> Change | None:
    """Drop a model call: where its reply's text was used, the task's stands; as a message it is left out."""
    name = call.target
    parents = {child: node for node in ast.walk(call.function) for child in ast.iter_child_nodes(node)}
    edits: list[Edit] = [program.source.remove_statement(call.statement)]
    shortened: set[int] = set()
    for node in ast.walk(call.function):
        if not (isinstance(node, ast.Name) and node.id == name):
            continue
        parent = parents[node]
        if isinstance(node.ctx, ast.Store):
            if parent is not call.statement:
                return None
        elif _is_text_of(parent):
            edits.append(program.source.replace(parent, instead))
        elif isinstance(parent, ast.List) and len(parent.elts) > 1 and id(parent) not in shortened:
            shortened.add(id(parent))
            edits.append(program.source.remove_item(node, parent.elts))
        else:
            return None
    if len(edits) == 1 or len(program.chats) < 2:
        return None
    try:
        files = program.edited(edits)
    except ValueError:
        return None
    return Change(files, f"without model call {call.position + 1}: {instead} stands for its reply")


def _is_text_of(parent: ast.AST) -> TypeGuard[ast.expr]:
    """Whether a name's parent is `X.text` or `str(X)`."""
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Name) and parent.func.id == "str" and len(parent.args) == 1
    return isinstance(parent, ast.Attribute) and parent.attr == "text"


OPERATORS = (
    Operator(
        "ask-again",
        "turns",
        "Ask once more, plainly or with a reminder, if the reply lacks the string it should end with.",
        "A reply that breaks off or breaks the form can be repaired by one more turn.",
        _ask_again_sites,
    ),
    Operator(
        "vote",
        "turns",
        "Sample 3 or 5 replies to the same messages and go on with one of the majority.",
        "Wrong replies scatter, and right ones agree.",
        _vote_sites,
    ),
    Operator(
        "drop-step",
        "turns",
        "Drop a statement, a message, or a whole model call whose reply the task's text can stand for.",
        "The step does not help.",
        _drop_sites,
    ),
)
