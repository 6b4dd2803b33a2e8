"""Prove that a domain keeps its contract, before a run is paid for.

Every check is one finding: what was looked at, whether it holds, and what to do where it does not.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whale.domains.base import SPLITS, Domain, Split, Task, Verdict
from whale.harness.validation import check_source
from whale.rollout.types import Completion, EpisodeSpec

SAMPLE = 8
"""Tasks of a split on which the verifier and h0 are tried."""
SECONDS = 10.0
"""What one verdict may take."""
MEGABYTE = 1_000_000
_NOISE = (
    "",
    " \n\t",
    "I do not know.",
    "\x00\ud800\u202e\N{COMBINING ACUTE ACCENT}",
    "<answer>" * 999,
    "</answer>" * 999,
    "<answer></answer>",
    "<answer><answer>x</answer></answer>",
    "\\boxed{" * 999,
    "\\boxed{}" * 999,
    "٤٢ ４２ ½ 50% 1,000 1e400 NaN -inf",
    "0" * MEGABYTE,
    "<" * MEGABYTE,
    "{" * MEGABYTE,
    " ".join("abcdefg") * (MEGABYTE // 13),
)


_PLAIN = tuple(
    form.format(text)
    for text in ("1000", "-1", "0.5", "nan", "inf", "x", "Paris")
    for form in ("<answer>{}</answer>", "\\boxed{{{}}}")
)
"""Answers as a model gives them, right or wrong: what they score may not leave 0 to 1."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a domain must keep."""

    rule: str
    holds: bool
    detail: str = ""


IDS = "every task has an id of its own"
JSON = "public and private fields are JSON"
DISJOINT = "no two splits share a question"
FINGERPRINT = "the fingerprint is the same each time"
HIDDEN = "the public fields do not give the answers away"
TOTAL = "the verifier judges any text, the same way each time, in bounded time"
NOISE = "noise does not pass"
LEAKS = "a hidden question in a harness is found, a training question is not mistaken for one"
H0 = "h0 is a valid harness and quotes no hidden task"
H0_RUNS = "h0 runs on one task of each split"


def check_domain(make: Callable[[], Domain], *, run_h0: bool = True) -> Iterator[Finding]:
    """Yield a finding per rule. `make` makes the domain anew each time: two of them must agree.

    `run_h0=False` leaves out the last rule, which needs torch and a sandbox.
    """
    domain = make()
    splits = domain.splits()
    yield _splits_are_there(splits)
    if any(not splits.get(split) for split in SPLITS):
        return
    rules: list[tuple[str, Callable[[], Finding]]] = [
        (IDS, lambda: _ids_are_unique(splits)),
        (JSON, lambda: _tasks_are_json(splits)),
        (DISJOINT, lambda: _splits_are_disjoint(splits)),
        (FINGERPRINT, lambda: _the_fingerprint_is_stable(domain, make())),
        (HIDDEN, lambda: _questions_hide_their_answers(domain, splits)),
        (TOTAL, lambda: _the_verifier_is_total(domain, splits)),
        (NOISE, lambda: _noise_does_not_pass(domain, splits)),
        (LEAKS, lambda: _leaks_are_found(domain, splits)),
        (H0, lambda: _h0_is_valid(domain)),
    ]
    if run_h0:
        rules.append((H0_RUNS, lambda: _h0_runs(domain, splits)))
    for rule, look in rules:
        try:
            yield look()
        except Exception as error:  # the domain's own code, whatever it does
            yield Finding(rule, False, f"raised {error!r}"[:300])


def _splits_are_there(splits: Mapping[Split, Sequence[Task]]) -> Finding:
    empty = [split for split in SPLITS if not splits.get(split)]
    sizes = ", ".join(f"{split} {len(splits[split])}" for split in SPLITS if splits.get(split))
    return Finding("four splits with tasks", not empty, f"no task in {', '.join(empty)}" if empty else sizes)


def _ids_are_unique(splits: Mapping[Split, Sequence[Task]]) -> Finding:
    seen: set[str] = set()
    for split in SPLITS:
        for task in splits[split]:
            if task.id in seen:
                return Finding(IDS, False, f"{task.id!r} is there twice")
            seen.add(task.id)
    return Finding(IDS, True)


def _tasks_are_json(splits: Mapping[Split, Sequence[Task]]) -> Finding:
    for task in _all(splits):
        try:
            json.dumps([dict(task.public), dict(task.private)], allow_nan=False)
        except (TypeError, ValueError) as error:
            return Finding(JSON, False, f"task {task.id}: {error}")
    return Finding(JSON, True)


def _splits_are_disjoint(splits: Mapping[Split, Sequence[Task]]) -> Finding:
    owners: dict[str, tuple[Split, str]] = {}
    for split in SPLITS:
        for task in splits[split]:
            content = " ".join(json.dumps(dict(task.public), sort_keys=True, default=str).casefold().split())
            other, id_ = owners.setdefault(content, (split, task.id))
            if other != split:
                return Finding(DISJOINT, False, f"{id_} of {other} and {task.id} of {split} are the same question")
    return Finding(DISJOINT, True)


