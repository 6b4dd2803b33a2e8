"""The command table. Implementations are imported by the command that runs, so that `--help` is instant."""

from typing import Annotated

import typer

from whale.cli import events_table, machine_table, run_table, see_table, share_table

app = typer.Typer(
    name="whale",
    help="Evolve an agent's weights and harness together, and see, trust, undo and replay every step.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for table in (run_table, see_table, share_table, machine_table):
    app.add_typer(table.commands)
app.add_typer(events_table.commands, name="events", rich_help_panel="See")


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Evolve an agent's weights and harness together."""
    if version:
        import whale

        typer.echo(f"whale {whale.__version__}")
        raise typer.Exit
