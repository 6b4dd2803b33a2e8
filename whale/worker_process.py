"""A worker's process that its parent speaks to over a socket: how it is started, and what it ended of."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path


def start_worker_process(
    module: str,
    arguments: Sequence[str],
    words: Path,
    *,
    workers: int,
    environment: Mapping[str, str],
    pass_fds: Sequence[int] = (),
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start `python -m module SOCKET ARGUMENTS`, one of `workers` that divide the cores; returns it and our end.

    What is importable here is there; what it prints goes to the file `words`. Ctrl-C is for the parent, which ends it.
    """
    ours, theirs = socket.socketpair()
    with theirs, words.open("wb") as printed:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(theirs.fileno()), *arguments],
            env={
                "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // workers)),  # where nothing else says
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
                **environment,
            },
            pass_fds=(theirs.fileno(), *pass_fds),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
    return process, Connection(ours.detach())


def cause_of_end(code: int | None, words: str) -> str:
    """What a process ended of, in few words: its signal, else the last line that it printed."""
    if code is not None and code < 0:
        return f"killed by signal {-code}"
    return words.strip().splitlines()[-1][:300] if words.strip() else f"exit status {code}"
