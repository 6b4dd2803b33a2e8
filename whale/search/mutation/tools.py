"""Tool calls: what they are asked, how often, and how their results are shown."""

import ast
from functools import partial
from random import Random

from whale.search.mutation.calls import Call, Roles
from whale.search.mutation.operator import Change, Material, Operator, Site
from whale.search.mutation.program import Program
from whale.search.mutation.prompts import text_fields
from whale.search.mutation.snippets import missing
from whale.search.mutation.source import Edit, literal, splice
from whale.search.tree import digest

TRIMS = (10, 20, 30, 60, 100, 200)
JOINERS = ("\n", "\n\n", "\n- ", " | ", "; ")
HOP_CHARS = 400
"""Of the first result's text, with which a second call is asked."""
HOP_MORE = (1, 2, 3)
LABELS = ("[{}] ", "{}. ", "Result {}: ")


def _arguments(call: Call) -> list[tuple[str, ast.expr]]:
    """A tool call's arguments with a name for each; **kwargs and *args are left alone."""
    named = [(f"argument {i + 1}", node) for i, node in enumerate(call.call.args) if not isinstance(node, ast.Starred)]
    return named + [(k.arg, k.value) for k in call.call.keywords if k.arg]


def _text_arguments(program: Program, call: Call) -> list[tuple[str, ast.expr, bool]]:
    """Arguments that may be text, and whether they surely are."""
    kinds = program.kinds_at(call.function, call.statement)
    found = []
    for name, node in _arguments(call):
        kind = program.kind(node, kinds, call.function)
        if kind in ("str", "unknown") and not (isinstance(node, ast.Constant) and kind == "unknown"):
            found.append((name, node, kind == "str"))
    # Where one argument is surely text, the unsure ones are left alone.
    sure = [item for item in found if item[2]]
    return sure or found


def _second_hop_sites(program: Program, material: Material) -> list[Site]:
    sites = []
    for call in program.tool_calls:
        awaits = sum(isinstance(node, ast.Await) for node in ast.walk(call.call))
        if call.movable and not awaits and program.source.indent(call.statement) is not None:
            sites += [
                Site(partial(_second_hop, program, call, name, node, sure))
                for name, node, sure in _text_arguments(program, call)
            ]
    return sites


def _second_hop(program: Program, call: Call, name: str, node: ast.expr, sure: bool, rng: Random) -> Change | None:
    source, indent = program.source, program.source.indent(call.statement)
    own, result = source.code(node), call.target or program.fresh("first")
    own = own if sure else f"str({own})"
    found = f"_text_of({result})[:{HOP_CHARS}]"
    argument, what = rng.choice(
        (
            (f'" ".join(({own}, {found}))', f"its {name} and the first result's text"),
            (found, "the first result's text"),
            (f"_open_words({own}, {found})", f"what its {name} and the first result do not share"),
        )
    )
    needs = ("_text_of", "_merged", *(("_open_words",) if "_open_words" in argument else ()))
    snippets = missing(source.text, *needs)
    if snippets is None or indent is None:
        return None
    start, end = source.span(call.node)
    changed = [Edit(*_relative(source.span(node), start), argument)]
    # The merge drops what came already: asking for more leaves room for what is new.
    more = rng.choice(HOP_MORE)
    changed += [
        Edit(*_relative(source.span(size), start), f"{source.code(size)} + {more}") for size in _sizes(program, call)
    ]
    again = splice(source.text[start:end], changed)
    lines = [
        "try:",
        f"    {result} = _merged({result}, {again})",
        "except ToolError:",
        "    pass  # the first result stands",
    ]
    if call.target:
        edits = [source.after(call.statement, lines, indent)]
    else:
        edits = [
            source.before(call.statement, [f"{result} = {source.code(call.node)}", *lines], indent),
            source.replace(call.node, result),
        ]
    return Change(
        program.edited([*edits, *program.importing("ToolError")], snippets),
        f"{call.tool} is called again with {what}; both results are shown",
    )


def _relative(span: tuple[int, int], start: int) -> tuple[int, int]:
    return span[0] - start, span[1] - start


def _sizes(program: Program, call: Call) -> list[ast.expr]:
    """Arguments that are whole numbers: a literal, or a class attribute that is one."""
    attributes = program.attributes()
    found = []
    for _, node in _arguments(call):
        own_attribute = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        value = attributes.get(node.attr) if own_attribute and isinstance(node, ast.Attribute) else node
        if isinstance(value, ast.Constant) and type(value.value) is int:
            found.append(node)
    return found


def _rebind_sites(program: Program, material: Material) -> list[Site]:
    sites = []
    evidence = material.evidence.get(digest(program.files))
    left_out = evidence.left_out if evidence else {}
    for call in program.tool_calls:
        kinds = program.kinds_at(call.function, call.statement)
        offered = {name: 0.0 for name, kind in kinds.items() if kind == "str"}
        offered |= {f"{name}.text": 0.0 for name, kind in kinds.items() if kind == "reply"}
        task = program.roles.get(call.function.name, Roles()).task
        if task:
            offered |= {
                f"{task}[{literal(field)}]": left_out.get((call.tool, field), 0.0)
                for field in text_fields(program, material)
            }
        for name, node, sure in _text_arguments(program, call):
            own = program.source.code(node)
            sites += [
                Site(partial(_rebind, program, call, name, node, sure, other), bears)
                for other, bears in offered.items()
                if _plain(other) not in _plain(own)
            ]
    return sites


