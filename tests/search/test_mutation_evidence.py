"""An operator skips a change that no recorded rollout would feel, and knows nothing of what is good."""

from dataclasses import replace
from random import Random

import pytest

from tests.search.sample_trees import LOOKUP_TREE, entry
from whale.domains.registry import load_domain
from whale.rollout.types import ToolCall, Trajectory, Turn
from whale.search.mutation.catalogue import OPERATORS
from whale.search.mutation.evidence import evidence_of, limit_matters
from whale.search.mutation.operator import Change, Material
from whale.search.mutation.proposer import MutationProposer, mutate
from whale.search.tree import digest
from whale.search.types import Archive

BY_NAME = {operator.name: operator for operator in OPERATORS}


def turn(text: str, tokens: int, cut: bool = False) -> Turn:
    return Turn((1,), tuple(range(tokens)), (0.0,) * tokens, "length" if cut else "stop", "w", 0, text, "", ())


def rollout(*turns: Turn, reward: float = 0.0, result: str = "one two three") -> Trajectory:
    call = ToolCall(1, "search", {}, [{"text": result}])
    return Trajectory("t", 0, 0, turns, (call,), "ok", "", 1, reward=reward)


def material(*rollouts: Trajectory) -> Material:
    return Material(evidence={digest(LOOKUP_TREE): evidence_of(rollouts)})


SHORT = rollout(turn("<search>x</search>", 9), turn("Paris", 12))
CUT = rollout(turn("<search>x", 24, cut=True), turn("Paris", 12))


def changes(name: str, known: Material, draws: int = 60) -> list[Change]:
    made = [mutate(BY_NAME[name], LOOKUP_TREE, known, (), Random(seed)) for seed in range(draws)]
    return [change for change in made if change is not None]


@pytest.mark.parametrize(
    ("old", "new", "matters"),
    [(24, 32, False), (24, 16, True), (24, 12, False), (None, 64, False), (None, 8, True)],
)
def test_a_limit_matters_only_below_the_longest_reply_if_none_was_cut(old: int | None, new: int, matters: bool) -> None:
    heard = evidence_of([rollout(turn("x", 3), turn("y", 17 if new == 16 else 12))]).episodes[0][1:]
    assert limit_matters(heard, old, new) is matters
    assert limit_matters((), old, new), "where nothing is known, everything may matter"


def test_a_limit_that_cut_replies_matters_when_it_is_raised_and_not_when_another_one_cut_them() -> None:
    heard = evidence_of([CUT]).episodes[0][:1]
    assert limit_matters(heard, 24, 32)
    assert not limit_matters(heard, 64, 128), "the run's own limit cut them at 24"


def test_token_limits_that_no_reply_comes_near_are_not_proposed() -> None:
    assert changes("token-limit", material(SHORT)) == []
    assert len(changes("token-limit", Material())) == 60
    made = changes("token-limit", material(CUT))
    assert made
    assert all("model call 1" in change.summary for change in made), "where replies were cut"


def test_an_attribute_that_is_a_token_limit_is_held_to_the_same() -> None:
    told = [c.summary for c in changes("number-attribute", material(SHORT))]
    limits = [text for text in told if "answer_tokens" in text]
    assert told
    assert all("to 8" in text for text in limits), "32 halves to 16 and above; no reply is longer than 12"
    assert [t for t in (c.summary for c in changes("number-attribute", Material())) if "answer_tokens" in t]


def test_a_stop_string_that_no_reply_met_is_not_taken_off() -> None:
    never = rollout(turn("no tag", 9), turn("Paris", 12))
    assert changes("stop-remove", material(never)) == []
    assert changes("stop-remove", material(SHORT))


def test_a_call_is_not_asked_again_for_what_no_failed_reply_lacks() -> None:
    assert not [c for c in changes("ask-again", material(SHORT)) if "model call 1" in c.summary]
    assert [c for c in changes("ask-again", material(CUT)) if "model call 1" in c.summary]


def test_a_cut_longer_than_every_text_is_not_proposed() -> None:
    assert changes("tool-result-trim", material(SHORT)) == []
    assert changes("tool-result-trim", material(replace(SHORT, calls=(ToolCall(1, "search", {}, "word " * 300),))))


def test_rollouts_whose_turns_do_not_match_the_programs_calls_say_nothing() -> None:
    assert changes("token-limit", material(rollout(turn("x", 3)), rollout(turn("x", 3)))) != []


def test_proposals_stay_a_function_of_archive_and_seed() -> None:
    archive = Archive((entry("h0", LOOKUP_TREE, 0.25),), (), {}, {"h0": (SHORT, CUT)})
    first, second = (MutationProposer().propose(archive, count=6, seed=3, cycle=1, iteration=1) for _ in range(2))
    assert first == second
    assert len(first) == 6


def asked(query: str, reward: float = 0.0) -> Trajectory:
    return replace(SHORT, calls=(ToolCall(1, "search", {"query": query}, []),), reward=reward)


QUESTION = {"t": {"question": "Which city is the capital of France?"}}


def test_a_tool_that_is_not_asked_the_tasks_words_is_asked_them_first() -> None:
    tree = load_domain("searchqa", {"test": 8}).h0()

    def first_choices(*rollouts: Trajectory) -> set[str]:
        known = Material(task_fields=("question",), evidence={digest(tree): evidence_of(rollouts, QUESTION)})
        made = [mutate(BY_NAME["tool-argument"], tree, known, (), Random(seed)) for seed in range(40)]
        return {change.summary for change in made if change is not None}

    elsewhere = first_choices(asked("country of Graz"), asked("city"))
    assert elsewhere
    assert all('task["question"]' in summary for summary in elsewhere)
    already = first_choices(asked("the capital city of France"), asked("which is the capital of France"))
    assert any('task["question"]' not in summary for summary in already), "nothing speaks for one place"


def test_what_passed_rollouts_asked_is_no_evidence_against_them() -> None:
    shown = evidence_of([asked("city", reward=1.0), asked("capital city of France")], QUESTION)
    assert shown.left_out == {("search", "question"): 0.0}


def test_what_one_or_two_replies_have_in_common_is_not_taken_for_a_form() -> None:
    def prefixes(*answers: str) -> set[str]:
        rollouts = [rollout(turn("<search>x", 5), turn(f"<answer>{text}</answer>", 9), reward=1.0) for text in answers]
        summaries = (change.summary for change in changes("prefix-add", material(rollout(*SHORT.turns), *rollouts)))
        return {summary.split("'")[1] for summary in summaries if "call 2" in summary}

    assert prefixes() == prefixes("Austria") == prefixes("Austria", "Austria", "Austria") == set()
    assert prefixes("Austria", "Peru", "Chad") == {"<answer>"}
