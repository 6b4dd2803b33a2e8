"""What `whale domains check` looks at, rule by rule. Each rule sees one domain and gives one finding."""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whale.domains.base import SPLITS, VERIFY_SECONDS, Domain, Split, Task, Verdict
from whale.domains.odd_texts import FORMS, NOISE_TEXTS, PLAIN_TEXTS
from whale.domains.source import blame
from whale.domains.watched import Watch
from whale.harness.validation import check_source
from whale.rollout.errors import VerifierFault
from whale.rollout.types import Completion, EpisodeSpec

SAMPLE = 8
"""Tasks of a split on which a rule is tried, where trying all takes long."""
REFERENCE_SECONDS = 60.0
"""After this, no further reference answer is tried."""
H0_SECONDS = 300.0
"""What h0 may take on one task of each split."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a domain must keep."""

    rule: str
    holds: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """The domain that is looked at."""

    make: Callable[[], Domain]
    domain: Domain
    splits: Mapping[Split, Sequence[Task]]
    watch: Watch
    """Told before each call of the domain that may hang."""

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """A verdict, under its time limit."""
        seconds = float(getattr(self.domain, "verify_seconds", VERIFY_SECONDS))
        self.watch(f"verify, on the task {task.id}, text {completion.sampled[:40]!r}", seconds)
        return self.domain.verify(task, completion)

    def passes(self, task: Task, completion: Completion) -> bool:
        """Whether a completion passes; one that the verifier raises on, which another rule finds, does not."""
        try:
            return self.verify(task, completion).reward >= 1
        except Exception:
            return False

    def tasks(self) -> list[Task]:
        """All tasks."""
        return [task for split in SPLITS for task in self.splits[split]]

    def sample(self) -> list[Task]:
        """Some tasks of each split."""
        return [task for split in SPLITS for task in self.splits[split][:SAMPLE]]


@dataclass(frozen=True, slots=True)
class Rule:
    """How a rule is looked at, and whether it asks the verifier."""

    look: Callable[[Subject], Finding]
    judges: bool = False


IDS = "every task has an id of its own"
JSON = "public and private fields are JSON"
DISJOINT = "no two splits share a question"
FINGERPRINT = "the fingerprint is the same each time"
TOTAL = "the verifier judges any text, the same way each time, in bounded time"
REFERENCES = "the reference answers pass the verifier"
NOISE = "noise does not pass"
HIDDEN = "no public field is the answer"
LEAKS = "a hidden question in a harness is found, a training question is not mistaken for one"
H0 = "h0 is a valid harness and quotes no hidden task"
H0_RUNS = "h0 runs on one task of each split"


def _ids_are_unique(subject: Subject) -> Finding:
    twice = [id_ for id_, count in Counter(task.id for task in subject.tasks()).items() if count > 1]
    return Finding(IDS, not twice, f"{twice[0]!r} is there twice" if twice else "")


def _tasks_are_json(subject: Subject) -> Finding:
    for task in subject.tasks():
        try:
            json.dumps([dict(task.public), dict(task.private)], allow_nan=False)
        except (TypeError, ValueError) as error:
            return Finding(JSON, False, f"task {task.id}: {error}")
    return Finding(JSON, True)


def _splits_are_disjoint(subject: Subject) -> Finding:
    owners: dict[str, tuple[Split, str]] = {}
    for split in SPLITS:
        for task in subject.splits[split]:
            content = " ".join(json.dumps(dict(task.public), sort_keys=True, default=str).split())
            other, id_ = owners.setdefault(content, (split, task.id))
            if other != split:
                return Finding(DISJOINT, False, f"{id_} of {other} and {task.id} of {split} are the same question")
    return Finding(DISJOINT, True)


def _the_fingerprint_is_stable(subject: Subject) -> Finding:
    first, second = subject.domain.fingerprint(), subject.make().fingerprint()
    detail = "" if first == second else f"made twice: {first[:12]} and {second[:12]}; a run could not be resumed"
    return Finding(FINGERPRINT, first == second, detail)


