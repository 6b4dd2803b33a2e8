"""What a search may change: everything, the prompts alone (FST), or what a rule of the user's own allows."""

import importlib.util
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from whale.errors import UsageError, WhaleError

Rule = Callable[[Mapping[str, bytes], Mapping[str, bytes]], str | None]
"""(a candidate's files, the initial harness's) -> why the candidate is outside, or None."""


def _full(files: Mapping[str, bytes], base: Mapping[str, bytes]) -> str | None:
    return None


def _prompts(files: Mapping[str, bytes], base: Mapping[str, bytes]) -> str | None:
    """Texts below `prompts/` that are there may change; every other byte is the initial harness's."""
    for path in sorted(files.keys() | base.keys()):
        if not path.startswith("prompts/"):
            if files.get(path) != base.get(path):
                return f"{path} was changed; this search may change prompts/ only"
        elif path not in base:
            return f"{path} was added; this search may change the prompts that are there"
        elif path not in files:
            return f"{path} was removed; this search may change the prompts that are there"
        elif path.endswith(".py") and files[path] != base[path]:
            return f"{path} is a program; this search may change texts only"
    return None


@cache
def search_space(name: str) -> Rule:
    """The rule of this name: "full", "prompts", or "path/to/rule.py:function".

    Raises UsageError, in one line, for an unknown name or a file that cannot be used.
    """
    built_in: dict[str, Rule] = {"full": _full, "prompts": _prompts}
    if name in built_in:
        return built_in[name]
    location, separator, attribute = name.rpartition(".py:")
    if not separator:
        raise UsageError(f"unknown space {name!r} in [search]; known: full, prompts, or path/to/rule.py:function")
    path = Path(location + ".py").expanduser().resolve()
    spec = importlib.util.spec_from_file_location(f"whale_space_{path.stem}", path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise UsageError(f"space {name!r} in [search]: there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"space {name!r} in [search]: {path.name} fails on import: {error!r}") from error
    rule = getattr(module, attribute, None)
    if not callable(rule):
        raise UsageError(f"space {name!r} in [search]: {path.name} has no function {attribute!r}")

    def guarded(files: Mapping[str, bytes], base: Mapping[str, bytes]) -> str | None:
        try:
            reason = rule(dict(files), dict(base))
        except Exception as error:
            # The rule is the user's, not the candidate's: its fault is no verdict on the candidate.
            raise WhaleError(f"space {name!r} in [search]: the rule failed: {error!r}") from error
        if reason is not None and not isinstance(reason, str):
            raise WhaleError(f"space {name!r} in [search]: the rule returned {reason!r}; give a reason or None")
        return reason or None

    return guarded
