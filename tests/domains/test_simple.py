"""A domain of one's own from rows: splits, verifier, leak check, default harness."""

import importlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

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


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"compare": "exact"}, "compare must be plain or squad"), ({"threshold": 0}, "threshold must be above 0"),
        ({"threshold": "1"}, "threshold must be above 0"), ({"verify_seconds": 0}, "verify_seconds must be a number"),
        ({"verify_seconds": "9"}, "verify_seconds must be a number"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_is_one_clear_line(setting: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        qa_domain("d", rows(), **setting)


def test_the_order_of_the_rows_decides_nothing() -> None:
    assert qa_domain("d", rows()).fingerprint() == qa_domain("d", rows()[::-1]).fingerprint()
    assert qa_domain("d", rows()).fingerprint() != qa_domain("e", rows()).fingerprint()
    assert qa_domain("d", rows()).fingerprint() != qa_domain("d", rows(41)).fingerprint()


def test_a_split_that_is_given_is_kept() -> None:
    data = [{**row, "split": SPLITS[n % 4]} for n, row in enumerate(rows(8))]
    splits = qa_domain("d", data).splits()
    assert [len(splits[split]) for split in SPLITS] == [2, 2, 2, 2]


def with_answers(*answers: str, compare: str = "plain") -> SimpleDomain:
    return qa_domain("d", [{**row, "answer": list(answers)} for row in rows()], compare=compare)


@pytest.mark.parametrize(
    ("answer", "other"),
    [
        ("8", "-8"), ("8", "+8"), ("C", "C++"), ("C", "C#"), ("2 + 2", "2 - 2"), ("10²", "102"), ("0.5", "5"),
        ("½", "1/2"), ("8", "8%"), ("1,000", "1.000"), ("a", "ä"), ("...", "."), ("The Hague", "Hague"), ("x", "¬x"),
        (">", "<"), ("$8", "8"), ("f(x)", "f x"), ("3:2", "3-2"),
    ],
)  # fmt: skip
def test_by_default_different_numbers_and_symbols_are_different_answers(answer: str, other: str) -> None:
    task = with_answers(answer).splits()["test"][0]
    assert with_answers(answer).verify(task, box(answer)).reward == 1
    assert with_answers(answer).verify(task, box(other)).reward == 0
    task = with_answers(other).splits()["test"][0]
    assert with_answers(other).verify(task, box(answer)).reward == 0


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        ("Paris", " paris.\n"), ("Paris", '"Paris."'), ("Paris", "“Paris”."), ("New York", "new \t york"), ("-8", "−8"),
        ("O'Brien", "O’Brien"), ("42", "４２"), ("D.C.", "d.c"), ("é", "e\u0301"), (".", "."), ("Straße", "STRASSE"),
    ],
)  # fmt: skip
def test_by_default_typing_habits_do_not_make_an_answer_wrong(answer: str, given: str) -> None:
    domain = with_answers(answer)
    assert domain.verify(domain.splits()["test"][0], box(given)).reward == 1


@pytest.mark.parametrize(
    ("answer", "text", "stands"),
    [
        ("8", "x = 8.", True), ("8", '{"n": 8}', True), ("8", "**8**", True), ("8", "-8", False), ("8", "18", False),
        ("8", "8.5", False), ("8", "1/8", False), ("C", "C++ or C#", False), ("C", "in C, too", True),
        ("-8", "it is -8", True), ("-8", "5-8", False), ("C++", "(C++)", True), ("New York", "in new\nyork!", True),
    ],
)  # fmt: skip
def test_an_answer_stands_in_a_text_as_a_term_of_its_own(answer: str, text: str, stands: bool) -> None:
    domain = with_answers(answer)
    assert domain.answer_in(domain.splits()["test"][0], text) == stands


def test_an_answer_of_thousands_of_characters_can_be_right() -> None:
    domain = with_answers("word " * 1500)
    task = domain.splits()["test"][0]
    assert [domain.verify(task, reference).reward for reference in domain.references(task)] == [1]
    assert domain.verify(task, box("x" * 10**6)).metrics["format"] == 0


def test_words_alone_are_compared_where_a_domain_asks_for_it() -> None:
    domain = with_answers("São Paulo", "SP", compare="squad")
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
    with pytest.raises(VerifierFault, match=reason) as caught:
        domain.verify(domain.splits()["test"][0], box("abc"))
    assert domain.splits()["test"][0].id in str(caught.value) and "\n" not in str(caught.value)
    if reason == "ValueError":
        assert "test_simple.py line" in str(caught.value) and "Traceback" in caught.value.details


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
        (
            [{"question": "a q", "answer": "a"}, {"question": "a  q ", "answer": "a"}],
            {},
            "row 2: the question is there",
        ),
        ([{"question": "q", "answer": "a", "split": "dev"}], {}, "split must be one of"),
        (rows(), {"tset": 3}, "unknown option 'tset'"),
        (rows(), {"test": 0}, "test must be a whole number"),
        (rows(), {"test": "all"}, "test must be a whole number"),
    ],
)
def test_rows_that_make_no_domain_are_one_clear_line(data: list[Any], options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=r"^d: ") as caught:
        qa_domain("d", data, options)
    assert reason in str(caught.value) and "\n" not in str(caught.value)


