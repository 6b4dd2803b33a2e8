"""`whale init`, `run` and `resume`."""

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from whale.alternation.run_folder import RunFolder, runs_folder
from whale.cli.output import print_json, print_text
from whale.cli.progress import reporter
from whale.config import Config, load_around, load_config
from whale.errors import Interrupted, UsageError, WhaleError

if TYPE_CHECKING:
    from whale.alternation.state import State
    from whale.domains.base import Domain

TEMPLATE = Path(__file__).parent / "template.toml"


def init(path: Path, force: bool) -> None:
    """Write the commented config."""
    if path.exists() and not force:
        raise UsageError(f"{path}: is there already; --force overwrites it")
    try:
        path.write_text(TEMPLATE.read_text(encoding="utf-8"), encoding="utf-8")
    except OSError as error:
        raise WhaleError(f"{path}: cannot be written: {error.strerror or error}") from error
    print(f"wrote {path}; `whale run {path}` starts it")


def run(config_file: Path, name: str | None, overrides: list[str], quiet: bool) -> None:
    """Create the run and carry it through."""
    config = load_config(config_file, overrides)
    stem = config_file.resolve().stem
    if name is None:
        name = config_file.resolve().parent.name if stem == "whale" else stem
    check_name(name)
    from whale.alternation.session import create_folder, require_machine
    from whale.alternation.task_step import require_generator
    from whale.domains.registry import preflight

    domain = try_config(config)
    require_generator(config, domain)
    preflight(domain)
    require_machine(runs_folder().resolve() / name, config)
    folder = create_folder(runs_folder() / name, config)
    carry_through(folder, quiet)


def try_config(config: Config) -> "Domain":
    """Load what a config names, and so try all that a typing error can spoil before a run exists.

    Raises:
        UsageError: something that it names is not there.
    """
    from whale.domains.registry import load_domain
    from whale.rollout.models import resolve_model
    from whale.search.acceptance import acceptance_rule
    from whale.search.registry import proposer as load_proposer
    from whale.search.spaces import search_space

    resolve_model(config.model)
    domain = load_domain(config.domain, config.domain_options)
    load_proposer(config.search.proposer, config.search.options)
    acceptance_rule(config.search.acceptance, config.search.acceptance_options)
    search_space(config.search.space)
    return domain


def check_name(name: str) -> None:
    """Raise UsageError unless the name can be a run's: one plain part of a path."""
    if not re.fullmatch(r"[^\W_][\w.+-]*", name):
        raise UsageError(f"--name {name!r}: give letters, digits, and . _ + - after the first one")


def fork(run_name: str, at: int | None, name: str | None, overrides: list[str], json: bool) -> None:
    """Make a run that continues from an event of another one, and say from which."""
    from whale.alternation.fork import fork as make

    origin = RunFolder.find(run_name)
    name = name or f"{origin.name}-fork"
    check_name(name)
    new, point = make(origin, name, at, overrides)
    if json:
        print_json(
            {"run": new.name, "path": str(new.path), "origin": origin.name, "position": point.position,
             "earlier_because": point.reason}
        )  # fmt: skip
        return
    state = point.state
    where = f"the {state.phase} phase of cycle {state.cycle}" if state.phase else f"cycle {state.cycle}"
    earlier = f" (an earlier safe point: {point.reason})" if point.reason else ""
    print_text(f"{new.name} continues {origin.name} from event {point.position}, {where}{earlier}")
    if new.state().status == "completed":
        print_text(f"it is complete there: --set schedule.cycles={state.cycle + 1} would give it another cycle")
    else:
        print_text(f"`whale resume {new.spoken}` goes on")


def resume(run_name: str, overrides: list[str], quiet: bool) -> None:
    """Lift a pause or stop, and run unless a runner is there."""
    from whale.cli.steer_commands import request, wait_for_answer
    from whale.events import types as ev

    folder = RunFolder.find(run_name)
    if overrides:
        _move(folder, overrides)
    if folder.has_log():
        state = folder.state()
        if state.status == "completed" and not state.requests:
            _write_notes(folder, state)
            print(f"{folder.name} is complete; `whale status {folder.name}` shows it")
            return
        paused = state.status in ("paused", "stopped") or state.interrupted or state.requests
        if paused:
            key = request(folder, ev.ResumeRequested())
            if folder.runner_pid():
                wait_for_answer(folder, key, 600.0)
                return
    carry_through(folder, quiet)


def _move(folder: RunFolder, overrides: list[str]) -> None:
    """Change in whale.toml what may change: of a started run where it runs, of one that never started anything."""
    from whale.alternation.movable import moved
    from whale.alternation.session import write_config
    from whale.search.registry import proposer as load_proposer

    with folder.lease():
        state = folder.state() if folder.has_log() else None
        if state is None or state.status == "new":
            config = load_config(folder.config_file, overrides)
            try_config(config)
        else:
            config = moved(folder, state, overrides)
            load_proposer(config.search.proposer, config.search.options)
        write_config(folder, config)
    print(f"{folder.config_file}: {', '.join(overrides)}", file=sys.stderr)


def _write_notes(folder: RunFolder, state: "State") -> None:
    """Git's notes once more by the log, should somebody have changed them."""
    from whale.alternation.session import rebuild_notes
    from whale.harness_repo import HarnessRepo

    with folder.lease(), HarnessRepo.open(folder.harnesses, exclusive=True) as repo:
        rebuild_notes(repo, state)


def carry_through(folder: RunFolder, quiet: bool) -> None:
    """Hold the lease and run to the end, or to a stop."""
    from whale.alternation.progress import Silent
    from whale.alternation.session import open_runner
    from whale.report.tables import print_summary
    from whale.trackers.feed import Following

    os.environ.setdefault("WHALE_ERROR_LOG", str(folder.error_log))
    progress = reporter(quiet) or Silent()
    try:
        with folder.lease() as alive, open_runner(folder, progress, alive) as runner:
            runner.install_signals()
            with Following(folder, load_around(folder.config_file).track.to, progress.note):
                state = runner.run()
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; nothing that was recorded is lost: `whale resume {folder.spoken}` goes on"
        ) from None
    finally:
        progress.end()  # a bar hides the cursor
    print_summary(folder)
    if state.status != "completed":
        print(f"\nstopped; `whale resume {folder.spoken}` goes on")
