"""`whale experiment`: carry out a grid of runs, go on with it, and compare what came out."""

import asyncio
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whale.alternation.run_folder import runs_folder
from whale.cli.output import print_json, print_table, print_text, printable
from whale.errors import ConflictError, Interrupted, UsageError, WhaleError
from whale.experiment.budget import Planned, check_matched, planned
from whale.experiment.cells import CellView, look
from whale.experiment.children import Children, Ended
from whale.experiment.grid import Experiment, load_experiment, some_of

_PLANNED = ("train", "search", "evaluate", "smoke")


def experiment(
    config: Path,
    runs: Path | None,
    jobs: int,
    only: Sequence[str],
    collect: bool,
    dry_run: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Check the whole grid, then carry out what is not done yet, or of it the runs whose names match `only`."""
    from whale.rollout.devices import visible_gpus

    grid = load_experiment(config)
    check_matched(grid)
    grid = some_of(grid, only) if only else grid
    plans = _try(grid)
    folder = runs or runs_folder() / grid.name
    if (folder / "whale.toml").exists():
        raise ConflictError(f"{folder}: is a run, no folder of runs: give the experiment another name or --runs")
    views = look(grid, folder)
    if dry_run:
        _print_plan(grid, folder, views, plans, json)
        return
    left = [view for view in views if view.standing != "done"]

    def tell(line: str) -> None:
        if not quiet:
            print(f"{time.strftime('%H:%M:%S')}  {printable(line)}", file=sys.stderr, flush=True)

    tell(f"{grid.name}: {len(left)} of {len(views)} runs to go, {jobs} at a time, in {folder}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WhaleError(f"{folder}: cannot be made: {error.strerror or error}") from error
    children = Children(folder, jobs, tell, collect, visible_gpus())
    ended = asyncio.run(children.carry_out(left))
    _print_end(grid, folder, look(grid, folder), ended, json)
    part = "".join(f" --only {shlex.quote(pattern)}" for pattern in only)
    again = f"`whale experiment {config}{_where(grid, folder)}{part}` goes on"
    if children.stops:
        raise Interrupted(f"{grid.name}: stopped; nothing that was recorded is lost: {again}")
    failed = [one.view.cell.name for one in ended if one.failure]
    open_ones = [one.view.cell.name for one in ended if one.view.standing != "done" and not one.failure]
    if failed or open_ones:
        told = [f"{len(failed)} failed: {', '.join(failed)}"] if failed else []
        told += [f"{len(open_ones)} stopped before their end: {', '.join(open_ones)}"] if open_ones else []
        raise WhaleError(f"{grid.name}: {'; '.join(told)}; {again}")


def _try(grid: Experiment) -> dict[str, Planned]:
    """What each cell will need at most, after all that their configs name was loaded once."""
    from whale.cli.run_commands import try_config
    from whale.domains.registry import preflight

    sizes: dict[str, dict[str, int]] = {}
    plans = {}
    for cell in grid.cells:
        config = cell.config
        key = repr((config.model, config.domain, config.domain_options, config.search))
        if key not in sizes:
            domain = try_config(config)
            preflight(domain)
            sizes[key] = {split: len(tasks) for split, tasks in domain.splits().items()}
        plans[cell.name] = planned(config, sizes[key])
    return plans


def _print_plan(
    grid: Experiment, folder: Path, views: Sequence[CellView], plans: dict[str, Planned], json: bool
) -> None:
    if json:
        print_json(
            {
                "experiment": grid.name,
                "runs": str(folder),
                "matched": grid.matched,
                "cells": [
                    _cell_json(view) | {"planned": {name: getattr(plan, name) for name in _PLANNED}}
                    for view in views
                    for plan in [plans[view.cell.name]]
                ],
            }
        )
        return
    rows = []
    for view in views:
        plan = plans[view.cell.name]
        figures = [*(getattr(plan, name) for name in _PLANNED), plan.total, view.rollouts]
        rows.append([view.cell.name, view.standing, *map(str, figures)])
    totals = [sum(getattr(plan, name) for plan in plans.values()) for name in (*_PLANNED, "total")]
    rows.append(["total", "", *map(str, totals), str(sum(view.rollouts for view in views))])
    print_table(
        ["run", "now", *_PLANNED, "rollouts at most", "recorded"],
        rows,
        title=f"{grid.name}: {len(views)} runs in {folder}; budgets {'match' if grid.matched else 'need not match'}",
    )


def _cell_json(view: CellView) -> dict[str, Any]:
    cell = view.cell
    return {
        "run": cell.name,
        "path": str(view.folder.path),
        "system": cell.system,
        "domain": cell.domain,
        "seed": cell.seed,
        "standing": view.standing,
        "cycle": view.state.cycle,
        "rollouts": view.rollouts,
    }


def _print_end(grid: Experiment, folder: Path, views: Sequence[CellView], ended: Sequence[Ended], json: bool) -> None:
    failures = {one.view.cell.name: one.failure for one in ended if one.failure}
    if json:
        cells = [_cell_json(view) | {"failure": failures.get(view.cell.name)} for view in views]
        print_json({"experiment": grid.name, "runs": str(folder), "cells": cells, "success": _success(grid, folder)[1]})
        return
    print_table(
        ["run", "now", "cycle", "rollouts"],
        [
            [
                view.cell.name,
                f"failed: {failures[view.cell.name]}" if view.cell.name in failures else view.standing,
                str(view.state.cycle),
                str(view.rollouts),
            ]
            for view in views
        ],
        title=f"\n{grid.name}",
    )
    text, _ = _success(grid, folder)
    if text:
        print_text(f"\n{text}\nmore: `whale report {grid.path}{_where(grid, folder)}`, with --format html for figures")


def _success(grid: Experiment, folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """The report's first table on what there is, as text and as figures; nothing where nothing was recorded."""
    from whale.report.compare.render import as_json, as_text
    from whale.report.compare.report import tables
    from whale.report.compare.sources import find
    from whale.report.compare.systems import group

    try:
        found = find([str(grid.path)], folder)
    except UsageError:
        return "", []
    grouped = group(found.records, found.names)
    made = tables(grouped, ["success"])
    return as_text(made, grouped.notes), as_json(made)["tables"]["success"]


def _where(grid: Experiment, folder: Path) -> str:
    return "" if folder == runs_folder() / grid.name else f" --runs {shlex.quote(str(folder))}"
