"""Where each cell of an experiment stands, by its run folder alone: there is no other record of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from whale.alternation.movable import without_movable
from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State
from whale.config import for_the_log, load_config
from whale.errors import ConflictError
from whale.experiment.grid import Cell, Experiment

Standing = Literal["to do", "begun", "running", "done"]


@dataclass(frozen=True, slots=True)
class CellView:
    """A cell and its run."""

    cell: Cell
    folder: RunFolder
    standing: Standing
    state: State
    """The fold of its log; a new one where there is none yet."""

    @property
    def rollouts(self) -> int:
        """All that were recorded."""
        return sum(totals.rollouts for totals in self.state.totals.values())


def look(experiment: Experiment, runs: Path) -> list[CellView]:
    """All cells as they stand now.

    Raises:
        ConflictError: a run of a cell's name has another config.
        CorruptLogError: a log is damaged.
    """
    return [look_at(cell, runs) for cell in experiment.cells]


def look_at(cell: Cell, runs: Path) -> CellView:
    """One cell as it stands now; raises as `look` does."""
    folder = RunFolder(runs / cell.name)
    if not folder.config_file.exists():
        return CellView(cell, folder, "to do", State())
    frozen = without_movable(for_the_log(load_config(folder.config_file)))
    wanted = without_movable(for_the_log(cell.config))
    if frozen != wanted:
        raise ConflictError(
            f"{folder.path}: this run was started with another config ({difference(frozen, wanted)}); "
            "give the experiment another name or --runs, or delete the run"
        )
    state = folder.state() if folder.has_log() else State()
    if folder.runner_pid():
        return CellView(cell, folder, "running", state)
    return CellView(cell, folder, "done" if state.status == "completed" else "begun", state)


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The first key in which two configs differ, with both values."""
    for key in sorted({*there, *here}):
        a, b = there.get(key), here.get(key)
        if a == b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            return f"{key}.{difference(a, b)}"
        return f"{key}: {a!r} there, {b!r} here"
    return "nothing"
