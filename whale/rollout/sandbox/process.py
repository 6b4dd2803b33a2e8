"""The host's end of one episode's process: frames, the wall guard, and how its end is read."""

import contextlib
import os
import re
import signal
import socket
import struct
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from whale.rollout.errors import MachineFault
from whale.rollout.sandbox import frames
from whale.rollout.sandbox.limits import Limits
from whale.rollout.types import Status

_CREDENTIALS = struct.Struct("3i")
_SO_PASSCRED = 16
_SCM_CREDENTIALS = 2
_CHUNK = 1 << 16
_TAIL_BYTES = 600
_REASON_CHARS = 2000
START_SECONDS = 60.0
_PROGRESS = 0.01
"""Share of the wall guard's window that a process must have spent on the CPU to get another window."""

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Message:
    """What an episode sent; it now waits for an answer, unless it was its last word."""

    process: "EpisodeProcess"
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """An episode's process ended without a last word, or the host ended it."""

    process: "EpisodeProcess"
    status: Status
    reason: str


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended, as the worker saw it. One of code and signal is 0."""

    code: int
    signal: int
    cpu: float
    """Seconds, user and system."""
    rss: int
    """Most bytes resident at once."""


def clean(text: str) -> str:
    """Text fit for a record: no addresses, which differ from run to run, and no control characters."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _ADDRESS.sub("0x...", text))[:_REASON_CHARS]


def pass_credentials(host_end: socket.socket) -> None:
    """Have the kernel attach the sender's process id to what is received, in this process's numbering."""
    if sys.platform.startswith("linux"):
        host_end.setsockopt(socket.SOL_SOCKET, _SO_PASSCRED, 1)


def receive_with_pid(host_end: socket.socket, size: int) -> tuple[bytes, int]:
    """Receive, and return the sender's process id, 0 if the kernel did not say."""
    data, ancillary, _, _ = host_end.recvmsg(size, socket.CMSG_SPACE(_CREDENTIALS.size))
    for level, kind, value in ancillary:
        if level == socket.SOL_SOCKET and kind == _SCM_CREDENTIALS and len(value) >= _CREDENTIALS.size:
            return data, int(_CREDENTIALS.unpack(value[: _CREDENTIALS.size])[0])
    return data, 0


