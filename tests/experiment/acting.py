"""The toy domain, which does something to its own process or to the experiment once, in the middle of a run."""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whale.domains.base import Task, Verdict
from whale.rollout.types import Completion, Trajectory

sys.path.insert(0, str(Path(__file__).parents[2]))  # a run is a process of its own, which knows no tests
from tests.toy.domain import ToyDomain

AFTER = 10
"""Rollouts before it happens: in the first training step."""


class ActingDomain(ToyDomain):
    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.act = str(options.get("act", ""))
        self.marker = Path(str(options.get("marker", "")))
        self.verdicts = self.observed = 0
        if self.act == "tell the GPU":
            self.marker.write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """In the verifier's own process."""
        self.verdicts += 1
        if self.act == "fail" and self.verdicts > AFTER and not self.marker.exists():
            self.marker.touch()
            raise RuntimeError("the verifier broke")
        return super().verify(task, completion)

    def observe(self, task: Task, trajectory: Trajectory) -> Mapping[str, float]:
        """In the run's process. As SearchQA does it: the second figure only where the first is 1."""
        self.observed += 1
        if self.act not in ("", "fail", "tell the GPU") and self.observed == AFTER and not self.marker.exists():
            self.marker.touch()
            process = os.getppid() if self.act.endswith("experiment") else os.getpid()
            os.kill(process, signal.SIGINT if self.act.startswith("interrupt") else signal.SIGKILL)
        bearing = float(len(trajectory.task_id) % 2)
        return {"answer_bearing": bearing} | ({"extraction": trajectory.reward} if bearing else {})


def create(options: Mapping[str, Any]) -> ActingDomain:
    return ActingDomain(options)
