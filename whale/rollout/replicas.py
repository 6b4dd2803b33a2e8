"""Several engines on a machine's GPUs: processes that each carry out a share of a micro-batch, and their speaker.

The run's own process then holds no engine. It deals a micro-batch's episodes out, and each replica runs its share on
the one rollout path, with its own engine, sandbox and domain; only what is recorded comes back. A replica that dies,
for whatever reason, is a closed socket: the others are ended, and the run stops with one line. No replica outlives
the run's process, since each ends when its socket closes.
"""

import contextlib
import dataclasses
import io
import itertools
import os
import pickle
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import msgspec
import torch

from whale.config import EngineConfig
from whale.domains.base import Domain, Task
from whale.errors import UsageError, WhaleError
from whale.rollout.devices import replica_devices, resolve_device, sharing_note
from whale.rollout.episodes import Sampling
from whale.rollout.replica import SandboxedHarness
from whale.rollout.replica_messages import THE_DOMAIN, DomainOrigin, Facts, Opening
from whale.rollout.types import EpisodeSpec, Trajectory
from whale.rollout.vllm_library import own_cache
from whale.stopwatch import Stopwatch
from whale.worker_process import cause_of_end, start_worker_process

_GRACE = 5.0
"""Seconds that replicas have to end by themselves, their sandboxes with them."""
_SILENCE = 600.0
"""Seconds by which a replica may be later than the others, if they took less than a quarter of that."""


