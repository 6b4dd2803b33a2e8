"""Find a domain by name: built in, an entry point of another package, or a factory in a file."""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from whale.domains.base import Domain
from whale.domains.places import place
from whale.domains.source import blame, traceback_of
from whale.errors import UsageError, WhaleError

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
    options = dict(options or {})
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        factory = getattr(importlib.import_module(module), attribute)
    elif ".py:" in name:
        factory = _from_file(name)
    elif (entry := _plugged_in().get(name)) is not None:
        try:
            factory = entry.load()
        except (Exception, SystemExit) as error:
            raise _failed(f"domain {name!r}: cannot load {entry.value!r}", error) from error
    else:
        raise UsageError(
            f"unknown domain {name!r}; there are: {', '.join(domain_names())}, or a file as path/to/module.py:factory"
        )
    if not callable(factory):
        raise UsageError(f"domain {name!r}: the factory is not callable")
    try:
        domain = factory(options)
    except WhaleError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(f"domain {name!r}: making it fails", error) from error
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
    path = place(location, f"domain {name!r}").resolve()
    try:
        path.open("rb").close()
    except FileNotFoundError:
        raise UsageError(f"domain {name!r}: there is no file {path}") from None
    except OSError as error:
        raise UsageError(f"domain {name!r}: {path} cannot be read: {error.strerror or error}") from error
    # Two files of one name, in two folders, are two modules.
    module_name = f"whale_domain_{path.stem}_{hashlib.sha256(bytes(path)).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"domain {name!r}: {path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses of the module look themselves up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        is_beside = bool(missing) and ((path.parent / missing).is_dir() or path.with_name(f"{missing}.py").is_file())
        hint = "; a domain is one file: several make a package, which offers it as an entry point" if is_beside else ""
        raise _failed(f"domain {name!r}: {path.name} fails on import", error, hint) from error
    factory = getattr(module, attribute, None)
    if factory is None:
        raise UsageError(f"domain {name!r}: {path.name} has no {attribute!r}")
    return factory


def _failed(what: str, error: BaseException, hint: str = "") -> UsageError:
    """The user's own code failed: where, and its traceback for the error log."""
    return UsageError(f"{what}: {blame(error)}{hint}").with_details(traceback_of(error))