def test_questions_that_differ_in_a_sign_are_two_and_those_that_differ_in_case_share_a_split() -> None:
    signs = [
        {"question": f"What is {n} {sign} {m}?", "answer": "a"} for n in range(6) for m in range(6) for sign in "+-"
    ]
    asked = [t.public["question"] for tasks in qa_domain("d", signs).splits().values() for t in tasks]
    assert sorted(asked) == sorted(row["question"] for row in signs)
    cases = [{"question": form.format(n), "answer": "a"} for n in range(20) for form in ("q {}", "Q {}?")]
    for tasks in qa_domain("d", cases).splits().values():
        seen = [t.public["question"].lower().strip("?") for t in tasks]
        assert all(seen.count(each) == 2 for each in seen)


def leaking(*pairs: tuple[str, str]) -> SimpleDomain:
    """A domain with these (split, question) beside others."""
    others = [(split, f"something else in {split}") for split in SPLITS]
    return qa_domain("d", [{"question": q, "answer": "a", "split": split} for split, q in (*others, *pairs)])


def test_a_hidden_question_is_found_however_it_is_quoted() -> None:
    domain = leaking(("test", 'Is "2 + 3" more than 4?'), ("test", "Is it cold\nin März?"))
    for text in (
        "q: is 2 + 3 more than 4", json.dumps(["Is \"2 + 3\" more than 4?"]), "IS '2 + 3'  MORE THAN 4!",
        json.dumps("Is it cold\nin März?"), "- Is it cold in März?",
    ):  # fmt: skip
        assert domain.leak(text) is not None, text
    assert domain.leak("Is 2 - 3 more than 4?") is None
    assert domain.leak("Is 12 + 3 more than 4?") is None


def test_a_training_question_is_no_leak_of_a_hidden_one_that_it_holds_or_resembles() -> None:
    domain = leaking(
        ("weight", "What is 2 + 3 + 4?"), ("test", "What is 2 + 3?"),
        ("weight", "Which element is Co?"), ("test", "Which element is CO?"),
    )  # fmt: skip
    assert domain.leak("What is 2 + 3 + 4?") is None
    assert domain.leak("What is 2 + 3 + 4? And what is 2 + 3?") is not None
    assert domain.leak("Which element is Co?") is None
    assert domain.leak("Which element is CO?") is not None


def module_with(tmp_path: Path, text: str) -> SimpleDomain:
    """A domain of a module with a verifier that calls a helper and reads a constant."""
    path = tmp_path / "own.py"
    path.write_text(
        "from whale.domains.simple import qa_domain\n"
        f"{text}\n"
        "def check(row, text):\n    return near(text, row['answer'])\n"
        "def create(options):\n"
        "    rows = [{'question': f'q {n}', 'answer': str(n)} for n in range(40)]\n"
        "    return qa_domain('own', rows, options, verify=check)\n"
    )
    return cast(SimpleDomain, load_domain(f"{path}:create"))


def test_a_changed_helper_or_constant_of_the_verifier_is_another_domain(tmp_path: Path) -> None:
    one = "LIMIT = 1\ndef near(a, b):\n    return abs(float(a) - float(b)) < LIMIT"
    first = module_with(tmp_path, one).fingerprint()
    assert module_with(tmp_path, one).fingerprint() == first
    assert module_with(tmp_path, one.replace("LIMIT = 1", "LIMIT = 2")).fingerprint() != first
    assert module_with(tmp_path, one.replace("<", "<=")).fingerprint() != first


def test_a_module_of_the_same_package_counts_and_a_value_bound_to_the_verifier_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for number, limit in enumerate((1, 2, 1)):
        package = tmp_path / f"ownpack{number}"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "limits.py").write_text(f"LIMIT = {limit}\n")
        (package / "rules.py").write_text("from . import limits\ndef check(row, text):\n    return limits.LIMIT > 1\n")
    prints = []
    for number in range(3):
        rules = importlib.import_module(f"ownpack{number}.rules")
        prints.append(qa_domain("d", rows(), verify=rules.check).fingerprint())
    assert prints[0] != prints[1] and prints[0] == prints[2]

    def within(limit: float) -> Callable[[Any, str], float]:
        return lambda row, text: float(len(text) < limit)

    one, other, again = (qa_domain("d", rows(), verify=within(limit)).fingerprint() for limit in (1, 2, 1))
    assert one != other and one == again
    one, other = (qa_domain("d", rows(), verify=partial(lambda n, row, text: 0.0, n)).fingerprint() for n in (1, 2))
    assert one != other


def test_the_example_is_about_twenty_lines_and_its_answers_are_right() -> None:
    import datetime

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
