"""A harness tree as a program: its class, its model and tool calls, and what is in scope at each of them.

Only the syntax is read; candidate code is never run here. Nothing in this module knows a domain: calls are
found by the contract (`await model.chat(...)`, `await tools.NAME(...)`), whatever the parameters are named.
"""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from whale.search.mutation.calls import Call, Function, Roles, find_calls, follow_roles, parameters
from whale.search.mutation.source import Edit, SourceText, splice

MAIN = "harness.py"
MAX_TURNS = 12
"""No operator raises `max_turns` above this."""

Kind = Literal["str", "number", "reply", "result", "unknown"]

STR_METHODS = frozenset(
    {"capitalize", "casefold", "format", "join", "lower", "lstrip", "removeprefix", "removesuffix", "replace",
     "rstrip", "strip", "title", "upper"}
)  # fmt: skip

BUILTIN_KINDS: dict[str, Kind] = {"str": "str", "len": "number", "int": "number", "_text_of": "str"}


class NotAHarness(ValueError):
    """The tree holds no harness program that can be read."""


@dataclass(frozen=True)
class Program:
    """A harness tree, parsed. Build it with `read`."""

    files: Mapping[str, bytes]
    source: SourceText
    module: ast.Module
    cls: ast.ClassDef
    functions: tuple[Function, ...]
    """The class's own methods."""
    roles: Mapping[str, Roles]
    chats: tuple[Call, ...]
    tool_calls: tuple[Call, ...]
    names: frozenset[str] = field(repr=False)
    """Every word of the module, its identifiers among them."""

    @classmethod
    def read(cls, files: Mapping[str, bytes]) -> "Program":
        """Parse a tree. Raises NotAHarness with the reason."""
        if MAIN not in files:
            raise NotAHarness(f"the tree has no {MAIN}")
        return replace(_read(files[MAIN]), files=files)

    @property
    def run(self) -> Function:
        """The `run` method."""
        return next(function for function in self.functions if function.name == "run")

    def attributes(self) -> dict[str, ast.expr]:
        """The class's attributes with a value, by name."""
        values: dict[str, ast.expr] = {}
        for node in self.cls.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target: ast.expr = node.targets[0]
                value: ast.expr | None = node.value
            elif isinstance(node, ast.AnnAssign):
                target, value = node.target, node.value
            else:
                continue
            if isinstance(target, ast.Name) and value is not None:
                values[target.id] = value
        return values

    def edited(self, edits: Iterable[Edit], snippets: Sequence[str] = ()) -> dict[str, bytes]:
        """The tree with edits of `harness.py`, and with functions appended to it."""
        text = splice(self.source.text, edits)
        for snippet in snippets:
            text = text.rstrip("\n") + "\n\n\n" + snippet.strip("\n") + "\n"
        return {**self.files, MAIN: text.encode()}

    def with_file(self, path: str, content: bytes) -> dict[str, bytes]:
        """The tree with one file changed."""
        return {**self.files, path: content}

    def importing(self, name: str) -> list[Edit]:
        """Edits that import a name of the contract, none if the module names it already."""
        if name in self.names:
            return []
        imports = [
            node for node in self.module.body if isinstance(node, ast.Import | ast.ImportFrom) and not _is_future(node)
        ]
        place: ast.stmt = imports[-1] if imports else self.cls
        edit = self.source.after if imports else self.source.before
        return [edit(place, [f"from whale.harness import {name}"], "")]

    def fresh(self, name: str) -> str:
        """A name that the module does not use."""
        candidate, count = name, 2
        while candidate in self.names:
            candidate, count = f"{name}_{count}", count + 1
        return candidate

    def more_turns(self, call: Call, added: int, *, per_loop: bool = True) -> list[Edit] | None:
        """Edits that raise `max_turns` for `added` more calls beside `call`; None if that cannot be done.

        A call that may run several times (`per_loop`) counts for all turns that there are.
        """
        value = self.attributes().get("max_turns")
        multiplied = per_loop and call.repeated
        if value is None:
            first = self.cls.body[0]
            old, indent = 2, self.source.indent(first)
            if indent is None:
                return None
            new = old * (1 + added) if multiplied else old + added
            line = [f"max_turns = {new}"]
            docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            place = self.source.after if docstring else self.source.before
            return [place(first, line, indent)] if new <= MAX_TURNS else None
        if not isinstance(value, ast.Constant) or type(value.value) is not int:
            return None
        new = value.value * (1 + added) if multiplied else value.value + added
        return [self.source.replace(value, str(new))] if new <= MAX_TURNS else None

    def kinds_at(self, function: Function, statement: ast.stmt) -> dict[str, Kind]:
        """Names that are surely bound when `statement` begins, with what is known of their values."""
        kinds: dict[str, Kind] = {}
        for argument in [*function.args.args, *function.args.kwonlyargs]:
            named = isinstance(argument.annotation, ast.Name) and argument.annotation.id == "str"
            kinds[argument.arg] = "str" if named else "unknown"
        for earlier in _dominators(function.body, statement) or []:
            if isinstance(earlier, ast.Assign) and len(earlier.targets) == 1:
                target: ast.expr = earlier.targets[0]
                if isinstance(target, ast.Name):
                    kinds[target.id] = self.kind(earlier.value, kinds, function)
                continue
            if isinstance(earlier, ast.AnnAssign) and isinstance(earlier.target, ast.Name) and earlier.value:
                kinds[earlier.target.id] = self.kind(earlier.value, kinds, function)
                continue
            # A compound statement may bind a name again, or not at all: then its kind is not known.
            for node in ast.walk(earlier):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in kinds:
                    same = isinstance(earlier, ast.AugAssign) and kinds[node.id] == "str"
                    kinds[node.id] = "str" if same else "unknown"
        return kinds

    def kind(self, node: ast.expr, kinds: Mapping[str, Kind], function: Function) -> Kind:
        """What an expression surely evaluates to, as far as its syntax says."""
        roles = self.roles.get(function.name, Roles())
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                return "str"
            return "number" if isinstance(node.value, int | float) else "unknown"
        if isinstance(node, ast.JoinedStr):
            return "str"
        if isinstance(node, ast.Name):
            return kinds.get(node.id, "unknown")
        if isinstance(node, ast.Await):
            call = next((c for c in (*self.chats, *self.tool_calls) if c.node is node), None)
            if call is not None:
                return "result" if call.tool else "reply"
            return self._method_kind(node.value)
        if isinstance(node, ast.Attribute):
            if node.attr in ("text", "prefix") and self.kind(node.value, kinds, function) == "reply":
                return "str"
            if isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr in self.attributes():
                return self.kind(self.attributes()[node.attr], {}, function)
            return "unknown"
        if isinstance(node, ast.BinOp):
            sides = {self.kind(node.left, kinds, function), self.kind(node.right, kinds, function)}
            if isinstance(node.op, ast.Add | ast.Mod) and "str" in sides:
                return "str"
            return "number" if sides == {"number"} else "unknown"
        if isinstance(node, ast.Subscript):
            owner = node.value
            if isinstance(owner, ast.Attribute) and owner.attr == "files":
                return "str"
            if isinstance(owner, ast.Name) and owner.id == roles.task and roles.task:
                return "str"
            return "str" if self.kind(owner, kinds, function) == "str" else "unknown"
        if isinstance(node, ast.Call):
            return self._method_kind(node)
        return "unknown"

    def _returned_kind(self, method: Function) -> Kind:
        if isinstance(method.returns, ast.Name):
            return "str" if method.returns.id == "str" else "unknown"
        returns = [node for node in ast.walk(method) if isinstance(node, ast.Return)]
        surely = [_plainly_text(node.value) for node in returns if node.value is not None]
        return "str" if surely and all(surely) and len(surely) == len(returns) else "unknown"

    def _method_kind(self, node: ast.expr) -> Kind:
        if not isinstance(node, ast.Call):
            return "unknown"
        if isinstance(node.func, ast.Name):
            return BUILTIN_KINDS.get(node.func.id, "unknown")
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in STR_METHODS:
                return "str"
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "self":
                method = next((f for f in self.functions if f.name == node.func.attr), None)
                if method is not None:
                    return self._returned_kind(method)
        return "unknown"

    def task_fields(self) -> tuple[str, ...]:
        """The task's fields that the code reads as task["..."] or task.get("...")."""
        found: dict[str, None] = {}
        for function in self.functions:
            task = self.roles.get(function.name, Roles()).task
            for node in ast.walk(function):
                if isinstance(node, ast.Subscript):
                    owner, key = node.value, node.slice
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                    if node.func.attr != "get":
                        continue
                    owner, key = node.func.value, node.args[0]
                else:
                    continue
                named = isinstance(owner, ast.Name) and owner.id == task
                if named and isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found[key.value] = None
        return tuple(found)


