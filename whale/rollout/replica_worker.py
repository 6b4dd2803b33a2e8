"""The program of one replica: `python -m whale.rollout.replica_worker`, started by `Replicas` and never by a user.

Commands come in over a socket that the parent holds, answers go out over it. Where the parent is gone, however it
ended, the socket closes and the replica ends at once, with its sandbox, in the middle of a micro-batch too.
"""

import contextlib
import io
import os
import pickle
import queue
import shutil
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from whale.domains.base import Domain
from whale.errors import WhaleError
from whale.rollout.engines import load_engine
from whale.rollout.replica import Replica
from whale.rollout.replica_messages import THE_DOMAIN, Facts, Opening
from whale.rollout.types import Trajectory


def main() -> None:
    """Obey until the parent is gone."""
    channel, folder = Connection(int(sys.argv[1])), Path(sys.argv[3])
    commands: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    worker = _Worker(f"/proc/self/fd/{sys.argv[2]}")
    threading.Thread(target=_listen, args=(channel, commands, worker, folder), daemon=True).start()
    while True:
        command = commands.get()
        try:
            name, arguments = _Unpickler(command, worker).load()
            answer = ("done", getattr(worker, name)(*arguments))
        except Exception as error:
            answer = ("raised", _portable(error))
        channel.send(answer)


def _listen(channel: Connection, commands: "queue.SimpleQueue[bytes]", worker: "_Worker", folder: Path) -> None:
    while True:
        try:
            commands.put(channel.recv_bytes())
        except (EOFError, OSError):
            with contextlib.suppress(Exception):  # the main thread may be in the middle of using it
                worker.end_sandbox()
            shutil.rmtree(folder, ignore_errors=True)  # a parent that was killed has not
            os._exit(0)


class _Worker:
    """What can be asked of a replica, by name."""

    def __init__(self, weights: str) -> None:
        self._weights = weights
        self._replica: Replica | None = None
        self.domain: Domain | None = None

    def open(self, opening: Opening) -> Facts:
        """Load the domain and the engine."""
        self.domain = opening.origin.load()
        settings = opening.settings
        engine = load_engine(
            settings,
            opening.model,
            opening.version,
            trainer=opening.trainer,
            sharing=opening.sharing,
            lora_rank=opening.lora_rank,
        )
        self._replica = Replica(engine, beside=settings.replicas)
        return Facts(engine.name, engine.deterministic, engine.context_length, engine.dtype, self._replica.notes)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the replica's method."""
        return getattr(self._replica, name)(*arguments)

    def sample(self, *arguments: Any) -> tuple[list[Trajectory], dict[str, float]]:
        """As `Replica.sample`, and the seconds that went into its parts."""
        assert self._replica is not None
        self._replica.watch.lap()
        return self._replica.sample(*arguments), self._replica.watch.lap()

    def prepare(self, harness: Any) -> None:
        """Start the sandbox's worker."""
        assert self._replica is not None
        self._replica.prepare(harness)

    def logprobs(self, sequences: Any) -> list[list[float]]:
        """As `Engine.logprobs`."""
        assert self._replica is not None
        return self._replica.engine.logprobs(sequences)

    def update_weights(self, version: str) -> None:
        """Take the weights that the parent has put into the shared file."""
        assert self._replica is not None
        tensors = torch.load(self._weights, map_location="cpu", mmap=True, weights_only=True)
        self._replica.update_weights(tensors, version)

    def end_sandbox(self) -> None:
        """End the sandbox's worker, if there is one."""
        if self._replica is not None:
            self._replica.end_worker()


class _Unpickler(pickle.Unpickler):
    def __init__(self, message: bytes, worker: _Worker) -> None:
        super().__init__(io.BytesIO(message))
        self._worker = worker

    def persistent_load(self, name: Any) -> Any:
        assert name == THE_DOMAIN
        return self._worker.domain


def _portable(error: Exception) -> Exception:
    """The error with its traceback, as one that can be raised in the parent."""
    told = "".join(traceback.format_exception(error))
    if not isinstance(error, WhaleError):
        error.add_note(f"In the replica's process:\n{told}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return WhaleError(f"{type(error).__name__}: {error}").with_details(told)
    return error


if __name__ == "__main__":
    main()
