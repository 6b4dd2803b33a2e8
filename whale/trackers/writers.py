"""Where curves go: one small protocol, three writers. Their libraries are extras, imported when they are asked for."""

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from whale.errors import UsageError
from whale.trackers.points import Point

FOLDER = "tensorboard"
"""In the run's folder."""


class Writer(Protocol):
    """Takes points in the order of the log."""

    name: str

    def write(self, points: Sequence[Point]) -> None:
        """Take some more points. May raise whatever its library raises."""
        ...

    def close(self) -> None:
        """Bring out what is still held."""
        ...


class TensorBoard:
    """Event files in a folder, which is made anew: they are the log once more."""

    name = "tensorboard"

    def __init__(self, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        writer = _library("tensorboardX", self.name).SummaryWriter
        self.place = folder / FOLDER
        shutil.rmtree(self.place, ignore_errors=True)
        self._writer = writer(str(self.place), flush_secs=10)

    def write(self, points: Sequence[Point]) -> None:
        """Add scalars, with the times of the log."""
        for point in points:
            self._writer.add_scalar(_tag(point.name), point.value, point.step, walltime=point.at)

    def close(self) -> None:
        """Flush the files."""
        self._writer.close()


class WandB:
    """A run at Weights & Biases, under an id of its own: what it has already it drops, so a repeat does no harm.

    Where to, and whether at all, its own environment says: WANDB_PROJECT, WANDB_MODE=offline, WANDB_API_KEY.
    """

    name = "wandb"

    def __init__(self, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        wandb = _library("wandb", self.name)
        project = os.environ.get("WANDB_PROJECT") or "whale"
        self._run = wandb.init(
            project=project, id=_identity(folder, run), name=run, config=dict(config), dir=str(folder), resume="allow",
            settings=wandb.Settings(silent=True),
        )  # fmt: skip

    def write(self, points: Sequence[Point]) -> None:
        """Log all of one step together."""
        for step, together in groupby(points, key=lambda point: point.step):
            self._run.log({_tag(point.name): point.value for point in together}, step=step)

    def close(self) -> None:
        """Upload the rest."""
        self._run.finish()


class MLflow:
    """A run of an MLflow server or folder: MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME say which.

    Each time that the curves are made it is a new run of the tracker, with the same tag `whale.run`; the one before is
    marked as deleted, as MLflow keeps no value once only.
    """

    name = "mlflow"

    def __init__(self, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        mlflow = _library("mlflow", self.name)
        self._mlflow, self._client = mlflow, mlflow.MlflowClient()
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "whale"
        found = self._client.get_experiment_by_name(experiment)
        number = found.experiment_id if found else self._client.create_experiment(experiment)
        identity = _identity(folder, run)
        for old in self._client.search_runs([number], f"tags.`whale.run` = '{identity}'"):
            self._client.delete_run(old.info.run_id)
        self._run = self._client.create_run(number, run_name=run, tags={"whale.run": identity}).info.run_id
        for key, value in sorted(_flat(config).items()):
            self._client.log_param(self._run, key, value[:500])

    def write(self, points: Sequence[Point]) -> None:
        """Log each value with the log's time."""
        from mlflow.entities import Metric

        metrics = [Metric(_tag(point.name), point.value, int(point.at * 1000), point.step) for point in points]
        for start in range(0, len(metrics), 500):
            self._client.log_batch(self._run, metrics=metrics[start : start + 500])

    def close(self) -> None:
        """Mark the run as ended."""
        self._client.set_terminated(self._run)


WRITERS: dict[str, Callable[[Path, str, Mapping[str, Any]], Writer]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def open_writer(name: str, folder: Path, run: str, config: Mapping[str, Any]) -> Writer:
    """The writer of this name for a run. Raises UsageError for an unknown name or a library that is not installed."""
    if name not in WRITERS:
        raise UsageError(f"no tracker {name!r}; there are: {', '.join(WRITERS)}")
    return WRITERS[name](folder, run, config)


def _library(module: str, extra: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f"the tracker {extra} needs {module}: pip install 'whale-evolve[{extra}]'") from error


def _identity(folder: Path, run: str) -> str:
    """An id that stays the same for this run, and is another one for a run of the same name elsewhere."""
    import hashlib

    place = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]
    return f"{_tag(run).replace('/', '-')}-{place}"


def _tag(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_./-]", "_", name)


def _flat(config: Mapping[str, Any], path: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{path}{key}.")
        else:
            flat[path + str(key)] = str(value)
    return flat