def cpu_use(pid: int) -> tuple[float, bool]:
    """Return a process's CPU seconds so far and whether it could use more now; (0.0, False) if unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0] == "R"
    except (OSError, ValueError, IndexError):
        return 0.0, False


class EpisodeProcess:
    """See the module. Made by `HarnessWorker.open_episode`, which also moves its bytes."""

    def __init__(self, number: int, limits: Limits) -> None:
        self.number = number
        self.limits = limits
        self.channel, self.remote = socket.socketpair()
        self.channel.setblocking(False)
        pass_credentials(self.channel)
        self.output = _output_file()
        self.pid = 0
        self.locked = False
        """Whether it has reported its lock. Before that no candidate code can have run."""
        self.closed = False
        self.holds_control = True
        self.exit: Exit | None = None
        """How it ended, once the worker has reaped it."""
        self.verdict: tuple[Status, str] | None = None
        """What the host ended it for."""
        self.unsent = bytearray()
        self.watched = 0
        """The events that the host's selector waits for, as it counts them."""
        self._reader = frames.FrameReader(limits.message_bytes)
        self._traffic = 0
        self._window_from = time.monotonic()
        self._cpu_before = 0.0

    def receive(self) -> bool:
        """Read what is there, in pieces; return False at the end of the stream."""
        try:
            data, pid = receive_with_pid(self.channel, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.pid = self.pid or pid
        self._traffic += len(data)
        self._reader.feed(data)
        return bool(data)

    def next_message(self) -> dict[str, Any] | None:
        """Return the next whole message while the episode holds the control. It then holds it no longer.

        Sets `verdict` for what breaks the protocol.
        """
        if self.closed or self.verdict or not self.holds_control:
            return None
        try:
            body = self._reader.take()
            if self._traffic > self.limits.traffic_bytes:
                raise frames.FrameTooLarge(f"more than {self.limits.traffic_bytes:,} bytes in messages")
            if body is None:
                return None
            value = frames.decode(body)
        except frames.FrameTooLarge as error:
            self.verdict = ("output_limit", str(error))
            return None
        except frames.MalformedFrame as error:
            self.verdict = ("bad_call", clean(f"a malformed message: {error}"))
            return None
        self.holds_control = False
        return value

    def spoke_out_of_turn(self) -> bool:
        """Whether it has sent more while it should have waited for an answer."""
        with contextlib.suppress(OSError):
            return bool(self.channel.recv(1, socket.MSG_PEEK)) or self._reader.pending
        return self._reader.pending

    def hand_over(self, value: dict[str, Any]) -> None:
        """Queue a message and give the episode the control."""
        self.unsent += frames.encode(value)
        self.holds_control = True
        self._window_from = time.monotonic()
        self.send()

    def send(self) -> None:
        """Send of the queue what the socket takes. An episode that is gone shows at its next read."""
        try:
            while self.unsent:
                del self.unsent[: self.channel.send(self.unsent[:_CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            self.unsent.clear()

    def deadline(self) -> float:
        """When the guard looks next, by time.monotonic(). Until the lock is on, the wait is ours."""
        return self._window_from + (self.limits.wall_seconds if self.locked else START_SECONDS)

    def begin(self) -> None:
        """The lock is on: candidate code is running from here."""
        self.locked = True
        self.holds_control = True
        self._window_from = time.monotonic()

    def guard(self, now: float) -> None:
        """Set `verdict` if the episode has kept the control for a whole window without using the CPU.

        One that computes is left to its CPU limit: on a busy machine that may take any time.
        """
        if self.closed or self.verdict or not self.holds_control or now < self.deadline():
            return
        used, runnable = cpu_use(self.pid) if self.pid else (0.0, False)
        if runnable or used - self._cpu_before >= _PROGRESS * self.limits.wall_seconds:
            self._cpu_before = used
            self._window_from = now
            return
        self.verdict = ("wall_limit", f"no answer for {self.limits.wall_seconds:g} s")

    def tail(self) -> str:
        """The end of what it printed."""
        size = self.output.seek(0, os.SEEK_END)
        self.output.seek(max(0, size - _TAIL_BYTES))
        return clean(self.output.read(_TAIL_BYTES).decode("utf-8", "replace"))

    def ended(self, exit: Exit, *, memory_ran_out: bool) -> Ended:
        """Read the end of a process that left no last word.

        Raises MachineFault if the machine killed it for memory while it was within its own limit.
        """
        status, reason = self.verdict or self._judge(exit, memory_ran_out)
        return Ended(self, status, reason)

    def _judge(self, exit: Exit, memory_ran_out: bool) -> tuple[Status, str]:
        limits = self.limits
        # The kernel's own count and the reported one differ a little, so that only the second signal, a
        # whole second later, is told by the time.
        spent = exit.signal == signal.SIGKILL and exit.cpu >= limits.cpu_seconds
        if exit.signal == signal.SIGXCPU or spent:
            return "cpu_limit", f"more than {limits.cpu_seconds:g} s of CPU time"
        if exit.signal == signal.SIGXFSZ:
            return "output_limit", f"printed more than {limits.output_bytes:,} bytes, ending: {self.tail()}"
        if exit.signal == signal.SIGKILL and memory_ran_out:
            if exit.rss < limits.memory_bytes // 2:
                raise MachineFault(
                    "the machine ran out of memory during rollouts: lower the micro-batch or the memory limit"
                )
            return "memory_limit", f"killed by the machine at {exit.rss:,} bytes"
        if exit.signal == signal.SIGKILL:
            return "killed", "closed its channel to the host, or was killed"
        if exit.signal:
            return "killed", f"died of {signal.Signals(exit.signal).name}"
        return "no_answer", f"the process exited with code {exit.code} before run returned"

    def close(self) -> None:
        """Close the host's ends. The worker reaps the process."""
        self.closed = True
        self.remote.close()
        self.channel.close()
        self.output.close()


def _output_file() -> BinaryIO:
    """A file in memory; RLIMIT_FSIZE holds for it."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("output", os.MFD_CLOEXEC), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
