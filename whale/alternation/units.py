"""Units of rollouts and the micro-batches that they are cut into. Pure: a function of config and state.

A unit is what one decision waits for: a training step, a candidate's score, an evaluation, a smoke run. It is
cut into micro-batches of a fixed size, each with one candidate, whose composition depends on config and seed
alone. A micro-batch is what is recorded, so nothing that was recorded is ever sampled again.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from whale.config import Config
from whale.domains.base import Split
from whale.events.types import Purpose
from whale.weights import sampler


@dataclass(frozen=True, slots=True)
class Episode:
    """A task by its index in a split, and which sample of it."""

    task: int
    sample: int
    seed: int


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Episodes that run in lock step; `key` is unique in the run."""

    key: str
    purpose: Purpose
    split: Split
    candidate: str
    weights: str
    episodes: tuple[Episode, ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """All micro-batches that one decision waits for."""

    key: str
    batches: tuple[MicroBatch, ...]

    @property
    def rollouts(self) -> int:
        """How many episodes the whole unit has."""
        return sum(len(batch.episodes) for batch in self.batches)


def derive_seed(*parts: object) -> int:
    """A seed in [0, 2^63) from (run seed, phase, step, task, sample, ...), by SHA-256."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _cut(
    key: str,
    purpose: Purpose,
    split: Split,
    candidate: str,
    weights: str,
    episodes: Sequence[Episode],
    size: int,
    ends: Sequence[int] = (),
) -> Unit:
    """Micro-batches of at most `size` episodes, none of which goes past one of `ends`, given in order."""
    bounds = sorted({0, len(episodes), *(end for end in ends if end < len(episodes))})
    starts = [start for low, high in pairwise(bounds) for start in range(low, high, size)]
    return Unit(
        key,
        tuple(
            MicroBatch(f"{key}/b{index:04d}", purpose, split, candidate, weights, tuple(episodes[start:stop]))
            for index, (start, stop) in enumerate(pairwise([*starts, len(episodes)]))
        ),
    )


SamplerOrigin = tuple[int, int]
"""(weight phases before, sampler position): (0, 0), or where a fork changed the config."""


def phase_slice(config: Config, n: int, cycle: int, origin: SamplerOrigin = (0, 0)) -> tuple[int, int]:
    """Sampler positions [start, end) of cycle `cycle` (from 1): phase k = cycle − 1 takes [kE, (k+1)E)."""
    phases, position = origin
    if config.epochs == 0:
        return position, position
    start, end = sampler.slice_bounds(n, config.epochs, cycle - 1 - phases)
    return position + start, position + end


def training_steps(config: Config, n: int, cycle: int, origin: SamplerOrigin = (0, 0)) -> list[sampler.Batch]:
    """The steps of a weight phase: at least one question each, the last may be smaller."""
    start, end = phase_slice(config, n, cycle, origin)
    return list(sampler.batches(start, end, config.weights.batch))


def training_unit(
    config: Config, n: int, cycle: int, step: int, batch: sampler.Batch, candidate: str, weights: str
) -> Unit:
    """Step `step` (from 1): B questions × G rollouts, a question's side by side (they share a prefix)."""
    episodes = [
        Episode(task, sample, derive_seed(config.seed, "train", batch.start + offset, task, sample))
        for offset, task in enumerate(sampler.take(config.seed, n, batch.start, batch.count))
        for sample in range(config.weights.rollouts_per_prompt)
    ]
    key = f"c{cycle:03d}/weight/s{step:04d}"
    return _cut(key, "train", "weight", candidate, weights, episodes, config.engine.micro_batch)


def scoring_unit(
    config: Config,
    n: int,
    cycle: int,
    candidate: str,
    weights: str,
    *,
    archive: int = 0,
    replicate: int = 0,
    looks: Sequence[int] = (),
) -> Unit:
    """A candidate on all of D_harness; all of an archive meet the same tasks under the same seeds.

    `archive` is the cycle in which the archive began, if that is an earlier one. `replicate` > 0 is another
    scoring, under fresh seeds. `looks`: the numbers of tasks after which a rule may stop the scoring. No
    micro-batch goes past one, and tasks come in an order drawn for the archive, so that the first of them speak
    for all, however a domain orders its tasks.
    """
    began = archive or cycle
    scoring = ("score", began) if replicate == 0 else ("score", began, "replicate", replicate)
    order = list(range(n))
    if looks:
        order.sort(key=lambda task: derive_seed(config.seed, "order", began, task))
    episodes = [
        Episode(task, sample, derive_seed(config.seed, *scoring, task, sample))
        for task in order
        for sample in range(config.search.rollouts_per_task)
    ]
    key = f"c{cycle:03d}/harness/{candidate}" + (f"/r{replicate}" if replicate else "")
    ends = [tasks * config.search.rollouts_per_task for tasks in looks]
    return _cut(key, "score", "harness", candidate, weights, episodes, config.engine.micro_batch, ends)


FIRST_SMOKES = 16
"""Smoke runs of h0 at most, over training tasks: where all fail it counts as a harness that cannot run."""


def smoke_unit(config: Config, n: int, candidate: str, weights: str, first: bool = False, attempt: int = 1) -> Unit:
    """One training task, before anything is paid for a score.

    Of the run's `first` harness further ones stand behind it, spread over the tasks, which are sampled only while
    none has run through; `attempt` counts how often it is tried like this.
    """
    start = derive_seed(config.seed, "smoke") % n
    episodes = [Episode(start, 0, derive_seed(config.seed, "smoke", start))]
    for index in range(1, FIRST_SMOKES if first else 1):
        task = (start + (index * n // FIRST_SMOKES if n > FIRST_SMOKES else index)) % n
        sample = index // n
        episodes.append(Episode(task, sample, derive_seed(config.seed, "smoke", task, sample)))
    key = f"smoke/{candidate}" + (f"/a{attempt}" if attempt > 1 else "")
    return _cut(key, "smoke", "weight", candidate, weights, episodes, config.engine.micro_batch, ends=[1])


def evaluation_unit(config: Config, n: int, cycle: int, split: Split, candidate: str, weights: str) -> Unit:
    """The same tasks under the same seeds at every evaluation, so that pairs are compared task by task."""
    limit, samples = (
        (config.evaluate.test_tasks, config.evaluate.test_samples)
        if split == "test"
        else (config.evaluate.tasks, config.evaluate.samples)
    )
    tasks = range(min(n, limit) if limit else n)
    episodes = [
        Episode(task, sample, derive_seed(config.seed, "evaluate", split, task, sample))
        for task in tasks
        for sample in range(samples)
    ]
    key = f"c{cycle:03d}/evaluate/{split}"
    return _cut(key, "evaluate", split, candidate, weights, episodes, config.engine.micro_batch)
