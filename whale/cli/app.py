"""The command table. Implementations are imported by the command that runs, so that `--help` is instant."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="whale",
    help="Evolve an agent's weights and harness together, and see, trust, undo and replay every step.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
events_app = typer.Typer(help="Read, verify, export and import the event log of a run.", no_args_is_help=True)
models_app = typer.Typer(help="List and fetch models.", no_args_is_help=True)
domains_app = typer.Typer(help="List domains, write your own, check that it keeps the contract.", no_args_is_help=True)
app.add_typer(events_app, name="events", rich_help_panel="See")
app.add_typer(domains_app, name="domains", rich_help_panel="Machine")
app.add_typer(models_app, name="models", rich_help_panel="Machine")

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's name in ./runs (or $WHALE_RUNS), or its path.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a config key, such as schedule.cycles=2."),
]
WaitFor = Annotated[float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for the runner.")]


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


# --- run ---


@app.command(rich_help_panel="Run")
def init(
    path: Annotated[Path, typer.Argument(help="The config file to write.")] = Path("whale.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
) -> None:
    """Write a commented config file to start from."""
    from whale.cli import run_commands

    run_commands.init(path, force)


@app.command(rich_help_panel="Run")
def run(
    config: Annotated[Path, typer.Argument(help="The config file.")] = Path("whale.toml"),
    name: Annotated[str | None, typer.Option("--name", "-n", help="The run's name; default: the file's.")] = None,
    set_: Sets = None,
    quiet: Quiet = False,
) -> None:
    """Start a run and carry it through. Stop it any time: `whale resume` goes on."""
    from whale.cli import run_commands

    run_commands.run(config, name, set_ or [], quiet)


@app.command(rich_help_panel="Run")
def experiment(
    config: Annotated[Path, typer.Argument(help="The experiment's file: systems, domains, seeds.")],
    runs: Annotated[
        Path | None, typer.Option("--runs", metavar="DIR", help="Where its runs lie; default: ./runs/NAME.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Runs at a time.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what there is to do, and start nothing.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Carry out a grid of runs, systems × domains × seeds; the same command goes on with one that was stopped."""
    from whale.cli import experiment_command

    experiment_command.experiment(config, runs, jobs, dry_run, json, quiet)


@app.command(rich_help_panel="Run")
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


