"""What a search may change: everything, the prompts alone (FST), or what a rule of the user's own allows."""

from collections.abc import Callable, Mapping

from whale.domains.source import blame, traceback_of
from whale.errors import UsageError, WhaleError
from whale.own_code import is_own, load_own

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


def search_space(name: str) -> Rule:
    """The rule of this name: "full", "prompts", or "path/to/rule.py:function".

    Raises UsageError, in one line, for an unknown name or a file that cannot be used.
    """
    built_in: dict[str, Rule] = {"full": _full, "prompts": _prompts}
    if name in built_in:
        return built_in[name]
    if not is_own(name):
        raise UsageError(f"unknown space {name!r} in [search]; known: full, prompts, or path/to/rule.py:function")
    about = f"space {name!r} in [search]"
    rule = load_own(name, about)

    def guarded(files: Mapping[str, bytes], base: Mapping[str, bytes]) -> str | None:
        try:
            reason = rule(dict(files), dict(base))
        except Exception as error:
            # The rule is the user's, not the candidate's: its fault is no verdict on the candidate.
            raise WhaleError(f"{about}: the rule failed: {blame(error)}").with_details(traceback_of(error)) from error
        if reason is not None and not isinstance(reason, str):
            raise WhaleError(f"{about}: the rule returned {reason!r}; give a reason or None")
        return reason or None

    return guarded
