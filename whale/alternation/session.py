"""Open a run for its single writer: everything that it stands on is checked before anything is paid."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import tomli_w

from whale.alternation.compute import Compute
from whale.alternation.hooks import Hooks
from whale.alternation.judging import rule_of
from whale.alternation.movable import present_config
from whale.alternation.progress import Reporter
from whale.alternation.provenance import provenance
from whale.alternation.run_folder import RunFolder, runs_folder
from whale.alternation.runner import Runner, fold_all
from whale.alternation.started_in import as_started
from whale.alternation.state import State
from whale.alternation.store_facts import notes
from whale.alternation.task_step import require_generator
from whale.artifacts import sync_folder
from whale.config import Config, for_the_log, load_around, load_config, to_builtins
from whale.domains.apart import judged_apart
from whale.domains.registry import load_domain, preflight
from whale.errors import ConflictError, UsageError, WhaleError
from whale.events import EventLog, NewEvent
from whale.events import types as ev
from whale.harness_repo import HarnessRepo, RepoError
from whale.own_code import forget_own
from whale.search.agentic.types import SessionProposer
from whale.search.pinned import pinned, require_pinned
from whale.search.registry import proposer as load_proposer
from whale.search.spaces import search_space

MIN_FREE_BYTES = 512 * 2**20
"""Free disk below which a runner does not start."""

UNFINISHED_CONFIG = "whale.tmp"
"""A whale.toml while it is written; all that is left where a start was killed there."""


def require_machine(path: Path, config: Config) -> None:
    """Check what a run needs of the machine, before anything is made or paid.

    Raises:
        WhaleError: git or the engine is missing, the device is not there, or the disk is nearly full.
    """
    from whale.harness_repo.cleanroom import git_executable
    from whale.rollout.engines import require_engine

    try:
        git_executable()
    except RepoError as error:
        raise WhaleError(str(error)) from error
    require_engine(config.engine)
    if config.weights.lora_rank:
        from whale.weights.lora import require_peft

        require_peft()
    if config.weights.ranks > 1:
        from whale.weights.ranks import kind_of

        kind_of(config.weights.ranks, config.engine.device)
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free
    if free < MIN_FREE_BYTES:
        raise WhaleError(
            f"{path}: {free // 2**20} MB of disk are free, a run needs at least {MIN_FREE_BYTES // 2**20} MB: make room"
        )


def create_folder(path: Path, config: Config) -> RunFolder:
    """Make the run's folder with its frozen config.

    Raises:
        ConflictError: the run is there already.
    """
    folder = RunFolder(path)
    if folder.config_file.exists() or folder.log_file.exists():
        raise ConflictError(
            f"{path}: this run is there already; `whale resume {folder.spoken}` goes on, `--name` starts another one"
        )
    if path.exists() and any(entry.name != UNFINISHED_CONFIG for entry in path.iterdir()):
        raise UsageError(f"{path}: the folder is not empty and not a run; choose another --name")
    config = require_log(config, folder.name)
    config = msgspec.structs.replace(config, started_in=config.started_in or str(Path.cwd()))
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_config(folder, config)
    except OSError as error:
        raise WhaleError(f"{path}: cannot be created: {error.strerror or error}") from error
    return RunFolder(path)


@contextmanager
def run_in_the_making(name: str, runs: Path | None = None) -> Iterator[RunFolder]:
    """A folder to fill for the run `name`; when the block ends it is in its place, complete, and else nowhere.

    Its place is in `runs`, by default where all runs are.

    Raises:
        ConflictError: there is a run of that name.
        WhaleError: the folder cannot be made or written.
    """
    target = (runs or runs_folder()) / name
    if target.exists():
        raise ConflictError(f"{target}: is there already; choose another --name")
    making = RunFolder(target.with_name(f".{name}.making"))
    shutil.rmtree(making.path, ignore_errors=True)
    try:
        making.path.mkdir(parents=True)
        yield making
        making.path.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise WhaleError(f"{target}: cannot be made: {error.strerror or error}") from error
    finally:
        shutil.rmtree(making.path, ignore_errors=True)


def write_config(folder: RunFolder, config: Config) -> None:
    """Write whale.toml, whole or not at all."""
    temporary = folder.path / UNFINISHED_CONFIG
    temporary.write_text(tomli_w.dumps(to_builtins(config)), encoding="utf-8")
    temporary.replace(folder.config_file)
    sync_folder(folder.path)


def require_log(config: Config, name: str) -> Config:
    """The config with the run's name in its database, which must answer and not know such a run yet.

    Raises:
        ConflictError: the database has a run of this name.
        UsageError: the URL is none, or holds a password.
        WhaleError: the database does not answer.
    """
    if not config.events.url:
        return config
    from whale.events import LogError, PostgresLog
    from whale.events.postgres_url import check_url

    run = config.events.run or name
    try:
        url = check_url(config.events.url)
    except LogError as error:
        raise UsageError(f"events.url: {error}") from None
    try:
        with PostgresLog(url, run) as log:
            if log.head().position:
                raise ConflictError(
                    f"{url}: a run {run} is there already; choose another --name, or another --set events.run=NAME"
                )
    except LogError as error:
        raise WhaleError(f"events.url: {error}") from error
    return msgspec.structs.replace(config, events=msgspec.structs.replace(config.events, url=url, run=run))


@contextmanager
def open_runner(folder: RunFolder, reporter: Reporter, alive: Callable[[], bool] = lambda: True) -> Iterator[Runner]:
    """A runner on this run; the caller holds the lease, and `alive` says whether it still does.

    Raises:
        UsageError: the config, domain, model or proposer is wrong.
        ConflictError: a file of the user's own that the search stands on is not the run's any more.
        WhaleError: no space, no sandbox, or the domain's data is not the run's.
    """
    log = folder.open_log()
    try:
        state = fold_all(log)
        config = load_config(folder.config_file) if state.status == "new" else present_config(folder, state)
        forget_own()
        with as_started(folder):
            files = pinned(config.search)
            require_pinned(config.search, state.pinned, folder.name)
            rule_of(config)
            search_space(config.search.space)
            proposer = load_proposer(config.search.proposer, config.search.options)
            domain = load_domain(config.domain, config.domain_options)
            domain = judged_apart(domain, config.domain, config.domain_options)
        fingerprint = domain.fingerprint()
        if state.status != "new" and fingerprint != state.data:
            raise WhaleError(
                f"{folder.path}: the data or code of domain {config.domain} is not what this run began with "
                f"(fingerprint {fingerprint[:12]}, the log says {state.data[:12]}); bring the old one back, "
                "or start a new run"
            )
        require_machine(folder.path, config)
        require_generator(config, domain)
        if state.status != "completed":
            if state.status != "new":
                preflight(domain)  # of a new run before its folder was made
            if isinstance(proposer, SessionProposer):
                proposer.preflight()
        folder.artifacts.clean()
        compute = Compute(config, folder, domain, reporter)
        compute.checkpoints.clean()
        try:
            compute.require_adapters()
            if state.status == "new":
                _start(folder, log, config, fingerprint, files, compute)
            with _repository(folder) as repo:
                runner = Runner(folder, log, repo, domain, config, proposer, compute, reporter, alive)
                runner.hooks = Hooks(load_around(folder.config_file).hooks, folder.path, reporter.note)
                runner.refresh()
                rebuild_notes(repo, runner.state)
                yield runner
        finally:
            compute.close()
    finally:
        log.close()


def _start(
    folder: RunFolder, log: EventLog, config: Config, fingerprint: str, files: dict[str, str], compute: Compute
) -> None:
    model = compute.base_digest()
    event = ev.RunStarted(
        name=folder.name,
        config=for_the_log(config),
        model=model,
        data=fingerprint,
        splits={split: len(tasks) for split, tasks in compute.tasks.items()},
        pinned=files,
    )
    meta = {"pid": os.getpid(), **provenance(config)}
    log.append("run", [NewEvent(event=event, key="started", meta=meta)], expected_version=0)


@contextmanager
def _repository(folder: RunFolder) -> Iterator[HarnessRepo]:
    if folder.harnesses.exists():
        repo = HarnessRepo.open(folder.harnesses, exclusive=True)
    else:
        repo = HarnessRepo.create(folder.harnesses)
    with repo:
        yield repo


def rebuild_notes(repo: HarnessRepo, state: State) -> None:
    """Bring Git's notes to the log: what was recorded and not yet written there when a runner was killed."""
    repo.rebuild_notes(notes(state))
