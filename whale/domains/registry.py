"""Find a domain by name: built in, an entry point of another package, or a factory in a file."""

import importlib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from whale.domains.base import Domain
from whale.errors import UsageError
from whale.own_code import failed, load_anew, made_by

GROUP = "whale.domains"
"""Entry points of this group name factories: `factory(options) -> Domain`."""
BUILT_IN = {
    "chess": "whale.domains.chess.domain:create",
    "math": "whale.domains.math.domain:create",
    "searchqa": "whale.domains.searchqa.domain:create",
}
_MEMBERS = ("splits", "fingerprint", "h0", "tools", "verify", "answer_in", "leak")


def domain_names() -> list[str]:
    """The names that `load_domain` knows, without importing any of the domains."""
    return sorted({*BUILT_IN, *_plugged_in()})


def load_domain(name: str, options: Mapping[str, Any] | None = None) -> Domain:
    """Make a domain from its name and its options.

    `name` is a built-in or entry-point name, or "path/to/module.py:factory" (the factory takes the options).
    A built-in name wins over an entry point of the same name. Raises UsageError, in one line, for an unknown
    name, a file or factory that is not there, a factory that fails (with the place in its own code, and the
    traceback for the error log), or something that is not a domain.
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        factory = getattr(importlib.import_module(module), attribute)
    elif ".py:" in name:
        factory = load_anew(name, f"domain {name!r}")
    elif (entry := _plugged_in().get(name)) is not None:
        try:
            factory = entry.load()
        except (Exception, SystemExit) as error:
            raise failed(f"domain {name!r}: cannot load {entry.value!r}", error) from error
    else:
        raise UsageError(
            f"unknown domain {name!r}; there are: {', '.join(domain_names())}, or a file as path/to/module.py:factory"
        )
    if not callable(factory):
        raise UsageError(f"domain {name!r}: the factory is not callable")
    domain = made_by(factory, options, f"domain {name!r}")
    missing = [member for member in _MEMBERS if not callable(getattr(domain, member, None))]
    if missing or not isinstance(getattr(domain, "name", None), str):
        lacks = missing[0] if missing else "name"
        raise UsageError(f"domain {name!r}: the factory's result is no domain, it lacks {lacks!r}")
    return cast(Domain, domain)


def preflight(domain: Domain) -> None:
    """Have a domain that depends on services try them. Raises a WhaleError where one does not answer."""
    attempt = getattr(domain, "preflight", None)
    if attempt is not None:
        attempt()


def _plugged_in() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}
