"""Work that runs code of the user's own in a process apart, each call under a time limit.

The process is a fork of this one, so that the work may be any function. It says what it calls next and how long that
may take; where nothing more is heard of it in time, it is killed, with all processes of its group.
"""

import contextlib
import ctypes
import io
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

from whale.errors import WhaleError

T = TypeVar("T")
Watch = Callable[[str, float], None]
"""(what is called next, seconds that it may take)."""
Work = Callable[[Watch], Iterator[T]]
_START_SECONDS = 60.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Lost:
    """The process ended, or was ended, in a call."""

    how: str
    """In words, with the call."""


@dataclass(frozen=True, slots=True)
class _Item(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class _Step:
    what: str
    seconds: float


class _End:
    """Nothing more comes."""


def watched(work: Work[T]) -> Iterator[T | Lost]:
    """What `work` yields, in a process of its own; last a `Lost` if it came to no end. A WhaleError rises here."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    with warnings.catch_warnings():
        # The child runs the user's code alone; what other threads hold is none of its business.
        warnings.filterwarnings("ignore", ".*multi-threaded.*", DeprecationWarning)
        process = context.Process(target=_carry_out, args=(work, theirs), daemon=False)
        process.start()
    theirs.close()
    try:
        yield from _listen(ours, process)
    finally:
        if process.exitcode is None and process.pid:
            os.kill(process.pid, signal.SIGKILL)  # it may lead no group yet
        end_group(process.pid)
        process.join()
        ours.close()


def _listen(connection: Connection, process: BaseProcess) -> Iterator[T | Lost]:
    step = _Step("starting", _START_SECONDS)
    while True:
        if not connection.poll(step.seconds):
            yield Lost(f"did not end within {step.seconds:g} s: {step.what}")
            return
        try:
            message = connection.recv()
        except EOFError:
            process.join()
            code = process.exitcode or 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended its process with code {code}"
            yield Lost(f"{how}: {step.what}")
            return
        match message:
            case _Step():
                step = message
            case _Item(value):
                yield value
            case WhaleError():
                raise message
            case _:
                return


def _carry_out(work: Work[T], connection: Connection) -> None:
    os.setsid()  # its own group, so that what it starts ends with it; and Ctrl-C is its parent's to handle
    die_with_parent(os.getppid())
    print_to_stderr()  # what the user's code prints is no data of ours
    try:
        for item in work(lambda what, seconds: connection.send(_Step(what, seconds))):
            connection.send(_Item(item))
    except WhaleError as error:
        connection.send(error)
    connection.send(_End())


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent`, which started it, ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def print_to_stderr() -> None:
    """Send what this process prints to stderr; no character can fail there."""
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def end_group(pid: int | None) -> None:
    """Kill what is left of the group that a process leads or led."""
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
