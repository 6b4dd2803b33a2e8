"""Paper-size Math on small files in the columns of the hub's data sets."""

from pathlib import Path
from typing import Any

import pytest

from tests.domains.test_rows import write
from whale.domains.math.domain import create
from whale.domains.math.paper.data import answer_of, problem_of
from whale.errors import UsageError
from whale.harness.validation import check_source
from whale.rollout.types import Completion

BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'


def dapo(text: str, answer: str) -> dict[str, Any]:
    return {
        "data_source": "math_dapo",
        "prompt": [{"role": "user", "content": BEFORE + text + AFTER}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": text},
    }


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    rows = [dapo(f"What is {n} + {n}?\n\nGive a number.", str(2 * n)) for n in range(1, 41)]
    rows += rows[:7]  # the hub's file repeats its problems
    rows += [dapo("Which is it?", "1"), dapo("Which is  it?", "2")]
    rows += [dapo("Find the AIME answer 3.", "3")]
    write(tmp_path / "dapo" / "data" / "dapo-math-17k.parquet", rows)
    write(
        tmp_path / "aime24" / "test.jsonl",
        [{"id": n, "problem": f"Find the AIME answer {n}.", "solution": f"\\boxed{{{n:03d}}}"} for n in range(1, 5)],
    )
    write(
        tmp_path / "aime25" / "test.jsonl",
        [{"id": str(n), "problem": f"AIME 25, number {n}.", "answer": f"{n:03d}"} for n in range(1, 4)],
    )
    sources = {name: str(tmp_path / folder) for name, folder in
               (("train", "dapo"), ("aime24", "aime24"), ("aime25", "aime25"))}  # fmt: skip
    return {"size": "paper", "harness": 5, "validation": 6, **sources}


def test_the_splits_are_dapo_without_repeats_clashes_and_test_problems(options: dict[str, Any]) -> None:
    splits = create(options).splits()
    assert {split: len(tasks) for split, tasks in splits.items()} == {
        "weight": 29, "harness": 5, "validation": 6, "test": 7,
    }  # fmt: skip
    texts = [task.public["question"] for tasks in splits.values() for task in tasks]
    assert len(set(texts)) == len(texts)
    assert not any("Solve the following" in text or "Remember" in text or "Which is" in text for text in texts)
    assert {task.group for task in splits["test"]} == {"aime24", "aime25"}
    assert {task.private["answer"] for task in splits["test"]} == {"1", "2", "3", "4"}


def test_neither_seed_nor_size_moves_a_problem_between_training_and_held_out(options: dict[str, Any]) -> None:
    def held_out(**more: Any) -> set[str]:
        splits = create({**options, **more}).splits()
        return {task.public["question"] for split in ("harness", "validation") for task in splits[split]}

    assert held_out(seed=3) == held_out() == held_out(weight=4)


def test_the_domain_verifies_and_hides_its_tasks(options: dict[str, Any]) -> None:
    domain = create(options)
    task = domain.splits()["test"][0]
    assert domain.verify(task, Completion("", f"\\boxed{{{task.private['answer']}}}")).reward == 1
    assert domain.leak(task.public["question"]) is not None
    assert check_source(domain.h0()) is None
    assert domain.fingerprint() == create(options).fingerprint() != create({**options, "seed": 1}).fingerprint()


def test_a_cap_holds_for_each_test_set(options: dict[str, Any]) -> None:
    splits = create({**options, "test": 2, "weight": 3}).splits()
    assert (len(splits["test"]), len(splits["weight"])) == (4, 3)


@pytest.mark.parametrize(
    ("row", "problem", "answer"),
    [
        (dapo("x\n\ny", "5"), "x\n\ny", "5"),
        ({"problem": "p", "answer": 7}, "p", "7"),
        ({"Problem": "p", "Answer": 25, "Solution": "s"}, "p", "25"),
        ({"question": "p", "answer": "070"}, "p", "70"),
        ({"problem": "p", "solution": "a \\boxed{\\frac{1}{2}} b"}, "p", "\\frac{1}{2}"),
        ({"problem": "p", "answer": 0}, "p", "0"),
        ({"prompt": "plain", "answer": "1"}, "plain", "1"),
        ({"problem": "p", "solution": "no box"}, "p", ""),
        ({"other": 1}, "", ""),
    ],
)
def test_columns_are_found_by_the_names_that_the_data_sets_use(row: dict[str, Any], problem: str, answer: str) -> None:
    assert (problem_of(row), answer_of(row)) == (problem, answer)


def test_a_source_without_problems_or_with_too_few_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "other.jsonl", [{"text": "x"}])
    with pytest.raises(UsageError, match="has no problems: looked for the columns"):
        create({**options, "train": str(tmp_path / "other.jsonl")})
    with pytest.raises(UsageError, match="leaves no problem for validation"):
        create({**options, "harness": 40})
    with pytest.raises(UsageError, match="no such file or folder"):
        create({**options, "aime24": str(tmp_path / "gone.jsonl")})
    with pytest.raises(UsageError, match="belongs to size = 'paper'"):
        create({"train": "x"})
