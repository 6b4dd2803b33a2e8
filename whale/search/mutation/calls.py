"""The model and tool calls of a harness class, found by the contract whatever the parameters are named."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Function = ast.AsyncFunctionDef | ast.FunctionDef


@dataclass(frozen=True, slots=True)
class Roles:
    """The names that the contract's three arguments have in a function; empty if it does not get one."""

    task: str = ""
    model: str = ""
    tools: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """One awaited model or tool call."""

    node: ast.Await
    call: ast.Call
    tool: str
    """The tool's name, or "" for a model call."""
    function: Function
    statement: ast.stmt
    path: tuple[ast.AST, ...]
    """From the function's body down to the await, both ends included."""
    position: int
    """Counts the calls of its kind in the order in which an episode first reaches them, from 0."""

    @property
    def repeated(self) -> bool:
        """Whether it may run several times in an episode: in a loop, or outside `run`."""
        loops = (ast.For, ast.While, ast.AsyncFor, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
        return self.function.name != "run" or any(isinstance(node, loops) for node in self.path[:-1])

    @property
    def movable(self) -> bool:
        """Whether it is evaluated exactly once, and unconditionally, when its statement runs."""
        conditional = (ast.IfExp, ast.BoolOp, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp,
                       ast.Lambda, ast.Compare)  # fmt: skip
        if not isinstance(self.statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr):
            return False
        inner = self.path[self.path.index(self.statement) :]
        return not any(isinstance(node, conditional) for node in inner)

    @property
    def target(self) -> str | None:
        """X in `X = await ...`, where that is the whole statement."""
        statement = self.statement
        if isinstance(statement, ast.Assign) and statement.value is self.node and len(statement.targets) == 1:
            only = statement.targets[0]
            return only.id if isinstance(only, ast.Name) else None
        return None

    @property
    def returned(self) -> bool:
        """Whether the statement is `return await ...`."""
        return isinstance(self.statement, ast.Return) and self.statement.value is self.node

    def keyword(self, name: str) -> ast.keyword | None:
        """The keyword argument of this name."""
        return next((keyword for keyword in self.call.keywords if keyword.arg == name), None)


def parameters(function: Function) -> list[str]:
    """The names of a function's positional parameters, `self` included."""
    return [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]


def follow_roles(functions: Sequence[Function], run: Function) -> dict[str, Roles]:
    """Follow task, model and tools from `run` through calls of the class's own methods, to a fixed point."""
    roles = {"run": Roles(*parameters(run)[1:4])}
    by_name = {function.name: function for function in functions}
    changed = True
    while changed:
        changed = False
        for caller in functions:
            own = roles.get(caller.name)
            if own is None:
                continue
            for node in ast.walk(caller):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                    continue
                owner, callee = node.func.value, by_name.get(node.func.attr)
                if callee is None or not (isinstance(owner, ast.Name) and owner.id == "self"):
                    continue
                passed = dict(zip(parameters(callee)[1:], node.args, strict=False))
                passed |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
                before = roles.get(callee.name, Roles())
                held = {v.id: name for name, v in passed.items() if isinstance(v, ast.Name)}
                after = Roles(
                    before.task or held.get(own.task, ""),
                    before.model or held.get(own.model, ""),
                    before.tools or held.get(own.tools, ""),
                )
                if after != before:
                    roles[callee.name], changed = after, True
    return roles


def find_calls(functions: Sequence[Function], roles: Mapping[str, Roles]) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    """The model calls and the tool calls of a class's methods, in the order in which they are reached."""
    chats: list[Call] = []
    tools: list[Call] = []
    for function in functions:
        own = roles.get(function.name)
        if own is None:
            continue
        for path in _paths(function):
            node = path[-1]
            if not (isinstance(node, ast.Await) and isinstance(node.value, ast.Call)):
                continue
            called = node.value.func
            if not (isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name)):
                continue
            statement = next(n for n in reversed(path) if isinstance(n, ast.stmt))
            if own.model and called.value.id == own.model and called.attr == "chat":
                chats.append(Call(node, node.value, "", function, statement, path, 0))
            elif own.tools and called.value.id == own.tools:
                tools.append(Call(node, node.value, called.attr, function, statement, path, 0))
    return tuple(_numbered_calls(chats, functions)), tuple(_numbered_calls(tools, functions))


def _numbered_calls(calls: list[Call], functions: Sequence[Function]) -> Iterator[Call]:
    ordered = sorted(calls, key=lambda call: _moment(call.function, call.node, functions, ()))
    for position, call in enumerate(ordered):
        yield Call(call.node, call.call, call.tool, call.function, call.statement, call.path, position)


def _moment(
    function: Function, node: ast.expr, functions: Sequence[Function], below: tuple[str, ...]
) -> tuple[int, ...]:
    """A sort key for when `node` is first reached: a method's calls come where `run` first calls it."""
    own = (node.lineno, node.col_offset)
    if function.name == "run" or function.name in below:
        return own
    sites = [
        _moment(caller, call, functions, (*below, function.name))
        for caller in functions
        for call in ast.walk(caller)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == function.name
        and caller is not function
    ]
    return (*min(sites, default=()), *own)


def _paths(function: Function) -> Iterator[tuple[ast.AST, ...]]:
    """Every node below a function with the way to it; nested functions are their own world."""
    stack: list[tuple[ast.AST, ...]] = [(node,) for node in reversed(function.body)]
    while stack:
        path = stack.pop()
        yield path
        if isinstance(path[-1], ast.AsyncFunctionDef | ast.FunctionDef | ast.ClassDef):
            continue
        stack += [(*path, child) for child in reversed(list(ast.iter_child_nodes(path[-1])))]
