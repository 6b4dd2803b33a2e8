"""SearchQA at the paper's size as a domain: data from the hub or local files, retrieval, judge."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from importlib.resources import files
from typing import Any, Literal

from whale.domains.base import SPLITS, Split, Task, ToolFunction, Verdict
from whale.domains.judge.judge import Judge
from whale.domains.judge.options import JudgeOptions
from whale.domains.places import place
from whale.domains.searchqa import retrieval
from whale.domains.searchqa.figures import retrieval_figures
from whale.domains.searchqa.normalisation import normalise
from whale.domains.searchqa.paper.corpus import Corpus
from whale.domains.searchqa.paper.data import SOURCE, TEST_SETS, load_tasks
from whale.domains.searchqa.paper.dense import ENCODER, DenseRetriever
from whale.domains.searchqa.paper.retrievers import Bm25Retriever, RemoteRetriever, Retriever
from whale.domains.searchqa.verifier import answer_span, contains
from whale.domains.searchqa.verifier import verify as exact_answer
from whale.domains.tree import read_tree
from whale.errors import UsageError
from whale.rollout.types import Completion, Trajectory

VERSION = "searchqa-paper-1"
RETRIEVALS = ("bm25", "dense", "remote")


@dataclass(frozen=True, slots=True)
class PaperOptions:
    """What a config may say with size = "paper"."""

    source: str = SOURCE
    """The questions: a data set of the hub, or a folder that holds it."""
    test_sets: tuple[str, ...] = TEST_SETS
    weight: int | None = None
    """None keeps all questions that the other splits leave; the paper has 18,946."""
    harness: int = 256
    validation: int = 512
    test: int | None = None
    """At most so many questions of each test set; None keeps all."""
    seed: int = 0
    retrieval: Literal["bm25", "dense", "remote"] = "remote"
    url: str = ""
    """Of the retrieval service."""
    timeout: float = 30.0
    """Seconds for one attempt at the service."""
    retries: int = 5
    corpus: str = ""
    """JSON lines, for bm25 and dense."""
    index: str = ""
    """The FAISS file, for dense."""
    encoder: str = ENCODER
    device: str = "cpu"
    """Where the encoder runs."""
    judge: JudgeOptions | None = None
    """Without one, an answer is right if it equals a reference in normal form."""

    def __post_init__(self) -> None:
        """Reject what cannot work; raises UsageError."""
        for split in SPLITS:
            size = getattr(self, split)
            if (size is None and split in ("weight", "test")) or (
                isinstance(size, int) and not isinstance(size, bool) and size > 0
            ):
                continue
            raise UsageError(f"searchqa: {split} must be a whole number above 0, not {size!r}")
        for name in ("source", "url", "corpus", "index", "encoder", "device"):
            if not isinstance(getattr(self, name), str):
                raise UsageError(f"searchqa: {name} must be a text, not {getattr(self, name)!r}")
        for name in ("source", "encoder", "device"):
            if not getattr(self, name).strip():
                raise UsageError(f"searchqa: {name} is empty; leave it out for the default")
        for name, least in (("seed", None), ("retries", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
                raise UsageError(f"searchqa: {name} must be a whole number, not {value!r}")
        seconds = self.timeout
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
            raise UsageError(f"searchqa: timeout must be a number of seconds above 0, not {seconds!r}")
        if self.retrieval not in RETRIEVALS:
            raise UsageError(f"searchqa: retrieval must be {', '.join(RETRIEVALS)}, not {self.retrieval!r}")
        needed = {"remote": ("url",), "bm25": ("corpus",), "dense": ("corpus", "index")}[self.retrieval]
        for option in needed:
            if not getattr(self, option).strip():
                raise UsageError(f"searchqa: retrieval = {self.retrieval!r} needs {option}")
        if not self.test_sets or any(name not in TEST_SETS for name in self.test_sets):
            raise UsageError(f"searchqa: test_sets must be some of {', '.join(TEST_SETS)}, not {list(self.test_sets)}")
        if len(set(self.test_sets)) < len(self.test_sets):
            raise UsageError(f"searchqa: test_sets names one twice: {list(self.test_sets)}")

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> "PaperOptions":
        """From a config table; raises UsageError that names an unknown key and the known ones."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise UsageError(f"searchqa: unknown option {unknown[0]!r} with size = 'paper'; known: {', '.join(known)}")
        given = dict(options)
        if "judge" in given:
            given["judge"] = JudgeOptions.parse(given["judge"])
        if "test_sets" in given:
            if not isinstance(given["test_sets"], list | tuple):
                raise UsageError(f"searchqa: test_sets must be a list, not {given['test_sets']!r}")
            given["test_sets"] = tuple(given["test_sets"])
        return cls(**given)


