"""Which settings of a started run may change between two runners: where it runs, and how it reaches its services.

All else is the run, and its log has it since the first event. These are read from the run's whale.toml, as the
tables around the experiment are, so that a run goes on where a server has another address or a device is gone.
"""

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whale.alternation.decide import config_of
from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State
from whale.config import AROUND, Config, apply_overrides, config_from, load_around, to_builtins
from whale.errors import UsageError

OPTIONS = "engine.options"

FREE_OPTIONS = (
    "async_scheduling",
    "block_size",
    "cpu_offload_gb",
    "cudagraph_capture_sizes",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "enforce_eager",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "long_prefill_token_threshold",
    "max_cudagraph_capture_size",
    "max_num_batched_tokens",
    "max_num_seqs",
    "num_gpu_blocks_override",
    "optimization_level",
    "swap_space",
)
"""Of vLLM's options those that say how it divides its memory and its steps. Others say what is sampled, such as
`max_model_len` (which prompts fit) or `quantization`, and belong to the run."""

MOVABLE = (
    "engine.device",
    "engine.kv_gb",
    *(f"{OPTIONS}.{name}" for name in FREE_OPTIONS),
    "engine.replicas",
    "engine.threads",
    "engine.url",
    "engine.weights_folder",
    "search.options.api_key_env",
    "search.options.base_url",
    "search.options.cli",
    "search.options.patience",
    "search.options.read_timeout",
    "weights.activation_checkpointing",
    "weights.compile",
    "weights.ranks",
)
"""None of them says what is sampled, proposed, trained or accepted, and none is part of a rollout's key."""

_TOLD = ("hooks", "track")
"""Tables around the experiment that a resume may set; where the log lies is not for it to say."""


def present_config(folder: RunFolder, state: State) -> Config:
    """The config that a started run goes on with: its log's, with what may change as whale.toml has it.

    Raises:
        UsageError: whale.toml has a wrong value for such a setting.
    """
    return config_from(with_moved(to_builtins(config_of(state)), folder.config_file), source=str(folder.config_file))


def with_moved(config: Mapping[str, Any], config_file: Path) -> dict[str, Any]:
    """A run's config as plain values, with what may change as this whale.toml has it, if it can be read."""
    try:
        raw = tomllib.loads(config_file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        raw = {}
    result = dict(config)
    for key in MOVABLE:
        found, value = _at(raw, key)
        if found:
            result = _with(result, key.split("."), value)
        elif key.startswith(f"{OPTIONS}.") and _at(raw, OPTIONS)[0]:
            result = _without(result, key.split("."))  # options have no defaults: one that is gone was dropped
    return result


def without_movable(config: Mapping[str, Any]) -> dict[str, Any]:
    """What is left of a config when nothing of it may change: equal for runs that do the same."""
    result = dict(config)
    for key in MOVABLE:
        result = _without(result, key.split("."))
    return result


def moved(folder: RunFolder, state: State, overrides: Sequence[str]) -> Config:
    """A started run's whole config with settings that may change, changed. Writes nothing.

    Raises:
        UsageError: a key that is the run's own, or a wrong value.
    """
    for item in overrides:
        key, separator, _ = item.partition("=")
        known = key in MOVABLE or key == OPTIONS or key.startswith(f"{OPTIONS}.")
        if separator and not known and key.split(".")[0] not in _TOLD:
            raise UsageError(_refusal(folder, key, item))
    around = to_builtins(load_around(folder.config_file))
    present = present_config(folder, state)
    raw = to_builtins(present) | {table: around[table] for table in AROUND}
    config = config_from(apply_overrides(raw, list(overrides)), source="--set")
    old, new = present.engine.options, config.engine.options
    for name in sorted({*old, *new} - {*FREE_OPTIONS}):
        if old.get(name) != new.get(name):
            item = next(item for item in reversed(overrides) if item.startswith(OPTIONS))
            raise UsageError(_refusal(folder, f"{OPTIONS}.{name}", item))
    return config


def _refusal(folder: RunFolder, key: str, item: str) -> str:
    if key.split(".")[0] == "events":
        return f"--set {key}: a resume does not move a log; once it lies elsewhere, say where in {folder.config_file}"
    if key.startswith("weights.lora_"):
        return (
            f"--set {key}: {folder.name} keeps the adapters that it began with; a fork from before its first training "
            f"step may change them (`whale fork {folder.name} --at EVENT --set {shlex.quote(item)}`)"
        )
    keys = [key for key in MOVABLE if not key.startswith(OPTIONS)]
    return (
        f"--set {key}: {folder.name} keeps what it began with; `whale fork {folder.name} --set {shlex.quote(item)}` "
        f"makes a new run that goes on with it. A resume may set {', '.join(keys)}, hooks.*, track.*, and of {OPTIONS} "
        f"{', '.join(FREE_OPTIONS)}"
    )


def _at(config: Mapping[str, Any], key: str) -> tuple[bool, Any]:
    value: Any = config
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False, None
        value = value[part]
    return True, value


def _with(config: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    first, *rest = path
    return {**config, first: _with(config.get(first) or {}, rest, value) if rest else value}


def _without(config: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    first, *rest = path
    inner = config.get(first)
    if rest and isinstance(inner, Mapping):
        return {**config, first: _without(inner, rest)}
    return {key: value for key, value in config.items() if rest or key != first}
