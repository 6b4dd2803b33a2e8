"""The tool `python(code)`: one program in the sandbox that harnesses run in, with limits of its own."""

import weakref
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from whale.domains.tree import read_tree
from whale.rollout.errors import RolloutFault
from whale.rollout.sandbox.host import HarnessWorker, start_worker
from whale.rollout.sandbox.limits import MIB, Limits
from whale.rollout.sandbox.probe import best_tier
from whale.rollout.sandbox.process import Ended, Message, clean

LIMITS = Limits(
    cpu_seconds=2,
    memory_bytes=256 * MIB,
    output_bytes=64 << 10,
    message_bytes=64 << 10,
    traffic_bytes=128 << 10,
    wall_seconds=20.0,
)
MAX_CODE = 8000
"""Characters of a program."""
MAX_CALLS = 8
"""Programs that one episode may run."""
_SEED = 0
_REASONS = {
    "cpu_limit": f"TimeoutError: more than {LIMITS.cpu_seconds} seconds",
    "wall_limit": f"TimeoutError: more than {LIMITS.cpu_seconds} seconds",
    "memory_limit": "MemoryError",
    "output_limit": "OutputError: too much output",
}


class PythonTool:
    """Runs programs. One sandboxed worker serves all calls; it starts with the first and ends with this object.

    Every program is a process of its own: nothing is carried from one to the next. The standard library is
    there; files, network and processes are not. The same code gives the same result: clock, hash seed and
    `random` are fixed.
    """

    def __init__(self, *, allow_unsandboxed: bool = False) -> None:
        self._allow_unsandboxed = allow_unsandboxed
        self._worker: HarnessWorker | None = None

    def run(self, code: object) -> dict[str, str]:
        """{"output": what it printed, "error": the exception's last line or ""}.

        Raises ValueError for what is no program, with a text that a harness may see; RolloutFault and
        SandboxUnavailable where the machine is at fault.
        """
        if not isinstance(code, str) or not code.strip():
            raise ValueError("python: code must be a non-empty string")
        if len(code) > MAX_CODE:
            raise ValueError(f"python: code must have at most {MAX_CODE} characters")
        worker = self._running()
        try:
            return _run(worker, code)
        except BaseException:
            # Whatever state it is in, the next call starts a fresh one.
            self.close()
            raise

    def close(self) -> None:
        """End the worker. The next call starts another one."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _running(self) -> HarnessWorker:
        if self._worker is None:
            tier = best_tier(allow_unsandboxed=self._allow_unsandboxed)
            tree = read_tree(files("whale.domains.math").joinpath("interpreter"))
            self._worker = start_worker(tree, tier, LIMITS, forkers=1)
            weakref.finalize(self, self._worker.close)
        return self._worker


def _run(worker: HarnessWorker, code: str) -> dict[str, str]:
    process = worker.open_episode({"code": code}, seed=_SEED, tools=["report"])
    try:
        happened = worker.poll()
        if not happened:
            raise RolloutFault("the sandbox lost sight of a program of the python tool")
        event = happened[0]
        if isinstance(event, Ended):
            return {"output": "", "error": _REASONS.get(event.status, f"the program ended: {event.status}")}
        return _reported(event)
    finally:
        worker.finish(process)
        worker.abandon()


def _reported(event: Message) -> dict[str, str]:
    """What the program's process said; the program may have forged it, which gains it nothing."""
    try:
        arguments: Mapping[str, Any] = event.value["requests"][0]["arguments"]
        output, error = arguments["output"], arguments["error"]
    except (KeyError, IndexError, TypeError):
        return {"output": "", "error": f"the program ended: {clean(str(event.value.get('reason', '')))}"}
    return {"output": clean(str(output)), "error": clean(str(error))}


def with_budget(tool: PythonTool, calls: int = MAX_CALLS) -> Any:
    """`python(code)` for one episode, which may call it so many times."""
    made = 0

    def python(code: str) -> dict[str, str]:
        nonlocal made
        made += 1
        if made > calls:
            raise ValueError(f"python: at most {calls} programs in an episode")
        return tool.run(code)

    return python
