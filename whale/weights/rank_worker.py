"""The program of one rank: `python -m whale.weights.rank_worker`, started by `ranks.Crew` and never by a user.

Commands come in over a socket that the parent holds, answers go out over it. Where the parent is gone, however it
ended, the socket closes and the rank ends at once, in the middle of a collective too.
"""

import os
import queue
import shutil
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from whale.errors import WhaleError
from whale.weights.sharding import ShardedTrainer

WAIT = timedelta(minutes=10)
"""Longest that a rank waits for the others in one collective: beyond the longest micro-batch, short of a night."""


def main() -> None:
    """Join the group, then obey until told to end."""
    rank, ranks, kind, store = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv[2], Path(sys.argv[3])
    channel = Connection(int(sys.argv[1]))
    commands: queue.SimpleQueue[tuple[str, tuple[Any, ...]]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, commands, store.parent), daemon=True).start()
    device = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        init_method=store.as_uri(),
        rank=rank,
        world_size=ranks,
        timeout=WAIT,
        device_id=device if kind == "cuda" else None,
    )
    worker = _Worker(rank, device, channel)
    channel.send(("done", None))
    while True:
        name, arguments = commands.get()
        try:
            result = getattr(worker, name)(*arguments)
        except WhaleError as error:  # raised by all ranks alike, θ as it was
            channel.send(("refused", error))
        else:
            channel.send(("done", result if rank == 0 else None))


def _listen(channel: Connection, commands: "queue.SimpleQueue[tuple[str, tuple[Any, ...]]]", folder: Path) -> None:
    while True:
        try:
            commands.put(channel.recv())
        except (EOFError, OSError):
            shutil.rmtree(folder, ignore_errors=True)  # a parent that was killed has not
            os._exit(0)


class _Worker:
    """What can be asked of a rank, by name."""

    def __init__(self, rank: int, device: torch.device, channel: Connection) -> None:
        self._rank = rank
        self._device = device
        self._channel = channel
        self._trainer: ShardedTrainer | None = None

    def build(self, model: Any, config: Any, loss: Any) -> None:
        """Load the model; a trainer that was there before is freed first."""
        self._trainer = None
        self._trainer = ShardedTrainer(model, replace(config, device=str(self._device)), loss)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the trainer's method."""
        return getattr(self._trainer, name)(*arguments)

    def steps(self) -> int:
        """Steps so far."""
        assert self._trainer is not None
        return self._trainer.steps

    def state(self) -> None:
        """Send θ from rank 0, a tensor at a time."""
        assert self._trainer is not None
        for name, tensor in self._trainer.state_dict().items():  # empty but on rank 0
            self._channel.send(("tensor", (name, tensor.numpy())))


if __name__ == "__main__":
    main()