def _the_verifier_is_total(subject: Subject) -> Finding:
    for task, completion in _texts(subject, plain=True):
        where = f"task {task.id}, text {completion.sampled[:40]!r}"
        try:
            verdict, again = subject.verify(task, completion), subject.verify(task, completion)
        except VerifierFault as fault:
            return Finding(TOTAL, False, f"{where}: {fault}")
        except Exception as error:
            return Finding(TOTAL, False, f"{where}: raised, {blame(error)}")
        problem = _problem(verdict, again)
        if problem:
            return Finding(TOTAL, False, f"{where}: {problem}")
    return Finding(TOTAL, True)


def _problem(verdict: Verdict, again: Verdict) -> str:
    try:
        reward = float(verdict.reward)
        for value in verdict.metrics.values():
            float(value)
    except (TypeError, ValueError) as error:
        return f"not a number: {error}"
    if not 0 <= reward <= 1:
        return f"the reward {reward!r} is not in 0 to 1"
    return "" if verdict == again else f"another verdict the second time: {verdict} and {again}"


def _references_pass(subject: Subject) -> Finding:
    """The commonest mistake: a verifier that does not take the answer that stands in the data."""
    references = getattr(subject.domain, "references", None)
    if references is None:
        return Finding(REFERENCES, True, "not tried: the domain has no references(task)")
    tasks, tried, failing = subject.tasks(), 0, list[str]()
    until = time.monotonic() + REFERENCE_SECONDS
    for task in tasks:
        if tried and time.monotonic() > until:
            break
        tried += 1
        for completion in references(task):
            problem = _refused(subject, task, completion)
            if problem:
                shown = completion.sampled if len(completion.sampled) < 200 else f"{completion.sampled[:200]}..."
                failing.append(f"the first is {task.id}, {_excerpt(task)}: {shown!r} {problem}")
                break
    count = f"{tried} tasks" if tried == len(tasks) else f"{tried} of {len(tasks)} tasks, all that there was time for"
    return Finding(REFERENCES, not failing, f"{len(failing)} of {count} fail; {failing[0]}" if failing else count)


def _refused(subject: Subject, task: Task, completion: Completion) -> str:
    """What happens to a completion that does not pass; nothing for one that does."""
    try:
        reward = subject.verify(task, completion).reward
    except VerifierFault as fault:
        return f"has no verdict: {fault}"
    except Exception as error:
        return f"has no verdict: {blame(error)}"
    return "" if reward >= 1 else f"gets {reward:g}"


def _excerpt(task: Task) -> str:
    text = json.dumps(dict(task.public), ensure_ascii=False, default=str)
    return text if len(text) < 100 else f"{text[:100]}..."


def _noise_does_not_pass(subject: Subject) -> Finding:
    for task, completion in _texts(subject, plain=False):
        if subject.passes(task, completion):
            return Finding(NOISE, False, f"task {task.id} passes {completion.sampled[:40]!r}")
    return Finding(NOISE, True)


def _texts(subject: Subject, *, plain: bool) -> Iterator[tuple[Task, Completion]]:
    for split in SPLITS:
        task = subject.splits[split][0]
        question = json.dumps(dict(task.public), ensure_ascii=False)
        for text in (*NOISE_TEXTS, question, *(PLAIN_TEXTS if plain else ())):
            yield task, Completion("", text)
        yield task, Completion(question, "")


def _answers_are_hidden(subject: Subject) -> Finding:
    """A field that is the answer is an oversight; a question that holds it among others (a choice, a text to copy
    from) is a kind of task. So each field is tried as an answer, whole.
    """
    tasks = subject.sample()
    passed: Counter[str] = Counter()
    for task in tasks:
        for name, text in _fields(task.public):
            passed[name] += any(subject.passes(task, Completion("", form.format(text))) for form in FORMS)
    name, count = max(passed.items(), key=lambda item: item[1], default=("", 0))
    if 2 * count > len(tasks):
        return Finding(HIDDEN, False, f"{name!r}, given as the answer, passes {count} of {len(tasks)} tasks looked at")
    shown = 0
    for task in tasks:
        subject.watch(f"answer_in, on the task {task.id}", VERIFY_SECONDS)
        shown += subject.domain.answer_in(task, json.dumps(dict(task.public), ensure_ascii=False))
    detail = f"{shown} of {len(tasks)} questions looked at hold theirs, as a choice among options does" if shown else ""
    return Finding(HIDDEN, True, detail)


