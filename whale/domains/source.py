"""The code of a user's own as text: what a fingerprint covers, and where it failed."""

import ast
import functools
import hashlib
import importlib.util
import inspect
import json
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

_WHALE = Path(__file__).resolve().parents[1]
_STANDARD = Path(sysconfig.get_path("stdlib")).resolve()


def code_facts(functions: Iterable[Callable[..., Any] | None]) -> list[Any]:
    """What decides what the functions do, as JSON: their modules' whole source, and the values bound to them.

    A helper or a constant in the module counts, so that a changed one is another fingerprint; so does a module of
    the same package that is imported there. Values of other kinds than JSON's are left out.
    """
    return [None if function is None else _facts(function) for function in functions]


def _facts(function: Callable[..., Any]) -> dict[str, Any]:
    bound: list[Any] = []
    while isinstance(function, functools.partial):
        bound += [*function.args, sorted(function.keywords.items())]
        function = function.func
    cells = getattr(function, "__closure__", None) or ()
    bound += [cell.cell_contents for cell in cells if not _is_empty(cell)]
    bound += [getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)]
    named = function if hasattr(function, "__qualname__") else type(function)
    if named is not function:
        bound.append(sorted(getattr(function, "__dict__", {}).items()))
    return {
        "name": named.__qualname__,
        "bound": [value for value in bound if _is_json(value)],
        "source": [hashlib.sha256(text).hexdigest() for text in _sources(named)],
    }


def _sources(function: Any) -> list[bytes]:
    path = _file_of(sys.modules.get(function.__module__))
    if path is not None:
        return [file.read_bytes() for file in _with_imports(path, function.__module__)]
    try:  # a notebook's cell, say
        return [inspect.getsource(function).encode("utf-8", "surrogatepass")]
    except (OSError, TypeError):
        return []


def _with_imports(path: Path, name: str) -> list[Path]:
    """A module's file and those of its own package that it imports, in order of discovery."""
    package = name.partition(".")[0]
    found = {name: path}
    queue = [name]
    while queue:
        of = queue.pop(0)
        for imported in _imports(found[of], of):
            file = _file_named(imported) if imported.partition(".")[0] == package and imported not in found else None
            if file is not None:
                found[imported] = file
                queue.append(imported)
    return list(found.values())


def _imports(path: Path, name: str) -> Iterator[str]:
    is_package = path.name == "__init__.py"
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = name.split(".")
            base = parts[: len(parts) - node.level + is_package] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _file_named(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # a function or constant of a module
        return None
    origin = spec.origin if spec else None
    return Path(origin) if origin and origin.endswith(".py") else None


def _file_of(module: ModuleType | None) -> Path | None:
    """Where a module of the user's lies; None for WHALE's own and Python's, whose versions are no part of a domain."""
    file = getattr(module, "__file__", None)
    path = Path(file).resolve() if file and file.endswith(".py") else None
    if path is None or not path.is_file() or path.is_relative_to(_WHALE):
        return None
    is_installed = bool({"site-packages", "dist-packages"}.intersection(path.parts))
    return path if is_installed or not path.is_relative_to(_STANDARD) else None


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asking is what raises
    except ValueError:
        return True
    return False


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def blame(error: BaseException) -> str:
    """The error in one line, after the place in the user's own code where it rose: "plants.py line 7: ..."."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name} line {error.lineno}: {type(error).__name__}: {error.msg}"
    text = " ".join(str(error).split())[:300]
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename)]
    return f"{Path(own[-1].filename).name} line {own[-1].lineno}: {said}" if own else said


def traceback_of(error: BaseException) -> str:
    """The whole traceback, for a log."""
    return "".join(traceback.format_exception(error))


def _is_own(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    libraries = [Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")]
    return not any(path.is_relative_to(folder) for folder in (_STANDARD, *libraries, _WHALE))
