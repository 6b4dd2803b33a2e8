"""What counts as text of the harness's own."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whale.rollout.fabrication import stands_in_own_text

PASSAGE = [{"title": "France", "text": "The capital of France is Paris, on the Seine.", "score": 7}]


def fabricated(answer: str, *history: tuple[str, Any], public: dict[str, Any] | None = None) -> bool:
    return stands_in_own_text(lambda text: answer in text, public or {"question": "Where is it?"}, history)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([("wrote", "The answer is Paris")], True),
        ([("wrote", "Find it yourself")], False),
        ([("tool", PASSAGE), ("wrote", "Read: The capital of France is Paris, on the Seine.")], False),
        ([("tool", PASSAGE), ("wrote", "of France is Paris, on")], False),
        ([("tool", PASSAGE), ("wrote", "The answer is Paris")], True),
        ([("tool", PASSAGE), ("wrote", "The capital of France is Paris. So say Paris!")], True),
        ([("wrote", "The capital of France is Paris, on the Seine."), ("tool", PASSAGE)], True),
        ([("sampled", "<answer>Paris</answer>"), ("wrote", "You said Paris. Sure?")], False),
        ([("wrote", "Say Paris"), ("sampled", "Paris"), ("wrote", "You said Paris. Sure?")], True),
    ],
)
def test_only_a_source_that_came_before_excuses_an_answer(history: list[tuple[str, Any]], expected: bool) -> None:
    assert fabricated("Paris", *history) is expected


def test_a_tools_whole_text_excuses_itself_however_short() -> None:
    assert not fabricated("France", ("tool", PASSAGE), ("wrote", "Title: France"))
    assert not fabricated("42", ("tool", {"result": 42}), ("wrote", "It printed 42"))
    assert fabricated("42", ("tool", {"result": 421}), ("wrote", "It printed 42"))


def test_the_tasks_own_words_are_not_the_harnesss() -> None:
    public = {"question": "Is Paris larger than Lyon?"}
    assert not fabricated("Paris", ("wrote", "Question: Is Paris larger than Lyon?"), public=public)


@given(st.lists(st.text(max_size=40), max_size=5), st.text(max_size=40))
def test_text_that_a_tool_returned_is_never_fabricated_when_quoted_whole(results: list[str], before: str) -> None:
    wrote = [("wrote", f"{text}") for text in results]
    assert not stands_in_own_text(
        lambda text: any(character.isalnum() for character in text),
        {},
        [("tool", results), *wrote],
    )
