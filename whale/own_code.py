"""Code of a user's own that a config names as "path/to/module.py:attribute"."""

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from whale.domains.places import place
from whale.domains.source import blame, traceback_of
from whale.errors import UsageError, WhaleError

_loaded: dict[str, Any] = {}


def is_own(name: str) -> bool:
    """Whether a name in a config is that of a file's attribute."""
    return ".py:" in name


def own_file(name: str, about: str) -> Path:
    """The file of such a name, there or not. Raises UsageError, which begins with `about`, for what is no path."""
    return place(name.rpartition(":")[0], about).resolve()


def forget_own() -> None:
    """Load what is named from now on anew: a runner begins with the files as they are, and keeps them to its end."""
    _loaded.clear()


def load_own(name: str, about: str) -> Callable[..., Any]:
    """The function (or class) of this name; loaded once, so that an edit changes no runner that is at work.

    Raises UsageError, in one line that begins with `about`, where there is none.
    """
    if name not in _loaded:
        _loaded[name] = load_anew(name, about)
    found: Callable[..., Any] = _loaded[name]
    return found


def make_own(name: str, options: Mapping[str, Any] | None, about: str) -> Any:
    """What the factory of this name makes of the options. Raises UsageError, as above, where it fails."""
    return made_by(load_own(name, about), options, about)


def made_by(factory: Callable[..., Any], options: Mapping[str, Any] | None, about: str) -> Any:
    """What a factory makes of the options. Raises UsageError, in one line that begins with `about`, where it fails."""
    try:
        return factory(dict(options or {}))
    except WhaleError:
        raise
    except (Exception, SystemExit) as error:
        raise failed(f"{about}: making it fails", error) from error


def failed(what: str, error: BaseException, hint: str = "") -> UsageError:
    """The user's own code failed: where, and its traceback for the error log."""
    return UsageError(f"{what}: {blame(error)}{hint}").with_details(traceback_of(error))


def lacks(made: Any, calls: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]) -> str | None:
    """The first method that an object has not, or that cannot be called so (positional, by keyword); or None."""
    for method, (positional, keywords) in calls.items():
        function = getattr(made, method, None)
        arguments = ", ".join([*positional, *(f"{keyword}=..." for keyword in keywords)])
        if not callable(function):
            return f"it has no method {method}({arguments})"
        try:
            inspect.signature(function).bind(*positional, **dict.fromkeys(keywords))
        except TypeError as error:
            return f"its {method} cannot be called as {method}({arguments}): {error}"
        except ValueError:  # no signature to be had, as of some built-in functions
            continue
    return None


def load_anew(name: str, about: str) -> Any:
    """The same, from the file as it is now."""
    attribute = name.rpartition(":")[2]
    path = own_file(name, about)
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{about}: there is no file {path}") from None
    except OSError as error:
        raise UsageError(f"{about}: {path} cannot be read: {error.strerror or error}") from error
    # Two files of one name, in two folders, are two modules.
    module_name = f"whale_own_{path.stem}_{hashlib.sha256(bytes(path)).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{about}: {path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses of the module look themselves up there
    try:
        exec(compile(text, path, "exec"), module.__dict__)  # not by the loader: its cache may be older
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        is_beside = bool(missing) and ((path.parent / missing).is_dir() or path.with_name(f"{missing}.py").is_file())
        hint = "; it lies beside it, but what a config names is one file" if is_beside else ""
        raise failed(f"{about}: {path.name} fails on import", error, hint) from error
    found = getattr(module, attribute, None)
    if not callable(found):
        raise UsageError(f"{about}: {path.name} has no function {attribute!r}")
    return found
