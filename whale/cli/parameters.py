"""Arguments and options that many commands share."""

from typing import Annotated

import typer

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's name in ./runs (or $WHALE_RUNS), or its path.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a config key, such as schedule.cycles=2."),
]
WaitFor = Annotated[float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for the runner.")]
Remote = Annotated[str, typer.Argument(metavar="REMOTE", help="A Git remote: a folder, a URL or a name.")]
As = Annotated[str | None, typer.Option("--as", metavar="NAME", help="This run's name there; it is remembered.")]
