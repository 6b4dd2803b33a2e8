import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.sample_trees import LOOKUP_PASSED, LOOKUP_TREE, example
from whale.rollout.types import Trajectory, Turn
from whale.search.types import PassedRollout
from whale.search.worked_examples import (
    example_files,
    is_example,
    mine,
    parse_examples,
    passed_rollout,
    render_examples,
)

SYSTEM = {"role": "system", "content": "Answer."}
OWN = example("Which river?", "Elbe")


def trajectory(messages: list[dict[str, str]], reward: float = 1.0, answer: int | None = 1) -> Trajectory:
    first = Turn((1,), (2,), (0.0,), "stop", "w", 0, "<search>x</search>", "", tuple(messages[:-2]))
    last = Turn((1,), (2,), (0.0,), "stop", "w", 1, "Rhine</answer>", "<answer>", tuple(messages))
    return Trajectory("w1", 0, 0, (first, last), (), "ok", "", answer, reward=reward)


ASKED = [
    {"role": "user", "content": "Which other river?"},
    {"role": "assistant", "content": "<search>x</search>"},
    {"role": "user", "content": "A passage."},
]


def test_a_passed_rollout_loses_the_system_text_and_the_harness_own_examples() -> None:
    found = passed_rollout(trajectory([SYSTEM, *OWN, *ASKED]), LOOKUP_TREE, "c000")
    assert found is not None and (found.task_id, found.candidate) == ("w1", "c000")
    assert list(found.messages) == [*ASKED, {"role": "assistant", "content": "<answer>Rhine</answer>"}]


def test_examples_are_recognised_when_the_harness_strips_or_uses_only_some_of_them() -> None:
    other = example("Which hill?", "Brocken ")
    files = LOOKUP_TREE | {"examples.json": json.dumps([OWN, other]).encode()}
    stripped = [{**message, "content": message["content"].strip()} for message in other]
    found = passed_rollout(trajectory([SYSTEM, *stripped, *ASKED]), files)
    assert found is not None and len(found.messages) == 4


def test_a_question_that_equals_an_example_is_kept() -> None:
    found = passed_rollout(trajectory([SYSTEM, *OWN, *OWN[:3]]), LOOKUP_TREE)
    assert found is not None and list(found.messages[:3]) == OWN[:3]


@pytest.mark.parametrize(("reward", "answer"), [(0.0, 1), (1.0, None)])
def test_what_did_not_pass_is_no_example(reward: float, answer: int | None) -> None:
    assert passed_rollout(trajectory([SYSTEM, *ASKED], reward, answer), LOOKUP_TREE) is None


texts = st.text(max_size=20)
examples = st.lists(
    st.lists(st.tuples(st.sampled_from(["user", "assistant"]), texts), min_size=1, max_size=3).map(tuple),
    max_size=4,
)


@given(examples)
def test_rendered_examples_are_read_back(rows: list[tuple[tuple[str, str], ...]]) -> None:
    rows = [tuple((r, t.encode("utf-8", "replace").decode()) for r, t in row) for row in rows]
    assert parse_examples(render_examples(rows)) == rows


@pytest.mark.parametrize("content", [b"{}", b"[1]", b"[[]]", b'[[{"role": "user"}]]', b"\xff", b"[" * 100_000])
def test_other_json_is_not_taken_for_examples(content: bytes) -> None:
    assert parse_examples(content) is None
    assert example_files({"data.json": content}) == {}


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_mined_examples_are_distinct_bounded_and_repeatable(seed: int, k: int) -> None:
    held = [tuple((m["role"], m["content"]) for m in LOOKUP_PASSED[0].messages)]
    found = mine(LOOKUP_PASSED, Random(seed), k, exclude=held)
    assert found == mine(LOOKUP_PASSED, Random(seed), k, exclude=held)
    assert len(found) == k and len({row[0] for row in found}) == k
    assert all(is_example(row) for row in found) and held[0] not in found


def test_long_rollouts_and_rollouts_without_a_question_are_not_mined() -> None:
    long = PassedRollout("a", "c", ({"role": "user", "content": "x" * 3000}, {"role": "assistant", "content": "y"}))
    bare = PassedRollout("b", "c", ({"role": "assistant", "content": "y"},))
    assert mine([long, bare], Random(0), 2) == []
    assert len(mine([long], Random(0), 1, max_chars=4000)) == 1


def test_groups_are_covered_before_one_comes_twice() -> None:
    groups = {f"w{i}": ("one" if i < 10 else "two") for i in range(12)}
    for seed in range(10):
        found = mine(LOOKUP_PASSED, Random(seed), 2, groups=groups | {"w0": "two"})
        numbers = [int(row[0][1].split()[1]) for row in found]
        assert len({groups[f"w{i}"] if i else "two" for i in numbers}) == 2


def test_of_one_task_the_shortest_rollout_is_taken() -> None:
    short = PassedRollout("a", "c", ({"role": "user", "content": "q"}, {"role": "assistant", "content": "y"}))
    wordy = PassedRollout("a", "c", ({"role": "user", "content": "q"}, {"role": "assistant", "content": "y" * 9}))
    assert mine([wordy, short], Random(0), 3) == [(("user", "q"), ("assistant", "y"))]