def _plain(code: str) -> str:
    return code.replace("'", '"').replace(" ", "")


def _rebind(
    program: Program, call: Call, name: str, node: ast.expr, sure: bool, other: str, rng: Random
) -> Change | None:
    own = program.source.code(node)
    if rng.random() < 0.5:
        code, how = other, f"is {other} instead of {own}"
    else:
        code = f'" ".join(({own if sure else f"str({own})"}, {other}))'
        how = f"is {own} and {other} joined"
    return Change(program.edited([program.source.replace(node, code)]), f"{name} of {call.tool} {how}")


def _wrapped_in(call: Call, name: str) -> ast.Call | None:
    """The call of a snippet that already stands around the tool call."""
    outer = call.path[-2] if len(call.path) > 1 else None
    if isinstance(outer, ast.Call) and isinstance(outer.func, ast.Name) and outer.func.id == name:
        return outer
    return None


def _trim_sites(program: Program, material: Material) -> list[Site]:
    evidence = material.evidence.get(digest(program.files))
    longest = evidence.longest_text if evidence else {}
    return [Site(partial(_trim, program, call, longest.get(call.tool))) for call in program.tool_calls]


def _trim(program: Program, call: Call, longest: int | None, rng: Random) -> Change | None:
    # A cut that is longer than every text that came cuts nothing.
    options = [words for words in TRIMS if longest is None or words < longest]
    if not options:
        return None
    words = rng.choice(options)
    snippets = missing(program.source.text, "_trimmed")
    if snippets is None:
        return None
    outer = _wrapped_in(call, "_trimmed")
    if outer is not None:
        limit = outer.args[1]
        if not isinstance(limit, ast.Constant) or limit.value == words:
            return None
        edit = program.source.replace(limit, str(words))
    else:
        edit = program.source.replace(call.node, f"_trimmed({program.source.code(call.node)}, {words})")
    return Change(program.edited([edit], snippets), f"each text from {call.tool} cut to {words} words")


def _joiner_sites(program: Program, material: Material) -> list[Site]:
    sites = []
    for function in program.functions:
        for node in ast.walk(function):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = node.func.value
            # A single space joins the words of one text, not parts.
            if node.func.attr == "join" and isinstance(owner, ast.Constant) and owner.value != " ":
                sites.append(Site(partial(_joiner, program, owner, str(owner.value))))
    return sites


def _joiner(program: Program, node: ast.Constant, old: str, rng: Random) -> Change | None:
    new = rng.choice([joiner for joiner in JOINERS if joiner != old])
    files = program.edited([program.source.replace(node, _escaped(new))])
    return Change(files, f"parts joined by {new!r} instead of {old!r}")


def _escaped(text: str) -> str:
    return '"' + text.replace("\n", "\\n") + '"'


def _label_sites(program: Program, material: Material) -> list[Site]:
    return [Site(partial(_label, program, call)) for call in program.tool_calls]


def _label(program: Program, call: Call, rng: Random) -> Change | None:
    label = rng.choice(LABELS)
    snippets = missing(program.source.text, "_labelled")
    if snippets is None:
        return None
    outer = _wrapped_in(call, "_labelled")
    if outer is not None:
        held = outer.args[1]
        if isinstance(held, ast.Constant) and held.value == label:
            return None
        edit = program.source.replace(held, literal(label))
    else:
        edit = program.source.replace(call.node, f"_labelled({program.source.code(call.node)}, {literal(label)})")
    return Change(program.edited([edit], snippets), f"results of {call.tool} labelled {label!r}")


OPERATORS = (
    Operator(
        "tool-second-hop",
        "tools",
        "Call the same tool again with an argument enriched by the first result's text; show both results.",
        "The first result names what the second call has to ask for.",
        _second_hop_sites,
    ),
    Operator(
        "tool-argument",
        "tools",
        "Give a tool another text in scope (a reply, a variable, a field of the task), or both joined.",
        "The text that the tool gets is not the best one at hand.",
        _rebind_sites,
    ),
    Operator(
        "tool-result-trim",
        "tools",
        "Cut each text of a tool's result to 10 to 200 words.",
        "What matters stands first; the rest distracts.",
        _trim_sites,
    ),
    Operator(
        "tool-result-joiner",
        "tools",
        "Join parts by another separator.",
        "The model reads the parts better when they are set apart in another way.",
        _joiner_sites,
    ),
    Operator(
        "tool-result-label",
        "tools",
        "Number a tool's results.",
        "The model tells results apart better when each has a label.",
        _label_sites,
    ),
)