def _the_fingerprint_is_stable(domain: Domain, again: Domain) -> Finding:
    first, second = domain.fingerprint(), again.fingerprint()
    detail = "" if first == second else f"made twice: {first[:12]} and {second[:12]}; a run could not be resumed"
    return Finding(FINGERPRINT, first == second, detail)


def _questions_hide_their_answers(domain: Domain, splits: Mapping[Split, Sequence[Task]]) -> Finding:
    tasks = list(_all(splits))
    shown = sum(domain.answer_in(task, json.dumps(dict(task.public), ensure_ascii=False)) for task in tasks)
    # A choice among options shows its answer rightly, so only a domain where all do is taken for an oversight.
    return Finding(
        HIDDEN,
        shown < len(tasks),
        f"the answer stands in {shown} of {len(tasks)} questions",
    )


def _the_verifier_is_total(domain: Domain, splits: Mapping[Split, Sequence[Task]]) -> Finding:
    for task, completion in _texts(splits, plain=True):
        started = time.monotonic()
        try:
            verdict, again = domain.verify(task, completion), domain.verify(task, completion)
        except Exception as error:
            return Finding(TOTAL, False, f"task {task.id}, text {completion.sampled[:40]!r}: raised {error!r}")
        seconds = time.monotonic() - started
        problem = _problem(verdict, again)
        if seconds > 2 * SECONDS:
            problem = f"took {seconds / 2:.0f} s"
        if problem:
            return Finding(TOTAL, False, f"task {task.id}, text {completion.sampled[:40]!r}: {problem}")
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


def _noise_does_not_pass(domain: Domain, splits: Mapping[Split, Sequence[Task]]) -> Finding:
    for task, completion in _texts(splits, plain=False):
        if domain.verify(task, completion).reward >= 1:
            return Finding(NOISE, False, f"task {task.id} passes {completion.sampled[:40]!r}")
    return Finding(NOISE, True)


def _texts(splits: Mapping[Split, Sequence[Task]], *, plain: bool) -> Iterator[tuple[Task, Completion]]:
    for split in SPLITS:
        task = splits[split][0]
        question = json.dumps(dict(task.public), ensure_ascii=False)
        for text in (*_NOISE, question, *(_PLAIN if plain else ())):
            yield task, Completion("", text)
        yield task, Completion(question, "")


def _leaks_are_found(domain: Domain, splits: Mapping[Split, Sequence[Task]]) -> Finding:
    for split in SPLITS:
        for task in splits[split][:SAMPLE]:
            found = domain.leak("\n".join(str(value) for value in task.public.values()))
            if (found is None) != (split == "weight"):
                what = f"taken for a leak ({found})" if found else "not found by leak()"
                return Finding(LEAKS, False, f"task {task.id} of {split} is {what}")
    return Finding(LEAKS, True)


def _h0_is_valid(domain: Domain) -> Finding:
    h0 = domain.h0()
    reason = check_source(h0) or next(filter(None, (domain.leak(_text(content)) for content in h0.values())), None)
    return Finding(H0, reason is None, reason or "")


def _h0_runs(domain: Domain, splits: Mapping[Split, Sequence[Task]]) -> Finding:
    """Episodes on a tiny random model: its words mean nothing, so this only shows that the code holds."""
    from whale.rollout.episodes import Limits, Sampling, run_micro_batch
    from whale.rollout.models import write_tiny_model
    from whale.rollout.sandbox.host import start_worker

    h0 = domain.h0()
    tasks = [splits[split][0] for split in SPLITS]
    specs = [EpisodeSpec(task.id, 0, seed) for seed, task in enumerate(tasks)]
    with tempfile.TemporaryDirectory(prefix="whale-check-") as folder, start_worker(h0, limits=Limits()) as worker:
        from whale.rollout.transformers_engine import TransformersEngine

        engine = TransformersEngine(write_tiny_model(Path(folder) / "model"), device="cpu", dtype="float32")
        # The model's own context is short; its rotary positions go on beyond it.
        engine.context_length = 1 << 16
        by_id = {task.id: task for task in tasks}
        sampling = Sampling(max_generated_tokens=64, max_tokens_per_turn=16)
        done: Sequence[Any] = run_micro_batch(
            engine, engine.chat, h0, by_id, specs, domain, sampling, worker.limits, worker
        )
    bad = [t for t in done if t.status not in ("ok", "token_limit", "turn_limit")]
    detail = f"task {bad[0].task_id}: {bad[0].status}: {bad[0].reason}" if bad else ""
    return Finding(H0_RUNS, not bad, detail)


def _all(splits: Mapping[Split, Sequence[Task]]) -> Iterator[Task]:
    return (task for split in SPLITS for task in splits[split])


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")
