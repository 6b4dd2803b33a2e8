"""Competition problems as tasks, from the columns that the hub's data sets have for them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from whale.domains.base import Split, Task
from whale.domains.draws import digest
from whale.domains.math.boxed import boxed_answer
from whale.domains.rows import load_rows
from whale.errors import UsageError
from whale.rollout.types import Completion

TRAIN = "BytedTsinghua-SIA/DAPO-Math-17k"
TESTS: Mapping[str, tuple[str, str]] = {"aime24": ("math-ai/aime24", "test"), "aime25": ("math-ai/aime25", "test")}
"""Test set -> its data set and split on the hub."""
HELD_OUT: tuple[Split, ...] = ("harness", "validation")
_PROBLEM = ("problem", "Problem", "question", "Question", "prompt")
_ANSWER = ("answer", "Answer")
_WRAPPED = re.compile(r"Solve the following math problem step by step\..*?\n\n(.*)\n\nRemember to put .*\Z", re.DOTALL)


def load_tasks(
    train: str, tests: Mapping[str, str], sizes: Mapping[Split, int | None], seed: int
) -> dict[Split, tuple[Task, ...]]:
    """The four splits; `tests` names a source for each test set. `sizes["test"]` caps each of them.

    Repeated problems count once; one that comes with different answers, or that stands in a test set, is left
    out of training. D_harness and validation are cut from the training problems by their text alone. Raises
    UsageError where a source has no problems, or too few.
    """
    test_rows = {name: _problems(load_rows(source, _split_of(name)), source) for name, source in tests.items()}
    test = [
        _task(f"{name}-{digest(text) % 16**10:010x}", text, answer, name)
        for name, problems in test_rows.items()
        for text, answer in list(problems.values())[: sizes["test"]]
    ]
    hidden = {key for problems in test_rows.values() for key in problems}
    training = {key: pair for key, pair in _problems(load_rows(train, "train"), train).items() if key not in hidden}
    order = sorted(training, key=lambda key: digest("held out", key))
    result: dict[Split, tuple[Task, ...]] = {"test": tuple(test)}
    start = 0
    for split in HELD_OUT:
        size = sizes[split] or 0
        result[split] = _tasks(split, order[start : start + size], training)
        start += size
    rest = sorted(order[start:], key=lambda key: digest(seed, "weight", key))
    result["weight"] = _tasks("weight", rest[: sizes["weight"]], training)
    for split, tasks in result.items():
        if not tasks:
            raise UsageError(f"math: {train} leaves no problem for {split}: it has {len(training)} to train on")
    return result


def _split_of(name: str) -> str:
    return TESTS[name][1]


def _problems(rows: Iterable[Mapping[str, Any]], source: str) -> dict[str, tuple[str, str]]:
    """Text in normal form -> (problem, answer)."""
    found: dict[str, tuple[str, str]] = {}
    clashing: set[str] = set()
    for row in rows:
        text, answer = problem_of(row), answer_of(row)
        if not text or not answer:
            continue
        key = " ".join(text.split()).casefold()
        if found.setdefault(key, (text, answer))[1] != answer:
            clashing.add(key)
    if not found:
        raise UsageError(
            f"math: {source} has no problems: looked for the columns {', '.join(_PROBLEM)} and answer, "
            "reward_model.ground_truth or solution"
        )
    return {key: pair for key, pair in found.items() if key not in clashing}


def problem_of(row: Mapping[str, Any]) -> str:
    """The problem's text, without the instructions that DAPO's prompts put around it; "" if there is none."""
    value = next((row[name] for name in _PROBLEM if row.get(name)), "")
    if isinstance(value, list):
        value = next((m.get("content", "") for m in value if isinstance(m, Mapping) and m.get("role") == "user"), "")
    text = str(value).strip()
    wrapped = _WRAPPED.match(text)
    return wrapped.group(1).strip() if wrapped else text


def answer_of(row: Mapping[str, Any]) -> str:
    """The reference answer; whole numbers without leading zeros, as AIME writes them; "" if there is none."""
    value = next((row[name] for name in _ANSWER if row.get(name) not in (None, "")), None)
    reward_model = row.get("reward_model")
    if value is None and isinstance(reward_model, Mapping):
        value = reward_model.get("ground_truth")
    if value is None and isinstance(row.get("solution"), str):
        value = boxed_answer(Completion("", row["solution"]), window=len(row["solution"]))
    text = str(value if value is not None else "").strip()
    return str(int(text)) if re.fullmatch(r"[0-9]{1,4000}", text) else text


def _tasks(split: Split, keys: Sequence[str], problems: Mapping[str, tuple[str, str]]) -> tuple[Task, ...]:
    return tuple(_task(f"{split}-{digest(key) % 16**10:010x}", *problems[key], "dapo") for key in keys)


def _task(id_: str, text: str, answer: str, group: str) -> Task:
    return Task(id_, {"question": text}, {"answer": answer}, group)
