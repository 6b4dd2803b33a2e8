"""What a harness tree must be before any of it runs. Nothing is executed here.

This helps a proposer to see early what cannot work. It is no defence: the sandbox is the boundary.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

HARNESS_FILE = "harness.py"
REQUIRED_FILES = (HARNESS_FILE, "prompts/system.md")

ALLOWED_MODULES = frozenset(
    {
        "asyncio", "bisect", "collections", "copy", "dataclasses", "decimal", "difflib", "enum", "fractions",
        "functools", "heapq", "itertools", "json", "math", "operator", "random", "re", "statistics", "string",
        "textwrap", "types", "typing", "unicodedata", "__future__",
    }
)  # fmt: skip
"""Of the standard library: no clock, files, processes, network or interpreter internals."""
CONTRACT_MODULES = frozenset({"whale.harness", "whale.harness.api"})
_FORBIDDEN_NAMES = frozenset(
    {
        "__import__",
        "breakpoint",
        "compile",
        "eval",
        "exec",
        "globals",
        "open",
        "__builtins__",
        "__loader__",
    }
)

_MAX_FILES = 64
_MAX_FILE_BYTES = 256 * 1024
_MAX_TREE_BYTES = 1024 * 1024


def check_source(files: Mapping[str, bytes]) -> str | None:
    """Return why the tree is no valid harness, or None. `files` maps paths in the tree to content."""
    reason = _check_sizes(files)
    if reason:
        return reason
    sources: dict[str, ast.Module] = {}
    for path in sorted(files):
        try:
            text = files[path].decode("utf-8")
        except UnicodeDecodeError as error:
            return f"{path} is not UTF-8: byte {error.start}"
        if path.endswith(".py"):
            parsed = _parse(path, text)
            if isinstance(parsed, str):
                return parsed
            sources[path] = parsed
    own = {path: _module_name(path) for path in sources}
    for path, name in own.items():
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top == "whale":
            return f"{path}: a module of the tree must not be named like {top}, which exists already"
    for path, tree in sources.items():
        reason = _check_imports(path, tree, set(own.values())) or _check_names(path, tree)
        if reason:
            return reason
    return _check_class(sources[HARNESS_FILE])


def _check_sizes(files: Mapping[str, bytes]) -> str | None:
    for path in REQUIRED_FILES:
        if path not in files:
            return f"{path} is missing"
    if len(files) > _MAX_FILES:
        return f"{len(files)} files; a harness has at most {_MAX_FILES}"
    for path, content in sorted(files.items()):
        parts = PurePosixPath(path).parts
        if not path.isprintable() or path.startswith("/") or ".." in parts or "\\" in path:
            return f"{path!r} is no plain path inside the tree"
        if len(content) > _MAX_FILE_BYTES:
            return f"{path} has {len(content):,} bytes; a file has at most {_MAX_FILE_BYTES:,}"
    total = sum(map(len, files.values()))
    if total > _MAX_TREE_BYTES:
        return f"the tree has {total:,} bytes; a harness has at most {_MAX_TREE_BYTES:,}"
    return None


def _parse(path: str, text: str) -> ast.Module | str:
    try:
        return ast.parse(text, path)
    except SyntaxError as error:
        return f"{path}, line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{path} cannot be parsed: {error or type(error).__name__}"


def _module_name(path: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _check_imports(path: str, tree: ast.Module, own: set[str]) -> str | None:
    package = _module_name(path).split(".")
    if not path.endswith("/__init__.py"):
        package = package[:-1]
    for line, name in _imported(tree, package):
        if name.split(".")[0] in ALLOWED_MODULES or name in CONTRACT_MODULES:
            continue
        # A folder without __init__.py is a package too.
        if name in own or any(module.startswith(name + ".") for module in own):
            continue
        # `from package import name` may name an attribute of a module of the tree.
        if name.rpartition(".")[0] in own | CONTRACT_MODULES:
            continue
        allowed = ", ".join(sorted(ALLOWED_MODULES))
        return f"{path}, line {line}: {name} may not be imported; allowed are {allowed}"
    return None


def _imported(tree: ast.Module, package: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the line and the full name of everything that is imported, anywhere in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level > len(package):
                # harness.py is the top: at run time this is an error.
                base = "." * node.level + base
            elif node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [base])])
            for alias in node.names:
                yield node.lineno, base if alias.name == "*" else ".".join(filter(None, [base, alias.name]))


def _check_names(path: str, tree: ast.Module) -> str | None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _FORBIDDEN_NAMES:
            return f"{path}, line {node.lineno}: {node.id} may not be used"
    return None


def _check_class(tree: ast.Module) -> str | None:
    names = _contract_names(tree)
    classes = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) in names for base in node.bases)
    ]
    if len(classes) != 1:
        return f"{HARNESS_FILE} must define exactly one subclass of Harness, and has {len(classes)}"
    runs = [
        item
        for item in classes[0].body
        if isinstance(item, ast.AsyncFunctionDef | ast.FunctionDef) and item.name == "run"
    ]
    if not runs:
        return f"{HARNESS_FILE}: {classes[0].name} has no method run"
    if not isinstance(runs[-1], ast.AsyncFunctionDef):
        return f"{HARNESS_FILE}, line {runs[-1].lineno}: run must be `async def`"
    arguments = runs[-1].args
    if len(arguments.posonlyargs) + len(arguments.args) != 4:
        return f"{HARNESS_FILE}, line {runs[-1].lineno}: run takes (self, task, model, tools)"
    return None


def _contract_names(tree: ast.Module) -> set[str]:
    """The expressions by which this file can name the base class."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in CONTRACT_MODULES:
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "Harness"}
            names |= {f"{alias.asname or 'api'}.Harness" for alias in node.names if alias.name == "api"}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "whale":
            names |= {f"{alias.asname or 'harness'}.Harness" for alias in node.names if alias.name == "harness"}
        elif isinstance(node, ast.Import):
            names |= {f"{alias.asname or alias.name}.Harness" for alias in node.names if alias.name in CONTRACT_MODULES}
    return names
