"""More outputs that try the SearchQA verifier: digits, signs, formulas, repeated prompts."""

import pytest

from whale.domains.registry import load_domain
from whale.domains.searchqa.verifier import verify
from whale.rollout.types import Completion


@pytest.mark.parametrize(
    ("answers", "sampled", "reward"),
    [
        (["32"], "<answer>３２</answer>", 1),
        (["32"], "<answer>³²</answer>", 1),
        (["32"], "<answer>٣٢</answer>", 0),
        (["32"], "<answer>XXXII</answer>", 0),
        (["32"], "<answer>32 %</answer>", 1),
        (["32"], "<answer>32 percent</answer>", 0),
        (["1832"], "<answer>1,832</answer>", 1),
        (["1832"], "<answer>1.832</answer>", 0),
        (["1832"], "<answer>1 832</answer>", 0),
        (["1/2"], "<answer>½</answer>", 1),
        (["1/2"], r"<answer>\frac{1}{2}</answer>", 0),
        (["32"], r"<answer>\boxed{32}</answer>", 0),
        (["32"], r"\boxed{32}", 0),
        (["32"], "<answer>{32}</answer>", 1),
        (["32"], "<answer>31 or 32</answer>", 0),
        (["32"], "<answer>not 32</answer>", 0),
        (["32"], "<answer>32</answer><answer></answer>", 0),
        (["32"], "<answer>&#51;2</answer>", 0),
    ],
)  # fmt: skip
def test_numbers_in_other_clothes(answers: list[str], sampled: str, reward: float) -> None:
    assert verify(answers, Completion("", sampled)).reward == reward


def test_the_prompt_repeated_does_not_pass_for_any_question() -> None:
    domain = load_domain("searchqa", {"test": 200})
    for task in domain.splits()["test"]:
        question = task.public["question"]
        for text in (question, f"<answer>{question}</answer>", f"<answer>{question}"):
            assert domain.verify(task, Completion("", text)).reward == 0
            assert domain.verify(task, Completion(text, "")).reward == 0


@pytest.mark.parametrize(
    "text",
    [
        "<answer>" + "a." * 500_000 + "</answer>",
        "<answer>" + "1," * 500_000 + "</answer>",
        ("<answer>" + "a" * 90 + "</answer>") * 10_000,
        "<answer>" * 60_000 + "</answer>" * 60_000,
        "<answer" * 140_000,
    ],
)
def test_a_megabyte_made_to_backtrack_is_wrong_and_done(text: str) -> None:
    assert verify(["Paris"], Completion("", text)).reward == 0
    assert verify(["Paris"], Completion(text, "")).reward == 0