@lru_cache(maxsize=128)
def _read(content: bytes) -> Program:
    """The program of a `harness.py`; many draws read the same one. Nobody changes its nodes."""
    try:
        text = content.decode()
        module = ast.parse(text)
    except (UnicodeDecodeError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotAHarness(f"{MAIN} does not parse: {error}") from None
    if "\r" in text or "\f" in text:
        raise NotAHarness(f"{MAIN} has line ends that cannot be edited in place")
    found = [n for n in module.body if isinstance(n, ast.ClassDef) and any(map(_is_base, n.bases))]
    if len(found) != 1:
        raise NotAHarness(f"{MAIN} has {len(found)} subclasses of Harness at its top level, not one")
    functions = tuple(n for n in found[0].body if isinstance(n, ast.AsyncFunctionDef | ast.FunctionDef))
    run = next((f for f in functions if f.name == "run"), None)
    if not isinstance(run, ast.AsyncFunctionDef) or len(parameters(run)) < 4:
        raise NotAHarness(f"{MAIN} has no `async def run(self, task, model, tools)`")
    roles = follow_roles(functions, run)
    chats, tool_calls = find_calls(functions, roles)
    names = frozenset(re.findall(r"[^\W\d]\w*", text))
    return Program({}, SourceText(text), module, found[0], functions, roles, chats, tool_calls, names)


def _is_future(node: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _plainly_text(node: ast.expr) -> bool:
    """Whether an expression is text whatever the names in it hold, short of raising."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in STR_METHODS
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_base(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == "Harness") or (
        isinstance(node, ast.Attribute) and node.attr == "Harness"
    )


def blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The statement lists that a compound statement holds."""
    found = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    found += [handler.body for handler in getattr(statement, "handlers", [])]
    found += [case.body for case in getattr(statement, "cases", [])]
    return [block for block in found if block and isinstance(block[0], ast.stmt)]


def _dominators(body: Sequence[ast.stmt], statement: ast.stmt) -> list[ast.stmt] | None:
    """Statements that have surely run before `statement`, in order; None if it is not below `body`."""
    for index, node in enumerate(body):
        if node is statement:
            return list(body[:index])
        for block in blocks(node):
            inner = _dominators(block, statement)
            if inner is not None:
                return [*body[:index], *inner]
    return None
