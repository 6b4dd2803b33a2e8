"""What costs: the engine, the trainer and the sandboxed workers, loaded when they are first needed.

Everything here is behind digests: `ensure_engine(weights)` and `ensure_trainer(state)` bring the right θ in,
whether it is in memory, in a checkpoint, or has to be trained again from recorded rollouts.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from transformers.utils import logging

from whale.alternation import out_of_memory
from whale.alternation.progress import Reporter
from whale.alternation.run_folder import RunFolder
from whale.alternation.started_in import domain_folder, run_model
from whale.alternation.state import State, TrainedStep
from whale.alternation.task_step import decode as decode_tasks
from whale.alternation.units import MicroBatch, derive_seed
from whale.config import Config
from whale.domains.apart import JudgedApart
from whale.domains.base import Domain, Split, Task
from whale.errors import CorruptLogError, WhaleError
from whale.events import types as ev
from whale.rollout.engines import load_engine
from whale.rollout.episodes import Limits, Sampling
from whale.rollout.models import float32_model
from whale.rollout.parquet import decode_trajectories
from whale.rollout.replica import Replica, SandboxedHarness
from whale.rollout.replica_messages import DomainOrigin
from whale.rollout.replicas import Replicas
from whale.rollout.sandbox.probe import best_tier
from whale.rollout.sandbox.tiers import Tier
from whale.rollout.types import EpisodeSpec, Trajectory
from whale.rollout.vllm_engine import model_shape
from whale.stopwatch import Stopwatch
from whale.weights.checkpoints import CheckpointStore
from whale.weights.digest import weights_digest
from whale.weights.lora import Lora, require_targets
from whale.weights.method import WeightMethod, method_of
from whale.weights.objective import LossFunction
from whale.weights.ranks import Crew, RankedTrainer
from whale.weights.sync import check_engine, reference_logprobs
from whale.weights.trainer import Trainer, TrainerConfig

AnyTrainer = Trainer | RankedTrainer
"""In this process, or spread over a crew's."""

AnyReplica = Replica | Replicas
"""The engine with its sandbox, in this process, or one for each of several devices."""

PROBE_SEQUENCES = 2
"""Recorded sequences on which engine and trainer are compared after a sync."""
PROBE_TEXT = "Name the capital of France, the sum of 12 and 34, and the chemical symbol of gold, in that order."
"""What they are compared on while nothing is recorded yet."""


