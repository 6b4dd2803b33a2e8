"""Each operator on two harness trees of different domains, run with canned replies."""

import ast
import difflib
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.sample_trees import (
    LOOKUP_TREE,
    MATERIAL,
    SUMS_TREE,
    TASKS,
    TREES,
    Episode,
    example,
    run_tree,
)
from whale.harness.api import ToolError
from whale.harness.validation import check_source
from whale.search.mutation import CROSSOVERS, OPERATORS, Change, Material, Operator, Program
from whale.search.mutation.proposer import combine, is_new_harness, mutate
from whale.search.tree import digest

BY_NAME = {operator.name: operator for operator in OPERATORS}
NOT_ON = {
    ("lookup", "examples-reorder"),  # it has one example
    ("lookup", "examples-remove"),
    ("lookup", "prefix-remove"),  # neither has a prefix
    ("sums", "prefix-remove"),
    ("sums", "stop-add"),  # its stop string is there already
    ("sums", "number-inline"),
    ("sums", "tool-result-joiner"),
}


def change(operator: str, domain: str, seed: int, files: Mapping[str, bytes] | None = None) -> Change | None:
    return mutate(BY_NAME[operator], files or TREES[domain], MATERIAL[domain], (), Random(seed))


def every(operator: str, domain: str, seeds: int = 14) -> list[Change]:
    found = (change(operator, domain, seed) for seed in range(seeds))
    return [made for made in found if made is not None]


def code(made: Change) -> str:
    return made.files["harness.py"].decode()


def requests(files: Mapping[str, bytes], domain: str = "lookup") -> Episode:
    return run_tree(files, TASKS[domain])


@pytest.mark.parametrize("domain", TREES)
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_an_operator_makes_programs_that_run_within_their_turns(operator: Operator, domain: str) -> None:
    made = every(operator.name, domain)
    assert bool(made) == ((domain, operator.name) not in NOT_ON)
    for child in made:
        assert digest(child.files) != digest(TREES[domain])
        assert child.summary and "\n" not in child.summary
        run_tree(child.files, TASKS[domain])


@given(
    st.sampled_from(sorted(TREES)),
    st.lists(st.sampled_from(sorted(BY_NAME)), max_size=5),
    st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=80)
def test_operators_can_be_stacked_and_the_program_still_runs(domain: str, names: list[str], seed: int) -> None:
    files: Mapping[str, bytes] = TREES[domain]
    for name in names:
        made = change(name, domain, seed, files)
        files = made.files if made is not None else files
    run_tree(files, TASKS[domain])


@given(st.sampled_from(sorted(TREES)), st.sampled_from(sorted(BY_NAME)), st.integers(0, 2**32))
@settings(deadline=None, max_examples=60)
def test_an_operator_gives_the_same_child_for_the_same_draw(domain: str, name: str, seed: int) -> None:
    assert change(name, domain, seed) == change(name, domain, seed)


@pytest.mark.parametrize("domain", TREES)
def test_comments_and_layout_outside_the_edit_survive(domain: str) -> None:
    before = TREES[domain]["harness.py"].decode().splitlines()
    for operator in OPERATORS:
        for made in every(operator.name, domain, 8):
            lines = difflib.ndiff(before, code(made).splitlines())
            removed = [line for line in lines if line.startswith("- ")]
            assert len(removed) <= 4, made.summary


def test_numbers_keep_their_type_and_stay_positive() -> None:
    for made in every("number-attribute", "lookup") + every("number-attribute", "sums"):
        old = {**literals(LOOKUP_TREE), **literals(SUMS_TREE)}
        for name, value in literals(made.files).items():
            assert type(value) is type(old[name]) and 0 < value <= 4096


def literals(files: Mapping[str, bytes]) -> dict[str, int | float]:
    values = Program.read(files).attributes().items()
    return {name: node.value for name, node in values if isinstance(node, ast.Constant)}  # type: ignore[misc]  # the trees hold numbers only


