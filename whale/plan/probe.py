"""Measure the rates of a config on this machine: a few rollouts of (θ0, h0) on training tasks, and one training step.

Everything happens in a folder that is thrown away. The step is taken on all rollouts, passed or not: what it does
to the weights is of no use, how long it takes is.
"""

import tempfile
import time
from pathlib import Path

from whale.alternation.compute import Compute
from whale.alternation.progress import Reporter
from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State
from whale.alternation.units import derive_seed
from whale.config import Config
from whale.domains.base import Domain
from whale.plan.rates import Rates
from whale.rollout.parquet import encode_trajectories
from whale.rollout.types import EpisodeSpec, Trajectory
from whale.weights.objective import negative_log_likelihood
from whale.weights.samples import samples_from

LOG_BYTES = 300
"""Of the log, per rollout."""


def probe(config: Config, domain: Domain, count: int, reporter: Reporter) -> Rates:
    """The rates over `count` rollouts. The first micro-batch, which warms the machine up, is sampled once more."""
    with tempfile.TemporaryDirectory(prefix="whale-probe-") as place:
        compute = Compute(config, RunFolder(Path(place)), domain, reporter)
        try:
            return _measure(compute, config, domain, count, reporter)
        finally:
            compute.close()


def _measure(compute: Compute, config: Config, domain: Domain, count: int, reporter: Reporter) -> Rates:
    tasks, files = compute.tasks["weight"], domain.h0()
    samples = config.weights.rollouts_per_prompt
    specs = [(tasks[i // samples % len(tasks)], i % samples, derive_seed(config.seed, "plan", i)) for i in range(count)]
    state, size = State(model="probe", weights="probe"), config.engine.micro_batch
    trajectories: list[Trajectory] = []
    seconds = 0.0
    reporter.begin("probe: rollouts", count)
    for start in range(0, count, size):
        episodes = [(task, EpisodeSpec(task.id, sample, seed)) for task, sample, seed in specs[start : start + size]]
        if not start:
            compute.sample(state, "probe", files, domain, episodes[:2])
        began = time.perf_counter()
        trajectories += compute.sample(state, "probe", files, domain, episodes)
        seconds += time.perf_counter() - began
        reporter.advance(len(trajectories))
    reporter.end()
    n = len(trajectories)
    return Rates(
        source=f"a probe of {n} rollouts with (θ0, h0)",
        rollouts=n,
        seconds_per_rollout=seconds / n,
        seconds_per_kept=_training(compute, trajectories, reporter),
        passed=sum(trajectory.reward > 0 for trajectory in trajectories) / n,
        prompt_tokens=sum(trajectory.prompted for trajectory in trajectories) / n,
        sampled_tokens=sum(trajectory.generated for trajectory in trajectories) / n,
        bytes_per_rollout=len(encode_trajectories(trajectories)) / n + LOG_BYTES,
    )


def _training(compute: Compute, trajectories: list[Trajectory], reporter: Reporter) -> float | None:
    """Seconds per rollout of one pass of fine-tuning; None where there was nothing to train on."""
    if not compute.config.epochs:
        return None
    answered = [trajectory for trajectory in trajectories if trajectory.answer_turn is not None]
    samples = [samples_from(trajectory, train_turns=compute.config.weights.train_turns) for trajectory in answered]
    if not samples:
        return None
    reporter.note(f"probe: one training step on {len(samples)} rollouts")
    trainer = compute.new_trainer(negative_log_likelihood)
    began = time.perf_counter()
    trainer.step(samples, seed=0)
    return (time.perf_counter() - began) / len(samples)
