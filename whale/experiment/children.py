"""Carry out cells as child processes, several at a time: `whale run` for a new one, `whale resume` for a begun one.

There is no second way to run: a child does what a user would do by hand, and an experiment only starts, watches and
stops children. One that fails does not stop the others.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from whale.config import to_builtins
from whale.errors import WhaleError
from whale.experiment.cells import CellView, look_at

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_ANOTHER_RUNNER = 2.0
"""Seconds between looks at a run that another process carries through."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How the child of a cell ended."""

    view: CellView
    failure: str = ""
    """Its last words, if it failed."""


class Children:
    """The processes of one experiment. A first stop lets them reach a safe point, a second one does not wait."""

    def __init__(
        self, runs: Path, jobs: int, tell: Callable[[str], None], collect: bool = False, gpus: Sequence[str] = ()
    ) -> None:
        """`collect`: each run that is done is followed by `whale gc --drop-optimizers`.

        `gpus`: names for CUDA_VISIBLE_DEVICES. With several, the lines of runs are dealt over them, and a run sees
        that of its line alone; one that takes several (ranks, replicas) sees them all.
        """
        self.runs = runs
        self.jobs = jobs
        self.tell = tell
        self.collect = collect
        self.gpus = tuple(gpus)
        self.stops = 0
        self._stopping = asyncio.Event()
        self._alive: set[asyncio.subprocess.Process] = set()

    async def carry_out(self, views: Sequence[CellView]) -> list[Ended]:
        """Run all of them that are not done, in their order, `jobs` at a time; returns those that were begun."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        try:
            waiting = iter([view for view in views if view.standing != "done"])
            lines = [self._line(waiting, number) for number in range(self.jobs)]
            return [ended for line in await asyncio.gather(*lines) for ended in line]
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Ask all children to stop at a safe point; asked again, at once (nothing that is recorded is lost)."""
        self.stops += 1
        self._stopping.set()
        if self._alive:
            how = "at the next safe point; Ctrl-C again: at once" if self.stops == 1 else "at once"
            self.tell(f"stopping {len(self._alive)} run{'s' if len(self._alive) > 1 else ''} {how}")
        for child in self._alive:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGTERM if self.stops == 1 else signal.SIGINT)

    async def _line(self, waiting: Iterator[CellView], number: int) -> list[Ended]:
        ended = []
        for view in waiting:
            if self._stopping.is_set():
                break
            ended.append(await self._carry(view, self._gpu(view, number)))
        return ended

    def _gpu(self, view: CellView, line: int) -> str:
        """The one that the run is to see; "" for all."""
        config = view.cell.config
        if len(self.gpus) < 2 or max(config.weights.ranks, config.engine.replicas) > 1:
            return ""
        return self.gpus[line % len(self.gpus)]

    async def _carry(self, view: CellView, gpu: str) -> Ended:
        name, log = view.cell.name, self.runs / f"{view.cell.name}.log"
        try:
            free = await self._free(view)
            now = look_at(view.cell, self.runs)  # another process may have brought it further
            if not free or now.standing == "done":
                return Ended(now)
            begun = now.standing != "to do"
            where = f" on GPU {gpu}" if gpu else ""
            self.tell(f"{name}: {'goes on' if begun else 'starts'}{where}, its output is in {log}")
            if begun:
                code = await self._child(["resume", name], log, gpu)
            else:
                config = tomli_w.dumps(to_builtins(view.cell.config)).encode()
                code = await self._child(["run", "/dev/stdin", "--name", name], log, gpu, config)
            now = look_at(view.cell, self.runs)
            if (
                self.collect
                and now.standing == "done"
                and await self._child(["gc", name, "--drop-optimizers"], log, "")
            ):
                self.tell(f"{name}: `whale gc` failed: {last_words(log)}")  # its results are none the worse
        except WhaleError as error:
            self.tell(f"{name}: FAILED: {error}")
            return Ended(view, str(error))
        if code == 0 or self._stopping.is_set():
            self.tell(f"{name}: {'done' if now.standing == 'done' else 'stopped'}")
            return Ended(now)
        if code < 0:
            failure = f"it was killed by {signal.Signals(-code).name}"
        else:
            failure = last_words(log) or f"it ended with code {code}"
        self.tell(f"{name}: FAILED: {failure}")
        return Ended(now, failure)

    async def _free(self, view: CellView) -> bool:
        """Wait until no other process carries this run through, such as a child of an experiment that was killed."""
        told = False
        while (holder := view.folder.runner_pid()) and not self._stopping.is_set():
            if not told:
                self.tell(f"{view.cell.name}: process {holder} runs it; waiting for that one to end")
                told = True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _ANOTHER_RUNNER)
        return not self._stopping.is_set()

    async def _child(self, words: Sequence[str], log: Path, gpu: str, given: bytes = b"") -> int:
        parent = os.getpid()
        sees = {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}

        def die_with_the_experiment() -> None:
            # A killed experiment leaves no process behind that nobody knows of: its children stop at a safe point.
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

        with log.open("ab") as output:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "whale", *words,
                stdin=asyncio.subprocess.PIPE, stdout=output, stderr=output,
                env={**os.environ, **sees, "WHALE_RUNS": str(self.runs.resolve())},
                start_new_session=True,  # a terminal's Ctrl-C reaches the experiment alone
                preexec_fn=die_with_the_experiment,
            )  # fmt: skip
        self._alive.add(child)
        if self._stopping.is_set():  # it was asked for while the child started
            child.terminate()
        try:
            await child.communicate(given)
        finally:
            self._alive.discard(child)
        assert child.returncode is not None
        return child.returncode


def last_words(log: Path) -> str:
    """The last line that a child wrote before it ended; "" if there is none."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    said = [line for line in lines if line.strip()]
    return said[-1].removeprefix("whale: ") if said else ""
