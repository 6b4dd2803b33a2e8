"""The toy domain with tasks that everyone passes, and harder ones to take their places."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whale.domains.base import Task, Verdict
from whale.rollout.types import Completion

sys.path.insert(0, str(Path(__file__).parents[2]))  # a run is a process of its own, which knows no tests
from tests.toy.domain import ToyDomain


class GrowingDomain(ToyDomain):
    def verify(self, task: Task, completion: Completion) -> Verdict:
        return Verdict(1.0, {})

    def harder(self, task: Task, seed: int) -> Task | None:
        return Task(
            f"{task.id}+{seed % 97}", {"question": f"{task.public['question']} and {seed}"}, task.private, "harder"
        )


def create(options: Mapping[str, Any]) -> GrowingDomain:
    return GrowingDomain(options)
