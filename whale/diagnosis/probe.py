"""Run a probe: a base that is measured, a short training from it, and a fork of it with a short harness search.

All of it are ordinary runs, by the same runner and the one rollout path, in a folder that is thrown away; nothing
of the user's run changes.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import msgspec

from whale.alternation.fork import fork
from whale.alternation.progress import Reporter
from whale.alternation.run_folder import RunFolder
from whale.alternation.session import create_folder, open_runner
from whale.alternation.state import State
from whale.config import Config, HooksConfig, TrackConfig
from whale.diagnosis import domain as probe_domain
from whale.diagnosis.verdict import Verdict, judge
from whale.errors import WhaleError
from whale.events import types as ev
from whale.report.results import Results
from whale.report.tables import folder_results

BASE, SEARCH = "rsft", "search"
STEPS = 4
"""Of the short training, at least, where there are questions enough: one step would never see what it has learned."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a probe is."""

    rollouts: int = 256
    """Of each side."""
    measure: int = 128
    """Tasks on which the three pairs are measured, one rollout each."""
    rounds: int = 1
    """Proposal rounds of the search."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A verdict with what it cost."""

    verdict: Verdict
    measured: int
    harness_rollouts: int
    weight_rollouts: int
    rollouts: int
    """All of them, measuring included."""
    steps: int
    candidates: int
    dollars: float


def probe_config(config: Config, sizes: Sizes, weight_tasks: int, harness: Path | None) -> Config:
    """The base's config: the user's, with the probe's domain and a weight phase of about so many rollouts."""
    candidates = 1 + sizes.rounds * config.search.candidates
    harness_tasks = max(1, sizes.rollouts // (candidates * config.search.rollouts_per_task))
    group = config.weights.rollouts_per_prompt
    prompts = max(1, sizes.rollouts // group)
    batch = max(1, min(config.weights.batch, prompts // STEPS))
    training = weight_tasks - min(sizes.measure, weight_tasks // 2)
    # Whole steps. The sampler rounds up to whole questions, so the fraction is cut off, never rounded up.
    epochs = f"{math.floor(prompts // batch * batch / max(1, training) * 1e6) / 1e6:.6f}"
    return msgspec.structs.replace(
        config,
        domain=f"{Path(probe_domain.__file__).resolve()}:create",
        domain_options={
            "domain": config.domain, "options": config.domain_options, "seed": config.seed, "measure": sizes.measure,
            "harness_tasks": harness_tasks, "harness": str(harness) if harness else "",
        },
        weights=msgspec.structs.replace(config.weights, batch=batch),
        search=msgspec.structs.replace(
            config.search, noise_floor=False, approve="auto", acceptance="archive-best", acceptance_options={}
        ),
        schedule=msgspec.structs.replace(
            config.schedule, kind="weight-only", cycles=1, epochs=epochs, iterations=0, budget_epochs="",
            budget_iterations=0, count_incoming=False, tasks_patience=0,
        ),
        evaluate=msgspec.structs.replace(config.evaluate, tasks=0, samples=1, test_tasks=0),
        events=msgspec.structs.replace(config.events, url="", run=""),
        hooks=HooksConfig(),
        track=TrackConfig(),
    )  # fmt: skip


def diagnose(config: Config, sizes: Sizes, place: Path, reporter: Reporter) -> Diagnosis:
    """Carry the probe out in the folder `place`. `config` is a base's, by `probe_config`.

    Raises:
        WhaleError: one of its runs failed.
    """
    base = create_folder(place / BASE, config)
    _carry_through(base, reporter)
    at = _measured_at(base)
    settings = ["schedule.kind=harness-only", f"schedule.iterations={sizes.rounds}"]
    search, _ = fork(base, SEARCH, at, settings, place)
    _carry_through(search, reporter)
    return _read(base, search, at)


def _carry_through(folder: RunFolder, reporter: Reporter) -> None:
    try:
        with folder.lease() as alive, open_runner(folder, reporter, alive) as runner:
            runner.run()
    finally:
        reporter.end()


def _measured_at(base: RunFolder) -> int:
    log = base.open_log(readonly=True)
    try:
        for recorded in log.read():
            match recorded.event:
                case ev.PhaseEnded(cycle=0, phase="evaluate"):
                    return recorded.position
    finally:
        log.close()
    raise WhaleError(f"{base.path}: the probe's base was not measured")


def _read(base: RunFolder, search: RunFolder, at: int) -> Diagnosis:
    trained, searched = folder_results(base), folder_results(search)
    before = _outcomes(trained, 0)
    shared, all_trained, all_searched = base.state(at=at), trained.state, searched.state

    def spent(state: State, *purposes: str) -> int:
        return sum(totals.rollouts for name, totals in state.totals.items() if not purposes or name in purposes)

    return Diagnosis(
        verdict=judge(before, _outcomes(searched, 1), _outcomes(trained, 1)),
        measured=len(before),
        harness_rollouts=spent(all_searched, "score", "smoke", "try") - spent(shared, "score", "smoke", "try"),
        weight_rollouts=spent(all_trained, "train"),
        rollouts=spent(all_trained) + spent(all_searched) - spent(shared),
        steps=len(all_trained.steps),
        candidates=len(all_searched.candidates) - 1,
        dollars=all_searched.proposer_dollars,
    )


def _outcomes(results: Results, cycle: int) -> list[ev.Outcome]:
    evaluated = next(e for e in results.state.evaluations if e.cycle == cycle and e.split == "validation")
    return results.outcomes[evaluated.split, evaluated.tree, evaluated.weights]
