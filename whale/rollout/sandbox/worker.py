"""The sandbox's worker: forks a process per episode, reaps it, and reports. It never loads candidate code.

The host sends, on the socket that is this process's standard input, frames of JSON:
{"type": "setup", ...} once; {"type": "spawn", "id": n} with two descriptors, the episode's socket and the
file for its output; {"type": "kill", "id": n}. The worker answers {"type": "ready"} and, for every episode,
{"type": "exit", "id": n, "code": n, "signal": n, "cpu": seconds, "rss": bytes}.

One process forks one episode after the other. {"type": "twin"} with a descriptor makes a second one like this, which
serves the socket behind that descriptor and says {"type": "ready"} there.
"""

import contextlib
import ctypes
import gc
import math
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from whale.rollout.sandbox import episode, frames, landlock, seccomp

CHANNEL_FD = 3
_OPEN_FILES = 32
_LAST_FD = 1 << 20
_ADDR_NO_RANDOMIZE = 0x0040000
_PR_SET_PDEATHSIG = 1

# Imported before the first fork, so that an episode finds them in memory.
_PRELOADED = (
    "bisect", "collections", "copy", "dataclasses", "decimal", "difflib", "enum", "fractions", "functools",
    "heapq", "itertools", "json", "math", "operator", "re", "statistics", "string", "textwrap", "typing",
    "unicodedata",
)  # fmt: skip


def fix_addresses() -> None:
    """Switch off address randomisation and start anew: a set that holds None iterates by its address.

    Where the kernel or a container refuses, the worker goes on without.
    """
    libc = ctypes.CDLL(None)
    if not sys.platform.startswith("linux") or libc.personality(ctypes.c_ulong(0xFFFFFFFF)) & _ADDR_NO_RANDOMIZE:
        return
    if libc.personality(ctypes.c_ulong(_ADDR_NO_RANDOMIZE)) != -1:
        os.execv(sys.executable, sys.orig_argv)


