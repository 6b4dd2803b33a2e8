"""`whale control`: how much of a harness's success needs no skill, by the domain's own report.

SearchQA: the same tasks with another question's passages. Chess: a uniform choice among the moves that were shown.
"""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from whale.alternation.run_folder import RunFolder
from whale.cli.output import print_json, print_table
from whale.cli.progress import reporter
from whale.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whale.domains.base import Domain, Task
    from whale.domains.chess.report import GroupCounts as ChessCounts
    from whale.domains.searchqa.report import GroupCounts
    from whale.rollout.types import Trajectory

    RunTasks = Callable[[Domain, Sequence[Task]], list[Trajectory]]

REPORTS = ("chess", "searchqa")


def control(run: str, harness: str, limit: int, json: bool, quiet: bool) -> None:
    """Sample validation tasks under the run's current weights; nothing is recorded in the run."""
    from whale.alternation.decide import config_of
    from whale.harness_repo import HarnessRepo, RepoError

    folder = RunFolder.find(run)
    state = folder.state()
    config = config_of(state)
    if config.domain not in REPORTS:
        raise UsageError(
            f"{folder.name}: the domain {config.domain} has no control; these have one: {', '.join(REPORTS)}"
        )
    try:
        with HarnessRepo.open(folder.harnesses) as repo:
            tree = repo.tree_id(harness)
            files = repo.files(tree)
    except RepoError as error:
        raise UsageError(f"{folder.name}: {error}") from error
    about = {"harness": harness, "tree": tree, "weights": state.weights}
    title = f"{folder.name}: {harness} under weights {state.weights[:12]}, validation"
    report = _chess if config.domain == "chess" else _searchqa
    with _sampler(folder, files, quiet) as run_tasks:
        figures, columns, rows = report(run_tasks, config.domain_options, limit)
    if json:
        print_json({**about, **figures})
    else:
        print_table(columns, rows, title=title)


@contextmanager
def _sampler(folder: RunFolder, files: dict[str, bytes], quiet: bool) -> "Iterator[RunTasks]":
    """A function that runs one rollout a task, in micro-batches, with the same seeds each time."""
    from whale.alternation.compute import Compute
    from whale.alternation.movable import present_config
    from whale.alternation.progress import Silent
    from whale.alternation.started_in import run_domain
    from whale.alternation.units import derive_seed
    from whale.rollout.types import EpisodeSpec

    state = folder.state()
    config = present_config(folder, state)
    progress = reporter(quiet) or Silent()
    compute = Compute(config, folder, run_domain(folder, config), progress)
    size = config.engine.micro_batch

    def run_tasks(domain: "Domain", tasks: "Sequence[Task]") -> "list[Trajectory]":
        done: list[Trajectory] = []
        progress.begin("rollouts of the control report", len(tasks))
        for start in range(0, len(tasks), size):
            episodes = [
                (task, EpisodeSpec(task.id, 0, derive_seed(config.seed, "control", task.id)))
                for task in tasks[start : start + size]
            ]
            done += compute.sample(state, state.weights, files, domain, episodes)
            progress.advance(len(done))
        progress.end()
        return done

    try:
        yield run_tasks
    finally:
        compute.close()


Report = tuple[dict[str, Any], list[str], list[list[str]]]
"""Figures for --json, and the table's columns and rows."""


def _searchqa(run_tasks: "RunTasks", options: dict[str, Any], limit: int) -> Report:
    from whale.domains.searchqa.domain import SearchQAOptions
    from whale.domains.searchqa.report import control_report

    report = control_report(run_tasks, SearchQAOptions.parse(options), "validation", limit)

    def cells(side: str, group: str, counts: "GroupCounts") -> list[str]:
        return [
            side, group, str(counts.n), *_rate(counts.passed, counts.n), _percent(counts.formatted, counts.n),
            _percent(counts.truncated, counts.n), _percent(counts.answer_bearing, counts.n),
            f"{counts.extracted} of {counts.answer_bearing}",
        ]  # fmt: skip

    sides = (("own passages", report.own), ("another question's", report.control))
    columns = ["passages", "tasks", "n", "success", "95 % interval", "format", "truncated", "answer-bearing",
               "extracted"]  # fmt: skip
    rows = [cells(side, group, counts) for side, groups in sides for group, counts in groups.items()]
    return asdict(report), columns, rows


def _chess(run_tasks: "RunTasks", options: dict[str, Any], limit: int) -> Report:
    from whale.domains.chess.domain import create
    from whale.domains.chess.report import count

    domain = create(options)
    tasks = domain.splits()["validation"][:limit]
    groups = count(tasks, {task.id: domain.puzzle(task) for task in tasks}, run_tasks(domain, tasks))

    def cells(group: str, counts: "ChessCounts") -> list[str]:
        return [
            group, str(counts.n), *_rate(counts.passed, counts.n), _percent(counts.chance_shown, counts.n),
            _percent(counts.chance_legal, counts.n), _percent(counts.formatted, counts.n),
            _percent(counts.legal, counts.n), _percent(counts.truncated, counts.n),
            f"{counts.fabricated} of {counts.passed}",
        ]  # fmt: skip

    columns = ["puzzles", "n", "success", "95 % interval", "a coin, of moves shown", "of legal moves", "format",
               "legal", "truncated", "fabricated"]  # fmt: skip
    figures = {"groups": {group: asdict(counts) for group, counts in groups.items()}}
    return figures, columns, [cells(group, counts) for group, counts in groups.items()]


def _percent(part: float, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


def _rate(passed: int, n: int) -> tuple[str, str]:
    from whale.search.scoring import wilson

    low, high = wilson(passed, n)
    return _percent(passed, n), f"[{100 * low:.1f}, {100 * high:.1f}]"
