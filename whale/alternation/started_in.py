"""What a config names by a relative path is where it was at the start of its run, wherever a command is called."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from whale.alternation.run_folder import RunFolder
from whale.config import Config, load_around
from whale.domains.base import Domain
from whale.domains.registry import load_domain
from whale.errors import UsageError
from whale.rollout.models import resolve_model


def run_domain(folder: RunFolder, config: Config) -> Domain:
    """The domain of a run. Raises UsageError, in one line, where it cannot be loaded (any more)."""
    with as_started(folder):
        return load_domain(config.domain, config.domain_options)


def config_domain(config: Config) -> Domain:
    """The domain of a config that may have been a run's. Raises UsageError where it cannot be loaded."""
    place = config.started_in or "."
    with contextlib.chdir(place) if Path(place).is_dir() else contextlib.nullcontext():
        return load_domain(config.domain, config.domain_options)


def run_model(folder: RunFolder, config: Config) -> Path:
    """The folder of a run's model. Raises UsageError or WhaleError where it is not there (any more)."""
    with as_started(folder):
        return resolve_model(config.model).absolute()


def domain_folder(folder: RunFolder, config: Config) -> Path:
    """From where the domain of a run, or of a config that may have been a run's, names its files."""
    named = Path(config.started_in)
    if config.started_in and named.is_dir():
        return named
    with as_started(folder):
        return Path.cwd()


@contextlib.contextmanager
def as_started(folder: RunFolder) -> Iterator[None]:
    """Be in the folder that the run was started in, if it is there; for a short while, and in the main thread.

    A UsageError that rises inside says where that was: after a move it is changed in whale.toml.
    """
    named = load_around(folder.config_file).started_in
    place = Path(named)
    if not named or place == Path.cwd():
        yield
        return
    is_there = place.is_dir()
    try:
        with contextlib.chdir(place) if is_there else contextlib.nullcontext():
            yield
    except UsageError as error:
        gone = "" if is_there else ", which is not there,"
        hint = (
            f"{folder.name} was started in {named}{gone} and names its files from there; `started_in` in its whale.toml"
        )
        raise UsageError(f"{error} ({hint} says so)").with_details(error.details) from error
