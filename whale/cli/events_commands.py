"""`whale events`: list, verify, export and import a log, and rebuild its read models."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State, reduce
from whale.cli.output import print_json, print_json_line, print_text
from whale.cli.progress import reporter
from whale.errors import CorruptLogError, UsageError, WhaleError
from whale.events import CODEC, GENESIS, CorruptLog, EventLog, Head, LogError, Row, UnknownEvent
from whale.events import types as ev

VIEWS = "views.db"


def list_events(run: str, after: int, type_: str | None, json: bool, follow: bool) -> None:
    """List events, one line each."""
    if type_ is not None and type_ not in ev.EVENT_TYPES:
        raise UsageError(f"unknown event type {type_}; known: {', '.join(sorted(ev.EVENT_TYPES))}")
    if after < 0:
        raise UsageError(f"--after {after}: give a position, which is 1 or more, or 0 for all events")
    folder = RunFolder.find(run)
    log = folder.open_log(readonly=True)
    try:
        source = log.tail(after, stop=lambda: False) if follow else log.read(after=after)
        for recorded in source:
            if type_ is not None and recorded.type != type_:
                continue
            if json:
                print_json_line(
                    {
                        "position": recorded.position,
                        "stream": recorded.stream,
                        "version": recorded.version,
                        "key": recorded.key,
                        "type": recorded.type,
                        "at": recorded.at,
                        "data": msgspec.to_builtins(recorded.event),
                        "meta": dict(recorded.meta),
                        "hash": recorded.hash,
                    }
                )
            else:
                print_text(f"{recorded.position:6d}  {recorded.at[:19]}  {recorded.type:20s} {recorded.key}")
            if follow:
                sys.stdout.flush()
    except (CorruptLog, UnknownEvent) as error:
        raise CorruptLogError(f"{folder.log_place}: {error}") from error
    finally:
        log.close()


def verify(run: str, json: bool) -> None:
    """The hash chain of a run's whole log, or of an exported file; and Git's word on it."""
    if _is_export(run):
        name, place = run, run
        (head, _), witnessed = _read_export(Path(run)), 0
    else:
        folder = RunFolder.find(run)
        name, place = folder.name, folder.log_place
        log = folder.open_log(readonly=True)
        try:
            head = log.verify()
            witnessed = _compare_with_git(folder, log)
        except (CorruptLog, UnknownEvent) as error:
            raise CorruptLogError(f"{place}: {error}") from error
        finally:
            log.close()
    if json:
        print_json({"run": name, "events": head.position, "head": head.hash, "witnessed_by_git": witnessed})
    else:
        git = f"; {witnessed} accepted commits name events of it" if witnessed else ""
        print_text(f"{place}: {head.position} events, the chain holds; head {head.hash}{git}")


def _is_export(name: str) -> bool:
    from whale.events.transfer import EXPORTS

    return name.endswith(EXPORTS) and Path(name).is_file()


def _read_export(path: Path) -> tuple[Head, State]:
    """The head of an export and the fold of its events, which are checked one by one."""
    from whale.events.chain import checked, recorded
    from whale.events.transfer import read_file

    state, head = State(), Head(0, GENESIS)
    try:
        for row in checked(read_file(path)):
            state = reduce(state, recorded(row, CODEC))
            head = Head(row.position, row.hash)
    except (CorruptLog, UnknownEvent) as error:
        raise CorruptLogError(f"{path}: {error}") from error
    except LogError as error:
        raise UsageError(str(error)) from error
    return head, state


def _compare_with_git(folder: RunFolder, log: EventLog) -> int:
    """Each accepted commit names the event that decided it, by hash: a log written anew would differ.

    Raises:
        CorruptLogError: the log has no event with such a hash at that place.
    """
    from whale.harness_repo import HarnessRepo

    if not folder.harnesses.exists():
        return 0
    with HarnessRepo.open(folder.harnesses) as repo:
        accepted = repo.accepted()
    witnessed = 0
    for commit in accepted:
        if commit.position is None:  # written by a version that named no position
            continue
        row: Row | None = next(iter(log.rows(after=commit.position - 1, until=commit.position)), None)
        if row is None or row.hash != commit.event_hash:
            found = f"has the hash {row.hash[:16]}" if row else "is not in the log"
            raise CorruptLogError(
                f"{folder.log_place}: event {commit.position} {found}, but the accepted commit {commit.sha[:12]} in "
                f"{folder.harnesses} names {commit.event_hash[:16]}: the log, or the repository, was written anew"
            )
        witnessed += 1
    return witnessed


def export(run: str, format_: str, output: Path | None, at: int | None) -> None:
    """Write a run's log, checked, as JSON lines or Parquet."""
    from whale.events.transfer import Binary, packed, write_jsonl, write_parquet

    if format_ not in ("jsonl", "parquet"):
        raise UsageError(f"--format {format_}: give jsonl or parquet")
    if output is None and format_ == "parquet":
        raise UsageError("--format parquet writes a file: give --output FILE")
    if at is not None and at < 0:
        raise UsageError(f"--at {at}: give a position, which is 1 or more, or 0 for the empty log")
    folder = RunFolder.find(run)
    log = folder.open_log(readonly=True)
    write: Callable[[Iterator[Row], Binary], int] = write_parquet if format_ == "parquet" else write_jsonl
    try:
        rows = log.rows(until=at)
        if output is None:
            write(rows, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return
        temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as file, packed(file, output.name) as target:
                count = write(rows, target)
            temporary.replace(output)
        except OSError as error:
            raise WhaleError(f"{output}: cannot be written: {error.strerror or error}") from error
        finally:
            temporary.unlink(missing_ok=True)
    except CorruptLog as error:
        raise CorruptLogError(f"{folder.log_place}: {error}") from error
    finally:
        log.close()
    print_text(f"wrote {count} events to {output}")


def import_(path: Path, name: str | None, overrides: list[str]) -> None:
    """Make a run from an exported log: all that reads a log works on it; its files are not part of it."""
    from whale.alternation.decide import config_of
    from whale.alternation.session import require_log, run_in_the_making, write_config
    from whale.cli.run_commands import check_name
    from whale.config import apply_overrides, config_from, to_builtins
    from whale.events.transfer import read_file

    bad = [item for item in overrides if not item.startswith("events.")]
    if bad:
        raise UsageError(f"--set {bad[0]}: an import changes nothing of the run but where its log lies (events.url)")
    head, state = _read_export(path)
    if state.status == "new":
        raise UsageError(f"{path}: holds no run: its first event must be RunStarted")
    name = name or state.name
    check_name(name)
    with run_in_the_making(name) as making:
        config = config_from(apply_overrides(to_builtins(config_of(state)), overrides), source=str(path))
        write_config(making, require_log(config, name))
        with contextlib.closing(making.open_log()) as log:
            log.restore(read_file(path))
    print_text(f"{name}: {head.position} events; `whale status {name}` shows it")


def rebuild(run: str, into: str | None, follow: bool, quiet: bool) -> None:
    """Make the read models anew from the log."""
    from whale.alternation.progress import Silent
    from whale.report import views

    folder = RunFolder.find(run)
    name = folder.database[1] if folder.database else folder.name
    own = folder.path / VIEWS
    url = into or (folder.database[0] if folder.database else f"sqlite:///{own.resolve()}")
    if into is None and not folder.database:
        own.unlink(missing_ok=True)
    progress = reporter(quiet) or Silent()
    log = folder.open_log(readonly=True)
    try:
        engine = views.open_views(url)
        progress.begin("events", log.head().position)
        projection = views.rebuild(log, engine, name, progress.advance)
        progress.end()
        print_text(f"{url}: the views of {name} are those of event {projection.position}")
        if follow:
            sys.stdout.flush()
            views.follow(projection, log, engine, stop=lambda: False)
    except (CorruptLog, UnknownEvent) as error:
        raise CorruptLogError(f"{folder.log_place}: {error}") from error
    finally:
        progress.end()
        log.close()
