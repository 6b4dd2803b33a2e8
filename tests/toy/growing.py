"""The toy domain with tasks that everyone passes, and harder ones to take their places."""

from collections.abc import Mapping
from typing import Any

from tests.toy.domain import ToyDomain
from whale.domains.base import Task, Verdict
from whale.rollout.types import Completion


class GrowingDomain(ToyDomain):
    def verify(self, task: Task, completion: Completion) -> Verdict:
        return Verdict(1.0, {})

    def harder(self, task: Task, seed: int) -> Task | None:
        return Task(
            f"{task.id}+{seed % 97}", {"question": f"{task.public['question']} and {seed}"}, task.private, "harder"
        )


def create(options: Mapping[str, Any]) -> GrowingDomain:
    return GrowingDomain(options)
