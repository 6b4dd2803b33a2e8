"""SearchQA as a domain: splits, the search tool, the verifier, h0, and the control that measures guessing."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from importlib.resources import files
from typing import Any

from whale.domains.base import SPLITS, Domain, Split, Task, ToolFunction, Verdict
from whale.domains.searchqa import retrieval, splits, verifier
from whale.domains.searchqa.facts import load_facts
from whale.domains.searchqa.figures import retrieval_figures
from whale.domains.searchqa.leak import LeakCheck
from whale.domains.searchqa.normalisation import normalise
from whale.domains.searchqa.questions import Question, write_questions
from whale.domains.tree import read_tree
from whale.errors import UsageError
from whale.rollout.types import Completion, Trajectory

VERIFIER_VERSION = "searchqa-exact-1"
"""Part of the fingerprint: other rules of comparison are another domain."""
_CONTROL_TRIES = 20


@dataclass(frozen=True, slots=True)
class SearchQAOptions:
    """What a config may say about the domain. Sizes cap a split by a seeded choice; None keeps all of it."""

    weight: int | None = None
    harness: int | None = None
    validation: int | None = None
    test: int | None = None
    two_hop_share: float | None = None
    """Share of two-hop questions in each split; None keeps what a random draw gives (about 0.44)."""
    seed: int = 0
    """Of the choice and the order inside a split; which entity is in which split is fixed."""
    control: bool = False
    """Every search returns passages for another question, so that what still passes was guessed."""

    def __post_init__(self) -> None:
        """Reject what no data set can satisfy; raises UsageError."""
        for split in SPLITS:
            size = getattr(self, split)
            if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
                raise UsageError(f"searchqa: {split} must be a whole number of at least 1, not {size!r}")
        share = self.two_hop_share
        number = isinstance(share, (int, float)) and not isinstance(share, bool)
        if share is not None and not (number and 0 <= share <= 1):
            raise UsageError(f"searchqa: two_hop_share must be between 0 and 1, not {share!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise UsageError(f"searchqa: seed must be a whole number, not {self.seed!r}")
        if not isinstance(self.control, bool):
            raise UsageError(f"searchqa: control must be true or false, not {self.control!r}")

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> "SearchQAOptions":
        """From a config table; raises UsageError that names an unknown key and the known ones."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise UsageError(f"searchqa: unknown option {unknown[0]!r}; known: {', '.join(known)}")
        return cls(**options)


class SearchQADomain:
    """Question answering over a small encyclopedia of countries, cities and chemical elements."""

    name = "searchqa"

    def __init__(self, options: SearchQAOptions | None = None) -> None:
        self.options = options or SearchQAOptions()
        questions = write_questions(load_facts())
        self._assigned = splits.assign(questions)
        self._questions: dict[str, Question] = {question.id: question for question in questions}
        self._splits: dict[Split, tuple[Task, ...]] = {}
        for split in SPLITS:
            chosen = splits.cap(
                self._assigned[split],
                getattr(self.options, split),
                self.options.two_hop_share,
                self.options.seed,
                split,
            )
            if not chosen:
                raise UsageError(f"searchqa: these options leave no question in the {split} split")
            self._splits[split] = tuple(_task(question) for question in chosen)

    def splits(self) -> Mapping[Split, Sequence[Task]]:
        """The four splits; no two share a subject, an answer or the country or element asked about."""
        return self._splits

    @cached_property
    def _fingerprint(self) -> str:
        content = {
            "verifier": VERIFIER_VERSION,
            "control": self.options.control,
            "passages": [[passage.title, passage.text] for passage in retrieval.encyclopedia()],
            "splits": {split: [asdict(task) for task in tasks] for split, tasks in sorted(self._splits.items())},
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def fingerprint(self) -> str:
        """SHA-256 over tasks, passages, the control switch and the version of the verifier's rules."""
        return self._fingerprint

    def h0(self) -> Mapping[str, bytes]:
        """The initial harness: the query forwarded unchanged, one passage, two assistant turns."""
        return read_tree(files("whale.domains.searchqa").joinpath("h0"))

    def tools(self, task: Task) -> Mapping[str, ToolFunction]:
        """`search(query, k=1)`: a list of {"title", "text"}, at most five, best first."""
        find = self._search_other(task) if self.options.control else _search
        return {"search": find}

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """Exact match of the answer span in normal form; see `verifier.verify`."""
        return verifier.verify(task.private["answers"], completion)

    def references(self, task: Task) -> Sequence[Completion]:
        """Each right answer in its tag."""
        return [Completion("", f"<answer>{answer}</answer>") for answer in task.private["answers"]]

    def answer_in(self, task: Task, text: str) -> bool:
        """Whether an answer stands in the text at word borders; see `verifier.contains`."""
        return verifier.contains(task.private["answers"], text)

    def observe(self, task: Task, trajectory: Trajectory) -> Mapping[str, float]:
        """Whether the answer was retrieved, and if so, whether it was extracted."""
        return retrieval_figures(self, task, trajectory)

    @cached_property
    def _leak_check(self) -> LeakCheck:
        # Of the whole splits, capped or not: a harness outlives a run's caps.
        hidden: list[tuple[Split, Question]] = [
            (split, question) for split in SPLITS if split != "weight" for question in self._assigned[split]
        ]
        return LeakCheck(hidden)

    def leak(self, text: str) -> str | None:
        """Why this text smuggles a hidden question or fact, or None; see `LeakCheck`."""
        return self._leak_check(text)

    def _search_other(self, task: Task) -> ToolFunction:
        """The control: rank by another task's question, and never show a passage that holds the answer."""
        split = next(s for s, tasks in self._splits.items() if any(t.id == task.id for t in tasks))
        others = self._assigned[split]
        entity = self._questions[task.id].entity

        def search(query: str, k: int = 1) -> list[dict[str, str]]:
            query, k = retrieval.check_arguments(query, k)
            for attempt in range(_CONTROL_TRIES):
                draw = splits.draw("control", task.id, normalise(query), attempt)
                other = others[int.from_bytes(draw[:8], "big") % len(others)]
                if other.entity == entity:
                    continue
                passages = retrieval.encyclopedia_index().search(other.text, k)
                if not any(self.answer_in(task, f"{p.title}. {p.text}") for p in passages):
                    return [{"title": p.title, "text": p.text} for p in passages]
            return []

        return search


def _search(query: str, k: int = 1) -> list[dict[str, str]]:
    query, k = retrieval.check_arguments(query, k)
    passages = retrieval.encyclopedia_index().search(query, k)
    return [{"title": passage.title, "text": passage.text} for passage in passages]


def _task(question: Question) -> Task:
    private = {
        "answers": list(question.answers),
        "subject": question.subject,
        "entity": question.entity,
        "relation": question.relation,
    }
    return Task(question.id, {"question": question.text}, private, question.group)


def create(options: Mapping[str, Any]) -> Domain:
    """The registry's factory; `size` is "embedded" (the default) or "paper".

    Raises UsageError for options that are unknown or out of range.
    """
    given = dict(options)
    size = given.pop("size", "embedded")
    if size == "paper":
        from whale.domains.searchqa.paper.domain import PaperOptions, PaperSearchQA

        return PaperSearchQA(PaperOptions.parse(given))
    if size != "embedded":
        raise UsageError(f"searchqa: size must be embedded or paper, not {size!r}")
    return SearchQADomain(SearchQAOptions.parse(given))