def shares(episodes: int, replicas: int) -> list[range]:
    """Which of a micro-batch's episodes each replica runs: neighbours, which share prompts, as evenly as can be."""
    cuts = [episodes * replica // replicas for replica in range(replicas + 1)]
    return [range(start, end) for start, end in itertools.pairwise(cuts)]


class Replicas:
    """What `Replica` is to a run, on several devices of one machine."""

    def __init__(
        self,
        settings: EngineConfig,
        model: Path,
        version: str,
        domain: Domain,
        origin: DomainOrigin,
        ranks: int = 1,
        watch: Stopwatch | None = None,
        lora_rank: int = 0,
    ) -> None:
        """Start `settings.replicas` processes and wait until each has its engine (minutes).

        `origin` is what `domain` was made from: each replica makes its own. A trainer has `ranks` ranks, on the first
        devices. `watch` is told the mean over all replicas of where their time goes: what one waits for another
        stays with the part that is open. Raises UsageError for a device that is not there, WhaleError if a replica
        does not come up.
        """
        if not hasattr(os, "memfd_create"):
            raise UsageError(f"engine.replicas = {settings.replicas} needs Linux: set it to 1")
        self.device = resolve_device(settings.device)
        self.closed = False
        self.watch = watch or Stopwatch()
        self._domain = domain
        self._version = version
        self._count = settings.replicas
        self._is_vllm = settings.name == "vllm"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._channels: list[Connection] = []
        self._devices = devices = replica_devices(settings.replicas, settings.device)
        self._folder = tempfile.TemporaryDirectory(prefix="whale-replicas-")
        # Memory that has no name: none is left behind, and no limit of /dev/shm counts.
        self._weights = os.memfd_create("whale-weights")
        trained = set(devices[:ranks])
        try:
            for replica, device in enumerate(devices):
                self._start(replica, device)
            own = msgspec.structs.replace(settings, device=self.device.type)
            self._facts: list[Facts] = self._ask(
                "open",
                {
                    i: (Opening(own, model, version, origin, trainer=device in trained,
                                sharing=devices.count(device), lora_rank=lora_rank),)
                    for i, device in enumerate(devices)
                },
            )  # fmt: skip
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """The processes, by replica."""
        return [process.pid for process in self._processes]

    @property
    def weights_version(self) -> str:
        """Digest of the weights that all replicas have loaded; "" if they may differ."""
        return self._version

    @property
    def engines(self) -> "Sequence[_Remote]":
        """The replicas' engines, as far as a check of their weights needs them."""
        return [_Remote(self, i, f"{facts.name} (replica {i})") for i, facts in enumerate(self._facts)]

    @property
    def deterministic(self) -> bool:
        """As `Engine.deterministic`: for one number of replicas."""
        return self._facts[0].deterministic

    @property
    def context_length(self) -> int:
        """The longest prompt with its continuation, in tokens, that fits everywhere."""
        return min(facts.context_length for facts in self._facts)

    @property
    def dtype(self) -> torch.dtype:
        """The floating kind of the engines' weights."""
        return self._facts[0].dtype

    @property
    def notes(self) -> list[str]:
        """What a user is told when they have started."""
        shared = sharing_note(self._devices)
        own = [f"replica {i}: {note}" for i, facts in enumerate(self._facts) for note in facts.notes]
        return [shared, *own] if shared else own

    def encode(self, text: str) -> list[int]:
        """As `Replica.encode`."""
        return list(self._ask("call", {0: ("encode", text)})[0])

    def logprobs(self, replica: int, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """As `Engine.logprobs`, by one of the replicas."""
        return list(self._ask("logprobs", {replica: (sequences,)})[0])

    def update_weights(self, state_dict: Mapping[str, Any], version: str) -> None:
        """As `Engine.update_weights`, in all replicas. What one refuses ends them all: they may differ."""
        self._version = ""
        try:
            torch.save(dict(state_dict), f"/proc/self/fd/{self._weights}")
            self._ask("update_weights", dict.fromkeys(range(self._count), (version,)))
            os.ftruncate(self._weights, 0)
        except BaseException:
            self.close()
            raise
        self._version = version

    def prepare(self, harness: SandboxedHarness) -> None:
        """Start each replica's sandbox."""
        self._ask("prepare", dict.fromkeys(range(self._count), (harness,)))

    def sample(
        self,
        harness: SandboxedHarness,
        tasks: Mapping[str, Task],
        specs: Sequence[EpisodeSpec],
        domain: Domain,
        sampling: Sampling,
    ) -> list[Trajectory]:
        """Carry out a micro-batch: the trajectories in the order of `specs`.

        Which replica runs what depends on their number and on the order alone. Raises what a replica raised, with
        its number, when all have ended their shares; WhaleError for a replica that died, and for a `domain` that is
        not the run's and cannot be sent.
        """
        work = {}
        for replica, share in enumerate(shares(len(specs), self._count)):
            if share:
                own = [specs[i] for i in share]
                given = {spec.task_id: tasks[spec.task_id] for spec in own}
                work[replica] = (harness, given, own, domain, sampling)
        answers = self._ask("sample", work)
        for _, spent in answers:
            self.watch.share({part: seconds / self._count for part, seconds in spent.items()})
        return [trajectory for trajectories, _ in answers for trajectory in trajectories]

    def close(self) -> None:
        """End the processes. Again is fine."""
        if self.closed:
            return
        self.closed = True
        for channel in self._channels:
            channel.close()
        end = time.monotonic() + _GRACE
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
        for process in self._processes:
            process.kill()
            process.wait()
        os.close(self._weights)
        self._folder.cleanup()

    def _start(self, replica: int, device: str) -> None:
        process, channel = start_worker_process(
            "whale.rollout.replica_worker",
            [str(self._weights), self._folder.name],
            self._words(replica),
            workers=self._count,
            environment=(own_cache(replica) if self._is_vllm else {})
            | ({"CUDA_VISIBLE_DEVICES": device} if device else {}),
            pass_fds=[self._weights],
        )
        self._processes.append(process)
        self._channels.append(channel)

    def _ask(self, name: str, arguments: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """Have some replicas do the same, each with its own arguments; returns their answers in order."""
        if self.closed:
            raise WhaleError("the engine's replicas have ended; `whale resume` starts them again")
        commands = {replica: self._pickled((name, given)) for replica, given in arguments.items()}
        try:
            for replica, command in commands.items():
                with contextlib.suppress(OSError):  # dead: its answer says so
                    self._channels[replica].send_bytes(command)
            answers = self._answers(list(commands))
        except BaseException:  # also Ctrl-C: the replicas are in the middle of something
            self.close()
            raise
        for replica, (kind, content) in sorted(answers.items()):
            if kind == "raised":
                raise self._named(replica, content)
        return [answers[replica][1] for replica in commands]

    def _answers(self, asked: Sequence[int]) -> dict[int, tuple[str, Any]]:
        answers: dict[int, tuple[str, Any]] = {}
        began = time.monotonic()
        while len(answers) < len(asked):
            waiting = {self._channels[replica]: replica for replica in asked if replica not in answers}
            ready = wait(list(waiting), self._patience(time.monotonic() - began) if answers else None)
            for channel in ready:
                assert isinstance(channel, Connection)
                try:
                    answers[waiting[channel]] = channel.recv()
                except (EOFError, OSError):
                    raise self._death(waiting[channel]) from None
            if not ready:
                late = min(waiting.values())
                raise WhaleError(
                    f"replica {late} of the engine's {self._count} is silent long after the others are done; "
                    "`whale resume` starts them again, and nothing recorded is lost"
                )
        return answers

    @staticmethod
    def _patience(taken: float) -> float:
        """How long the last may still take, in seconds, when the others took this long."""
        return max(_SILENCE, 4 * taken)

    def _death(self, replica: int) -> WhaleError:
        process = self._processes[replica]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        words = self._words(replica).read_text(errors="replace")
        cause = cause_of_end(process.poll(), words)
        return WhaleError(
            f"replica {replica} of the engine's {self._count} has ended ({cause}); "
            "`whale resume` goes on, and nothing recorded is lost"
        ).with_details(words)

    def _named(self, replica: int, error: Exception) -> Exception:
        where = f"replica {replica} of the engine's {self._count}"
        if isinstance(error, WhaleError):
            error.args = (f"{where}: {error}",)
        else:
            error.add_note(f"On {where}.")
        return error

    def _words(self, replica: int) -> Path:
        return Path(self._folder.name) / f"replica-{replica}"

    def _pickled(self, command: tuple[str, tuple[Any, ...]]) -> bytes:
        buffer = io.BytesIO()
        try:
            _Pickler(buffer, self._domain).dump(command)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise WhaleError(
                f"what is asked cannot be sent to the engine's {self._count} replicas ({error}): "
                "set engine.replicas = 1 for it"
            ) from error
        return buffer.getvalue()


class _Pickler(pickle.Pickler):
    """Sends the run's domain by name: it may hold files and threads, and each replica has its own."""

    def __init__(self, buffer: io.BytesIO, domain: Domain) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self._domain = domain

    def persistent_id(self, value: Any) -> Any:
        return THE_DOMAIN if value is self._domain else None


@dataclasses.dataclass(frozen=True, slots=True)
class _Remote:
    """A replica's engine, seen from the run's process."""

    replicas: Replicas
    replica: int
    name: str

    def logprobs(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """As `Engine.logprobs`."""
        return self.replicas.logprobs(self.replica, token_ids)
