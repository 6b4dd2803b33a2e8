"""The commands that start and steer runs. What they do is imported as they run."""

from pathlib import Path
from typing import Annotated

import typer

from whale.cli.parameters import Json, Quiet, Run, Sets, WaitFor

commands = typer.Typer()


@commands.command(rich_help_panel="Run")
def init(
    path: Annotated[Path, typer.Argument(help="The config file to write.")] = Path("whale.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
) -> None:
    """Write a commented config file to start from."""
    from whale.cli import run_commands

    run_commands.init(path, force)


@commands.command(rich_help_panel="Run")
def run(
    config: Annotated[Path, typer.Argument(help="The config file.")] = Path("whale.toml"),
    name: Annotated[str | None, typer.Option("--name", "-n", help="The run's name; default: the file's.")] = None,
    set_: Sets = None,
    quiet: Quiet = False,
) -> None:
    """Start a run and carry it through. Stop it any time: `whale resume` goes on."""
    from whale.cli import run_commands

    run_commands.run(config, name, set_ or [], quiet)


@commands.command(rich_help_panel="Run")
def experiment(
    config: Annotated[Path, typer.Argument(help="The experiment's file: systems, domains, seeds.")],
    runs: Annotated[
        Path | None, typer.Option("--runs", metavar="DIR", help="Where its runs lie; default: ./runs/NAME.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Runs at a time.")] = 1,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="PATTERN", help="Only runs of such names: '*-adaptive-*'; may be given again."),
    ] = None,
    gc: Annotated[bool, typer.Option("--gc", help="Once a run is done: `whale gc RUN --drop-optimizers`.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what there is to do, and start nothing.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Carry out a grid of runs, systems × domains × seeds; the same command goes on with one that was stopped."""
    from whale.cli import experiment_command

    experiment_command.experiment(config, runs, jobs, only or (), gc, dry_run, json, quiet)


@commands.command(rich_help_panel="Run")
def plan(
    config: Annotated[Path, typer.Argument(help="The config file.")] = Path("whale.toml"),
    set_: Sets = None,
    probe: Annotated[
        int | None, typer.Option("--probe", metavar="N", min=1, help="Measure rates on N rollouts of (θ0, h0) here.")
    ] = None,
    like: Annotated[str | None, typer.Option("--like", metavar="RUN", help="Take the rates of a recorded run.")] = None,
    seconds_per_rollout: Annotated[float | None, typer.Option(min=0, help="A rate that you know.")] = None,
    seconds_per_kept: Annotated[float | None, typer.Option(min=0, help="Training, per rollout that passed.")] = None,
    dollars_per_round: Annotated[float | None, typer.Option(min=0, help="The proposer's price of a session.")] = None,
    dollars_per_hour: Annotated[float | None, typer.Option(min=0, help="The machine's price.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what a run will take before anything is paid: rollouts, tokens, time, dollars, disk."""
    from whale.cli import plan_command
    from whale.plan.rates import Rates

    given = Rates(
        seconds_per_rollout=seconds_per_rollout,
        seconds_per_kept=seconds_per_kept,
        dollars_per_round=dollars_per_round,
    )
    plan_command.plan(config, set_ or [], probe, like, given, dollars_per_hour, json, quiet)


@commands.command(rich_help_panel="Run")
def diagnose(
    target: Annotated[str, typer.Argument(metavar="CONFIG|RUN", help="A config file, or a run as it is now.")],
    set_: Sets = None,
    rollouts: Annotated[int, typer.Option("--rollouts", min=8, help="What each side may use.")] = 256,
    measure: Annotated[int, typer.Option("--measure", min=4, help="Training tasks that measure the pairs.")] = 128,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Proposal rounds of the search.")] = 1,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say which side is the bottleneck now, by a short search and a short training phase; may be undecided."""
    from whale.cli import diagnose_command
    from whale.diagnosis.probe import Sizes

    diagnose_command.diagnose(target, set_ or [], Sizes(rollouts, measure, rounds), json, quiet)


@commands.command(rich_help_panel="Run")
def resume(
    run: Run,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change what is the machine's or a service's: engine.threads=8, search.options.base_url=URL, ...",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Go on with a run that was killed, stopped or paused."""
    from whale.cli import run_commands

    run_commands.resume(run, set_ or [], quiet)


@commands.command(rich_help_panel="Run")
def pause(run: Run, wait: WaitFor = 600.0) -> None:
    """Pause a running run at its next safe point, and say so."""
    from whale.cli import steer_commands

    steer_commands.pause(run, wait)


@commands.command(rich_help_panel="Run")
def stop(
    run: Run,
    after_phase: Annotated[bool, typer.Option("--after-phase", help="When the current phase ends.")] = False,
    wait: WaitFor = 600.0,
) -> None:
    """End a run's process at its next safe point, or after the phase."""
    from whale.cli import steer_commands

    steer_commands.stop(run, after_phase, wait)


@commands.command(rich_help_panel="Run")
def revert(
    run: Run,
    to: Annotated[str, typer.Argument(metavar="TO", help="A candidate, accepted~1, c003 or a commit.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: WaitFor = 600.0,
) -> None:
    """Go back to an earlier harness from the next phase on: a new commit, never a rewrite."""
    from whale.cli import steer_commands

    steer_commands.revert(run, to, yes, wait)


@commands.command(rich_help_panel="Run")
def accept(
    run: Run,
    candidate: Annotated[str, typer.Argument(help="The candidate's id.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: WaitFor = 600.0,
) -> None:
    """Accept a candidate by hand, from the next phase on."""
    from whale.cli import steer_commands

    steer_commands.accept(run, candidate, yes, wait)


@commands.command(rich_help_panel="Run")
def approve(
    run: Run,
    candidate: Annotated[str, typer.Argument(help="The candidate that waits for a reviewer.")],
    decline: Annotated[bool, typer.Option("--decline", help="Keep the incoming harness instead.")] = False,
    why: Annotated[str, typer.Option("--why", help="Your reason, for the log.")] = "",
    wait: WaitFor = 600.0,
) -> None:
    """Answer an acceptance that waits for a reviewer (`search.approve = "human"`)."""
    from whale.cli import steer_commands

    steer_commands.approve(run, candidate, decline, why, wait)


@commands.command(rich_help_panel="Run")
def note(
    run: Run,
    candidate: Annotated[str, typer.Argument(help="The candidate's id.")],
    text: Annotated[str, typer.Argument(help="What there is to say.")],
) -> None:
    """Write a note on a candidate into the log."""
    from whale.cli import steer_commands

    steer_commands.note(run, candidate, text)


@commands.command(rich_help_panel="Run")
def propose(
    run: Run,
    path: Annotated[Path, typer.Argument(help="The folder of a harness: harness.py, prompts/, ...")],
    title: Annotated[str, typer.Option("--title", "-t", help="What it is.")] = "",
    hypothesis: Annotated[str, typer.Option("--hypothesis", help="What should get better, and why.")] = "",
    wait: WaitFor = 600.0,
) -> None:
    """Submit your own harness: it goes through the same gates as any other."""
    from whale.cli import steer_commands

    steer_commands.propose(run, path, title, hypothesis, wait)


@commands.command(rich_help_panel="Run")
def fork(
    run: Run,
    at: Annotated[
        int | None, typer.Option("--at", metavar="N", help="Continue from event N; default: the newest.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="The new run's name; default: RUN-fork.")] = None,
    set_: Sets = None,
    json: Json = False,
) -> None:
    """Make a new run that continues from an event of this one, with its weights, harnesses and counters."""
    from whale.cli import run_commands

    run_commands.fork(run, at, name, set_ or [], json)


@commands.command(rich_help_panel="Run")
def extend(
    run: Run,
    cycles: Annotated[int, typer.Option("--cycles", min=1, help="How many more.")] = 1,
    wait: WaitFor = 600.0,
) -> None:
    """Add cycles after the planned ones."""
    from whale.cli import steer_commands

    steer_commands.extend(run, cycles, wait)
