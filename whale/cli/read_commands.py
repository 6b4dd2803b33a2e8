"""Commands that read the log: status, events."""

from typing import Any

import msgspec

from whale.alternation.run_folder import RunFolder, runs_folder
from whale.alternation.state import State
from whale.cli.output import print_json, print_json_line, print_table, print_text
from whale.errors import CorruptLogError, UsageError, WhaleError
from whale.events import types as ev


def status(run: str | None, json: bool) -> None:
    """One run, or all of them."""
    from whale.report.tables import print_summary, shown_status, summary

    if run is None:
        _all_runs(json)
        return
    folder = RunFolder.find(run)
    if json:
        print_json(summary(folder))
        return
    state = folder.state()
    pid = folder.runner_pid()
    where = f"{state.phase} phase" if state.phase else "between phases"
    detail = {
        "weight": f", {state.step} steps trained",
        "harness": f", {state.iteration} iterations done, {len(state.phase_scores)} harnesses scored",
    }.get(state.phase or "", "")
    running = f"runner: process {pid}" if pid else "no runner"
    print(f"{folder.name}: {shown_status(state, pid)}; cycle {state.cycle}, {where}{detail}; {running}")
    if state.revert_to:
        print(f"scheduled: revert to {state.revert_to}")
    print_summary(folder)


def _all_runs(json: bool) -> None:
    from whale.report.tables import shown_status

    rows: list[dict[str, Any]] = []
    for config in sorted(runs_folder().glob("*/whale.toml")):
        folder = RunFolder(config.parent)
        try:
            state = folder.state() if folder.log_file.exists() else State()
            status: str = shown_status(state, folder.runner_pid())
        except WhaleError:
            state, status = State(), "unreadable"
        rows.append(
            {
                "run": folder.name,
                "status": status,
                "cycle": state.cycle,
                "phase": state.phase,
                "accepted": state.accepted,
                "runner": folder.runner_pid(),
            }
        )
    if json:
        print_json(rows)
    elif rows:
        print_table(list(rows[0]), [[str(v if v is not None else "") for v in row.values()] for row in rows])
    else:
        print(f"no runs in {runs_folder()}; `whale run` starts one")


def events(run: str, after: int, type_: str | None, json: bool, follow: bool) -> None:
    """List events, one line each."""
    from whale.events import CorruptLog, UnknownEvent

    if type_ is not None and type_ not in ev.EVENT_TYPES:
        raise UsageError(f"unknown event type {type_}; known: {', '.join(sorted(ev.EVENT_TYPES))}")
    folder = RunFolder.find(run)
    log = folder.open_log(readonly=True)
    try:
        source = log.tail(after, stop=lambda: False) if follow else log.read(after=after)
        for recorded in source:
            if type_ is not None and recorded.type != type_:
                continue
            data = msgspec.to_builtins(recorded.event)
            if json:
                print_json_line(
                    {
                        "position": recorded.position,
                        "stream": recorded.stream,
                        "version": recorded.version,
                        "key": recorded.key,
                        "type": recorded.type,
                        "at": recorded.at,
                        "data": data,
                        "meta": dict(recorded.meta),
                        "hash": recorded.hash,
                    }
                )
            else:
                print_text(f"{recorded.position:6d}  {recorded.at[:19]}  {recorded.type:20s} {recorded.key}")
    except (CorruptLog, UnknownEvent) as error:
        raise CorruptLogError(f"{folder.log_file}: {error}") from error
    finally:
        log.close()
