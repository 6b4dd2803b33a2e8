"""`python kill_at.py POINT NTH ARGS...`: run `whale ARGS` and die of SIGKILL at the NTH passage of POINT.

Points: "rollout" (a model call in the middle of a micro-batch), "artifact" and "checkpoint" (written, not yet
renamed), "train" (in the middle of a step), "git" (before a git command), "append" (before an event is
written), "appended" (after it). "vllm" is "rollout" on the other engine.
"""

import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

POINTS = {
    "rollout": ("whale.rollout.transformers_engine", "TransformersSession", "generate", "before"),
    "artifact": ("pathlib", "Path", "replace", "before"),
    "checkpoint": ("whale.weights.checkpoints", "CheckpointStore", "_put", "before"),
    "train": ("whale.weights.trainer", "Trainer", "_gradient", "before"),
    "git": ("whale.harness_repo.cleanroom", "CleanGit", "run", "before"),
    "append": ("whale.events.sqlite", "SqliteLog", "append", "before"),
    "appended": ("whale.events.sqlite", "SqliteLog", "append", "after"),
}
VLLM = {"vllm": ("whale.rollout.vllm_engine", "VllmSession", "advance", "before")}


def deadly(method: Callable[..., Any], nth: int, when: str) -> Callable[..., Any]:
    passages = 0

    @functools.wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal passages
        passages += 1
        if passages == nth and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = method(*args, **kwargs)
        if passages == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return wrapper


if __name__ == "__main__":
    import importlib

    point, nth, *arguments = sys.argv[1:]
    module_name, class_name, method_name, when = {**POINTS, **VLLM}[point]
    owner = getattr(importlib.import_module(module_name), class_name)
    setattr(owner, method_name, deadly(getattr(owner, method_name), int(nth), when))
    from whale.cli.__main__ import main

    main(arguments)
