"""The host's side of the sandbox: one worker process per candidate, one process per episode.

The host is single-threaded and never blocks on an episode. A worker is bound to the thread that started it:
when that thread ends, the kernel ends the worker (`--die-with-parent`).
"""

import contextlib
import itertools
import os
import select
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
    START_SECONDS,
    Ended,
    EpisodeProcess,
    Exit,
    Message,
    pass_credentials,
    receive_with_pid,
)
from whale.rollout.sandbox.tiers import Tier, launch

_STOP_SECONDS = 10.0
_CONTROL_FRAME = 1 << 16
_MOST_FORKERS = 4
_CORES_A_FORKER = 4


class _Forker:
    """The host's end of a process that forks episodes: the worker's first one, or a twin of it."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.reader = frames.FrameReader(_CONTROL_FRAME)
        self.pid = 0
        control.setblocking(False)
        pass_credentials(control)


class HarnessWorker:
    """A candidate's worker. A context manager: on exit every process of it is gone.

    `files` is the candidate's tree. `forkers`: how many of its processes fork episodes, side by side; by default one
    for each four cores, at most four. Raises SandboxUnavailable if the tier is not installed, WorkerDied if the
    worker does not come up.
    """

    def __init__(
        self, files: Mapping[str, bytes], tier: Tier, limits: Limits | None = None, *, forkers: int | None = None
    ) -> None:
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
        control, remote = socket.socketpair()
        self._forkers = [_Forker(control)]
        self._starting: set[int] = set()
        self._look_at = 0.0
        """Until then, by time.monotonic(), no episode's deadline can have passed."""
        self._process: subprocess.Popen[bytes] | None = None
        try:
            with remote:
                self._start(remote)
            for _ in range((forkers or default_forkers()) - 1):
                self._start_twin()
        except BaseException:
            self.close()
            raise

    def _start(self, remote: socket.socket) -> None:
        plan = launch(self.tier, self._folder.path)
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
        first = self._forkers[0]
        self._command(
            first,
            {
                "type": "setup",
                "tree": plan.tree,
                "landlock": list(plan.landlock),
                "locked": self.tier != "none",
                "cpu_seconds": limits.cpu_seconds,
                "memory_bytes": limits.memory_bytes,
                "output_bytes": limits.output_bytes,
            },
        )
        self._await_ready(first)
        # Should the machine run out of memory, a candidate is what it takes first; twins and episodes inherit it.
        with contextlib.suppress(OSError):
            if self.pid:
                Path(f"/proc/{self.pid}/oom_score_adj").write_text("900")

    def _start_twin(self) -> None:
        control, remote = socket.socketpair()
        twin = _Forker(control)
        self._forkers.append(twin)
        with remote:
            self._command(self._forkers[0], {"type": "twin"}, [remote.fileno()])
        self._await_ready(twin)

    def _await_ready(self, forker: _Forker) -> None:
        forker.control.settimeout(START_SECONDS)
        with self._worker_errors():
            data, forker.pid = receive_with_pid(forker.control, _CONTROL_FRAME)
        forker.reader.feed(data)
        if not data or forker.reader.take() is None:
            raise self._death("did not start")
        forker.control.setblocking(False)
        self._selector.register(forker.control, selectors.EVENT_READ, forker)

    @property
    def pid(self) -> int:
        """The worker's process id as the host sees it, 0 if the kernel does not say."""
        return self._forkers[0].pid

    @property
    def pids(self) -> list[int]:
        """The same of each of its processes that fork episodes, the first one and its twins."""
        return [forker.pid for forker in self._forkers]

    @property
    def starting(self) -> int:
        """How many episodes were asked for and have not locked themselves yet."""
        return len(self._starting)

    def open_episode(self, task: Mapping[str, Any], *, seed: int, tools: Sequence[str] = ()) -> EpisodeProcess:
        """Ask the worker for an episode, and hand it the public fields of its task.

        Does not wait for the fork while few episodes are `starting`: the kernel holds some sixty such commands.
        """
        process = EpisodeProcess(next(self._numbers), self.limits)
        self._alive[process.number] = process
        self._starting.add(process.number)
        descriptors = [process.remote.fileno(), process.output.fileno()]
        self._command(self._forker_of(process), {"type": "spawn", "id": process.number}, descriptors)
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
        while self._alive and not happened and not self._unsaid and not (begun and self._begun):
            for key, events in self._selector.select(self._patience() if wait else 0.0):
                process = key.data
                if isinstance(process, _Forker):
                    happened += self._reports(process)
                elif not process.closed:
                    happened += self._move(process, events)
            now = time.monotonic()
            if now >= self._look_at:
                self._guard(now)
            if not wait:
                break
        said, self._unsaid = self._unsaid, []
        return happened + said

    def abandon(self) -> None:
        """End every episode and wait until each is reaped. Raises WorkerDied if one is not."""
        living = list(self._alive.values())
        for process in living:  # all of them before the first kill: what is reported meanwhile is then no event
            self._forget(process)
        for process in living:
            self._kill(process)
        self._unsaid.clear()
        while self._alive:
            ready = self._selector.select(_STOP_SECONDS)
            if not ready:
                raise self._death("did not reap its episodes")
            for key, _ in ready:
                self._reports(key.data)

    def close(self) -> None:
        """End the worker and every episode, and remove its files. May be called again."""
        for process in list(self._alive.values()):
            self._forget(process)
        self._alive.clear()
        self._selector.close()
        for forker in self._forkers:
            forker.control.close()
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
            self._starting.discard(process.number)
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
        self._starting.discard(process.number)
        process.close()

    def _kill(self, process: EpisodeProcess) -> None:
        if process.number in self._alive:
            self._command(self._forker_of(process), {"type": "kill", "id": process.number})

    def _forker_of(self, process: EpisodeProcess) -> _Forker:
        return self._forkers[process.number % len(self._forkers)]

    def _reports(self, forker: _Forker) -> list[Message | Ended]:
        with self._worker_errors():
            try:
                data = forker.control.recv(_CONTROL_FRAME)
            except BlockingIOError:  # what the selector saw was read meanwhile, by a command that waited for room
                return []
        if not data:
            raise self._death("ended")
        forker.reader.feed(data)
        happened: list[Message | Ended] = []
        while (body := forker.reader.take()) is not None:
            report = frames.decode(body)
            process = self._alive.pop(report["id"])
            self._starting.discard(process.number)
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

    def _patience(self) -> float:
        return max(0.0, self._look_at - time.monotonic())

    def _guard(self, now: float) -> None:
        """End the episodes whose time is up, and note when the next one's can be."""
        # One that gets the control later than now has at least this long.
        self._look_at = now + min(self.limits.wall_seconds, START_SECONDS)
        for process in list(self._alive.values()):
            if process.closed or process.verdict or not process.holds_control:
                continue
            if not process.locked and now >= process.deadline():
                raise self._death("could not start an episode")
            process.guard(now)
            if process.verdict:
                self._end(process)
            else:
                self._look_at = min(self._look_at, process.deadline())

    def _command(self, forker: _Forker, value: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        data = frames.encode(value)
        with self._worker_errors():
            while data:
                try:
                    sent = socket.send_fds(forker.control, [data], descriptors)
                except BlockingIOError:
                    # It does not read while what it reports finds no room: each would wait for the other.
                    if self._wait_for(forker) & select.POLLIN:
                        self._unsaid += self._reports(forker)
                    continue
                data, descriptors = data[sent:], ()

    @staticmethod
    def _wait_for(forker: _Forker) -> int:
        """Wait until there is something to read, or room to write: the events, as poll() counts them."""
        watched = select.poll()
        watched.register(forker.control, select.POLLIN | select.POLLOUT)
        happened = watched.poll(1000 * START_SECONDS)
        if not happened:
            raise TimeoutError(f"silent for {START_SECONDS:g} s")
        return happened[0][1]

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


def start_worker(
    files: Mapping[str, bytes],
    tier: Tier | None = None,
    limits: Limits | None = None,
    *,
    forkers: int | None = None,
) -> HarnessWorker:
    """Start a worker for a candidate's tree, in the strongest tier that works here unless one is named."""
    if tier is None:
        from whale.rollout.sandbox.probe import best_tier

        tier = best_tier()
    return HarnessWorker(files, tier, limits, forkers=forkers)


def default_forkers(beside: int = 1) -> int:
    """How many processes of a worker fork episodes on this one's cores, which `beside` workers share."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MOST_FORKERS, cores // (_CORES_A_FORKER * beside)))


def _oom_kills() -> int:
    """How many processes this machine has killed for memory since it started."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