def _fields(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The single values of a task's public fields. A list of several is a choice, and gives nothing away."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _fields(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        if len(value) == 1:
            yield from _fields(value[0], name)
    elif value is not None:
        yield name, str(value)


def _leaks_are_found(subject: Subject) -> Finding:
    for split in SPLITS:
        for task in subject.splits[split][:SAMPLE]:
            subject.watch(f"leak, on the question of the task {task.id}", VERIFY_SECONDS)
            found = subject.domain.leak("\n".join(str(value) for value in task.public.values()))
            if (found is None) != (split == "weight"):
                what = f"taken for a leak ({found})" if found else "not found by leak()"
                return Finding(LEAKS, False, f"task {task.id} of {split} is {what}")
    return Finding(LEAKS, True)


def _h0_is_valid(subject: Subject) -> Finding:
    h0, leak = subject.domain.h0(), subject.domain.leak
    reason = check_source(h0) or next(filter(None, (leak(_text(content)) for content in h0.values())), None)
    return Finding(H0, reason is None, reason or "")


def _h0_runs(subject: Subject) -> Finding:
    """Episodes on a tiny random model: its words mean nothing, so this only shows that the code holds."""
    from whale.rollout.episodes import Limits, Sampling, run_micro_batch
    from whale.rollout.models import write_tiny_model
    from whale.rollout.sandbox.host import start_worker

    subject.watch(H0_RUNS, H0_SECONDS)
    h0 = subject.domain.h0()
    tasks = [subject.splits[split][0] for split in SPLITS]
    specs = [EpisodeSpec(task.id, 0, seed) for seed, task in enumerate(tasks)]
    with tempfile.TemporaryDirectory(prefix="whale-check-") as folder, start_worker(h0, limits=Limits()) as worker:
        import torch

        from whale.rollout.transformers_engine import TransformersEngine

        torch.set_num_threads(1)  # a fork has none of the threads that its parent may have started
        engine = TransformersEngine(write_tiny_model(Path(folder) / "model"), device="cpu", dtype="float32")
        # The model's own context is short; its rotary positions go on beyond it.
        engine.context_length = 1 << 16
        by_id = {task.id: task for task in tasks}
        sampling = Sampling(max_generated_tokens=64, max_tokens_per_turn=16)
        done: Sequence[Any] = run_micro_batch(
            engine, engine.chat, h0, by_id, specs, subject.domain, sampling, worker.limits, worker
        )
    bad = [t for t in done if t.status not in ("ok", "token_limit", "turn_limit")]
    detail = f"task {bad[0].task_id}: {bad[0].status}: {bad[0].reason}" if bad else ""
    return Finding(H0_RUNS, not bad, detail)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


RULES: Mapping[str, Rule] = {
    IDS: Rule(_ids_are_unique),
    JSON: Rule(_tasks_are_json),
    DISJOINT: Rule(_splits_are_disjoint),
    FINGERPRINT: Rule(_the_fingerprint_is_stable),
    TOTAL: Rule(_the_verifier_is_total, judges=True),
    REFERENCES: Rule(_references_pass, judges=True),
    NOISE: Rule(_noise_does_not_pass, judges=True),
    HIDDEN: Rule(_answers_are_hidden, judges=True),
    LEAKS: Rule(_leaks_are_found),
    H0: Rule(_h0_is_valid),
    H0_RUNS: Rule(_h0_runs, judges=True),
}
"""In the order in which they are looked at."""
