"""One engine with its sandbox's worker: what carries out micro-batches, in the run's process or in one of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from whale.domains.base import Domain, Task
from whale.rollout.engines import ChatEngine
from whale.rollout.episodes import Limits, Sampling, run_micro_batch
from whale.rollout.errors import RolloutFault
from whale.rollout.sandbox.host import HarnessWorker, default_forkers, start_worker
from whale.rollout.sandbox.tiers import Tier
from whale.rollout.types import EpisodeSpec, Trajectory
from whale.stopwatch import Stopwatch


@dataclass(frozen=True, slots=True)
class SandboxedHarness:
    """A harness and the sandbox that it runs in."""

    files: Mapping[str, bytes]
    tier: Tier
    limits: Limits


class Replica:
    """The engine, and a worker for the harness of the newest micro-batch.

    `beside`: how many replicas there are. `watch` is told where the time goes, as by `run_micro_batch`.
    """

    closed = False

    def __init__(self, engine: ChatEngine, beside: int = 1, watch: Stopwatch | None = None) -> None:
        self.engine = engine
        self.watch = watch or Stopwatch()
        self._beside = beside
        self._worker: tuple[SandboxedHarness, HarnessWorker] | None = None

    @property
    def weights_version(self) -> str:
        """Digest of the weights that are loaded."""
        return self.engine.weights_version

    @property
    def engines(self) -> Sequence[ChatEngine]:
        """All engines that a sync has to reach."""
        return [self.engine]

    @property
    def deterministic(self) -> bool:
        """As `Engine.deterministic`."""
        return self.engine.deterministic

    @property
    def context_length(self) -> int:
        """The longest prompt with its continuation, in tokens."""
        return self.engine.context_length

    @property
    def device(self) -> torch.device:
        """Where the engine's weights are."""
        return self.engine.device

    @property
    def dtype(self) -> torch.dtype:
        """The floating kind of the engine's weights."""
        return self.engine.dtype

    @property
    def notes(self) -> list[str]:
        """What a user is told when it has started."""
        plan = getattr(self.engine, "memory", None)
        return [] if plan is None else [str(plan)]

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt with this one message of a user."""
        return list(self.engine.chat.encode([{"role": "user", "content": text}]).ids)

    def update_weights(self, state_dict: Mapping[str, Any], version: str) -> None:
        """As `Engine.update_weights`."""
        self.engine.update_weights(state_dict, version)

    def _start(self, harness: SandboxedHarness) -> HarnessWorker:
        forkers = default_forkers(self._beside)
        return start_worker(harness.files, harness.tier, harness.limits, forkers=forkers)

    def prepare(self, harness: SandboxedHarness) -> HarnessWorker:
        """The harness's worker; another harness's is ended first."""
        if self._worker is not None and self._worker[0] != harness:
            self.end_worker()
        if self._worker is None:
            self._worker = (harness, self._start(harness))
        return self._worker[1]

    def sample(
        self,
        harness: SandboxedHarness,
        tasks: Mapping[str, Task],
        specs: Sequence[EpisodeSpec],
        domain: Domain,
        sampling: Sampling,
    ) -> list[Trajectory]:
        """Carry out a micro-batch, or one replica's share of it. Raises as `run_micro_batch` does."""
        engine = self.engine
        with self.watch.part("harness"):
            worker = self.prepare(harness)
        try:
            return run_micro_batch(
                engine,
                engine.chat,
                harness.files,
                tasks,
                specs,
                domain,
                sampling,
                harness.limits,
                worker,
                beside=self._beside,
                watch=self.watch,
            )
        except RolloutFault:
            self.end_worker()  # a worker that failed once is not asked again
            raise

    def end_worker(self) -> None:
        """End the sandbox's worker, if there is one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker[1].close()

    def close(self) -> None:
        """End the worker and free the engine. Again is fine."""
        self.closed = True
        self.end_worker()
        self.engine.close()
