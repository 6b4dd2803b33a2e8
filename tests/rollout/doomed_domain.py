"""The toy domain, whose verifier fails on the task that the option `doomed` names."""

from collections.abc import Mapping
from typing import Any

from tests.toy.domain import ToyDomain
from whale.domains.base import Task, Verdict
from whale.rollout.errors import VerifierFault
from whale.rollout.types import Completion


class DoomedDomain(ToyDomain):
    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.doomed = options["doomed"]

    def verify(self, task: Task, completion: Completion) -> Verdict:
        if task.id == self.doomed == "weight-1":
            raise VerifierFault("the judge is away")
        if task.id == self.doomed:
            raise KeyError("a fault of ours")
        return super().verify(task, completion)


def create(options: Mapping[str, Any]) -> DoomedDomain:
    return DoomedDomain(options)