class Compute:
    """Engine, trainer and workers of one run."""

    def __init__(self, config: Config, folder: RunFolder, domain: Domain, reporter: Reporter) -> None:
        self.config = config
        self.folder = folder
        self.domain = domain
        self.reporter = reporter
        self.watch = Stopwatch()
        self.checkpoints = CheckpointStore(folder.checkpoints)
        self.model_path = run_model(folder, config)
        self.method: WeightMethod = method_of(config.weights)
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers' bar for each load
        self.tasks: dict[Split, list[Task]] = {split: list(tasks) for split, tasks in domain.splits().items()}
        """As the domain has them; see `tasks_of`."""
        self._engine: AnyReplica | None = None
        self._trainer: AnyTrainer | None = None
        self._crew: Crew | None = None
        self._tier: Tier | None = None
        self._probe: list[list[int]] = []
        self._new_tasks: tuple[tuple[str, ...], list[Task], dict[str, Task]] | None = None

    def close(self) -> None:
        """End the sandbox, the engine's replicas and the trainer's ranks; free the models."""
        if self._engine is not None:
            self._engine.close()
        self._engine = self._trainer = None
        if self._crew is not None:
            self._crew.close()
            self._crew = None

    # --- rollouts ---

    def limits(self) -> Limits:
        """The episode limits of the config."""
        limits = self.config.limits
        return Limits(
            cpu_seconds=limits.cpu_seconds,
            memory_bytes=limits.memory_mb * 2**20,
            output_bytes=limits.output_kb * 2**10,
            wall_seconds=limits.wall_seconds,
        )

    def tier(self) -> Tier:
        """The strongest sandbox that works here.

        Raises:
            WhaleError: none works, and the config does not allow to go without.
        """
        if self._tier is None:
            self._tier = best_tier(allow_unsandboxed=self.config.limits.allow_unsandboxed)
            self.reporter.note(f"sandbox: {self._tier}")
        return self._tier

    def sampling(self) -> Sampling:
        """How the config samples."""
        sampling = self.config.sampling
        return Sampling(
            temperature=sampling.temperature,
            max_turns=sampling.max_turns,
            max_generated_tokens=sampling.max_generated_tokens,
            max_tokens_per_turn=sampling.max_tokens_per_turn,
        )

    def tasks_of(self, state: State, split: Split) -> list[Task]:
        """A split's tasks as they are now: in D_weight, new ones may have taken the places of old ones."""
        return self._with_new_tasks(state)[0] if split == "weight" else self.tasks[split]

    def weight_tasks_by_id(self, state: State) -> Mapping[str, Task]:
        """All tasks that are or were in D_weight."""
        return self._with_new_tasks(state)[1]

    def _with_new_tasks(self, state: State) -> tuple[list[Task], dict[str, Task]]:
        if self._new_tasks is None or self._new_tasks[0] != state.task_artifacts:
            places = list(self.tasks["weight"])
            by_id = {task.id: task for task in places}
            for artifact in state.task_artifacts:
                for new in decode_tasks(self.folder.artifacts.get(artifact)):
                    places[new.place] = by_id[new.task.id] = new.task
            self._new_tasks = (state.task_artifacts, places, by_id)
        return self._new_tasks[1:]

    def run(self, state: State, batch: MicroBatch, files: Mapping[str, bytes]) -> list[Trajectory]:
        """Sample one micro-batch of the run's own tasks."""
        tasks = self.tasks_of(state, batch.split)
        episodes = [(tasks[e.task], EpisodeSpec(tasks[e.task].id, e.sample, e.seed)) for e in batch.episodes]
        rollouts = self.sample(state, batch.weights, files, self.domain, episodes)
        observe = getattr(self.domain, "observe", None)
        if observe is None:
            return rollouts
        # Into the log, where a report finds it without the artifacts.
        return [
            dataclasses.replace(rollout, metrics={**rollout.metrics, **observe(task, rollout)})
            for (task, _), rollout in zip(episodes, rollouts, strict=True)
        ]

    def sample(
        self,
        state: State,
        weights: str,
        files: Mapping[str, bytes],
        domain: Domain,
        episodes: Sequence[tuple[Task, EpisodeSpec]],
        sampling: Sampling | None = None,
    ) -> list[Trajectory]:
        """Run episodes together: the one rollout path of training, scoring, testing and answering.

        `sampling` is the config's by default.
        """
        harness = self._sandboxed(files)  # a machine without a sandbox is said before a model is loaded
        with out_of_memory.told(out_of_memory.SAMPLING):
            return self.ensure_engine(state, weights).sample(
                harness,
                {task.id: task for task, _ in episodes},
                [spec for _, spec in episodes],
                domain,
                sampling or self.sampling(),
            )

    def ready(self, state: State, weights: str, files: Mapping[str, bytes]) -> AnyReplica:
        """The engine with these weights, and a sandbox that has this harness."""
        harness = self._sandboxed(files)
        engine = self.ensure_engine(state, weights)
        engine.prepare(harness)
        return engine

    def _sandboxed(self, files: Mapping[str, bytes]) -> SandboxedHarness:
        return SandboxedHarness(files, self.tier(), self.limits())

    def ensure_engine(self, state: State, weights: str) -> AnyReplica:
        """The engine, or each of its replicas, with exactly these weights."""
        if self._engine is None or self._engine.closed:
            self._engine = self._load_engine(state)
            for note in self._engine.notes:
                self.reporter.note(note)
        engine = self._engine
        if engine.weights_version == weights:
            return engine
        with self.watch.part("sync"):
            self._sync(state, engine, weights)
        return engine

    def _sync(self, state: State, engine: AnyReplica, weights: str) -> None:
        trainer = self._trainer
        given: Mapping[str, Any]
        if trainer is not None and trainer.weights_digest() == weights:
            given = trainer.state_dict()
        elif weights == state.model:
            trainer, given = None, self.base_weights()
        else:
            trainer, given = None, self._recorded_weights(state, weights)
        engine.update_weights(given, weights)
        self._check_sync(engine, trainer, given)

    def _load_engine(self, state: State) -> AnyReplica:
        settings, lora_rank = self.config.engine, self.config.weights.lora_rank
        if settings.replicas == 1:
            self.reporter.note(f"loading {self.config.model}")
            return Replica(load_engine(settings, self.model_path, state.model, lora_rank=lora_rank), watch=self.watch)
        self.reporter.note(f"loading {self.config.model} in {settings.replicas} replicas")
        origin = DomainOrigin(
            self.config.domain,
            self.config.domain_options,
            domain_folder(self.folder, self.config),
            isinstance(self.domain, JudgedApart),
            self.domain.fingerprint(),
        )
        ranks = self.config.weights.ranks
        return Replicas(settings, self.model_path, state.model, self.domain, origin, ranks, self.watch, lora_rank)

    def _check_sync(self, engine: AnyReplica, trainer: AnyTrainer | None, given: Mapping[str, Any]) -> None:
        """Stop the run unless the engine, each of its replicas, says what the weights say that it was given."""
        if trainer is None and engine.deterministic:
            return  # our own engine copies parameter by parameter, and has no cache behind them
        probe = self._probe or [engine.encode(PROBE_TEXT)]
        probe = [ids[: engine.context_length - 1] for ids in probe]  # an engine may have to sample one behind
        if trainer is not None:
            expected = trainer.logprobs(probe)
        else:
            expected = reference_logprobs(self.model_path, given, probe, engine.device)
        for one in engine.engines:
            check_engine(one, probe, expected, self._tolerance(engine))

    def _tolerance(self, engine: AnyReplica) -> float:
        # bfloat16 has 8 bits of mantissa: two correct kernels differ by hundredths on average.
        return self.config.weights.sync_tolerance or (0.01 if engine.dtype.itemsize == 4 else 0.1)

    def _recorded_weights(self, state: State, weights: str) -> Mapping[str, Any]:
        for saved in reversed(list(state.checkpoints.values())):
            if saved.weights == weights and self.checkpoints.exists(saved.checkpoint):
                return self.checkpoints.weights_of(saved.checkpoint)
        if weights == state.weights:
            return self.ensure_trainer(state).state_dict()
        raise WhaleError(f"{self.folder.checkpoints}: no checkpoint holds the weights {weights[:12]}")

    # --- training ---

    def trainer_config(self) -> TrainerConfig:
        """The trainer's settings from the config."""
        weights, engine = self.config.weights, self.config.engine
        return TrainerConfig(
            lr=weights.learning_rate,
            rate_schedule=weights.rate_schedule,
            warmup_updates=weights.warmup_updates,
            decay_updates=weights.decay_updates,
            decay_to=weights.decay_to,
            minibatch=weights.minibatch,
            micro_batch_tokens=weights.micro_batch_tokens,
            weight_decay=weights.weight_decay,
            grad_clip=weights.grad_clip,
            dtype=engine.dtype,
            device=engine.device,
            threads=engine.threads or None,
            activation_checkpointing=weights.activation_checkpointing,
            compile=weights.compile,
            lora=lora_of(self.config),
        )

    def require_adapters(self) -> None:
        """Raise UsageError for adapters that the model has no place for, before anything is paid."""
        lora = lora_of(self.config)
        if lora is not None:
            require_targets(model_shape(self.model_path), lora)

    def new_trainer(self, loss: LossFunction | None = None) -> AnyTrainer:
        """A trainer at θ0, which minimises what the config's method does. On several ranks the only one."""
        config, ranks, loss = self.trainer_config(), self.config.weights.ranks, loss or self.method.loss
        trainer: AnyTrainer
        if ranks == 1:
            trainer = Trainer(self.model_path, config, loss)
        else:
            if self._crew is None or self._crew.closed:
                self.reporter.note(f"starting the trainer on {ranks} ranks")
                self._crew = Crew(ranks, config.device)
            trainer = self._crew.trainer(self.model_path, config, loss)
        for note in trainer.notes() if config.compile else ():
            self.reporter.note(f"trainer: {note}")
        return trainer

    def ensure_trainer(self, state: State) -> AnyTrainer:
        """The trainer at the state's θ and optimiser: from memory, or checkpoint plus recorded steps.

        Raises:
            CorruptLogError: training the recorded steps again gives another digest.
        """
        trainer = self._trainer
        if trainer is not None and trainer.weights_digest() == state.weights:
            return trainer
        with self.watch.part("train"):
            self._trainer = self._from_checkpoint(state)
        if self._trainer.weights_digest() != state.weights:
            raise CorruptLogError(
                f"{self.folder.path}: the weights after {state.checkpoint or 'the model'} "
                "have another digest than the log names"
            )
        return self._trainer

    def settle(self, state: State) -> ev.StepsRetrained | None:
        """Train the steps again that no checkpoint holds; what to record if that gave other bits than the log names.

        Raises:
            CorruptLogError: what they begin with is not what the log names.
        """
        if not state.untracked_steps:
            return None
        with self.watch.part("train"):
            self._trainer = self._from_checkpoint(state)
        found, last = self._trainer.weights_digest(), state.untracked_steps[-1]
        if found == state.weights:
            return None
        self.reporter.note(f"step {last.cycle}.{last.step} trained again has other bits; the run goes on from these")
        return ev.StepsRetrained(
            cycle=last.cycle, step=last.step, checkpoint=state.checkpoint or "", lost=state.weights, weights=found
        )

    def _from_checkpoint(self, state: State) -> AnyTrainer:
        trainer = self.new_trainer()
        if state.checkpoint:
            trainer.load(self.checkpoints.open(state.checkpoint))
        saved = state.checkpoints.get(state.checkpoint or "")
        begins = saved.weights if saved is not None else state.model
        if state.untracked_steps and trainer.weights_digest() != begins:
            raise CorruptLogError(
                f"{self.folder.path}: {state.checkpoint or 'the model'} has another digest than the log names"
            )
        for step in state.untracked_steps:
            self.reporter.note(f"training step {step.cycle}.{step.step} again from its recorded rollouts")
            self.train_recorded(trainer, step)
        return trainer

    def train_recorded(self, trainer: AnyTrainer, step: TrainedStep) -> ev.StepTrained:
        """One step of the method on recorded rollouts, and what it did."""
        trajectories = [
            trajectory
            for artifact in step.artifacts
            for trajectory in decode_trajectories(self.folder.artifacts.get(artifact))
        ]
        chosen = self.method.select(trajectories)
        seed = derive_seed(self.config.seed, self.method.name, step.cycle, step.step)
        result = trainer.step(chosen.rollouts, seed=seed)
        rate = {} if result.learning_rate is None else {"learning_rate": result.learning_rate}
        self._probe = [list(sample.token_ids) for samples in chosen.rollouts for sample in samples][:PROBE_SEQUENCES]
        return ev.StepTrained(
            cycle=step.cycle,
            step=step.step,
            rollouts=len(trajectories),
            passed=sum(trajectory.reward == 1 for trajectory in trajectories),
            kept=len(chosen.rollouts),
            dropped=dict(sorted(chosen.dropped.items())),
            trained_tokens=result.trained_tokens,
            updates=result.updates,
            loss=result.loss,
            metrics={**result.metrics, **rate},
            weights=trainer.weights_digest(),
        )

    def train(self, state: State, cycle: int, step: int) -> ev.StepTrained:
        """Train on the open step's recorded micro-batches."""
        artifacts = tuple(batch.artifact for batch in state.batches.values())
        with out_of_memory.told(out_of_memory.TRAINING), self.watch.part("train"):
            trainer = self.ensure_trainer(state)
            return self.train_recorded(trainer, TrainedStep(cycle, step, artifacts, ""))

    def save(self, state: State, checkpoint: str) -> tuple[str, str]:
        """Save the trainer; returns the digests of θ and of θ with the optimiser."""
        digests = self.checkpoints.save(checkpoint, self.ensure_trainer(state))
        return digests["weights"], digests["trainer"]

    def base_weights(self) -> Mapping[str, Any]:
        """θ0 in fp32, as the trainer starts from it."""
        result: Mapping[str, Any] = float32_model(self.model_path).state_dict()
        return result

    def base_digest(self) -> str:
        """Digest of θ0."""
        return weights_digest(self.base_weights())


def lora_of(config: Config) -> Lora | None:
    """The adapters that a config trains; None: all of θ. Their first values are drawn by the run's seed."""
    weights = config.weights
    if not weights.lora_rank:
        return None
    targets = weights.lora_targets if isinstance(weights.lora_targets, str) else tuple(weights.lora_targets)
    return Lora(weights.lora_rank, weights.lora_alpha, targets, config.seed)
