"""`whale events`. What they do is imported as they run."""

from pathlib import Path
from typing import Annotated

import typer

from whale.cli.parameters import Json, Quiet, Run, Sets

commands = typer.Typer(help="Read, verify, export and import the event log of a run.", no_args_is_help=True)


@commands.command("list")
def events_list(
    run: Run,
    after: Annotated[int, typer.Option("--after", help="Only events after this position.")] = 0,
    type_: Annotated[str | None, typer.Option("--type", help="Only this type.")] = None,
    json: Json = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as events come.")] = False,
) -> None:
    """List events; with --json one document per line."""
    from whale.cli import events_commands

    events_commands.list_events(run, after, type_, json, follow)


@commands.command("verify")
def events_verify(
    run: Annotated[str, typer.Argument(metavar="RUN|FILE", help="A run, or an exported log.")], json: Json = False
) -> None:
    """Check the hash chain of the whole log, and compare it with what accepted commits say of it."""
    from whale.cli import events_commands

    events_commands.verify(run, json)


@commands.command("export")
def events_export(
    run: Run,
    format_: Annotated[str, typer.Option("--format", help="jsonl or parquet.")] = "jsonl",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file; default: stdout. A name in .gz or .xz is packed.")
    ] = None,
    at: Annotated[int | None, typer.Option("--at", metavar="N", help="Up to event N only.")] = None,
) -> None:
    """Write the log for other tools, with all that its hashes cover."""
    from whale.cli import events_commands

    events_commands.export(run, format_, output, at)


@commands.command("import")
def events_import(
    file: Annotated[Path, typer.Argument(help="An exported log: .jsonl, .jsonl.gz, .jsonl.xz or .parquet.")],
    name: Annotated[str | None, typer.Option("--name", "-n", help="The run's name; default: the log's.")] = None,
    set_: Sets = None,
) -> None:
    """Make a run to read from an exported log; --set events.url=... puts it into a database."""
    from whale.cli import events_commands

    events_commands.import_(file, name, set_ or [])


@commands.command("rebuild")
def events_rebuild(
    run: Run,
    into: Annotated[
        str | None, typer.Option("--into", metavar="URL", help="Another database; default: views.db in the run.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep them up to the log.")] = False,
    quiet: Quiet = False,
) -> None:
    """Make the SQL views anew: view_runs, view_cycles, view_harnesses, view_rollouts, view_steps."""
    from whale.cli import events_commands

    events_commands.rebuild(run, into, follow, quiet)
