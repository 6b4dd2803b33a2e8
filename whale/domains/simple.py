"""A domain from a list of questions and answers: what most tasks of one's own need, in a few lines.

    def create(options):
        return qa_domain("weekdays", rows(), options)

See docs/domains/own.md.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.resources import files
from typing import Any

from whale.domains.base import SPLITS, VERIFY_SECONDS, Split, Task, ToolFunction, Verdict
from whale.domains.comparison import COMPARISONS, question_form
from whale.domains.draws import digest
from whale.domains.question_leak import QuestionLeak, one_spaced
from whale.domains.searchqa.verifier import answer_span
from whale.domains.source import blame, code_facts, traceback_of
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
VERSION = 1
"""Part of the fingerprint: of the rules by which answers are read and compared."""
ROW_KEYS = frozenset({"group", "key", "split"})
EXAMPLES = 2
"""Worked examples of the default harness, from D_weight."""
MAX_ANSWER = 10_000
"""Characters of an answer; a longer span is none."""


def qa_domain(
    name: str,
    rows: Iterable[Row],
    options: Mapping[str, Any] | None = None,
    *,
    verify: VerifyRow | None = None,
    compare: str = "plain",
    threshold: float = 1.0,
    verify_seconds: float = VERIFY_SECONDS,
    instruction: str = "Answer the question. Write the answer as <answer>...</answer>.",
    h0: Mapping[str, bytes] | None = None,
    tools: Mapping[str, ToolFunction] | None = None,
) -> "SimpleDomain":
    """Make a domain of rows.

    Rows are split by their key, so that no question is in two splits. `options` may cap a split
    (weight, harness, validation, test) by a whole number. Without `verify`, an answer is right if it equals one
    of the row's under `compare`: "plain" (case, white space, quotes around it and a final full stop aside) or
    "squad" (words alone: no accents, articles, signs or punctuation). A reward of at least `threshold` counts as
    passed (1), a lower one as not (0); the reward itself is kept as the metric "score". A verdict that takes more
    than `verify_seconds` stops a run. `h0` is a harness tree; without one, a harness shows `instruction`, two
    examples from D_weight, and the question. `tools` are functions by name, called on the host with keyword arguments.

    Raises UsageError, in one line, for rows that cannot make a domain.
    """
    split_rows = _split(name, list(rows))
    for key, size in (options or {}).items():
        if key not in SPLITS:
            raise UsageError(f"{name}: unknown option {key!r}; known: {', '.join(SPLITS)}")
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise UsageError(f"{name}: {key} must be a whole number above 0, not {size!r}")
    if not isinstance(threshold, int | float) or not 0 < threshold <= 1:
        raise UsageError(f"{name}: threshold must be above 0 and at most 1, not {threshold!r}")
    if not isinstance(verify_seconds, int | float) or not 0 < verify_seconds < float("inf"):
        raise UsageError(f"{name}: verify_seconds must be a number above 0, not {verify_seconds!r}")
    if compare not in COMPARISONS:
        raise UsageError(f"{name}: compare must be {' or '.join(COMPARISONS)}, not {compare!r}")
    tasks = {split: tuple(map(_task, split_rows[split])) for split in SPLITS}
    limits = options or {}
    return SimpleDomain(
        name=name,
        tasks={split: tasks[split][: limits.get(split)] for split in SPLITS},
        whole=tasks,
        verify_row=verify,
        threshold=threshold,
        compare=compare,
        verify_seconds=verify_seconds,
        code=code_facts([verify, *(tool for _, tool in sorted((tools or {}).items()))]),
        harness=h0 or default_harness(instruction, split_rows["weight"][:EXAMPLES]),
        tool_functions=dict(tools or {}),
    )


@dataclass
class SimpleDomain:
    """What `qa_domain` makes."""

    name: str
    tasks: Mapping[Split, Sequence[Task]]
    whole: Mapping[Split, Sequence[Task]]
    """The splits uncapped: what no harness may quote goes beyond a cap."""
    verify_row: VerifyRow | None
    threshold: float
    harness: Mapping[str, bytes]
    tool_functions: Mapping[str, ToolFunction] = field(default_factory=dict)
    compare: str = "plain"
    verify_seconds: float = VERIFY_SECONDS
    code: Sequence[Any] = ()
    """What decides the verifier's and the tools' doing, as it was when they were loaded; see `code_facts`."""

    def splits(self) -> Mapping[Split, Sequence[Task]]:
        """The four splits."""
        return self.tasks

    def fingerprint(self) -> str:
        """SHA-256 over the tasks, how answers are compared, and the source of the verifier's and tools' modules."""
        content = {
            "name": self.name,
            "threshold": self.threshold,
            "compare": [self.compare, VERSION],
            "code": self.code,
            "tools": sorted(self.tool_functions),
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
        span = answer_span(completion)
        named = "score" if self.verify_row else "contained"
        if span is None or not span.strip() or len(span) > MAX_ANSWER:
            return Verdict(0.0, {"format": 0.0, named: 0.0})
        if self.verify_row is not None:
            score = self._score(self.verify_row, task, span.strip())
            return Verdict(float(score >= self.threshold), {"format": 1.0, "score": score})
        comparison, answers = COMPARISONS[self.compare], answers_of(task.private)
        given = comparison.form(span)
        right = bool(given) and any(given == comparison.form(answer) for answer in answers)
        contained = right or comparison.contains(answers, span)
        return Verdict(float(right), {"format": 1.0, "contained": float(contained)})

    def _score(self, verify: VerifyRow, task: Task, text: str) -> float:
        try:
            score = float(verify({**task.public, **task.private}, text))
        except Exception as error:
            fault = VerifierFault(f"{self.name}: verify raised on the task {task.id}, {blame(error)}")
            raise fault.with_details(traceback_of(error)) from error
        if not 0 <= score <= 1:
            raise VerifierFault(f"{self.name}: verify returned {score!r} on the task {task.id}: give 0 to 1")
        return score

    def references(self, task: Task) -> Sequence[Completion]:
        """Each right answer as a model would give it."""
        return [Completion("", f"<answer>{answer}</answer>") for answer in answers_of(task.private)]

    def answer_in(self, task: Task, text: str) -> bool:
        """Whether an answer stands in the text as a term of its own."""
        return COMPARISONS[self.compare].contains(answers_of(task.private), text)

    @cached_property
    def _leak_check(self) -> QuestionLeak:
        return QuestionLeak(self.whole)

    def leak(self, text: str) -> str | None:
        """Whether a question of D_harness, validation or test stands in the text; see `QuestionLeak`."""
        return self._leak_check(text)


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
    seen: set[str] = set()
    for number, row in enumerate(rows, start=1):
        _check(name, number, row)
        question = one_spaced(row["question"])
        if question in seen:
            raise UsageError(f"{name}: row {number}: the question is there twice: {row['question'][:80]!r}")
        seen.add(question)
    keys = sorted({_key(row) for row in rows if "split" not in row}, key=lambda key: digest(name, "key", key))
    owner: dict[str, Split] = {}
    start = 0.0
    for split in SPLITS:
        end = start + SHARES[split]
        owner |= dict.fromkeys(keys[round(start * len(keys)) : round(end * len(keys))], split)
        start = end
    result: dict[Split, list[Row]] = {split: [] for split in SPLITS}
    for row in sorted(rows, key=lambda row: digest(name, "row", one_spaced(row["question"]))):
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
    # Without a key of their own, questions that differ in case or punctuation alone share a split.
    return str(row["key"]) if "key" in row else question_form(row["question"])


def _task(row: Row) -> Task:
    private = {key: value for key, value in row.items() if key != "question" and key not in ROW_KEYS}
    id_ = f"{digest('task', one_spaced(row['question'])) % 16**10:010x}"
    return Task(id_, {"question": row["question"]}, private, str(row.get("group", "")))
