from collections import Counter
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whale.rollout.types import FinishReason, Status, Trajectory, Turn
from whale.weights.samples import drop_reason, filter_rollouts, samples_from

END = 2


def turn(
    prompt: tuple[int, ...],
    output: tuple[int, ...],
    finish: FinishReason = "stop",
    prefix: int = 0,
    text: str = "x",
) -> Turn:
    return Turn(prompt, output, (-1.0,) * len(output), finish, "w", prefix, text, "", ())


def rollout(*turns: Turn, answer: int | None = -1, status: Status = "ok", reward: float = 1.0) -> Trajectory:
    if answer == -1:
        answer = len(turns) - 1 if turns else None
    return Trajectory("t", 0, 0, turns, (), status, "", answer, reward=reward)


def masks(trajectory: Trajectory, train_turns: Literal["all", "answer"] = "all") -> list[list[tuple[int, bool]]]:
    return [
        list(zip(sample.token_ids, sample.loss_mask, strict=True)) for sample in samples_from(trajectory, train_turns)
    ]


def test_contiguous_turns_join_and_tool_results_between_them_are_not_trained() -> None:
    first = turn((1, 10, 11), (20, END))
    second = turn((1, 10, 11, 20, END, 30, 31), (40, END))
    (sample,) = samples_from(rollout(first, second))
    assert sample.token_ids == (1, 10, 11, 20, END, 30, 31, 40, END)
    assert sample.loss_mask == (False,) * 3 + (True,) * 2 + (False,) * 2 + (True,) * 2


def test_the_sampled_stop_token_is_trained_once_and_a_cut_turn_gets_none() -> None:
    (stopped,) = samples_from(rollout(turn((1, 5), (6, END))))
    assert (stopped.token_ids[-1], stopped.loss_mask[-1]) == (END, True)
    # The template closes a turn that was cut; that end token was not sampled.
    first = turn((1, 5), (6,), "length")
    (cut,) = samples_from(rollout(first, turn((1, 5, 6, END, 7), (8, END))))
    assert [t for t, on in zip(cut.token_ids, cut.loss_mask, strict=True) if on] == [6, 8, END]


def test_an_opened_prefix_and_fabricated_text_are_never_trained() -> None:
    # 50, 51: an assistant's turn that the harness made up; 60: the prefix that opens the reply.
    (sample,) = samples_from(rollout(turn((1, 50, 51, END, 9, 60), (61, END), prefix=1)))
    assert sample.loss_mask == (False,) * 6 + (True, True)


def test_a_rewritten_context_forks_without_training_the_repeated_tokens_again() -> None:
    first = turn((1, 5), (6, END))
    second = turn((1, 5, 6, END, 7), (8, END))
    third = turn((1, 5, 6, END, 9), (10, END))  # goes back to after the first reply
    joined, forked = masks(rollout(first, second, third))
    assert [t for t, on in joined if on] == [6, END, 8, END]
    assert [t for t, on in forked if on] == [10, END]
    assert [t for t, _ in forked] == [1, 5, 6, END, 9, 10, END]


def test_a_template_that_drops_earlier_thinking_forks_the_context() -> None:
    thought = turn((1, 5), (70, 71, 6, END))
    without = turn((1, 5, 6, END, 7), (8, END))
    assert [[t for t, on in sample if on] for sample in masks(rollout(thought, without))] == [
        [70, 71, 6, END],
        [8, END],
    ]


def test_parallel_votes_with_equal_words_each_count() -> None:
    vote = turn((1, 5), (6, END))
    assert sum(sample.trained for sample in samples_from(rollout(vote, vote, vote))) == 6


def test_answer_mode_leaves_out_the_votes_that_lost_and_keeps_what_led_to_the_answer() -> None:
    plan = turn((1, 5), (6, END))
    lost = turn((1, 5, 6, END, 7), (8, END))
    won = turn((1, 5, 6, END, 7), (9, END))
    trajectory = rollout(plan, lost, won, answer=2)
    (sample,) = masks(trajectory, "answer")
    assert [t for t, on in sample if on] == [6, END, 9, END]
    assert sum(s.trained for s in samples_from(trajectory)) == 6


def test_answer_mode_without_an_answer_trains_nothing() -> None:
    assert samples_from(rollout(turn((1,), (3,)), answer=None), "answer") == []


def test_a_rollout_without_sampled_tokens_gives_no_sample() -> None:
    assert samples_from(rollout()) == []
    assert samples_from(rollout(turn((1, 2), ()))) == []


@st.composite
def conversations(draw: st.DrawFn) -> Trajectory:
    """Turns that continue, go back to, repeat or rewrite earlier contexts, over few token ids."""
    ids = st.lists(st.integers(1, 3), max_size=4).map(tuple)
    turns: list[Turn] = []
    for _ in range(draw(st.integers(1, 6))):
        base: tuple[int, ...] = (1,)
        continues, with_output = draw(st.tuples(st.booleans(), st.booleans()))
        if turns and continues:
            earlier = turns[draw(st.integers(0, len(turns) - 1))]
            base = earlier.prompt_ids + (earlier.output_ids if with_output else ())
        turns.append(turn(base + draw(ids), draw(ids)))
    return rollout(*turns, answer=draw(st.integers(0, len(turns) - 1)))