def test_a_larger_loop_of_model_calls_raises_the_turn_limit() -> None:
    source = (
        "from whale.harness import Harness\n\n\nclass H(Harness):\n    tries = 2\n    max_turns = 2\n\n"
        "    async def run(self, task, model, tools):\n        for _ in range(self.tries):\n"
        "            reply = await model.chat([{'role': 'user', 'content': task['q']}])\n"
        "        return reply\n"
    )
    tree = {"harness.py": source.encode()}
    for seed in range(20):
        made = mutate(BY_NAME["number-attribute"], tree, Material(), (), Random(seed))
        assert made is not None
        run_tree(made.files, {"q": "?"})


def test_the_stop_string_is_the_common_ending_of_passed_answers() -> None:
    made = every("stop-add", "lookup")
    assert {request["stop"] for child in made for request in requests(child.files).requests[1:]} == {("</answer>",)}


def test_the_prefix_is_how_passed_replies_of_that_call_begin() -> None:
    prefixes = {
        (index, request["prefix"])
        for child in every("prefix-add", "lookup")
        for index, request in enumerate(requests(child.files).requests)
        if "prefix" in request
    }
    assert prefixes == {(0, "<search>"), (1, "<answer>")}


def test_a_prefix_can_be_taken_off_again() -> None:
    first = change("prefix-add", "lookup", 0)
    assert first is not None
    second = change("prefix-remove", "lookup", 0, first.files)
    assert second is not None and second.files["harness.py"] == LOOKUP_TREE["harness.py"]


