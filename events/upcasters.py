"""Old events as this release reads them. Never remove one: logs are kept for ever."""

from collections.abc import Callable
from typing import Any

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes an event's data as version n wrote it, and gives it as version n + 1 would have."""


def _run_started_1(data: dict[str, Any]) -> dict[str, Any]:
    # `origin` was always null: a fork is told by RunForked, after the origin's own events.
    return {key: value for key, value in data.items() if key != "origin"}


def _same(data: dict[str, Any]) -> dict[str, Any]:
    return data


UPCASTERS: dict[tuple[str, int], Upcaster] = {
    ("RunStarted", 1): _run_started_1,
    ("PhaseEnded", 1): _same,  # `sampled` is new
    ("StepTrained", 1): _same,  # `metrics` is new
}
"""(type, n) -> the upcaster from version n to n + 1."""
