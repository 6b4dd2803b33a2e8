"""Guarantees of an environment that answers between the model's replies."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.rollout.scripted import LIMITS, FactsDomain, ScriptedEngine, rollouts, tree
from whale.domains.base import Task, Verdict
from whale.rollout.parquet import decode_trajectories, encode_trajectories
from whale.rollout.replay import replay_episode
from whale.rollout.sandbox.host import HarnessWorker
from whale.rollout.sandbox.probe import best_tier
from whale.rollout.sandbox.tiers import Tier
from whale.rollout.types import Action, Completion, Trajectory

PUBLIC = {"question": "?"}
PLAY_TWICE = """
first = await model.chat([{'role': 'user', 'content': 'go'}], prefix='<')
seen = await tools.play(reply=first)
second = await model.chat([{'role': 'user', 'content': str(seen)}])
seen = await tools.play(reply=second)
return await model.chat([{'role': 'user', 'content': str(seen)}])
"""


class TakesDomain(FactsDomain):
    """`play` counts what an episode gave it; the verdict is what the verifier saw."""

    def tools(self, task: Task) -> Mapping[str, Callable[..., Any]]:
        taken: list[str] = []

        def play(reply: Completion, note: str = "") -> dict[str, Any]:
            if not isinstance(reply, Completion):
                raise ValueError("play takes a reply")
            taken.append(reply.sampled)
            return {"taken": len(taken), "prefix": reply.prefix, "turn": reply.turn}

        return {"play": play}

    def verify(self, task: Task, completion: Completion) -> Verdict:
        turns = [float(action.reply.turn) for action in completion.actions]
        return Verdict(1.0, {f"action {index}": turn for index, turn in enumerate(turns)})


@pytest.fixture(scope="module")
def tier() -> Tier:
    return best_tier()


def run(tier: Tier, body: str, episodes: int = 1) -> list[Trajectory]:
    with HarnessWorker(tree(body), tier, LIMITS) as worker:
        return rollouts(worker, [PUBLIC] * episodes, domain=TakesDomain())


def test_a_tool_reads_the_reply_that_the_model_sampled_and_each_episode_has_its_own_state(tier: Tier) -> None:
    for trajectory in run(tier, PLAY_TWICE, episodes=3):
        assert trajectory.status == "ok", trajectory.reason
        assert [call.result for call in trajectory.calls] == [
            {"taken": 1, "prefix": "<", "turn": 0},
            {"taken": 2, "prefix": "", "turn": 1},
        ]
        assert [(call.arguments, call.replies) for call in trajectory.calls] == [({}, {"reply": 0}), ({}, {"reply": 1})]


def test_the_verifier_sees_what_was_done_and_so_does_anyone_who_reads_the_record(tier: Tier) -> None:
    (trajectory,) = run(tier, PLAY_TWICE)

    assert trajectory.metrics == {"action 0": 0.0, "action 1": 1.0}
    (read,) = decode_trajectories(encode_trajectories([trajectory]))
    assert read == trajectory
    first, second, last = trajectory.turns
    assert read.completion == Completion(
        "",
        last.text,
        2,
        (Action("play", Completion("<", first.text, 0)), Action("play", Completion("", second.text, 1))),
    )


def test_a_refused_reply_is_no_action(tier: Tier) -> None:
    body = """
reply = await model.chat([{'role': 'user', 'content': 'go'}])
for given in ('e2e4', reply.text, {'reply': 0}, 0, None):
    try:
        await tools.play(reply=given)
    except ToolError as error:
        print(error)
return reply
"""
    (trajectory,) = run(tier, body)

    assert [call.error for call in trajectory.calls] == ["play takes a reply"] * 5
    assert trajectory.completion is not None
    assert trajectory.completion.actions == ()


@pytest.mark.parametrize(
    "forged",
    [
        {"arguments": {}, "replies": {"reply": 1}},
        {"arguments": {}, "replies": {"reply": -1}},
        {"arguments": {}, "replies": {"reply": True}},
        {"arguments": {}, "replies": {"reply": "0"}},
        {"arguments": {}, "replies": [0]},
        {"arguments": {"reply": "e2e4"}, "replies": {"reply": 0}},
    ],
    ids=str,
)
def test_a_reply_that_the_episode_does_not_have_ends_it(tier: Tier, forged: dict[str, Any]) -> None:
    request = json.dumps({"kind": "tool", "name": "play", **forged})
    body = f"""
reply = await model.chat([{{'role': 'user', 'content': 'go'}}])
await tools._loop.request({request!r})
return reply
"""
    (trajectory,) = run(tier, body)

    assert (trajectory.status, trajectory.reward) == ("bad_call", 0.0)
    assert trajectory.calls == ()


def test_a_rollout_with_played_replies_runs_again_without_a_model(tier: Tier) -> None:
    (trajectory,) = run(tier, PLAY_TWICE)
    task = Task("t0", PUBLIC, {})

    same = replay_episode(tree(PLAY_TWICE), task, trajectory, tier=tier, limits=LIMITS)
    assert same.same, same.difference
    assert same.asked == 5

    other = replay_episode(
        tree(PLAY_TWICE.replace("reply=second", "reply=first")), task, trajectory, tier=tier, limits=LIMITS
    )
    assert other.difference == "request 4 differs from the recorded one"


def test_a_record_without_played_replies_keeps_its_bytes(tier: Tier) -> None:
    """Artifacts are named by their content: an older release's must be read, and written again alike."""
    body = "found = await tools.lookup(key='france')\nreturn await model.chat([{'role': 'user', 'content': 'go'}])"
    with HarnessWorker(tree(body), tier, LIMITS) as worker:
        (trajectory,) = rollouts(worker, [PUBLIC], engine=ScriptedEngine())
    assert trajectory.replies[0] == {"kind": "tool", "name": "lookup", "arguments": {"key": "france"}}
    assert all(call.replies == {} for call in trajectory.calls)
    content = encode_trajectories([trajectory])
    calls = '[[0,"lookup",{"key":"france"},[{"text":"The capital of France is Paris, on the Seine.","score":1.5}],""]]'
    assert _column(content, "calls") == [calls]
    assert decode_trajectories(content) == [trajectory]
    assert encode_trajectories([replace(trajectory)]) == content


def _column(content: bytes, name: str) -> list[Any]:
    import io

    import pyarrow.parquet as pq

    column: list[Any] = pq.read_table(io.BytesIO(content), columns=[name], use_threads=False)[name].to_pylist()
    return column
