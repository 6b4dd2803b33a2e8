"""A trainer on several ranks, as a run uses it: processes that it starts, and one object that speaks for all of them.

The run's own process holds no rank. It sends each rank the same command over a socket and waits for all answers, so
a rank that dies, for whatever reason, is a closed socket: the others are ended, and the run stops with one line. No
rank outlives the run's process, since each ends when its socket closes.
"""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import torch

from whale.errors import UsageError, WhaleError
from whale.rollout.types import Engine
from whale.weights import sync
from whale.weights.objective import LossFunction, negative_log_likelihood
from whale.weights.trainer import Trainer, TrainerConfig
from whale.weights.types import Sample, StepResult
from whale.worker_process import cause_of_end, start_worker_process

_GRACE = 2.0
"""Seconds that ranks have to end by themselves: after the first has died, the others' words may name the cause."""


class Crew:
    """The processes of one machine's ranks: rank i on CUDA device i, or all on the CPU. One trainer at a time."""

    def __init__(self, ranks: int, device: str = "auto") -> None:
        """Start the processes and wait until they have found each other (seconds).

        Raises UsageError where there are not so many devices, WhaleError if a process does not come up.
        """
        self.ranks = ranks
        self._kind = kind_of(ranks, device)
        self._folder = tempfile.TemporaryDirectory(prefix="whale-ranks-")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._channels: list[Connection] = []
        self.closed = False
        try:
            for rank in range(ranks):
                self._start(rank)
            self._answers()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """The processes, by rank."""
        return [process.pid for process in self._processes]

    def trainer(
        self, model: str | Path, config: TrainerConfig, loss: LossFunction = negative_log_likelihood
    ) -> "RankedTrainer":
        """Build a trainer in all processes; it takes the place of the one before, if there was one."""
        self.ask("build", model, config, loss)
        return RankedTrainer(self)

    def ask(self, name: str, *arguments: Any) -> Any:
        """Have all ranks do the same; return rank 0's answer.

        Raises WhaleError: what all ranks refused, and they go on; or that a rank has died, and the crew has ended.
        """
        if self.closed:
            raise WhaleError("the trainer's ranks have ended; `whale resume` starts them again")
        command = bytes(ForkingPickler.dumps((name, arguments)))
        try:
            for channel in self._channels:
                with contextlib.suppress(OSError):  # dead: its answer says so
                    channel.send_bytes(command)
            answers, tensors = self._answers()
        except BaseException:  # also Ctrl-C: the ranks are in the middle of something
            self.close()
            raise
        refused = [error for error in answers if isinstance(error, WhaleError)]
        if refused and len(refused) < self.ranks:
            self.close()
            raise WhaleError(f"the trainer's ranks do not agree: {refused[0]}")
        if refused:
            raise refused[0]
        return tensors if name == "state" else answers[0]

    def close(self) -> None:
        """End the processes. Again is fine."""
        self.closed = True
        for channel in self._channels:
            channel.close()
        for process in self._processes:
            process.kill()
            process.wait()
        self._folder.cleanup()

    def _start(self, rank: int) -> None:
        place = Path(self._folder.name)
        process, channel = start_worker_process(
            "whale.weights.rank_worker",
            [self._kind, str(place / "store")],
            place / f"rank-{rank}",
            workers=self.ranks,
            environment={
                "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(self.ranks),
            },
        )
        self._processes.append(process)
        self._channels.append(channel)

    def _answers(self) -> tuple[list[Any], dict[str, torch.Tensor]]:
        """Wait for each rank's answer to the one command, and for the tensors that come before it."""
        answers: dict[int, Any] = {}
        tensors: dict[str, torch.Tensor] = {}
        while len(answers) < self.ranks:
            waiting = {self._channels[rank]: rank for rank in range(self.ranks) if rank not in answers}
            for channel in wait(list(waiting)):
                assert isinstance(channel, Connection)
                try:
                    kind, content = channel.recv()
                except (EOFError, OSError):
                    raise self._death() from None
                if kind == "tensor":
                    name, array = content
                    tensors[name] = torch.from_numpy(array)
                else:
                    answers[waiting[channel]] = content
        return [answers[rank] for rank in range(self.ranks)], tensors

    def _death(self) -> WhaleError:
        """Say which rank died first and of what. One that was killed, or failed by itself, is named before those
        that only lost their connection to it.
        """
        end = time.monotonic() + _GRACE
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
        causes = []
        for rank, process in enumerate(self._processes):
            words = (Path(self._folder.name) / f"rank-{rank}").read_text(errors="replace")
            code = process.poll()
            if code is None:
                continue
            cause = cause_of_end(code, words)
            weight = 0 if code < 0 else 2 if "DistBackendError" in cause or "onnection" in cause else 1
            causes.append((weight, rank, cause, words))
        if not causes:
            return WhaleError("a rank of the trainer does not answer; `whale resume` goes on from the last checkpoint")
        _, rank, cause, words = min(causes)
        return WhaleError(
            f"rank {rank} of the trainer's {self.ranks} has ended ({cause}); "
            "`whale resume` goes on from the last checkpoint"
        ).with_details(words)


