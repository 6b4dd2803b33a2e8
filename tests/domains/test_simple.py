"""A domain of one's own from rows: splits, verifier, leak check, default harness."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whale.domains.base import SPLITS
from whale.domains.registry import load_domain
from whale.domains.simple import SimpleDomain, qa_domain
from whale.errors import UsageError
from whale.harness.validation import check_source
from whale.rollout.errors import VerifierFault
from whale.rollout.types import Completion

WEEKDAYS = "examples/own/weekdays.py:create"


def rows(count: int = 40) -> list[dict[str, Any]]:
    return [{"question": f"What is {n} times two?", "answer": str(2 * n), "key": n // 2} for n in range(count)]


def box(text: str) -> Completion:
    return Completion("", f"<answer>{text}</answer>")


@settings(max_examples=25, deadline=None)
@given(st.integers(min_value=20, max_value=80), st.integers(min_value=1, max_value=5))
def test_every_row_is_in_one_split_and_rows_with_a_key_stay_together(count: int, together: int) -> None:
    data = [{"question": f"question {n}", "answer": "a", "key": n // together} for n in range(count)]
    try:
        splits = qa_domain("d", data).splits()
    except UsageError:
        assert count / together < 10, "too few keys for four splits"
        return
    owner = {int(t.public["question"].split()[1]): split for split in SPLITS for t in splits[split]}
    assert sorted(owner) == list(range(count))
    assert all(owner[n] == owner[n - n % together] for n in range(count))


def test_the_order_of_the_rows_decides_nothing() -> None:
    assert qa_domain("d", rows()).fingerprint() == qa_domain("d", rows()[::-1]).fingerprint()
    assert qa_domain("d", rows()).fingerprint() != qa_domain("e", rows()).fingerprint()
    assert qa_domain("d", rows()).fingerprint() != qa_domain("d", rows(41)).fingerprint()


def test_a_split_that_is_given_is_kept() -> None:
    data = [{**row, "split": SPLITS[n % 4]} for n, row in enumerate(rows(8))]
    splits = qa_domain("d", data).splits()
    assert [len(splits[split]) for split in SPLITS] == [2, 2, 2, 2]


def test_without_a_verifier_an_answer_is_right_in_normal_form() -> None:
    domain = qa_domain("d", [{**row, "answer": ["São Paulo", "SP"]} for row in rows()])
    task = domain.splits()["test"][0]
    assert [domain.verify(task, box(text)).reward for text in ("sao paulo.", "sp", "Rio", "")] == [1, 1, 0, 0]
    assert domain.verify(task, Completion("", "SP")).reward == 0
    assert domain.verify(task, Completion("<answer>SP</answer>", "")).reward == 0
    assert domain.answer_in(task, "It is in Sao Paulo.") and not domain.answer_in(task, "It is in Rio.")


def test_a_rubric_with_a_threshold_keeps_its_score() -> None:
    def close(row: Any, text: str) -> float:
        return max(0.0, 1 - abs(int(text) - int(row["answer"])) / 10)

    domain = qa_domain("d", rows(), verify=close, threshold=0.9)
    task = domain.splits()["test"][0]
    right = int(task.private["answer"])
    verdicts = [domain.verify(task, box(str(right + off))) for off in (0, 1, 2)]
    assert [(v.reward, v.metrics["score"]) for v in verdicts] == [(1, 1), (1, 0.9), (0, 0.8)]
    assert domain.verify(task, Completion("", "no tag")).metrics == {"format": 0.0, "score": 0.0}
    assert qa_domain("d", rows(), verify=close).fingerprint() != domain.fingerprint()


@pytest.mark.parametrize(
    ("verify", "reason"),
    [(lambda row, text: int(text), "ValueError"), (lambda row, text: 7, "give 0 to 1"), (lambda row, text: "x", "x")],
)
def test_a_broken_verifier_is_a_fault_and_never_a_reward_of_0(verify: Callable[..., Any], reason: str) -> None:
    domain = qa_domain("d", rows(), verify=verify)
    with pytest.raises(VerifierFault, match=reason):
        domain.verify(domain.splits()["test"][0], box("abc"))


def test_the_default_harness_shows_examples_of_d_weight_only() -> None:
    domain = qa_domain("d", rows(), instruction="Multiply.")
    files = domain.h0()
    assert check_source(files) is None
    assert files["prompts/system.md"] == b"Multiply.\n"
    shown = [example[0]["content"] for example in json.loads(files["examples.json"])]
    assert len(shown) == 2 and set(shown) <= {t.public["question"] for t in domain.splits()["weight"]}
    assert domain.leak(files["examples.json"].decode()) is None


def test_a_hidden_question_is_found_even_beyond_a_cap() -> None:
    whole, capped = qa_domain("d", rows()), qa_domain("d", rows(), {"test": 1, "weight": 3})
    assert len(capped.splits()["test"]) == 1 and len(capped.splits()["weight"]) == 3
    for task in whole.splits()["test"]:
        assert capped.leak("Q: " + task.public["question"].upper()) is not None
    assert all(capped.leak(task.public["question"]) is None for task in whole.splits()["weight"])


def test_tools_and_a_harness_of_ones_own_are_offered() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    domain = qa_domain("d", rows(), tools={"add": add}, h0={"harness.py": b"x"})
    assert domain.tools(domain.splits()["test"][0])["add"](a=1, b=2) == 3
    assert domain.h0() == {"harness.py": b"x"}
    assert domain.fingerprint() != qa_domain("d", rows()).fingerprint()


@pytest.mark.parametrize(
    ("data", "options", "reason"),
    [
        ([], {}, "no row is left"),
        (rows(3), {}, "no row is left"),
        ([{"answer": "a"}], {}, 'row 1 has no "question"'),
        (["text"], {}, 'row 1 has no "question"'),
        ([{"question": "q", "answer": 3}], {}, 'row 1: "answer" must be a text'),
        ([{"question": "q", "answer": []}], {}, 'row 1: "answer" must be a text'),
        ([{"question": "A q?", "answer": "a"}, {"question": "q", "answer": "a"}], {}, "row 2: the question is there"),
        ([{"question": "q", "answer": "a", "split": "dev"}], {}, "split must be one of"),
        (rows(), {"tset": 3}, "unknown option 'tset'"),
        (rows(), {"test": 0}, "test must be a whole number"),
    ],
)
def test_rows_that_make_no_domain_are_one_clear_line(data: list[Any], options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=r"^d: ") as caught:
        qa_domain("d", data, options)
    assert reason in str(caught.value) and "\n" not in str(caught.value)


def test_the_example_is_about_twenty_lines_and_its_answers_are_right() -> None:
    import datetime
    from pathlib import Path

    lines = [line for line in Path("examples/own/weekdays.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 22
    domain = load_domain(WEEKDAYS)
    assert isinstance(domain, SimpleDomain)
    monday = datetime.date(2024, 1, 1)
    days = {f"{monday + datetime.timedelta(n):%A}": n for n in range(7)}
    for task in domain.splits()["test"]:
        words = task.public["question"].split()
        when = monday + datetime.timedelta(days[words[2].strip(".")] + int(words[-2]))
        assert f"{when:%A}" == task.private["answer"]
