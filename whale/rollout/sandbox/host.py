"""The host's side of the sandbox: one worker process per candidate, one process per episode.

The host is single-threaded and never blocks on an episode. A worker is bound to the thread that started it:
when that thread ends, the kernel ends the worker (`--die-with-parent`).
"""

import contextlib
import itertools
import os
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from whale.rollout.errors import WorkerDied
from whale.rollout.sandbox import frames
from whale.rollout.sandbox.folder import WorkerFolder
from whale.rollout.sandbox.limits import Limits
from whale.rollout.sandbox.process import (
    Ended,
    EpisodeProcess,
    Exit,
    Message,
    pass_credentials,
    receive_with_pid,
)
from whale.rollout.sandbox.tiers import Tier, launch

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_CONTROL_FRAME = 1 << 16


class HarnessWorker:
    """A candidate's worker. A context manager: on exit every process of it is gone.

    `files` is the candidate's tree. Raises SandboxUnavailable if the tier is not installed, WorkerDied if the
    worker does not come up.
    """

    def __init__(self, files: Mapping[str, bytes], tier: Tier, limits: Limits | None = None) -> None:
        self.tier: Tier = tier
        self.limits = limits or Limits()
        self.files = dict(files)
        self._numbers = itertools.count()
        self._alive: dict[int, EpisodeProcess] = {}
        self._unsaid: list[Message | Ended] = []
        self._begun = False
        self._selector = selectors.DefaultSelector()
        self._out_of_memory = _oom_kills()
        self._folder = WorkerFolder(files)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._control, remote = socket.socketpair()
        self._reader = frames.FrameReader(_CONTROL_FRAME)
        self._process: subprocess.Popen[bytes] | None = None
        self.pid = 0
        """The worker's process id as the host sees it, 0 if the kernel does not say."""
        try:
            with remote:
                self._start(remote)
        except BaseException:
            self.close()
            raise

    def _start(self, remote: socket.socket) -> None:
        plan = launch(self.tier, self._folder.path)
        pass_credentials(self._control)
        self._process = subprocess.Popen(
            plan.argv,
            env=plan.env,
            cwd="/",
            stdin=remote.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,
        )
        remote.close()
        limits = self.limits
        self._command(
            {
                "type": "setup",
                "tree": plan.tree,
                "landlock": list(plan.landlock),
                "locked": self.tier != "none",
                "cpu_seconds": limits.cpu_seconds,
                "memory_bytes": limits.memory_bytes,
                "output_bytes": limits.output_bytes,
            }
        )
        self._control.settimeout(_START_SECONDS)
        with self._worker_errors():
            data, pid = receive_with_pid(self._control, _CONTROL_FRAME)
        self._reader.feed(data)
        if not data or self._reader.take() is None:
            raise self._death("did not start")
        # Should the machine run out of memory, a candidate is what it takes first.
        self.pid = pid
        with contextlib.suppress(OSError):
            if pid:
                Path(f"/proc/{pid}/oom_score_adj").write_text("900")
        self._selector.register(self._control, selectors.EVENT_READ, None)

    @property
    def starting(self) -> int:
        """How many episodes were asked for and have not locked themselves yet."""
        return sum(not process.locked and not process.closed for process in self._alive.values())

    def open_episode(self, task: Mapping[str, Any], *, seed: int, tools: Sequence[str] = ()) -> EpisodeProcess:
        """Ask the worker for an episode, and hand it the public fields of its task.

        Does not wait for the fork while few episodes are `starting`: the kernel holds some sixty such commands.
        """
        process = EpisodeProcess(next(self._numbers), self.limits)
        self._alive[process.number] = process
        descriptors = [process.remote.fileno(), process.output.fileno()]
        self._command({"type": "spawn", "id": process.number}, descriptors)
        process.remote.close()
        process.hand_over({"task": dict(task), "seed": seed, "tools": list(tools)})
        self._watch(process)
        return process

    def answer(self, process: EpisodeProcess, value: dict[str, Any]) -> None:
        """Answer an episode's message; one that did not wait for it is ended as a bad call."""
        if process.exit is not None:
            self._unsaid.append(self._ended(process, process.exit))
            return
        if process.spoke_out_of_turn():
            process.verdict = ("bad_call", "it sent more while it should have waited for an answer")
            self._end(process)
            return
        process.hand_over(value)
        self._watch(process)

    def finish(self, process: EpisodeProcess) -> None:
        """End an episode whose outcome is known."""
        self._forget(process)
        self._kill(process)

    def poll(self, wait: bool = True, *, begun: bool = False) -> list[Message | Ended]:
        """Wait until something happens, and return all that has; without `wait`, what has happened so far.

        With `begun`, an episode that begins to compute ends the wait too, and then there may be nothing to return.
        Raises WorkerDied, and MachineFault for an episode that the machine killed for memory.
        """
        happened, self._unsaid = self._unsaid, []
        self._begun = False
        while self._alive and not happened and not (begun and self._begun):
            for key, events in self._selector.select(self._patience() if wait else 0.0):
                process = key.data
                if process is None:
                    happened += self._reports()
                elif not process.closed:
                    happened += self._move(process, events)
            now = time.monotonic()
            for process in list(self._alive.values()):
                if not process.verdict:
                    if not process.locked and now > process.deadline():
                        raise self._death("could not start an episode")
                    process.guard(now)
                    if process.verdict:
                        self._end(process)
            if not wait:
                break
        return happened

    def abandon(self) -> None:
        """End every episode and wait until each is reaped. Raises WorkerDied if one is not."""
        self._unsaid.clear()
        for process in list(self._alive.values()):
            self.finish(process)
        limit = time.monotonic() + _STOP_SECONDS
        while self._alive:
            if time.monotonic() > limit:
                raise self._death("did not reap its episodes")
            if self._selector.select(max(0.0, limit - time.monotonic())):
                self._reports()

    def close(self) -> None:
        """End the worker and every episode, and remove its files. May be called again."""
        for process in list(self._alive.values()):
            self._forget(process)
        self._alive.clear()
        self._selector.close()
        self._control.close()
        if self._process is not None:
            self._stop(self._process)
        self._errors.close()
        self._folder.remove()

    @staticmethod
    def _stop(process: subprocess.Popen[bytes]) -> None:
        # The worker takes its episodes along and ends when its channel closes.
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _move(self, process: EpisodeProcess, events: int) -> Iterable[Message | Ended]:
        if events & selectors.EVENT_WRITE:
            process.send()
            self._watch(process)
        if not events & selectors.EVENT_READ:
            return []
        open_end = process.receive()
        message = self._message(process)
        if message is None and (process.verdict or not open_end):
            self._end(process)
        return [message] if message else []

    def _message(self, process: EpisodeProcess) -> Message | None:
        value = process.next_message()
        if value is None:
            return None
        if not process.locked:
            # The first word is said before any candidate code, so it cannot be forged.
            process.begin()
            self._begun = True
            return self._message(process)
        self._watch(process)
        return Message(process, value)

    def _watch(self, process: EpisodeProcess) -> None:
        """Read an episode only while it holds the control, write only while something is unsent."""
        if process.closed or process.verdict:
            return
        events = selectors.EVENT_READ if process.holds_control else 0
        events |= selectors.EVENT_WRITE if process.unsent else 0
        if events == process.watched:
            return
        if not process.watched:
            self._selector.register(process.channel, events, process)
        elif events:
            self._selector.modify(process.channel, events, process)
        else:
            self._selector.unregister(process.channel)
        process.watched = events

    def _ignore(self, process: EpisodeProcess) -> None:
        if process.watched:
            self._selector.unregister(process.channel)
            process.watched = 0

    def _end(self, process: EpisodeProcess) -> None:
        """Kill an episode; its end is told when the worker has reaped it."""
        self._ignore(process)
        self._kill(process)

    def _forget(self, process: EpisodeProcess) -> None:
        self._ignore(process)
        process.close()

    def _kill(self, process: EpisodeProcess) -> None:
        if process.number in self._alive:
            self._command({"type": "kill", "id": process.number})

    def _reports(self) -> list[Message | Ended]:
        with self._worker_errors():
            data = self._control.recv(_CONTROL_FRAME)
        if not data:
            raise self._death("ended")
        self._reader.feed(data)
        happened: list[Message | Ended] = []
        while (body := self._reader.take()) is not None:
            report = frames.decode(body)
            process = self._alive.pop(report["id"])
            if not process.closed:
                happened.append(self._last_of(process, report))
        return happened

    def _last_of(self, process: EpisodeProcess, report: Mapping[str, Any]) -> Message | Ended:
        process.exit = exit = Exit(report["code"], report["signal"], report["cpu"], report["rss"])
        # Its last word may still lie in the channel.
        while not process.verdict and process.holds_control:
            open_end = process.receive()
            message = self._message(process)
            if message is not None:
                return message
            if not open_end:
                break
        if not process.locked and not process.verdict:
            raise self._death(f"could not start an episode: {process.tail() or exit}")
        self._end(process)
        return self._ended(process, exit)

    def _ended(self, process: EpisodeProcess, exit: Exit) -> Ended:
        return process.ended(exit, memory_ran_out=_oom_kills() > self._out_of_memory)

    def _patience(self) -> float | None:
        waiting = [p.deadline() for p in self._alive.values() if p.holds_control and not p.verdict and not p.closed]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else _STOP_SECONDS

    def _command(self, value: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        data = frames.encode(value)
        with self._worker_errors():
            sent = socket.send_fds(self._control, [data], list(descriptors))
            if sent < len(data):
                self._control.sendall(data[sent:])

    @contextlib.contextmanager
    def _worker_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._death(f"does not answer ({error})") from None

    def _death(self, what: str) -> WorkerDied:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                self._process.wait(1.0)
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return WorkerDied(f"the {self.tier} sandbox's worker {what}" + (f": {lines[-1]}" if lines else ""))


def start_worker(files: Mapping[str, bytes], tier: Tier | None = None, limits: Limits | None = None) -> HarnessWorker:
    """Start a worker for a candidate's tree, in the strongest tier that works here unless one is named."""
    if tier is None:
        from whale.rollout.sandbox.probe import best_tier

        tier = best_tier()
    return HarnessWorker(files, tier, limits)


def _oom_kills() -> int:
    """How many processes this machine has killed for memory since it started."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
