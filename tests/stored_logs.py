"""Logs that earlier versions wrote, kept for ever; and one in memory for tests that read."""

from pathlib import Path

from whale.events import MemoryLog
from whale.events.transfer import read_file

SAMPLES = Path(__file__).parent / "events" / "samples"
RUN_V1 = SAMPLES / "run_v1.jsonl.gz"
"""A whole demo run on SmolLM2: two cycles, 13 candidates, 845 rollouts."""


def stored_run(path: Path = RUN_V1, until: int | None = None) -> MemoryLog:
    source = MemoryLog()
    source.restore(read_file(path))
    if until is None:
        return source
    log = MemoryLog()
    log.restore(source.rows(until=until))
    return log
