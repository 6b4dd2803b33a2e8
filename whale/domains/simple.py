"""A domain from a list of questions and answers: what most tasks of one's own need, in a few lines.

    def create(options):
        return qa_domain("weekdays", rows(), options)

See docs/domains/own.md.
"""

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.resources import files
from typing import Any

from whale.domains.base import SPLITS, Split, Task, ToolFunction, Verdict
from whale.domains.draws import digest
from whale.domains.searchqa.normalisation import normalise
from whale.domains.searchqa.verifier import answer_span, contains
from whale.domains.searchqa.verifier import verify as exact_answer
from whale.domains.tree import read_tree
from whale.errors import UsageError
from whale.rollout.errors import VerifierFault
from whale.rollout.types import Completion

Row = Mapping[str, Any]
"""One task: "question", "answer" (a string or several), and whatever else the verifier wants to see. Optional:
"group" (a subset that reports break scores down by), "key" (rows with an equal key share a split, such as the
thing that they are about), "split" (for data that is split already)."""
VerifyRow = Callable[[Row, str], float | bool]
"""(row, the text inside the last `<answer>` tag that the model sampled) -> reward in [0, 1]."""
SHARES: Mapping[Split, float] = {"weight": 0.5, "harness": 0.15, "validation": 0.15, "test": 0.2}
ROW_KEYS = frozenset({"group", "key", "split"})
EXAMPLES = 2
"""Worked examples of the default harness, from D_weight."""


def qa_domain(
    name: str,
    rows: Iterable[Row],
    options: Mapping[str, Any] | None = None,
    *,
    verify: VerifyRow | None = None,
    threshold: float = 1.0,
    instruction: str = "Answer the question. Write the answer as <answer>...</answer>.",
    h0: Mapping[str, bytes] | None = None,
    tools: Mapping[str, ToolFunction] | None = None,
) -> "SimpleDomain":
    """Make a domain of rows.

    Rows are split by their key, so that no question is in two splits. `options` may cap a split
    (weight, harness, validation, test) by a whole number. Without `verify`, an answer is right if it equals one
    of the row's in normal form (case, accents, articles and punctuation aside). A reward of at least `threshold`
    counts as passed (1), a lower one as not (0); the reward itself is kept as the metric "score". `h0` is a
    harness tree; without one, a harness shows `instruction`, two examples from D_weight, and the question.
    `tools` are functions by name, called on the host with keyword arguments.

    Raises UsageError, in one line, for rows that cannot make a domain.
    """
    split_rows = _split(name, list(rows))
    for key, size in (options or {}).items():
        if key not in SPLITS:
            raise UsageError(f"{name}: unknown option {key!r}; known: {', '.join(SPLITS)}")
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise UsageError(f"{name}: {key} must be a whole number above 0, not {size!r}")
    if not 0 < threshold <= 1:
        raise UsageError(f"{name}: threshold must be above 0 and at most 1, not {threshold!r}")
    tasks = {split: tuple(map(_task, split_rows[split])) for split in SPLITS}
    limits = options or {}
    return SimpleDomain(
        name=name,
        tasks={split: tasks[split][: limits.get(split)] for split in SPLITS},
        hidden={split: tasks[split] for split in SPLITS if split != "weight"},
        verify_row=verify,
        threshold=threshold,
        harness=h0 or default_harness(instruction, split_rows["weight"][:EXAMPLES]),
        tool_functions=dict(tools or {}),
    )


