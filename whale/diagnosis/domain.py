"""A domain for a probe: training tasks only. Validation and test of the real one are never read.

Its options name the real domain and its options, a folder with the harness to begin with, and how many tasks.
D_weight is cut in two: one part is trained on, the other, which the probe calls validation, measures.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from whale.alternation.units import derive_seed
from whale.domains.base import Domain, Split, Task, ToolFunction, Verdict
from whale.domains.registry import load_domain
from whale.errors import UsageError
from whale.rollout.types import Completion
from whale.search.tree import digest

LEAST = 8
"""Tasks of D_weight below which nothing can be measured."""


class ProbeDomain:
    """The real domain's tools, verifier and leak check on some of its training tasks."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.real: Domain = load_domain(options["domain"], options["options"])
        self.name = self.real.name
        self._options = dict(options)

    @cached_property
    def _splits(self) -> Mapping[Split, Sequence[Task]]:
        real, seed = self.real.splits(), self._options["seed"]
        training = sorted(real["weight"], key=lambda task: derive_seed(seed, "diagnose", task.id))
        if len(training) < LEAST:
            raise UsageError(
                f"domain {self.name}: {len(training)} tasks in D_weight, a probe needs at least {LEAST} of them"
            )
        measured = min(int(self._options["measure"]), len(training) // 2)
        searched = sorted(real["harness"], key=lambda task: derive_seed(seed, "diagnose", task.id))
        held = training[:measured]
        return {
            "weight": training[measured:],
            "harness": searched[: int(self._options["harness_tasks"])],
            "validation": held,
            "test": held[:1],  # never read: a probe has no test
        }

    def splits(self) -> Mapping[Split, Sequence[Task]]:
        """Parts of D_weight and D_harness."""
        return self._splits

    def fingerprint(self) -> str:
        """That of the real data, with what was chosen of it."""
        text = json.dumps([self.real.fingerprint(), self._options, digest(self.h0())], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def h0(self) -> Mapping[str, bytes]:
        """The harness to begin with."""
        folder = self._options.get("harness")
        if not folder:
            return self.real.h0()
        place = Path(folder)
        return {p.relative_to(place).as_posix(): p.read_bytes() for p in sorted(place.rglob("*")) if p.is_file()}

    def tools(self, task: Task) -> Mapping[str, ToolFunction]:
        """The real ones."""
        return self.real.tools(task)

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """The real verdict."""
        return self.real.verify(task, completion)

    def answer_in(self, task: Task, text: str) -> bool:
        """The real check."""
        return self.real.answer_in(task, text)

    def leak(self, text: str) -> str | None:
        """The real check, which covers the real D_harness, validation and test."""
        return self.real.leak(text)

    def __getattr__(self, name: str) -> Any:
        # What a domain may have besides: preflight, observe, verify_threads.
        if name.startswith("_") or name == "real":
            raise AttributeError(name)
        return getattr(self.real, name)


def create(options: Mapping[str, Any]) -> ProbeDomain:
    """The registry's factory."""
    return ProbeDomain(options)