class PaperSearchQA:
    """Open-domain question answering over Wikipedia."""

    name = "searchqa"

    def __init__(self, options: PaperOptions, retriever: Retriever | None = None, judge: Judge | None = None) -> None:
        self.options = options
        self._retriever = retriever or make_retriever(options)
        self._judge = judge or (Judge(options.judge) if options.judge else None)
        sizes: dict[Split, int | None] = {split: getattr(options, split) for split in SPLITS}
        self._splits = load_tasks(options.source, options.test_sets, sizes, options.seed)

    @property
    def verify_threads(self) -> int:
        """Verdicts of a micro-batch that are asked for at the same time."""
        return self.options.judge.threads if self.options.judge else 1

    def splits(self) -> Mapping[Split, Sequence[Task]]:
        """The four splits; no question is in two of them."""
        return self._splits

    @cached_property
    def _fingerprint(self) -> str:
        content = {
            "version": VERSION,
            "retrieval": self._retriever.fingerprint(),
            "judge": self._judge.identity if self._judge else None,
            "splits": {split: [asdict(task) for task in tasks] for split, tasks in sorted(self._splits.items())},
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def fingerprint(self) -> str:
        """SHA-256 over the tasks, the retriever's name and the judge's rubric and model."""
        return self._fingerprint

    def preflight(self) -> None:
        """Try retrieval and judge once each. Raises a WhaleError, in one line, where one does not work."""
        self._retriever.preflight()
        if self._judge:
            self._judge.preflight()

    def h0(self) -> Mapping[str, bytes]:
        """The initial harness: the query forwarded unchanged, one passage, two assistant turns, no example."""
        return read_tree(files("whale.domains.searchqa.paper").joinpath("h0"))

    def tools(self, task: Task) -> Mapping[str, ToolFunction]:
        """`search(query, k=1)`: a list of {"title", "text"}, at most five, best first."""

        def search(query: str, k: int = 1) -> list[dict[str, str]]:
            query, k = retrieval.check_arguments(query, k)
            return [{"title": p.title, "text": p.text} for p in self._retriever.search(query, k)]

        return {"search": search}

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """The answer tag, then the judge; what equals a reference in normal form passes without it.

        Metrics: "format"; "exact"; of judged answers "judge_input_tokens" and "judge_output_tokens" (what the
        verdict cost when it was asked for, cached or not), and "judge_unclear".
        """
        answers = task.private["answers"]
        exact = exact_answer(answers, completion)
        metrics = {"format": exact.metrics["format"], "exact": exact.reward}
        if self._judge is None or exact.reward or not metrics["format"]:
            return Verdict(exact.reward, metrics)
        given = (answer_span(completion) or "").strip()
        found = self._judge.judge(task.public["question"], answers, given)
        metrics |= {
            "judge_input_tokens": float(found.input_tokens),
            "judge_output_tokens": float(found.output_tokens),
            "judge_unclear": float(found.unclear),
        }
        return Verdict(float(found.correct), metrics)

    def references(self, task: Task) -> Sequence[Completion]:
        """Each right answer in its tag; none of them needs the judge."""
        return [Completion("", f"<answer>{answer}</answer>") for answer in task.private["answers"]]

    def answer_in(self, task: Task, text: str) -> bool:
        """Whether an answer stands in the text at word borders."""
        return contains(task.private["answers"], text)

    def observe(self, task: Task, trajectory: Trajectory) -> Mapping[str, float]:
        """Whether the answer was retrieved, and if so, whether it was extracted."""
        return retrieval_figures(self, task, trajectory)

    @cached_property
    def _hidden(self) -> list[tuple[Split, str, str]]:
        return [
            (split, task.id, f" {normalise(task.public['question'])} ")
            for split in SPLITS
            if split != "weight"
            for task in self._splits[split]
        ]

    def leak(self, text: str) -> str | None:
        """Whether a question of D_harness, validation or test stands in the text."""
        plain = f" {normalise(text)} "
        for split, id_, question in self._hidden:
            if question in plain:
                return f"it contains a question of the {split} split ({id_})"
        return None


def make_retriever(options: PaperOptions) -> Retriever:
    """The retriever that the options name. Raises UsageError for what is missing."""
    if options.retrieval == "remote":
        return RemoteRetriever(options.url, timeout=options.timeout, retries=options.retries)
    corpus = Corpus(place(options.corpus, "searchqa: corpus"))
    if options.retrieval == "bm25":
        return Bm25Retriever(corpus)
    return DenseRetriever(corpus, place(options.index, "searchqa: index"), options.encoder, options.device)
