"""An experiment's file: a base config, what each system and domain changes in it, and the seeds.

    base = "searchqa.toml"              # a whale.toml, relative to this file; or a table [base]
    seeds = [1, 2, 3]

    [systems.weight-only.schedule]      # what a system changes
    kind = "weight-only"

    [domains.math.weights]              # what a domain changes; without [domains] it is the base's one
    learning_rate = 1e-5

    [domains.math.systems.weight-only.schedule]   # what a system changes in this domain alone
    epochs = "0.9"

A cell of the grid is an ordinary run. Its config is the base with the changes of its domain, of its system, of its
system in this domain, and its seed, in this order.
"""

import difflib
import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whale.config import Config, config_from, for_the_log, read_toml
from whale.errors import UsageError

_MISSING = "no such file"
_KEYS = ("base", "domains", "matched", "name", "seeds", "systems")
_NAME = re.compile(r"[^\W_][\w.+-]*")


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the grid."""

    system: str
    domain: str
    seed: int
    config: Config

    @property
    def name(self) -> str:
        """The name of its run."""
        return f"{self.domain}-{self.system}-s{self.seed}"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A whole grid. Cells come seed by seed, so that what is cut short still compares all systems."""

    name: str
    path: Path
    matched: bool
    """Whether all systems of a domain must have equal budgets, and share what is held out."""
    cells: tuple[Cell, ...]


def load_experiment(path: Path) -> Experiment:
    """Read an experiment's file and expand its grid.

    Raises:
        UsageError: a file is missing or not TOML, a key, name or value is wrong, or two cells are the same run.
    """
    raw = read_toml(path, _MISSING)
    _known(raw, _KEYS, str(path))
    name = raw.get("name", path.resolve().stem)
    _name(name, "name", path)
    matched = raw.get("matched", True)
    if not isinstance(matched, bool):
        raise UsageError(f"{path}: matched: give true or false")
    base = _base(raw.get("base"), path)
    systems = _tables(raw, "systems", path)
    if not systems:
        raise UsageError(f"{path}: there is no system: give [systems.NAME] with what it changes in the base")
    domains = _tables(raw, "domains", path) or {Path(str(base.get("domain", "searchqa"))).stem: {}}
    given = "domains" in raw
    cells = []
    for seed in _seeds(raw.get("seeds"), path):
        for domain, changes in domains.items():
            own = {"domain": domain} if given else {}
            of_domain = merged(base, own, {key: value for key, value in changes.items() if key != "systems"})
            special = _tables(changes, "systems", path, f"domains.{domain}.")
            _known(special, systems, f"{path}: domains.{domain}.systems")
            for system, of_system in systems.items():
                table = merged(of_domain, of_system, special.get(system, {}), {"seed": seed})
                where = f"{path}: system {system}, domain {domain}"
                if "seed" in of_system or "seed" in changes:
                    raise UsageError(f"{where}: seed: the seeds of the experiment hold for all of its runs")
                cells.append(Cell(system, domain, seed, config_from(table, where)))
    _distinct(cells, path)
    return Experiment(name, path, matched, tuple(cells))


def some_of(experiment: Experiment, patterns: Sequence[str]) -> Experiment:
    """The experiment's runs whose names match one of these patterns (`*`, `?`, `[...]`).

    Raises:
        UsageError: a pattern matches none.
    """
    names = [cell.name for cell in experiment.cells]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise UsageError(f"--only {pattern}: matches none of {experiment.path}'s runs: {', '.join(names)}")
    chosen = tuple(cell for cell in experiment.cells if any(fnmatch.fnmatchcase(cell.name, p) for p in patterns))
    return replace(experiment, cells=chosen)


def merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """These tables, later ones over earlier ones, key by key inside tables."""
    result: dict[str, Any] = {}
    for table in tables:
        for key, value in table.items():
            there = result.get(key)
            result[key] = merged(there, value) if isinstance(there, dict) and isinstance(value, dict) else value
    return result


def _base(given: Any, path: Path) -> dict[str, Any]:
    if isinstance(given, dict):
        return given
    if isinstance(given, str):
        return read_toml(path.parent / given, _MISSING)
    raise UsageError(f'{path}: base: give base = "FILE" (a whale.toml, relative to this file) or a table [base]')


def _seeds(given: Any, path: Path) -> list[int]:
    whole = isinstance(given, list) and all(isinstance(seed, int) and not isinstance(seed, bool) for seed in given)
    if not whole or not given or len(set(given)) < len(given):
        raise UsageError(f"{path}: seeds: give different whole numbers, such as seeds = [1, 2, 3]")
    return list(given)


def _tables(raw: Mapping[str, Any], key: str, path: Path, prefix: str = "") -> dict[str, dict[str, Any]]:
    given = raw.get(key, {})
    if not isinstance(given, dict) or not all(isinstance(value, dict) for value in given.values()):
        raise UsageError(f"{path}: {prefix}{key}: give tables, such as [{prefix}{key}.NAME]")
    for name in given:
        _name(name, f"{prefix}{key}", path)
    return given


def _name(name: Any, key: str, path: Path) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(f"{path}: {key}: {name!r}: give letters, digits, and . _ + - after the first one")


def _known(raw: Mapping[str, Any], known: Any, source: str) -> None:
    for key in raw:
        if key not in known:
            close = difflib.get_close_matches(key, list(known), n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; known here: {', '.join(known)}"
            raise UsageError(f"{source}: unknown key {key}{hint}")


def _distinct(cells: list[Cell], path: Path) -> None:
    names: dict[str, Cell] = {}
    configs: dict[str, Cell] = {}
    for cell in cells:
        other = names.setdefault(cell.name, cell)
        if other is not cell:
            raise UsageError(f"{path}: two cells would have the name {cell.name}: rename a system or a domain")
        other = configs.setdefault(repr(for_the_log(cell.config)), cell)
        if other is not cell:
            raise UsageError(f"{path}: {other.name} and {cell.name} have the same config: leave one out")
