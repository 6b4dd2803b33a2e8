"""Which runs are seeds of the same system: those whose configs differ in nothing that tells them apart but the seed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whale.report.compare.records import RunRecord
from whale.report.compare.telling import flat, telling


@dataclass(frozen=True, slots=True)
class System:
    """A system on a domain, with a run for each seed."""

    domain: str
    name: str
    runs: tuple[RunRecord, ...]
    """By seed."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The config that its runs share."""
        return self.runs[0].config


@dataclass(frozen=True, slots=True)
class Grouped:
    """All systems, domain by domain, and what a reader should know of how they were grouped."""

    systems: tuple[System, ...]
    notes: tuple[str, ...]

    def by_domain(self) -> dict[str, list[System]]:
        """The systems of each domain."""
        result: dict[str, list[System]] = {}
        for system in self.systems:
            result.setdefault(system.domain, []).append(system)
        return result


def group(records: Sequence[RunRecord], names: Mapping[str, str] | None = None) -> Grouped:
    """Group runs into systems; `names` has a system's name for a run's source, where the user gave one."""
    names = names or {}
    notes: list[str] = []
    seen: dict[tuple[str, str, int], RunRecord] = {}
    heads: set[str] = set()
    for record in records:
        if record.head in heads:
            continue  # the same log, found twice
        heads.add(record.head)
        key = (_domain_key(record), _system_key(record), record.seed)
        before = seen.setdefault(key, record)
        if before is not record:
            # The one that came to its end, else the newer one: never the one with the better figure.
            other, kept = sorted((before, record), key=lambda run: (run.complete, run.started, run.head))
            seen[key] = kept
            notes.append(f"{other.source}: {kept.source} has the same config and seed; only that one is counted")
    runs: dict[tuple[str, str], list[RunRecord]] = {}
    for (domain, system, _), record in sorted(seen.items(), key=lambda item: item[0][2]):
        runs.setdefault((domain, system), []).append(record)
    domains = _domain_names([record for members in runs.values() for record in members])
    labels = _labels({key: members[0] for key, members in runs.items()}, names)
    systems = [System(domains[key[0]], labels[key], tuple(members)) for key, members in runs.items()]
    systems.sort(key=lambda system: (system.domain, _rank(system.config), system.name))
    for domain in dict.fromkeys(system.domain for system in systems):
        of_domain = [run for system in systems if system.domain == domain for run in system.runs]
        starts = {(run.state.model, run.state.candidates["h0"].tree) for run in of_domain if run.state.candidates}
        if len(starts) > 1:
            notes.append(f"{domain}: not all runs start from the same (θ0, h0)")
        for what in ("code", "device", "dtype"):
            kinds = sorted({run.made_by.get(what, "not recorded") for run in of_domain})
            if len(kinds) > 1:
                notes.append(f"{domain}: its runs differ in {what}: {', '.join(kinds)}")
    return Grouped(tuple(systems), tuple(notes))


def label(config: Mapping[str, Any]) -> str:
    """A system's name in the paper's terms: weight-only, whale (0.6, 6), ...; with its weight method, unless RSFT."""
    method = str(config.get("weights", {}).get("method", "rsft"))
    name = _schedule_label(config)
    return name if method == "rsft" or name == "harness-only" else f"{name} with {method}"


def _schedule_label(config: Mapping[str, Any]) -> str:
    schedule, space = config.get("schedule", {}), config.get("search", {}).get("space", "full")
    kind = str(schedule.get("kind", "fixed"))
    if kind == "fixed":
        name = f"({schedule.get('epochs')}, {schedule.get('iterations')})"
        return f"fst {name}" if space == "prompts" else f"whale {name}"
    return f"fst {kind}" if space == "prompts" and kind != "weight-only" else kind


_ALWAYS = (
    "search.acceptance",
    "weights.decay_to",
    "weights.decay_updates",
    "weights.learning_rate",
    "weights.lora_rank",
    "weights.rate_schedule",
    "weights.warmup_updates",
)
"""Said of a system even where no other one is beside it, unless it is the default."""

_OF_ADAPTERS = ("weights.lora_alpha", "weights.lora_targets")
"""Said only of a system that has some: its rank of 0 says enough of another one."""

_RANKS = ("weight-only", "harness-only", "stagewise", "fst", "whale", "adaptive")


def _rank(config: Mapping[str, Any]) -> int:
    first = label(config).split(" ")[0]
    return _RANKS.index(first) if first in _RANKS else len(_RANKS)


def _system_key(record: RunRecord) -> str:
    return json.dumps(_telling(record), sort_keys=True, default=str)


def _telling(record: RunRecord) -> dict[str, Any]:
    """What tells its system: the config, and the user's own files that were read when it began.

    A model is what it holds: the same θ0 under another name or path is the same.
    """
    files = {f"{key} file": digest[:8] for key, digest in record.state.pinned.items()}
    return telling(record.config) | files | ({"model": record.state.model[:12]} if record.state.model else {})


def _domain_key(record: RunRecord) -> str:
    return f"{record.config.get('domain')}\n{record.state.data}"


def _domain_names(records: Sequence[RunRecord]) -> dict[str, str]:
    firsts = {_domain_key(record): record for record in reversed(records)}
    plain = {key: Path(str(r.config.get("domain", "")).rsplit(":", 1)[0]).stem for key, r in firsts.items()}
    alike: dict[str, list[str]] = {}
    for key, name in plain.items():
        alike.setdefault(name, []).append(key)
    return {key: name + _other_data(key, [firsts[k] for k in alike[name]]) for key, name in plain.items()}


def _other_data(key: str, alike: Sequence[RunRecord]) -> str:
    """What tells a domain's data from others of the same name: the options that differ, else the fingerprint."""
    if len(alike) == 1:
        return ""
    options = {_domain_key(record): flat(record.config.get("domain_options", {})) for record in alike}
    differing = sorted(
        {name for o in options.values() for name in o if len({repr(p.get(name)) for p in options.values()}) > 1}
    )
    told = {k: ", ".join(f"{name}={o.get(name, 'default')}" for name in differing) for k, o in options.items()}
    mine = told[key]
    return f" ({mine})" if mine and [*told.values()].count(mine) == 1 else f" ({key.split(chr(10))[1][:6]})"


def _labels(firsts: Mapping[tuple[str, str], RunRecord], names: Mapping[str, str]) -> dict[tuple[str, str], str]:
    result = {}
    for key, record in firsts.items():
        own = names.get(record.source)
        twins = [r for k, r in firsts.items() if k[0] == key[0] and label(r.config) == label(record.config)]
        result[key] = own or label(record.config) + _distinction(record, twins)
    return result


def _distinction(record: RunRecord, twins: Sequence[RunRecord]) -> str:
    """The keys in which this system differs from others of the same label, or from what is usual."""
    configs = [_telling(twin) for twin in twins]
    mine, usual = _telling(record), telling({})
    shown = {key for config in configs for key in config if len({repr(other.get(key)) for other in configs}) > 1}
    shown |= {key for key in _ALWAYS if key in mine and mine[key] != usual.get(key)}
    values = mine | ({"model": _model_name(record, twins)} if "model" in shown else {})
    shown -= {key for key in _OF_ADAPTERS if key not in values}
    return "".join(f", {key}={values.get(key)}" for key in sorted(shown))


def _model_name(record: RunRecord, twins: Sequence[RunRecord]) -> str:
    """As its config has it, unless another one has that name too."""
    name = str(record.config.get("model", ""))
    others = [twin for twin in twins if twin.state.model != record.state.model]
    return record.state.model[:12] if name in [str(twin.config.get("model", "")) for twin in others] else name
