r"""Math as a domain: splits, the Python tool, the `\\boxed{}` verifier and h0."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from importlib.resources import files
from typing import Any, Literal

from whale.domains.base import SPLITS, Split, Task, ToolFunction, Verdict
from whale.domains.math import baselines
from whale.domains.math.leak import LeakCheck
from whale.domains.math.problems import NotEnoughProblems, Problem, draw_harder, draw_problems
from whale.domains.math.python_tool import PythonTool, with_budget
from whale.domains.math.verifier import (
    VERIFIERS,
    Equivalence,
    VerifierName,
    contains_answer,
    verify_equivalent,
    verify_strict,
)
from whale.domains.tree import read_tree
from whale.errors import UsageError
from whale.rollout.types import Completion

VERSION = "math-1"
"""Part of the fingerprint: other rules of verification, or another tool, are another domain."""
LEVELS = (1, 2, 3, 4)
SIZES: Mapping[str, Mapping[Split, int | None]] = {
    "embedded": {"weight": 1000, "harness": 128, "validation": 256, "test": 256},
    "paper": {"weight": None, "harness": 256, "validation": 256, "test": None},
}


@dataclass(frozen=True, slots=True)
class MathOptions:
    """What a config may say about the domain."""

    size: Literal["embedded", "paper"] = "embedded"
    verifier: VerifierName = "strict"
    levels: tuple[int, ...] = (1, 2)
    """Steps of the generated problems; each split has as many of each level."""
    weight: int | None = None
    """Sizes of the splits. None: 1,000, 128, 256 and 256 generated problems; or all problems of the paper's
    training set that 256 each for harness and validation leave, and both test sets."""
    harness: int | None = None
    validation: int | None = None
    test: int | None = None
    """With size = "paper": of each test set."""
    train: str = ""
    """With size = "paper": another place of the training problems than the hub, a file or folder."""
    aime24: str = ""
    aime25: str = ""
    seed: int = 0
    """Of the choice inside a split; which problem belongs to which split is fixed."""
    allow_unsandboxed: bool = False
    """Run the Python tool without a sandbox where this machine has none."""

    def __post_init__(self) -> None:
        """Reject what cannot be; raises UsageError."""
        if self.size not in ("embedded", "paper"):
            raise UsageError(f"math: size must be embedded or paper, not {self.size!r}")
        if self.verifier not in VERIFIERS:
            raise UsageError(f"math: verifier must be {' or '.join(VERIFIERS)}, not {self.verifier!r}")
        for name in SPLITS:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise UsageError(f"math: {name} must be a whole number above 0, not {value!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise UsageError(f"math: seed must be a whole number, not {self.seed!r}")
        for source in ("train", "aime24", "aime25"):
            if not isinstance(getattr(self, source), str):
                raise UsageError(f"math: {source} must be a file, a folder or a data set's name")
            if getattr(self, source) and self.size == "embedded":
                raise UsageError(f"math: {source} belongs to size = 'paper'")
        if not self.levels or any(type(level) is not int or level not in LEVELS for level in self.levels):
            raise UsageError(f"math: levels must be some of {list(LEVELS)}, not {list(self.levels)}")
        if len(set(self.levels)) < len(self.levels):
            raise UsageError(f"math: levels names one twice: {list(self.levels)}")
        if not isinstance(self.allow_unsandboxed, bool):
            raise UsageError(f"math: allow_unsandboxed must be true or false, not {self.allow_unsandboxed!r}")

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> "MathOptions":
        """From a config table; raises UsageError that names an unknown key and the known ones."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise UsageError(f"math: unknown option {unknown[0]!r}; known: {', '.join(known)}")
        given = dict(options)
        if "levels" in given:
            if not isinstance(given["levels"], list | tuple):
                raise UsageError(f"math: levels must be a list such as [1, 2], not {given['levels']!r}")
            given["levels"] = tuple(given["levels"])
        return cls(**given)

    def sizes(self) -> dict[Split, int | None]:
        """How many tasks each split gets; None keeps all there are."""
        given: dict[Split, int | None] = {split: getattr(self, split) for split in SPLITS}
        return {split: SIZES[self.size][split] if size is None else size for split, size in given.items()}