@dataclass
class SimpleDomain:
    """What `qa_domain` makes."""

    name: str
    tasks: Mapping[Split, Sequence[Task]]
    hidden: Mapping[Split, Sequence[Task]]
    """The whole splits that no harness may quote, uncapped."""
    verify_row: VerifyRow | None
    threshold: float
    harness: Mapping[str, bytes]
    tool_functions: Mapping[str, ToolFunction] = field(default_factory=dict)

    def splits(self) -> Mapping[Split, Sequence[Task]]:
        """The four splits."""
        return self.tasks

    def fingerprint(self) -> str:
        """SHA-256 over the tasks, and the source of verifier and tools where Python can show it."""
        content = {
            "name": self.name,
            "threshold": self.threshold,
            "code": [_source(self.verify_row), *(_source(tool) for _, tool in sorted(self.tool_functions.items()))],
            "splits": {split: [asdict(task) for task in tasks] for split, tasks in sorted(self.tasks.items())},
        }
        text = json.dumps(content, sort_keys=True, ensure_ascii=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()

    def h0(self) -> Mapping[str, bytes]:
        """The initial harness."""
        return self.harness

    def tools(self, task: Task) -> Mapping[str, ToolFunction]:
        """The same tools for every task."""
        return self.tool_functions

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """Judge the last `<answer>...</answer>`. Raises VerifierFault where the row's own verifier is broken."""
        answers = answers_of(task.private)
        verdict = exact_answer(answers, completion)
        if self.verify_row is None:
            return verdict
        span = answer_span(completion)
        if span is None or not verdict.metrics["format"]:
            return Verdict(0.0, {"format": 0.0, "score": 0.0})
        try:
            score = float(self.verify_row({**task.public, **task.private}, span.strip()))
        except Exception as error:
            raise VerifierFault(f"{self.name}: verify raised {error!r} on the task {task.id}") from error
        if not 0 <= score <= 1:
            raise VerifierFault(f"{self.name}: verify returned {score!r} on the task {task.id}: give 0 to 1")
        return Verdict(float(score >= self.threshold), {"format": 1.0, "score": score})

    def answer_in(self, task: Task, text: str) -> bool:
        """Whether an answer stands in the text at word borders."""
        return contains(answers_of(task.private), text)

    @cached_property
    def _questions(self) -> list[tuple[Split, str, str]]:
        return [(s, task.id, f" {normalise(task.public['question'])} ") for s in self.hidden for task in self.hidden[s]]

    def leak(self, text: str) -> str | None:
        """Whether a question of D_harness, validation or test stands in the text."""
        plain = f" {normalise(text)} "
        for split, id_, question in self._questions:
            if question in plain:
                return f"it contains a question of the {split} split ({id_})"
        return None


def answers_of(row: Row) -> list[str]:
    """The right answers of a row."""
    answer = row["answer"]
    return [answer] if isinstance(answer, str) else list(answer)


def default_harness(instruction: str, examples: Sequence[Row]) -> dict[str, bytes]:
    """One turn: the instruction, worked examples, the question."""
    shown = [
        [
            {"role": "user", "content": row["question"]},
            {"role": "assistant", "content": f"<answer>{answers_of(row)[0]}</answer>"},
        ]
        for row in examples
    ]
    return {
        **read_tree(files("whale.domains").joinpath("h0")),
        "prompts/system.md": (instruction.strip() + "\n").encode(),
        "examples.json": (json.dumps(shown, indent=2, ensure_ascii=False) + "\n").encode(),
    }


def _split(name: str, rows: list[Row]) -> dict[Split, list[Row]]:
    """Each row's split: its own, or by its key, in shares of the keys."""
    seen: dict[str, Split | None] = {}
    for number, row in enumerate(rows, start=1):
        _check(name, number, row)
        question = normalise(row["question"])
        if question in seen:
            raise UsageError(f"{name}: row {number}: the question is there twice: {row['question'][:80]!r}")
        seen[question] = row.get("split")
    keys = sorted({_key(row) for row in rows if "split" not in row}, key=lambda key: digest(name, "key", key))
    owner: dict[str, Split] = {}
    start = 0.0
    for split in SPLITS:
        end = start + SHARES[split]
        owner |= dict.fromkeys(keys[round(start * len(keys)) : round(end * len(keys))], split)
        start = end
    result: dict[Split, list[Row]] = {split: [] for split in SPLITS}
    for row in sorted(rows, key=lambda row: digest(name, "row", normalise(row["question"]))):
        result[row["split"] if "split" in row else owner[_key(row)]].append(row)
    for split in SPLITS:
        if not result[split]:
            raise UsageError(f"{name}: no row is left for the {split} split; there are {len(rows)} rows in all")
    return result


def _check(name: str, number: int, row: Row) -> None:
    if not isinstance(row, Mapping) or not isinstance(row.get("question"), str) or not row["question"].strip():
        raise UsageError(f'{name}: row {number} has no "question"')
    answer = row.get("answer")
    answers = [answer] if isinstance(answer, str) else answer
    if not isinstance(answers, list | tuple) or not answers or not all(isinstance(a, str) and a for a in answers):
        raise UsageError(f'{name}: row {number}: "answer" must be a text or several')
    if "split" in row and row["split"] not in SPLITS:
        raise UsageError(f"{name}: row {number}: split must be one of {', '.join(SPLITS)}, not {row['split']!r}")


def _key(row: Row) -> str:
    return str(row["key"]) if "key" in row else normalise(row["question"])


def _task(row: Row) -> Task:
    private = {key: value for key, value in row.items() if key != "question" and key not in ROW_KEYS}
    id_ = f"{digest('task', normalise(row['question'])) % 16**10:010x}"
    return Task(id_, {"question": row["question"]}, private, str(row.get("group", "")))


def _source(function: Callable[..., Any] | None) -> str:
    try:
        return inspect.getsource(function) if function is not None else ""
    except (OSError, TypeError):
        return repr(getattr(function, "__qualname__", type(function)))
