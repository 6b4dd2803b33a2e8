"""`whale control`: SearchQA's own report, with a control in which every search answers another question."""

from collections.abc import Sequence
from dataclasses import asdict

from whale.alternation.run_folder import RunFolder
from whale.cli.output import print_json, print_table
from whale.cli.progress import reporter
from whale.errors import UsageError


def control(run: str, harness: str, limit: int, json: bool, quiet: bool) -> None:
    """Sample the tasks twice under the run's current weights; nothing is recorded in the run."""
    from whale.alternation.compute import Compute
    from whale.alternation.decide import config_of
    from whale.alternation.progress import Silent
    from whale.alternation.units import derive_seed
    from whale.domains.base import Domain, Task
    from whale.domains.registry import load_domain
    from whale.domains.searchqa.domain import SearchQAOptions
    from whale.domains.searchqa.report import GroupCounts, control_report
    from whale.harness_repo import HarnessRepo, RepoError
    from whale.rollout.types import EpisodeSpec, Trajectory
    from whale.search.scoring import wilson

    folder = RunFolder.find(run)
    state = folder.state()
    config = config_of(state)
    if config.domain != "searchqa":
        raise UsageError(f"{folder.name}: the domain {config.domain} has no control; searchqa has one")
    try:
        with HarnessRepo.open(folder.harnesses) as repo:
            tree = repo.tree_id(harness)
            files = repo.files(tree)
    except RepoError as error:
        raise UsageError(f"{folder.name}: {error}") from error
    progress = reporter(quiet) or Silent()
    compute = Compute(config, folder, load_domain(config.domain, config.domain_options), progress)
    size = config.engine.micro_batch

    def run_tasks(domain: Domain, tasks: Sequence[Task]) -> list[Trajectory]:
        done: list[Trajectory] = []
        progress.begin("rollouts of the control report", len(tasks))
        for start in range(0, len(tasks), size):
            episodes = [
                (task, EpisodeSpec(task.id, 0, derive_seed(config.seed, "control", task.id)))
                for task in tasks[start : start + size]
            ]
            done += compute.sample(state, state.weights, tree, files, domain, episodes)
            progress.advance(len(done))
        progress.end()
        return done

    try:
        report = control_report(run_tasks, SearchQAOptions.parse(config.domain_options), "validation", limit)
    finally:
        compute.close()
    if json:
        print_json({"harness": harness, "tree": tree, "weights": state.weights, **asdict(report)})
        return

    def cells(side: str, group: str, counts: GroupCounts) -> list[str]:
        low, high = wilson(counts.passed, counts.n)
        return [
            side, group, str(counts.n), f"{100 * counts.passed / counts.n:.1f} %",
            f"[{100 * low:.1f}, {100 * high:.1f}]", f"{100 * counts.formatted / counts.n:.1f} %",
            f"{100 * counts.truncated / counts.n:.1f} %", f"{100 * counts.answer_bearing / counts.n:.1f} %",
            f"{counts.extracted} of {counts.answer_bearing}",
        ]  # fmt: skip

    sides = (("own passages", report.own), ("another question's", report.control))
    print_table(
        ["passages", "tasks", "n", "success", "95 % interval", "format", "truncated", "answer-bearing", "extracted"],
        [cells(side, group, counts) for side, groups in sides for group, counts in groups.items()],
        title=f"{folder.name}: {harness} under weights {state.weights[:12]}, validation",
    )
