"""Find a domain by name: built in, an entry point of another package, or a factory in a file."""

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, cast

from whale.domains.base import Domain
from whale.errors import UsageError

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
    name, a file or factory that is not there, or something that is not a domain.
    """
    options = dict(options or {})
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        factory = getattr(importlib.import_module(module), attribute)
    elif ".py:" in name:
        factory = _from_file(name)
    elif (entry := _plugged_in().get(name)) is not None:
        try:
            factory = entry.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(f"domain {name!r}: cannot load {entry.value!r}: {error}") from error
    else:
        raise UsageError(
            f"unknown domain {name!r}; there are: {', '.join(domain_names())}, or a file as path/to/module.py:factory"
        )
    if not callable(factory):
        raise UsageError(f"domain {name!r}: the factory is not callable")
    domain = factory(options)
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


def _from_file(name: str) -> Any:
    location, _, attribute = name.rpartition(":")
    path = Path(location).expanduser().resolve()
    if not path.is_file():
        raise UsageError(f"domain {name!r}: there is no file {path}")
    module_name = f"whale_domain_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"domain {name!r}: {path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses of the module look themselves up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise UsageError(f"domain {name!r}: {path.name} fails on import: {error!r}") from error
    factory = getattr(module, attribute, None)
    if factory is None:
        raise UsageError(f"domain {name!r}: {path.name} has no {attribute!r}")
    return factory
