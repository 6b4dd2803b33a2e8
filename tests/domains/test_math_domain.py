"""Math as a domain: options, fingerprint, leak check, h0, baselines."""

import json
from typing import Any

import pytest

from whale.domains.base import SPLITS, Task
from whale.domains.groups import by_group
from whale.domains.math import baselines
from whale.domains.math.domain import MathDomain, create
from whale.domains.math.problems import split_of
from whale.domains.math.templates import load_templates
from whale.domains.registry import load_domain
from whale.errors import UsageError
from whale.harness.validation import check_source
from whale.rollout.types import Completion, Trajectory, Turn
from whale.search.worked_examples import parse_examples

SMALL = {"weight": 40, "harness": 8, "validation": 8, "test": 8}


@pytest.fixture(scope="module")
def domain() -> MathDomain:
    return create(SMALL)


def test_the_domain_is_found_by_its_name_and_has_the_sizes_asked_for() -> None:
    found = load_domain("math", SMALL)
    assert {split: len(tasks) for split, tasks in found.splits().items()} == SMALL


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"sise": "paper"}, "unknown option 'sise'; known: size"),
        ({"levels": [True]}, "levels must be some of"),
        ({"levels": [1.0]}, "levels must be some of"),
        ({"size": "huge"}, "size must be embedded or paper"),
        ({"verifier": "lenient"}, "verifier must be strict or math-verify"),
        ({"levels": []}, "levels must be some of"),
        ({"levels": [5]}, "levels must be some of"),
        ({"levels": [1, 1]}, "names one twice"),
        ({"levels": "12"}, "levels must be a list"),
        ({"levels": 1}, "levels must be a list"),
        ({"test": 0}, "test must be a whole number above 0"),
        ({"test": True}, "test must be a whole number above 0"),
        ({"seed": "x"}, "seed must be a whole number"),
        ({"allow_unsandboxed": 1}, "allow_unsandboxed must be true or false"),
    ],
)
def test_a_wrong_option_is_one_clear_line(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=r"^math: ") as caught:
        create(options)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_fingerprint_follows_what_decides_a_score(domain: MathDomain) -> None:
    assert create(SMALL).fingerprint() == domain.fingerprint()
    for change in ({"seed": 1}, {"levels": [1]}, {"test": 9}):
        assert create({**SMALL, **change}).fingerprint() != domain.fingerprint()


def test_a_task_shows_the_question_and_nothing_else(domain: MathDomain) -> None:
    for split in SPLITS:
        for task in domain.splits()[split]:
            assert set(task.public) == {"question"}
            assert not domain.answer_in(task, task.public["question"])


def test_a_right_box_passes_and_a_wrong_one_does_not(domain: MathDomain) -> None:
    task = domain.splits()["test"][0]
    answer = task.private["answer"]
    assert domain.verify(task, Completion("", f"\\boxed{{{answer}}}")).reward == 1
    assert domain.verify(task, Completion("", f"\\boxed{{{answer}0}}")).reward == 0


def test_h0_is_valid_and_its_examples_are_right_and_of_the_weight_split(domain: MathDomain) -> None:
    assert check_source(domain.h0()) is None
    assert domain.leak(domain.h0()["examples.json"].decode()) is None
    examples = parse_examples(domain.h0()["examples.json"])
    assert examples is not None
    templates = {template.id: template for template in load_templates()[0]}
    stated = [("give-away", {"a": 12, "b": 5}, "7"), ("boxes-and-loose", {"a": 5, "b": 4, "c": 7}, "27")]
    for example, (name, numbers, answer) in zip(examples, stated, strict=True):
        assert all(str(number) in example[0][1] for number in numbers.values())
        assert split_of(templates[name], numbers) == "weight"
        solved = templates[name].solve(numbers)
        assert solved is not None and str(solved[-1]) == answer
        assert domain.verify(Task("x", {}, {"answer": answer}), Completion("", example[-1][1])).reward == 1


@pytest.mark.parametrize("split", ["harness", "validation", "test"])
def test_a_hidden_problem_in_a_harness_is_found(domain: MathDomain, split: Any) -> None:
    task = domain.splits()[split][3]
    question = task.public["question"]
    texts = [
        question,
        question.upper(),
        question.replace(" ", "\n"),
        json.dumps({"q": question + "\n", "a": 1}),
        f"EXAMPLES = {question!r}",
    ]
    for text in texts:
        reason = domain.leak(text)
        assert reason is not None and task.id in reason
        assert task.private["answer"] not in reason.replace(task.id, "")


def test_another_name_does_not_hide_a_hidden_problem() -> None:
    domain = create({**SMALL, "validation": 64})
    task = next(t for t in domain.splits()["validation"] if t.public["question"].startswith(("Anna", "Ben", "Leo")))
    renamed = task.public["question"]
    for name in ("Anna", "Ben", "Leo"):
        renamed = renamed.replace(name, "Xaver")
    assert domain.leak(renamed) is not None


def test_training_problems_and_plain_arithmetic_are_no_leak(domain: MathDomain) -> None:
    for task in domain.splits()["weight"]:
        assert domain.leak(task.public["question"]) is None
    assert domain.leak("\n".join(f"{a} + {b} = {a + b}" for a in range(30) for b in range(30))) is None


def test_baselines_are_the_shares_that_they_say() -> None:
    def task(numbers: list[int], answer: int) -> Task:
        return Task("t", {}, {"numbers": numbers, "answer": str(answer)})

    assert baselines.majority_answer([task([], 7), task([], 7), task([], 5)], [task([], 7), task([], 5)]) == 0.5
    # 6 and 3: 9, 18, 3, 2 and 9, 18: six results, of which two are 9.
    assert baselines.random_operation([task([6, 3], 9)]) == pytest.approx(2 / 6)
    assert baselines.random_chain([task([6, 3], 9)]) == pytest.approx(1 / 4)
    assert baselines.random_chain([task([6, 3, 2], 11)]) == pytest.approx(1 / 4 * 1 / 3)
    assert baselines.random_operation([task([6], 9)]) == 0.0


def test_figures_are_counted_by_group() -> None:
    def rollout(task: str, reward: float, finish: str = "stop", text: str = "x") -> Trajectory:
        turn = Turn((1,), (2, 3), (0.0, 0.0), finish, "w", 0, text, "", ())  # type: ignore[arg-type]
        return Trajectory(task, 0, 0, (turn,), (), "ok", "", 0, reward=reward, metrics={"format": reward},
                          fabricated=reward > 0)  # fmt: skip

    tasks = [Task("a", {}, {}, "one"), Task("b", {}, {}, "two"), Task("c", {}, {})]
    groups = by_group(tasks, [rollout("a", 1.0), rollout("b", 0.0, "length"), rollout("c", 1.0), rollout("a", 0.0)])
    assert list(groups) == ["one", "two", "all"]
    assert (groups["one"].n, groups["one"].tasks, groups["one"].passed) == (2, 1, 1.0)
    assert (groups["all"].n, groups["all"].truncated, groups["all"].fabricated, groups["all"].tokens) == (4, 1, 2, 2.0)
    with pytest.raises(KeyError):
        by_group(tasks, [rollout("z", 1.0)])
