"""A domain: tasks, tools, a verifier and the initial harness. Nothing here is reachable from a harness."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from whale.rollout.types import Completion

Split = Literal["weight", "harness", "validation", "test"]
SPLITS: tuple[Split, ...] = ("weight", "harness", "validation", "test")

ToolFunction = Callable[..., Any]
"""Called on the host with the harness's keyword arguments; returns JSON. A ValueError's text goes back to
the harness as the tool's error; any other exception is a fault of ours. An argument that the harness passes as a
Reply arrives as a `Completion`, with the text that the model sampled."""

VERIFY_SECONDS = 30.0
"""What one verdict may take, unless the domain says otherwise."""


@dataclass(frozen=True, slots=True)
class Task:
    """One question. A harness sees `public` only."""

    id: str
    public: Mapping[str, Any]
    private: Mapping[str, Any]
    group: str = ""
    """A subset that reports break scores down by, such as "1-hop"."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """R(x, τ) and what else the verifier saw, such as {"format": 1.0}."""

    reward: float
    metrics: Mapping[str, float] = field(default_factory=dict)


class Domain(Protocol):
    """What a user brings to evolve an agent on their own problem.

    A domain may also have `preflight()`, called before a run pays for anything: it raises a WhaleError where a
    service that tools or verifier need does not answer; `verify_threads`, how many verdicts of a micro-batch
    are asked for at the same time, where `verify` waits for such a service and may be called from threads;
    `verify_seconds`, what one verdict may take (VERIFY_SECONDS by default); `references(task)`, completions that
    give the right answer, by which `whale domains check` proves that the verifier passes them; and
    `observe(task, trajectory)`, more figures of a rollout by name, recorded with it for `whale metrics` and
    `whale report`: a pure function that never raises; and `harder(task, seed)`, a new training task that is harder than
    this one of D_weight, or None where it makes none: a pure function, and its result belongs to no other split.
    A tasks phase (`schedule.tasks_patience`) asks for it where a question is passed.
    """

    name: str

    def splits(self) -> Mapping[Split, Sequence[Task]]:
        """The four disjoint splits, in a fixed order."""
        ...

    def fingerprint(self) -> str:
        """SHA-256 over all tasks and all data that tools read."""
        ...

    def h0(self) -> Mapping[str, bytes]:
        """The initial harness: path in the tree -> content."""
        ...

    def tools(self, task: Task) -> Mapping[str, ToolFunction]:
        """The tools by name, as the environment offers them for this task.

        Called once an episode, so the functions may share state, such as a game as far as it was played.
        """
        ...

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """Score a final answer. Total and deterministic: never raises, whatever the text.

        `completion.actions` are the replies that tools took before, in order. A verifier plays them again from the
        task rather than ask a tool for its state, so that a recorded rollout can be judged again.

        Where something else has to judge and does not, `VerifierFault` is raised: a fault of ours, never a
        reward of 0. The micro-batch is then not recorded, and asked for again.
        """
        ...

    def answer_in(self, task: Task, text: str) -> bool:
        """Whether a reference answer stands in this text (for fabricated answers and retrieval metrics)."""
        ...

    def leak(self, text: str) -> str | None:
        """Why this harness text smuggles a task of D_harness, validation or test, or None."""
        ...