class RankedTrainer:
    """What `Trainer` is to a run, on all ranks of a crew. θ comes over the socket: a copy in the CPU's memory."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._weights_digest: str | None = None

    @property
    def steps(self) -> int:
        """As `Trainer.steps`."""
        return int(self._crew.ask("steps"))

    def notes(self) -> list[str]:
        """As `Trainer.notes`, of rank 0."""
        result: list[str] = self._crew.ask("call", "notes")
        return result

    def step(self, rollouts: Sequence[Sequence[Sample]], seed: int, label: str | None = None) -> StepResult:
        """As `Trainer.step`: over all ranks one sum and one number of tokens."""
        self._weights_digest = None
        result: StepResult = self._crew.ask("call", "step", rollouts, seed, label)
        return result

    def logprobs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """As `Trainer.logprobs`."""
        result: list[list[float]] = self._crew.ask("call", "logprobs", sequences)
        return result

    def check_engine(self, engine: Engine, sequences: Sequence[Sequence[int]], tolerance: float) -> float:
        """As `Trainer.check_engine`."""
        return sync.check_engine(engine, sequences, self.logprobs(sequences), tolerance)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return θ by name, gathered, in the CPU's memory."""
        result: dict[str, torch.Tensor] = self._crew.ask("state")
        return result

    def weights_digest(self) -> str:
        """As `Trainer.weights_digest`; gathered once a step, not at each call."""
        if self._weights_digest is None:
            self._weights_digest = str(self._crew.ask("call", "weights_digest"))
        return self._weights_digest

    def trainer_digest(self) -> str:
        """As `Trainer.trainer_digest`."""
        return str(self._crew.ask("call", "trainer_digest"))

    def checkpoint_bytes(self) -> int:
        """As `Trainer.checkpoint_bytes`."""
        return int(self._crew.ask("call", "checkpoint_bytes"))

    def save(self, folder: str | Path) -> Mapping[str, str]:
        """As `Trainer.save`, by rank 0: the same files, whatever the number of ranks."""
        result: Mapping[str, str] = self._crew.ask("call", "save", Path(folder).absolute())
        return result

    def load(self, folder: str | Path) -> None:
        """As `Trainer.load`, from a checkpoint of any number of ranks."""
        self._weights_digest = None
        self._crew.ask("call", "load", Path(folder).absolute())


def hand_over(before: Trainer | RankedTrainer, to: Trainer | RankedTrainer) -> None:
    """Let `to` go on from θ, optimiser and step count of `before`, whatever the number of ranks of either."""
    if isinstance(before, Trainer) and isinstance(to, Trainer):
        to.go_on_from(before)
        return
    with tempfile.TemporaryDirectory(prefix="whale-ranks-") as folder:
        before.save(folder)
        to.load(folder)


def kind_of(ranks: int, device: str) -> str:
    """Return "cuda" or "cpu". Raises UsageError where there are not so many devices, or one of them is named."""
    kind = device.partition(":")[0]
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if ":" in device:
        raise UsageError(f'device = "{device}" with {ranks} ranks: give "{kind}"; rank i takes device i')
    found = torch.cuda.device_count() if kind == "cuda" else ranks
    if found < ranks:
        raise UsageError(f"weights.ranks = {ranks}: this machine has {found} CUDA devices")
    return kind
