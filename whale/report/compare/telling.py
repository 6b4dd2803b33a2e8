"""The settings that tell one system from another: what of a config bears on what its runs do."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from whale.alternation.movable import MOVABLE
from whale.config import Config, adapter_settings, for_the_log

_OF_THE_MACHINE = frozenset((*MOVABLE, "weights.checkpoint_every", "weights.micro_batch_tokens"))
"""Where a run is and what its disk and memory hold; none of it changes a result."""

_BEFORE: Mapping[str, Any] = {"search.noise_floor": False}
"""What runs did before a key was there, where its default does something else."""

_WEIGHT_SIDE = ("weights.", "schedule.epochs", "schedule.tasks_", "schedule.budget_epochs")
_HARNESS_SIDE = ("search.", "schedule.iterations", "schedule.count_incoming", "schedule.budget_iterations")
_STAGEWISE = ("schedule.weight_cycles", "schedule.harness_cycles")
_ADAPTIVE = ("schedule.window_", "schedule.min_", "schedule.patience_", "schedule.max_")


def telling(config: Mapping[str, Any]) -> dict[str, Any]:
    """The dotted keys of a recorded config that tell its system, the seed aside.

    A key that is younger than the log has its default, or what runs did before it was there. Left out is what the
    run does not read: the side that its schedule does not have, and the keys of other schedules and methods.
    """
    values = flat(for_the_log(Config())) | dict(_BEFORE) | flat(config)
    kind = values["schedule.kind"]
    unread = [
        *(_WEIGHT_SIDE if kind == "harness-only" else ()),
        *(_HARNESS_SIDE if kind == "weight-only" else ()),
        *(_STAGEWISE if kind != "stagewise" else ("schedule.cycles",)),
        *(_ADAPTIVE if kind != "adaptive" else ()),
        *(("schedule.tasks_success", "schedule.tasks_share") if not values["schedule.tasks_patience"] else ()),
        *(("weights.lora_alpha", "weights.lora_targets") if not values["weights.lora_rank"] else ()),
        *(("weights.clip_",) if values["weights.method"] != "grpo" else ()),
    ]
    values |= adapter_settings(*(values[f"weights.lora_{name}"] for name in ("rank", "alpha", "targets")))
    return {
        key: _same(value) if key.endswith("epochs") else value
        for key, value in values.items()
        if key != "seed" and key not in _OF_THE_MACHINE and not key.startswith(tuple(unread))
    }


def _same(epochs: Any) -> str:
    """0.6, "0.6" and "0.60" alike; older logs have numbers."""
    try:
        return str(Decimal(str(epochs)).normalize())
    except InvalidOperation:
        return str(epochs)


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A config with dotted keys."""
    result: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[prefix + key] = value
    return result
