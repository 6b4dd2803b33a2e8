"""The commands that show what happened. What they do is imported as they run."""

from pathlib import Path
from typing import Annotated

import typer

from whale.cli.parameters import Json, Quiet, Run

commands = typer.Typer()


@commands.command(rich_help_panel="See")
def report(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Runs, folders of them, exported logs, or an experiment's file."),
    ],
    form: Annotated[str, typer.Option("--format", "-f", help="text, markdown, html or csv.")] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")] = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", help="Only this table, such as success; may be given again.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", metavar="SYSTEM", help="Pair all systems with this one alone, by its name in the tables."
        ),
    ] = None,
    where: Annotated[
        Path | None, typer.Option("--runs", metavar="DIR", help="Where an experiment's runs lie; default: ./runs/NAME.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare runs: success by system with intervals, paired differences, learning curves, what a level costs."""
    from whale.cli import report_command

    report_command.report(runs, form, output, json, table, against, where)


@commands.command(rich_help_panel="See")
def status(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run; none: all runs.")] = None,
    json: Json = False,
) -> None:
    """Show where a run is, what it reached and what it cost."""
    from whale.cli import read_commands

    read_commands.status(run, json)


@commands.command(rich_help_panel="See")
def metrics(
    run: Run,
    json: Json = False,
    groups: Annotated[bool, typer.Option("--groups/--no-groups", help="Also by group of tasks, or test set.")] = True,
) -> None:
    """Show held-out success by cycle and test set, with format, truncation, turns, tokens and tool calls."""
    from whale.cli import metrics_command

    metrics_command.metrics(run, json, groups)


@commands.command(rich_help_panel="See")
def lineage(
    run: Run,
    form: Annotated[str, typer.Option("--format", "-f", help="tree, dot, html or json.")] = "tree",
    json: Json = False,
    accepted: Annotated[bool, typer.Option("--accepted", help="Accepted harnesses only.")] = False,
    cycle: Annotated[int | None, typer.Option("--cycle", help="One cycle only.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="The newest N only.")] = None,
    before: Annotated[str | None, typer.Option("--before", metavar="ID", help="The newest before this one.")] = None,
    whole: Annotated[bool, typer.Option("--all", help="All of them: a tree shows the newest 200 at first.")] = False,
    all_runs: Annotated[bool, typer.Option("--all-runs", help="With what was pulled from other runs.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file.")] = None,
) -> None:
    """Show every proposed harness, its parents, score and fate."""
    from whale.cli import lineage_commands

    lineage_commands.lineage(
        run, "json" if json else form, accepted=accepted, cycle=cycle, limit=limit, before=before, whole=whole,
        all_runs=all_runs, output=output,
    )  # fmt: skip


@commands.command(rich_help_panel="See")
def diff(
    run: Run,
    a: Annotated[str, typer.Argument(help="A harness: candidate id, accepted~1, c003, a commit.")] = "accepted~1",
    b: Annotated[str, typer.Argument(help="Another one.")] = "accepted",
    side_by_side: Annotated[bool, typer.Option("--side-by-side", "-y", help="Old left, new right.")] = False,
    json: Json = False,
) -> None:
    """Show what changed between two harnesses; default: the last accepted change."""
    from whale.cli import lineage_commands

    lineage_commands.diff(run, a, b, json, side_by_side)


@commands.command(rich_help_panel="See")
def blame(
    run: Run,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file of the harness, such as prompts/system.md.")],
    at: Annotated[str, typer.Option("--at", metavar="HARNESS", help="The harness.")] = "accepted",
    json: Json = False,
) -> None:
    """Show which proposal brought each line, and what it did to the score."""
    from whale.cli import lineage_commands

    lineage_commands.blame(run, file, at, json)


@commands.command(rich_help_panel="See")
def show(
    run: Run,
    harness: Annotated[str, typer.Argument(help="A candidate id, accepted, c003, a commit.")] = "accepted",
    json: Json = False,
    rollouts: Annotated[int, typer.Option("--rollouts", help="Also show so many of its rollouts.")] = 0,
) -> None:
    """Show a harness: its facts, its scores, its files, and rollouts."""
    from whale.cli import show_command

    show_command.show(run, harness, json, rollouts)


@commands.command(rich_help_panel="See")
def score(
    run: Run,
    commit: Annotated[str, typer.Argument(help="A harness or commit; HEAD is what is checked out here.")] = "accepted",
    least: Annotated[
        float | None,
        typer.Option("--min", help="For `git bisect run`: exit 0 if at least this, 1 if less, 125 if it has none."),
    ] = None,
    json: Json = False,
) -> None:
    """Show a harness's recorded score, or judge it for `git bisect run`."""
    from whale.cli import store_commands

    store_commands.score(run, commit, least, json)


@commands.command(rich_help_panel="See")
def replay(
    run: Run,
    at: Annotated[int | None, typer.Option("--at", help="Show the state after event N.")] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Train every step again and compare digests.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Rebuild the state from the log alone and check all that it names."""
    from whale.cli import replay_commands

    replay_commands.replay(run, at, deep, json, quiet)


@commands.command(rich_help_panel="See")
def control(
    run: Run,
    harness: Annotated[str, typer.Argument(help="A candidate id, accepted, c003, a commit.")] = "accepted",
    tasks: Annotated[int, typer.Option("--tasks", min=1, help="Validation tasks to sample.")] = 64,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure how much of a harness's success needs no skill, by the domain's own report."""
    from whale.cli import control_command

    control_command.control(run, harness, tasks, json, quiet)


@commands.command(rich_help_panel="See")
def tui(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN|FOLDER|URL]", help="A run, its folder or log, or postgresql://…?run=NAME."),
    ] = None,
    git: Annotated[
        str | None, typer.Option("--git", metavar="URL", help="The harness store of a run elsewhere.")
    ] = None,
    view: Annotated[str | None, typer.Option("--view", help="The screen to begin with, such as lineage.")] = None,
    at: Annotated[int | None, typer.Option("--at", help="Show the run as it was after event N.")] = None,
    theme: Annotated[str | None, typer.Option("--theme", help="A theme; ansi: the terminal's own colours.")] = None,
    screenshot: Annotated[
        Path | None,
        typer.Option("--screenshot", metavar="FILE", help="Write one screen to a .svg or .txt file, and end."),
    ] = None,
    size: Annotated[str, typer.Option("--size", help="The screenshot's size.")] = "120x40",
    press: Annotated[str, typer.Option("--press", help="Keys to press before the screenshot: 3,j,enter.")] = "",
) -> None:
    """Watch and steer runs in the terminal: lineage, diffs, rollouts, time travel."""
    from whale.cli import tui_commands

    tui_commands.tui(run, git, view, at, theme, screenshot, size, press)


@commands.command(rich_help_panel="See")
def web(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run; none: the list of runs.")] = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The port.")] = 8420,
) -> None:
    """Serve the same app to a browser; beyond this machine only with WHALE_WEB_TOKEN set."""
    from whale.cli import tui_commands

    tui_commands.web(run, host, port)


@commands.command(rich_help_panel="See")
def track(
    run: Run,
    to: Annotated[
        list[str] | None, typer.Option("--to", metavar="TRACKER", help="tensorboard (default), wandb or mlflow.")
    ] = None,
) -> None:
    """Make a run's curves anew from its log, for TensorBoard, Weights & Biases or MLflow."""
    from whale.cli import track_command

    track_command.track(run, to or ["tensorboard"])