@app.command(rich_help_panel="Run")
def diagnose(
    target: Annotated[str, typer.Argument(metavar="CONFIG|RUN", help="A config file, or a run as it is now.")],
    set_: Sets = None,
    rollouts: Annotated[int, typer.Option("--rollouts", min=8, help="What each side may use.")] = 256,
    measure: Annotated[int, typer.Option("--measure", min=4, help="Training tasks that measure the pairs.")] = 128,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Proposal rounds of the search.")] = 1,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say which side is the bottleneck now, by a short search and a short RSFT on training tasks; may be undecided."""
    from whale.cli import diagnose_command
    from whale.diagnosis.probe import Sizes

    diagnose_command.diagnose(target, set_ or [], Sizes(rollouts, measure, rounds), json, quiet)


@app.command(rich_help_panel="Run")
def resume(run: Run, quiet: Quiet = False) -> None:
    """Go on with a run that was killed, stopped or paused."""
    from whale.cli import run_commands

    run_commands.resume(run, quiet)


@app.command(rich_help_panel="Run")
def pause(run: Run, wait: WaitFor = 600.0) -> None:
    """Pause a running run at its next safe point, and say so."""
    from whale.cli import steer_commands

    steer_commands.pause(run, wait)


@app.command(rich_help_panel="Run")
def stop(
    run: Run,
    after_phase: Annotated[bool, typer.Option("--after-phase", help="When the current phase ends.")] = False,
    wait: WaitFor = 600.0,
) -> None:
    """End a run's process at its next safe point, or after the phase."""
    from whale.cli import steer_commands

    steer_commands.stop(run, after_phase, wait)


@app.command(rich_help_panel="Run")
def revert(
    run: Run,
    to: Annotated[str, typer.Argument(metavar="TO", help="A candidate, accepted~1, c003 or a commit.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: WaitFor = 600.0,
) -> None:
    """Go back to an earlier harness from the next phase on: a new commit, never a rewrite."""
    from whale.cli import steer_commands

    steer_commands.revert(run, to, yes, wait)


@app.command(rich_help_panel="Run")
def accept(
    run: Run,
    candidate: Annotated[str, typer.Argument(help="The candidate's id.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: WaitFor = 600.0,
) -> None:
    """Accept a candidate by hand, from the next phase on."""
    from whale.cli import steer_commands

    steer_commands.accept(run, candidate, yes, wait)


@app.command(rich_help_panel="Run")
def approve(
    run: Run,
    candidate: Annotated[str, typer.Argument(help="The candidate that waits for a reviewer.")],
    decline: Annotated[bool, typer.Option("--decline", help="Keep the incoming harness instead.")] = False,
    why: Annotated[str, typer.Option("--why", help="Your reason, for the log.")] = "",
    wait: WaitFor = 600.0,
) -> None:
    """Answer an acceptance that waits for a reviewer: `approve = "human"` in [search]."""
    from whale.cli import steer_commands

    steer_commands.approve(run, candidate, decline, why, wait)


@app.command(rich_help_panel="Run")
def note(
    run: Run,
    candidate: Annotated[str, typer.Argument(help="The candidate's id.")],
    text: Annotated[str, typer.Argument(help="What there is to say.")],
) -> None:
    """Write a note on a candidate into the log."""
    from whale.cli import steer_commands

    steer_commands.note(run, candidate, text)


@app.command(rich_help_panel="Run")
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


@app.command(rich_help_panel="Run")
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


@app.command(rich_help_panel="Run")
def extend(
    run: Run,
    cycles: Annotated[int, typer.Option("--cycles", min=1, help="How many more.")] = 1,
    wait: WaitFor = 600.0,
) -> None:
    """Add cycles after the planned ones."""
    from whale.cli import steer_commands

    steer_commands.extend(run, cycles, wait)


# --- see ---


@app.command(rich_help_panel="See")
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
    where: Annotated[
        Path | None, typer.Option("--runs", metavar="DIR", help="Where an experiment's runs lie; default: ./runs/NAME.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare runs: success by system with intervals, paired differences, learning curves, what a level costs."""
    from whale.cli import report_command

    report_command.report(runs, form, output, json, table, where)


@app.command(rich_help_panel="See")
def status(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run; none: all runs.")] = None,
    json: Json = False,
) -> None:
    """Show where a run is, what it reached and what it cost."""
    from whale.cli import read_commands

    read_commands.status(run, json)


@app.command(rich_help_panel="See")
def metrics(
    run: Run,
    json: Json = False,
    groups: Annotated[bool, typer.Option("--groups/--no-groups", help="Also by group of tasks, or test set.")] = True,
) -> None:
    """Show held-out success by cycle and test set, with format, truncation, turns, tokens and tool calls."""
    from whale.cli import metrics_command

    metrics_command.metrics(run, json, groups)


@app.command(rich_help_panel="See")
def lineage(
    run: Run,
    form: Annotated[str, typer.Option("--format", "-f", help="tree, dot, html or json.")] = "tree",
    json: Json = False,
    accepted: Annotated[bool, typer.Option("--accepted", help="Accepted harnesses only.")] = False,
    cycle: Annotated[int | None, typer.Option("--cycle", help="One cycle only.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="The newest N only.")] = None,
    before: Annotated[str | None, typer.Option("--before", metavar="ID", help="The newest before this one.")] = None,
    all_runs: Annotated[bool, typer.Option("--all-runs", help="With what was pulled from other runs.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file.")] = None,
) -> None:
    """Show every proposed harness, its parents, score and fate."""
    from whale.cli import lineage_commands

    lineage_commands.lineage(
        run, "json" if json else form, accepted=accepted, cycle=cycle, limit=limit, before=before,
        all_runs=all_runs, output=output,
    )  # fmt: skip


@app.command(rich_help_panel="See")
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


@app.command(rich_help_panel="See")
def blame(
    run: Run,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file of the harness, such as prompts/system.md.")],
    at: Annotated[str, typer.Option("--at", metavar="HARNESS", help="The harness.")] = "accepted",
    json: Json = False,
) -> None:
    """Show which proposal brought each line, and what it did to the score."""
    from whale.cli import lineage_commands

    lineage_commands.blame(run, file, at, json)


@app.command(rich_help_panel="See")
def show(
    run: Run,
    harness: Annotated[str, typer.Argument(help="A candidate id, accepted, c003, a commit.")] = "accepted",
    json: Json = False,
    rollouts: Annotated[int, typer.Option("--rollouts", help="Also show so many of its rollouts.")] = 0,
) -> None:
    """Show a harness: its facts, its scores, its files, and rollouts."""
    from whale.cli import show_command

    show_command.show(run, harness, json, rollouts)


@app.command(rich_help_panel="See")
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


@app.command(rich_help_panel="See")
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


@app.command(rich_help_panel="See")
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


@app.command(rich_help_panel="See")
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


@app.command(rich_help_panel="See")
def web(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run; none: the list of runs.")] = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The port.")] = 8420,
) -> None:
    """Serve the same app to a browser; beyond this machine only with WHALE_WEB_TOKEN set."""
    from whale.cli import tui_commands

    tui_commands.web(run, host, port)


@events_app.command("list")
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


@events_app.command("verify")
def events_verify(
    run: Annotated[str, typer.Argument(metavar="RUN|FILE", help="A run, or an exported log.")], json: Json = False
) -> None:
    """Check the hash chain of the whole log, and compare it with what accepted commits say of it."""
    from whale.cli import events_commands

    events_commands.verify(run, json)


@events_app.command("export")
def events_export(
    run: Run,
    format_: Annotated[str, typer.Option("--format", help="jsonl or parquet.")] = "jsonl",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file; default: stdout. A name in .gz is packed.")
    ] = None,
    at: Annotated[int | None, typer.Option("--at", metavar="N", help="Up to event N only.")] = None,
) -> None:
    """Write the log for other tools, with all that its hashes cover."""
    from whale.cli import events_commands

    events_commands.export(run, format_, output, at)


@events_app.command("import")
def events_import(
    file: Annotated[Path, typer.Argument(help="An exported log: .jsonl, .jsonl.gz or .parquet.")],
    name: Annotated[str | None, typer.Option("--name", "-n", help="The run's name; default: the log's.")] = None,
    set_: Sets = None,
) -> None:
    """Make a run to read from an exported log; --set events.url=... puts it into a database."""
    from whale.cli import events_commands

    events_commands.import_(file, name, set_ or [])


@events_app.command("rebuild")
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


# --- share ---

Remote = Annotated[str, typer.Argument(metavar="REMOTE", help="A Git remote: a folder, a URL or a name.")]
As = Annotated[str | None, typer.Option("--as", metavar="NAME", help="This run's name there; it is remembered.")]


@app.command(rich_help_panel="Share")
def push(run: Run, remote: Remote, as_: As = None, json: Json = False) -> None:
    """Bring a run's harnesses, scores and lineage to any Git remote, beside those of other runs."""
    from whale.cli import store_commands

    store_commands.push(run, remote, as_, json)


@app.command(rich_help_panel="Share")
def pull(run: Run, remote: Remote, as_: As = None, json: Json = False) -> None:
    """Fetch the harnesses, scores and lineage of other runs; nothing of this run changes."""
    from whale.cli import store_commands

    store_commands.pull(run, remote, as_, json)


@app.command(rich_help_panel="Machine")
def pack(run: Run, json: Json = False) -> None:
    """Pack a run's harness store, so that thousands of candidates stay small."""
    from whale.cli import store_commands

    store_commands.pack(run, json)


@app.command(rich_help_panel="See")
def track(
    run: Run,
    to: Annotated[
        list[str] | None, typer.Option("--to", metavar="TRACKER", help="tensorboard (default), wandb or mlflow.")
    ] = None,
) -> None:
    """Make a run's curves anew from its log, for TensorBoard, Weights & Biases or MLflow."""
    from whale.cli import track_command

    track_command.track(run, to or ["tensorboard"])


@app.command(rich_help_panel="Machine")
def gc(
    run: Run,
    keep_bytes: Annotated[
        str | None, typer.Option("--keep-bytes", metavar="N", help="A quota for the run's folder, such as 20G.")
    ] = None,
    drop_optimizers: Annotated[
        bool, typer.Option("--drop-optimizers", help="For the quota: forks from older phase ends cannot train on.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
    json: Json = False,
) -> None:
    """Remove what a run does not need; never what replay, resume and the pairs need."""
    from whale.cli import gc_command

    gc_command.gc(run, keep_bytes, drop_optimizers, dry_run, json)


# --- use ---


@app.command(rich_help_panel="Use")
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


@app.command(rich_help_panel="Use")
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


# --- domains ---


@domains_app.command("list")
def domains_list(json: Json = False) -> None:
    """Show the domains that a config may name."""
    from whale.cli import domain_commands

    domain_commands.list_domains(json)


@domains_app.command("new")
def domains_new(
    name: Annotated[str, typer.Argument(help="Its name; NAME.py, test_NAME.py and NAME.toml are written here.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
) -> None:
    """Write a working domain of your own, with its test and a config."""
    from whale.cli import domain_commands

    domain_commands.new_domain(name, force)


@domains_app.command("check")
def domains_check(
    domain: Annotated[str, typer.Argument(help="A domain's name, or path/to/module.py:factory.")],
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A domain option.")] = None,
    json: Json = False,
    fast: Annotated[bool, typer.Option("--fast", help="Do not run h0, which needs torch.")] = False,
) -> None:
    """Prove that a domain keeps its contract: splits, verifier, leak check, h0."""
    from whale.cli import domain_commands

    domain_commands.check(domain, set_ or [], json, fast)


# --- machine ---


@models_app.command("list")
def models_list(json: Json = False) -> None:
    """Show the models that are here."""
    from whale.cli import machine_commands

    machine_commands.models_list(json)


@models_app.command("fetch")
def models_fetch(name: Annotated[str, typer.Argument(help="The model.")] = "smollm2-135m-instruct") -> None:
    """Fetch and convert the embedded model, once."""
    from whale.cli import machine_commands

    machine_commands.models_fetch(name)


@app.command(rich_help_panel="Machine")
def doctor(json: Json = False) -> None:
    """Say what this machine can do: sandbox, engines, GPU, keys, disk."""
    from whale.cli import machine_commands

    machine_commands.doctor(json)
