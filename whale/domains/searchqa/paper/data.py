"""Questions of the paper's data sets: NQ and HotpotQA to train on, seven test sets by name."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from whale.domains.base import Split, Task
from whale.domains.draws import digest
from whale.domains.rows import load_rows
from whale.domains.searchqa.normalisation import normalise
from whale.errors import UsageError

TEST_SETS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
SOURCE = "PeterJinGo/nq_hotpotqa_train"
"""Both halves: its train split is NQ and HotpotQA, its test split all seven sets, told apart by `data_source`."""
HELD_OUT: tuple[Split, ...] = ("harness", "validation")


def load_tasks(
    source: str,
    test_sets: Sequence[str],
    sizes: Mapping[Split, int | None],
    seed: int,
) -> dict[Split, tuple[Task, ...]]:
    """The four splits. D_harness and validation are cut from the training questions by their text alone.

    A training question that stands in a test set is left out, and so is one that comes twice. `sizes["test"]`
    caps each test set. Raises UsageError for a test set without questions, and for splits that are too small.
    """
    tests: list[Task] = []
    test_rows = load_rows(source, "test")
    for name in test_sets:
        tasks = _unique(row for row in test_rows if str(row.get("data_source", "")).casefold() == name)
        if not tasks:
            raise UsageError(f"searchqa: {source} has no test set {name!r} (its rows' data_source)")
        chosen = sorted(tasks.items(), key=lambda item: digest(seed, "test", item[0]))[: sizes["test"]]
        tests += [_task(f"{name}-{digest(key) % 16**10:010x}", row, name) for key, row in chosen]
    seen = {normalise(str(row.get("question", ""))) for row in test_rows}
    training = {key: row for key, row in _unique(load_rows(source, "train")).items() if key not in seen}
    # By the text alone: neither seed nor size moves a question between training and held-out splits.
    order = sorted(training, key=lambda key: digest("held out", key))
    result: dict[Split, tuple[Task, ...]] = {"test": tuple(tests)}
    start = 0
    for split in HELD_OUT:
        size = sizes[split] or 0
        result[split] = _tasks(split, order[start : start + size], training)
        start += size
    rest = sorted(order[start:], key=lambda key: digest(seed, "weight", key))
    result["weight"] = _tasks("weight", rest[: sizes["weight"]], training)
    for split, tasks_of in result.items():
        if not tasks_of:
            raise UsageError(f"searchqa: {source} leaves no question for {split}: {len(training)} to train on")
    return result


def _unique(rows: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    result: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        question = row.get("question")
        if isinstance(question, str) and question.strip() and _answers(row):
            result.setdefault(normalise(question), row)
    return result


def _answers(row: Mapping[str, Any]) -> list[str]:
    answers = row.get("golden_answers")
    if answers is None and isinstance(row.get("reward_model"), Mapping):
        truth = row["reward_model"].get("ground_truth")
        answers = truth.get("target") if isinstance(truth, Mapping) else truth
    if answers is None:
        answers = row.get("answer")
    if isinstance(answers, str):
        answers = [answers]
    return [str(answer) for answer in answers or [] if str(answer).strip()]


def _tasks(split: Split, keys: Sequence[str], rows: Mapping[str, Mapping[str, Any]]) -> tuple[Task, ...]:
    return tuple(
        _task(f"{split}-{digest(key) % 16**10:010x}", rows[key], str(rows[key].get("data_source", ""))) for key in keys
    )


def _task(id_: str, row: Mapping[str, Any], group: str) -> Task:
    question = str(row["question"]).strip()
    return Task(id_, {"question": question}, {"answers": _answers(row)}, group)
