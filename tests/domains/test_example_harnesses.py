"""The hand-written harnesses of examples/: valid, without a hidden task, with right examples, and they run."""

from pathlib import Path
from typing import Any

import pytest

from tests.rollout.scripted import LIMITS, SAMPLING, ByteChat, ScriptedEngine
from whale.domains.base import Domain, Task
from whale.domains.registry import load_domain
from whale.harness.validation import check_source
from whale.rollout.episodes import run_micro_batch
from whale.rollout.sandbox.host import HarnessWorker
from whale.rollout.sandbox.probe import best_tier
from whale.rollout.types import Completion, EpisodeSpec, GenerateRequest, Trajectory
from whale.search.worked_examples import parse_examples

EXAMPLES = Path("examples/harnesses")
OF_DOMAIN = [("math", "math-calculator"), ("searchqa", "searchqa-two-searches")]


def files(name: str) -> dict[str, bytes]:
    folder = EXAMPLES / name
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def run(domain: Domain, name: str, task: Task, say: Any) -> Trajectory:
    with HarnessWorker(files(name), best_tier(), LIMITS) as worker:
        (trajectory,) = run_micro_batch(
            ScriptedEngine(say), ByteChat(), worker.files, {task.id: task}, [EpisodeSpec(task.id, 0, 1)], domain,
            SAMPLING, worker.limits, worker,
        )  # fmt: skip
    return trajectory


@pytest.mark.parametrize(("domain", "name"), OF_DOMAIN)
def test_it_is_valid_and_quotes_no_hidden_task(domain: str, name: str) -> None:
    tree = files(name)
    assert check_source(tree) is None
    assert all(load_domain(domain).leak(content.decode()) is None for content in tree.values())


def test_the_calculators_examples_are_right() -> None:
    examples = parse_examples(files("math-calculator")["examples.json"]) or []
    assert len(examples) == 6
    for example in examples:
        *steps, last = example[-1][1].removesuffix(".").split(". ")
        for step in steps:
            left, right = step.split(" = ")
            assert eval(left) == int(right)
        assert last == f"The answer is \\boxed{{{steps[-1].split(' = ')[1]}}}"


def test_the_calculator_fills_in_what_the_model_sets_up_and_the_model_answers() -> None:
    domain = load_domain("math", {"weight": 4, "harness": 2, "validation": 2, "test": 2})
    task = Task("t", {"question": "Six rows of seven chairs?"}, {"answer": "42"})

    def say(prompt: str, request: GenerateRequest) -> str:
        opened = prompt.rpartition("assistant>")[2]
        if opened.endswith("\\boxed{"):
            return opened.split("= ")[1].split(".")[0] + "}"
        return " The answer is \\boxed{" if "=" in opened else "6 * 7 ="

    trajectory = run(domain, "math-calculator", task, say)
    assert (trajectory.status, trajectory.reward, trajectory.fabricated) == ("ok", 1.0, False), trajectory.reason
    assert [call.result for call in trajectory.calls] == [{"output": "42\n", "error": ""}]
    assert [turn.text for turn in trajectory.turns] == ["6 * 7 =", " The answer is \\boxed{", "42}"]


@pytest.mark.parametrize("text", ["", "=", "9 / 0 =", "no sums here", "\\boxed{", "1" * 30 + " * 2 ="])
def test_the_calculator_survives_whatever_the_model_says(text: str) -> None:
    domain = load_domain("math", {"weight": 4, "harness": 2, "validation": 2, "test": 2})
    trajectory = run(domain, "math-calculator", domain.splits()["test"][0], lambda prompt, request: text)
    assert trajectory.status == "ok", trajectory.reason


def test_two_searches_show_the_answers_passage_of_a_two_hop_question() -> None:
    domain = load_domain("searchqa", {"test": 20, "two_hop_share": 1.0})
    shown = 0
    for task in domain.splits()["test"]:
        trajectory = run(domain, "searchqa-two-searches", task, lambda prompt, request: "x</answer>")
        assert trajectory.status == "ok", trajectory.reason
        shown += domain.answer_in(task, trajectory.turns[0].messages[-1]["content"])
    assert shown >= 10, "the second search should find most of what one search cannot"


def test_an_answer_that_a_program_printed_passes_only_in_the_models_own_tokens() -> None:
    domain = load_domain("math", {"weight": 4, "harness": 2, "validation": 2, "test": 2})
    task = Task("t", {}, {"answer": "42"})
    assert domain.verify(task, Completion("6 * 7 = 42. The answer is \\boxed{", "42}")).reward == 1
    assert domain.verify(task, Completion("6 * 7 = 42. The answer is \\boxed{42", "}")).reward == 0