class Worker:
    """State of the one worker process."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._episodes: dict[int, int] = {}
        """Process ids by the host's numbers."""
        self._numbers: dict[int, int] = {}
        self._twins: set[int] = set()
        self._wake: tuple[int, ...] = ()
        self._files: dict[str, str] = {}
        self._setup: Mapping[str, Any] = {}
        self._lock: seccomp.Lock | None = None

    def serve(self) -> None:
        """Serve until the host closes the channel, then take every episode along."""
        # A host that closes with reports unread, or before one is sent, shows as an error.
        with contextlib.suppress(ConnectionError):
            self._serve()
        self._kill_all()

    def _serve(self) -> None:
        self._wake = wake_in, wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self._control.fileno(), select.POLLIN)
        poll.register(wake_in, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == wake_in:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_in, 4096)
                    self._reap()
                elif not self._command():
                    return

    def _command(self) -> bool:
        header, descriptors, _, _ = socket.recv_fds(self._control, frames.HEADER_BYTES, 2, socket.MSG_WAITALL)
        if len(header) < frames.HEADER_BYTES:
            return False
        body = self._control.recv(frames.body_length(header), socket.MSG_WAITALL)
        command = frames.decode(body)
        if command["type"] == "setup":
            self._set_up(command)
        elif command["type"] == "spawn":
            self._spawn(command["id"], descriptors[0], descriptors[1])
        elif command["type"] == "kill":
            self._kill(command["id"])
        elif command["type"] == "twin":
            self._twin(descriptors[0])
        return True

    def _set_up(self, setup: Mapping[str, Any]) -> None:
        self._setup = setup
        tree = Path(setup["tree"])
        for path in sorted(tree.rglob("*")):
            if path.is_file():
                self._files[path.relative_to(tree).as_posix()] = path.read_text("utf-8", "replace")
        for name in _PRELOADED:
            __import__(name)
        if setup["landlock"]:
            landlock.confine(setup["landlock"])
        if seccomp.supported():
            self._lock = seccomp.Lock()
        elif setup["locked"]:
            raise OSError("seccomp filters are not known for this machine")
        gc.collect()
        gc.freeze()
        self._control.sendall(frames.encode({"type": "ready"}))

    def _twin(self, channel: int) -> None:
        first = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_twin(channel, first)
        os.close(channel)
        self._twins.add(pid)

    def _become_twin(self, channel: int, first: int) -> NoReturn:
        signal.set_wakeup_fd(-1)
        _die_with(first)
        # While a copy of the first one's socket is open, standard input too, the host cannot see that one end.
        nothing = os.open(self._setup["tree"], os.O_RDONLY)
        os.dup2(nothing, 0)
        for descriptor in (nothing, *self._wake):
            os.close(descriptor)
        self._control.close()
        self._control = socket.socket(fileno=channel)
        self._episodes, self._numbers, self._twins = {}, {}, set()
        self._control.sendall(frames.encode({"type": "ready"}))
        self.serve()
        os._exit(0)

    def _spawn(self, number: int, channel: int, output: int) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_episode(channel, output, parent)
        os.close(channel)
        os.close(output)
        self._episodes[number] = pid
        self._numbers[pid] = number

    def _become_episode(self, channel: int, output: int, parent: int) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            # Python ignores SIGXFSZ and SIGPIPE; here both shall end the process.
            for number in (signal.SIGCHLD, signal.SIGXFSZ, signal.SIGPIPE, signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.dup2(channel, CHANNEL_FD)
            null = os.open(self._setup["tree"], os.O_RDONLY)
            os.dup2(null, 0)
            os.closerange(CHANNEL_FD + 1, _LAST_FD)
            _die_with(parent)
            self._limit()
            if self._lock is not None:
                try:
                    self._lock.install()
                except OSError:
                    if self._setup["locked"]:
                        raise
            episode.run(episode.Channel(CHANNEL_FD), self._files, self._setup["tree"])
        except BaseException as error:  # nothing may go on as the worker that this process was
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)

    def _limit(self) -> None:
        setup = self._setup
        cpu = math.ceil(setup["cpu_seconds"])
        for name, soft, hard in (
            ("RLIMIT_CPU", cpu, cpu + 1),
            ("RLIMIT_AS", setup["memory_bytes"], setup["memory_bytes"]),
            ("RLIMIT_FSIZE", setup["output_bytes"], setup["output_bytes"]),
            ("RLIMIT_NOFILE", _OPEN_FILES, _OPEN_FILES),
            ("RLIMIT_CORE", 0, 0),
        ):
            resource.setrlimit(getattr(resource, name), (soft, hard))

    def _kill(self, number: int) -> None:
        pid = self._episodes.get(number)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    def _kill_all(self) -> None:
        for pid in self._episodes.values():
            os.kill(pid, signal.SIGKILL)
        # Twins end by themselves, when the host closes or is gone: only they can reap their episodes.
        for pid in (*self._episodes.values(), *self._twins):
            os.waitpid(pid, 0)

    def _reap(self) -> None:
        while self._episodes or self._twins:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid in self._twins:  # the host sees its socket closed; one that was not killed has said why
                self._twins.remove(pid)
                if os.WIFSIGNALED(status):
                    os.write(2, f"one of its processes was killed by signal {os.WTERMSIG(status)}\n".encode())
                continue
            number = self._numbers.pop(pid)
            del self._episodes[number]
            report = {
                "type": "exit",
                "id": number,
                "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0,
                "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
                "cpu": usage.ru_utime + usage.ru_stime,
                "rss": usage.ru_maxrss * 1024,
            }
            self._control.sendall(frames.encode(report))


def _die_with(parent: int) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel knew
            os._exit(1)


def main() -> NoReturn:
    """Serve on the socket that is standard input."""
    fix_addresses()
    control = socket.socket(fileno=os.dup(0))
    Worker(control).serve()
    os._exit(0)