def test_mined_examples_stand_in_the_prompt() -> None:
    counts = set()
    for made in every("examples-add", "lookup"):
        shown = requests(made.files).requests[0]["messages"]
        counts.add((len(shown) - 2) // 4)
        assert {"role": "assistant", "content": "<answer>Elbe</answer>"} in shown
    assert counts == {2, 3, 4, 5}


def test_without_passed_rollouts_no_example_is_added() -> None:
    assert mutate(BY_NAME["examples-add"], LOOKUP_TREE, Material(), (), Random(0)) is None


def test_a_second_hop_asks_with_the_first_result_and_shows_both() -> None:
    for made in every("tool-second-hop", "lookup"):
        episode = requests(made.files)
        first, second = (options for _, _, options in episode.calls)
        assert "Passage number 1" in second["query"] and second["k"] - first["k"] in (1, 2, 3)
        shown = episode.requests[1]["messages"][-1]["content"]
        assert "Passage number 1" in shown and "Passage number 2" in shown


def test_a_second_hop_that_the_tool_refuses_leaves_the_first_result() -> None:
    class Refusing(Episode):
        def __getattr__(self, name: str) -> Any:
            tool = super().__getattr__(name)

            async def once(**options: Any) -> Any:
                if self.calls:
                    raise ToolError("too many")
                return await tool(**options)

            return once

    for made in every("tool-second-hop", "lookup"):
        shown = run_tree(made.files, TASKS["lookup"], Refusing()).requests[1]["messages"][-1]["content"]
        assert shown.startswith("Passage number 1")


def test_a_tool_can_be_asked_with_the_question_itself_or_with_both() -> None:
    queries = {requests(made.files).calls[0][2]["query"] for made in every("tool-argument", "lookup")}
    assert queries == {TASKS["lookup"]["question"], f"it {TASKS['lookup']['question']}"}


def test_a_trim_cuts_each_text_and_a_second_trim_changes_the_first() -> None:
    first = change("tool-result-trim", "sums", 1)
    assert first is not None
    second = change("tool-result-trim", "sums", 2, first.files)
    assert second is not None and code(second).count("_trimmed(await") == 1


def test_the_task_is_repeated_at_the_end_of_the_last_user_message() -> None:
    for made in every("task-repeat", "lookup"):
        asked = requests(made.files).requests
        question = TASKS["lookup"]["question"]
        assert any(request["messages"][-1]["content"].endswith("\n" + question) for request in asked)


def test_the_system_text_moves_into_the_user_message() -> None:
    for made in every("system-to-user", "lookup"):
        moved = [
            request
            for request in requests(made.files).requests
            if all(getattr(message, "text", None) or message["role"] != "system" for message in request["messages"])
        ]
        assert len(moved) == 1 and moved[0]["messages"][-1]["content"].startswith("Answer the question.")


def test_asking_again_happens_only_if_the_reply_lacks_what_it_should_end_with() -> None:
    for made in every("ask-again", "lookup"):
        good = run_tree(made.files, TASKS["lookup"], Episode(["<search>it</search>", "<answer>it</answer>"]))
        assert len(good.replies) == 2
        bad = run_tree(made.files, TASKS["lookup"], Episode(["nothing"]))
        assert len(bad.replies) == 3


def test_a_vote_returns_one_of_the_majority() -> None:
    for made in every("vote", "sums"):
        if "model call 2" in made.summary:
            episode = Episode(["plan", "[1]", "[2]", "[2]", "[3]", "[2]"])
            run_tree(made.files, TASKS["sums"], episode)
            count = len(episode.replies) - 1
            assert count in (3, 5)
            assert len({repr(r["messages"]) for r in episode.requests[1:]}) == 1


def test_a_model_call_can_be_dropped_for_the_question_itself() -> None:
    dropped = [made for made in every("drop-step", "lookup", 40) if "without model call 1" in made.summary]
    assert dropped
    episode = requests(dropped[0].files)
    assert len(episode.replies) == 1 and episode.calls[0][2]["query"] == TASKS["lookup"]["question"]


def test_prompt_slots_are_never_deleted_or_doubled() -> None:
    files = LOOKUP_TREE | {"prompts/system.md": b"Read this. Answer {question} now. Be brief.\n"}
    for seed in range(40):
        for name in ("prompt-delete", "prompt-duplicate", "prompt-move"):
            made = change(name, "lookup", seed, files)
            assert made is not None and made.files["prompts/system.md"].count(b"{question}") == 1


def test_crossover_takes_code_and_texts_from_different_parents() -> None:
    other = LOOKUP_TREE | {
        "harness.py": LOOKUP_TREE["harness.py"].replace(b"passages = 1", b"passages = 3"),
        "prompts/system.md": b"Be brief.\n",
    }
    made = {c.name: combine(c, LOOKUP_TREE, other, (), Random(1)) for c in CROSSOVERS}
    texts, mixed, attributes = (made[f"crossover-{kind}"] for kind in ("code-texts", "files", "attributes"))
    assert texts is not None and texts.files == LOOKUP_TREE | {"prompts/system.md": b"Be brief.\n"}
    assert attributes is not None and attributes.files == other | {
        "prompts/system.md": LOOKUP_TREE["prompts/system.md"]
    }
    assert mixed is not None and digest(mixed.files) in {digest(texts.files), digest(attributes.files)}
    for child in made.values():
        assert child is not None
        run_tree(child.files, TASKS["lookup"])


@pytest.mark.parametrize(
    "source",
    [
        "x = (",
        "class A: pass\n",
        "import os\n\nclass H(Harness):\n    def run(self): pass\n",
        "\x00",
        "x = 1\r\n",
    ],
)
def test_a_tree_that_is_no_harness_gets_no_child(source: str) -> None:
    files = {"harness.py": source.encode()}
    for operator in OPERATORS:
        assert mutate(operator, files, MATERIAL["lookup"], (), Random(0)) is None
    assert not is_new_harness(files, ())


def test_examples_of_another_shape_are_left_alone() -> None:
    files = LOOKUP_TREE | {"examples.json": b'{"shots": []}'}
    assert change("examples-add", "lookup", 0, files) is None
    assert example("q", "a")[-1]["content"] == "<answer>a</answer>"


@pytest.mark.parametrize("domain", TREES)
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_a_child_passes_the_contract_check(operator: Operator, domain: str) -> None:
    assert check_source(TREES[domain]) is None
    for made in every(operator.name, domain, 4):
        assert check_source(made.files) is None