@given(conversations())
def test_every_sampled_token_is_trained_exactly_once_under_its_own_context(trajectory: Trajectory) -> None:
    expected = Counter(
        (turn.prompt_ids + turn.output_ids[:i], token)
        for turn in trajectory.turns
        for i, token in enumerate(turn.output_ids)
    )
    found = Counter(
        (sample.token_ids[:t], sample.token_ids[t])
        for sample in samples_from(trajectory)
        for t, on in enumerate(sample.loss_mask)
        if on
    )
    assert found == expected


@given(conversations())
def test_answer_mode_trains_the_answer_turn_and_only_sampled_tokens(trajectory: Trajectory) -> None:
    sampled = {
        (turn.prompt_ids + turn.output_ids[:i], token)
        for turn in trajectory.turns
        for i, token in enumerate(turn.output_ids)
    }
    assert trajectory.answer_turn is not None
    answer = trajectory.turns[trajectory.answer_turn]
    samples = samples_from(trajectory, "answer")
    assert len(samples) <= 1
    trained = {
        (sample.token_ids[:t], sample.token_ids[t]) for sample in samples for t, on in enumerate(sample.loss_mask) if on
    }
    assert trained <= sampled
    assert {(answer.prompt_ids + answer.output_ids[:i], t) for i, t in enumerate(answer.output_ids)} <= trained


def test_the_filter_keeps_passed_rollouts_and_counts_what_it_drops_by_reason() -> None:
    good = rollout(turn((1,), (3, END)))
    failed = rollout(turn((1,), (3, END)), reward=0.0)
    errored = rollout(turn((1,), (3, END)), status="raised")
    truncated = rollout(turn((1,), (3,), "length"))
    empty = rollout(turn((1,), (END,), text=" "))
    everything = [failed, good, errored, truncated, empty, good]
    assert filter_rollouts(everything) == ([good, good], {"empty": 1, "errored": 1, "truncated": 1})
    assert filter_rollouts(everything, "paper") == ([good, errored, truncated, empty, good], {})


def test_only_the_final_turn_decides_whether_a_rollout_is_truncated() -> None:
    early = rollout(turn((1,), (3,), "length"), turn((1, 3, 4), (5, END)))
    assert filter_rollouts([early]) == ([early], {})


def test_a_turn_without_a_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="no prompt"):
        samples_from(rollout(turn((), (3,))))


@given(conversations(), st.sampled_from(["all", "answer"]))
def test_with_an_advantage_each_trained_token_has_the_logprob_recorded_with_it_and_no_other_has_one(
    trajectory: Trajectory, train_turns: Literal["all", "answer"]
) -> None:
    # Each sampled token gets a logprob of its own, by its context: told apart wherever it lands.
    turns: list[Turn] = []
    told: dict[tuple[tuple[int, ...], int], set[float]] = {}
    for number, turn in enumerate(trajectory.turns):
        values = tuple(-1.0 - number - i / 100 for i in range(len(turn.output_ids)))
        turns.append(replace(turn, logprobs=values))
        for i, (token, value) in enumerate(zip(turn.output_ids, values, strict=True)):
            told.setdefault((turn.prompt_ids + turn.output_ids[:i], token), set()).add(value)
    trajectory = replace(trajectory, turns=tuple(turns))
    plain = samples_from(trajectory, train_turns)
    rated = samples_from(trajectory, train_turns, advantage=0.5)
    assert [(s.token_ids, s.loss_mask) for s in rated] == [(s.token_ids, s.loss_mask) for s in plain]
    for sample in rated:
        assert sample.advantage == 0.5
        for t, (on, value) in enumerate(zip(sample.loss_mask, sample.logprobs, strict=True)):
            assert (value in told[sample.token_ids[:t], sample.token_ids[t]]) if on else value == 0.0


def test_what_led_to_the_answer_keeps_its_own_logprobs() -> None:
    plan = replace(turn((1, 5), (6, END)), logprobs=(-0.1, -0.2))
    won = replace(turn((1, 5, 6, END, 7), (9, END)), logprobs=(-0.3, -0.4))
    for train_turns in ("all", "answer"):
        (sample,) = samples_from(rollout(plan, won), train_turns, advantage=1.0)
        assert sample.logprobs == (0, 0, -0.1, -0.2, 0, -0.3, -0.4)


def test_a_rule_says_why_a_failed_rollout_is_not_trained_on_either() -> None:
    cut = rollout(turn((1,), (3,), "length"), reward=0.0)
    assert (drop_reason(cut), drop_reason(cut, "paper")) == ("truncated", None)
