"""`whale status`: one run, or all of them."""

from typing import Any

from whale.alternation.run_folder import RunFolder, runs_folder
from whale.alternation.state import State, waits_for_review
from whale.cli.output import print_json, print_table
from whale.errors import WhaleError


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
    waiting = waits_for_review(state)
    if waiting:
        print(f"{waiting} waits for a reviewer: `whale approve {folder.name} {waiting}`")
    if state.revert_to:
        print(f"scheduled: revert to {state.revert_to}")
    print_summary(folder)


def _all_runs(json: bool) -> None:
    from whale.report.tables import shown_status

    rows: list[dict[str, Any]] = []
    for config in sorted(runs_folder().glob("*/whale.toml")):
        folder = RunFolder(config.parent)
        try:
            state = folder.state() if folder.has_log() else State()
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