class MathDomain:
    """Word problems of one to four steps, or competition problems, with Python at hand."""

    name = "math"

    def __init__(self, options: MathOptions, tasks: Mapping[Split, Sequence[Task]]) -> None:
        self.options = options
        self._splits = {split: tuple(tasks[split]) for split in SPLITS}
        self._python = PythonTool(allow_unsandboxed=options.allow_unsandboxed)
        self._equivalence: Equivalence | None = None
        if options.verifier == "math-verify":
            from whale.domains.math.equivalence import MathVerify

            self._equivalence = MathVerify()

    def splits(self) -> Mapping[Split, Sequence[Task]]:
        """The four splits; no problem is in two of them."""
        return self._splits

    @cached_property
    def _fingerprint(self) -> str:
        content = {
            "version": VERSION,
            "verifier": self.options.verifier,
            "splits": {split: [asdict(task) for task in tasks] for split, tasks in sorted(self._splits.items())},
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def fingerprint(self) -> str:
        """SHA-256 over tasks, the verifier's name and the version of its rules."""
        return self._fingerprint

    def h0(self) -> Mapping[str, bytes]:
        """The initial harness: one turn, no tool; two worked examples for the generated problems."""
        package = "whale.domains.math" if self.options.size == "embedded" else "whale.domains.math.paper"
        return read_tree(files(package).joinpath("h0"))

    def tools(self, task: Task) -> Mapping[str, ToolFunction]:
        """`python(code)`: {"output", "error"} of a program in the sandbox; see `PythonTool`."""
        return {"python": with_budget(self._python)}

    def verify(self, task: Task, completion: Completion) -> Verdict:
        r"""Judge what the model put into `\\boxed{}`; see `verifier`."""
        answer = task.private["answer"]
        if self._equivalence is None:
            return verify_strict(answer, completion)
        return verify_equivalent(answer, completion, self._equivalence)

    def references(self, task: Task) -> Sequence[Completion]:
        """The right answer in its box."""
        return [Completion("", f"\\boxed{{{task.private['answer']}}}")]

    def answer_in(self, task: Task, text: str) -> bool:
        """Whether the answer stands in the text as a number of its own; see `verifier.contains_answer`."""
        return contains_answer(task.private["answer"], text)

    def harder(self, task: Task, seed: int) -> Task | None:
        """A generated problem of D_weight with one more step; None for one of four steps or of a data set."""
        steps = len(task.private.get("solution", ()))
        problem = draw_harder(steps, seed) if steps else None
        return None if problem is None else _task(problem)

    def no_skill(self, split: Split) -> Mapping[str, float]:
        """Success of rules that read no problem, by name, over a whole split of generated problems."""
        tasks = self._splits[split]
        found = {"the most frequent answer of D_weight": baselines.majority_answer(self._splits["weight"], tasks)}
        if all("numbers" in task.private for task in tasks):
            found["a random operation on two of the numbers"] = baselines.random_operation(tasks)
            found["random operations on all numbers"] = baselines.random_chain(tasks)
        return found

    @cached_property
    def _leak_check(self) -> LeakCheck:
        return LeakCheck((split, task) for split in SPLITS if split != "weight" for task in self._splits[split])

    def leak(self, text: str) -> str | None:
        """Why this text smuggles a hidden problem, or None; see `LeakCheck`."""
        return self._leak_check(text)


def embedded_tasks(options: MathOptions) -> dict[Split, tuple[Task, ...]]:
    """The generated problems as tasks. Raises UsageError where a split is asked for more than there are."""
    sizes = options.sizes()
    try:
        return {
            split: tuple(map(_task, draw_problems(split, sizes[split] or 0, options.levels, options.seed)))
            for split in SPLITS
        }
    except NotEnoughProblems as error:
        raise UsageError(f"math: {error}; ask for fewer, or for more levels") from None


def paper_tasks(options: MathOptions) -> dict[Split, tuple[Task, ...]]:
    """The paper's data sets as tasks. Raises UsageError or WhaleError where one is not there."""
    from whale.domains.math.paper.data import TESTS, TRAIN, load_tasks

    tests = {name: getattr(options, name) or source for name, (source, _) in TESTS.items()}
    return load_tasks(options.train or TRAIN, tests, options.sizes(), options.seed)


def _task(problem: Problem) -> Task:
    private = {
        "answer": str(problem.answer),
        "template": problem.template,
        "numbers": list(problem.numbers),
        "solution": list(problem.solution),
    }
    return Task(problem.id, {"question": problem.text}, private, problem.group)


def create(options: Mapping[str, Any]) -> MathDomain:
    """The registry's factory; raises UsageError for options that are unknown or out of range."""
    parsed = MathOptions.parse(options)
    return MathDomain(parsed, embedded_tasks(parsed) if parsed.size == "embedded" else paper_tasks(parsed))
