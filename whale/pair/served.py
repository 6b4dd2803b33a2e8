"""A pair that is ready to answer, from a run or from an exported folder: the same engine, harness and sandbox."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from whale.alternation.run_folder import RunFolder
from whale.alternation.started_in import as_started
from whale.alternation.state import State
from whale.config import Config
from whale.domains.base import Domain
from whale.domains.registry import load_domain
from whale.errors import WhaleError
from whale.pair import bundle
from whale.pair.choice import Pair


@dataclass(frozen=True, slots=True)
class Served:
    """What answering needs."""

    name: str
    """The model's name at the endpoint."""
    config: Config
    folder: RunFolder
    """Where checkpoints lie, if the weights are in one."""
    state: State
    domain: Domain
    files: Mapping[str, bytes]
    tree: str
    weights: str


def from_run(folder: RunFolder, state: State, config: Config, pair: Pair, files: Mapping[str, bytes]) -> Served:
    """A pair inside its run. Raises WhaleError if the domain's data is not the run's."""
    with as_started(folder):
        domain = _domain(config, state.data, folder.name)
    return Served(folder.name, config, folder, state, domain, files, pair.tree, pair.weights)


def from_bundle(path: Path) -> Served:
    """An exported pair.

    Raises:
        CorruptLogError: a file is not what was exported.
        WhaleError: the domain's data is not that of the run.
    """
    record = bundle.read_record(path)
    bundle.check_files(path, record)
    config = bundle.config_of(path, record)
    domain = _domain(config, record.data, str(path))
    files = bundle.harness_files(path, record)
    # The folder's own model has the pair's weights: nothing has to be loaded over it.
    state = State(name=record.run, model=record.weights, weights=record.weights)
    return Served(record.name, config, RunFolder(path), state, domain, files, record.tree, record.weights)


def _domain(config: Config, data: str, where: str) -> Domain:
    domain = load_domain(config.domain, config.domain_options)
    if domain.fingerprint() != data:
        raise WhaleError(
            f"{where}: the data or code of domain {config.domain} is not what the pair was evolved on "
            f"(fingerprint {domain.fingerprint()[:12]}, recorded {data[:12]}); install the versions it was made with"
        )
    return domain
