"""The commands that bring what a run made elsewhere. What they do is imported as they run."""

from pathlib import Path
from typing import Annotated

import typer

from whale.cli.parameters import As, Json, Quiet, Remote, Run

commands = typer.Typer()


@commands.command(rich_help_panel="Share")
def push(run: Run, remote: Remote, as_: As = None, json: Json = False) -> None:
    """Bring a run's harnesses, scores and lineage to any Git remote, beside those of other runs."""
    from whale.cli import store_commands

    store_commands.push(run, remote, as_, json)


@commands.command(rich_help_panel="Share")
def pull(run: Run, remote: Remote, as_: As = None, json: Json = False) -> None:
    """Fetch the harnesses, scores and lineage of other runs; nothing of this run changes."""
    from whale.cli import store_commands

    store_commands.pull(run, remote, as_, json)


@commands.command(rich_help_panel="Use")
def export(
    run: Run,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="A new folder; default: ./RUN-pair.")
    ] = None,
    harness: Annotated[
        str | None, typer.Option("--harness", metavar="REF", help="Another harness with these weights: an id, c003, …")
    ] = None,
    cycle: Annotated[
        int | None, typer.Option("--cycle", min=0, help="The pair of this cycle; default: the selected one.")
    ] = None,
    json: Json = False,
) -> None:
    """Write the pair that validation selected as a folder that stands alone: weights, harness, card."""
    from whale.cli import pair_commands

    pair_commands.export(run, output, harness, cycle, json)


@commands.command(rich_help_panel="Use")
def serve(
    pair: Annotated[str, typer.Argument(metavar="RUN|FOLDER", help="A run, or an exported pair.")],
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0: any free one.")] = 8421,
    token: Annotated[
        str | None, typer.Option("--token", help="What clients give as API key; better: $WHALE_SERVE_TOKEN.")
    ] = None,
    harness: Annotated[str | None, typer.Option("--harness", metavar="REF", help="Of a run: another harness.")] = None,
    cycle: Annotated[int | None, typer.Option("--cycle", min=0, help="Of a run: the pair of this cycle.")] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Questions that are answered together.")] = 8,
    last_only: Annotated[
        bool, typer.Option("--last-only", help="Drop the messages before the last one instead of refusing them.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Answer with a pair as an OpenAI-compatible endpoint, harness included; on loopback unless a token is set."""
    from whale.cli import pair_commands

    pair_commands.serve(pair, host, port, token, harness, cycle, batch, last_only, quiet)
