"""Guarantees of the one rollout path, on a scripted model and the real sandbox."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psutil
import pytest

from tests.rollout.scripted import (
    LIMITS,
    SAMPLING,
    ByteChat,
    FactsDomain,
    ScriptedEngine,
    ScriptedFlow,
    rollouts,
    say_hash,
    text_of,
    tree,
)
from whale.domains.base import Task
from whale.rollout.episode import call_seed
from whale.rollout.episodes import Limits, run_micro_batch
from whale.rollout.errors import ToolFault, WorkerDied
from whale.rollout.replay import replay_episode
from whale.rollout.sandbox.host import HarnessWorker
from whale.rollout.sandbox.probe import best_tier
from whale.rollout.sandbox.tiers import Tier
from whale.rollout.types import GenerateRequest
from whale.stopwatch import Stopwatch

USER = "[{'role': 'user', 'content': task['question']}]"
ASK_ONCE = f"return await model.chat({USER})"
SEARCH = f"""
first = await model.chat({USER}, prefix='<search>', max_tokens=6)
found = await tools.lookup(key='france')
print('found', found)
return await model.chat([*{USER}, first, {{'role': 'user', 'content': found[0]['text']}}], stop=['</answer>'])
"""
QUESTION = {"question": "What is the capital of France?"}


@pytest.fixture(scope="module")
def tier() -> Tier:
    return best_tier()


@pytest.fixture(autouse=True, params=["lock step", "flow"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What holds for one loop of the rollout path holds for the other."""
    if request.param == "flow":
        monkeypatch.setattr(ScriptedEngine, "session", lambda engine: ScriptedFlow(engine))
    return str(request.param)


def run(
    tier: Tier,
    body: str,
    *publics: dict[str, Any],
    limits: Limits = LIMITS,
    files: dict[str, str] | None = None,
    **named: Any,
) -> Any:
    with HarnessWorker(tree(body, **(files or {})), tier, limits) as worker:
        return rollouts(worker, publics or [QUESTION], **named)


def test_a_rollout_keeps_every_token_and_splices_an_earlier_reply(tier: Tier) -> None:
    engine = ScriptedEngine(lambda prompt, request: "capital" if request.max_tokens == 6 else "Paris</answer> more")

    (trajectory,) = run(tier, SEARCH, engine=engine, private={"answer": "Paris"})

    first, second = trajectory.turns
    assert (trajectory.status, trajectory.answer_turn, trajectory.reward) == ("ok", 1, 1.0)
    assert (first.text, first.finish_reason, first.prefix) == ("capita", "length", "<search>")
    assert text_of(first.prompt_ids[-first.prefix_len :]) == "<search>"
    assert second.text == "Paris</answer>"
    # The second prompt holds the first turn as it was, prefix and sampled ids.
    whole = first.prompt_ids + first.output_ids
    assert second.prompt_ids[: len(whole)] == whole
    assert second.messages[1] == {"role": "assistant", "content": "<search>capita"}
    assert [(call.name, call.after_turn, call.error) for call in trajectory.calls] == [("lookup", 1, "")]
    assert [request["kind"] for request in trajectory.replies] == ["chat", "tool", "chat"]
    assert trajectory.completion is not None
    assert trajectory.completion.sampled == "Paris</answer>"


def test_a_stopwatch_is_told_what_the_engine_the_harness_and_the_verdicts_took(tier: Tier) -> None:
    watch = Stopwatch()
    run(tier, SEARCH, QUESTION, QUESTION, watch=watch)
    spent = watch.lap()
    assert spent.keys() == {"generate", "harness", "verify", "other"}
    assert min(spent.values()) > 0


def test_equal_specs_give_equal_trajectories_in_another_worker_too(tier: Tier) -> None:
    body = """
names = {None, 'a', 'b', ('c', 1), Reply, 3.5}
words = [random.random(), random.Random().random(), random.choice('abc'), str(names)]
random.seed()
words.append(random.random())
words.append(sorted(map(hash, ['x', 'y', None])))
import time
words.append(time.time())
return await model.chat([{'role': 'user', 'content': str(words)}])
"""
    once = run(tier, body, *[QUESTION] * 3)
    again = run(tier, body, *[QUESTION] * 3)

    assert once == again
    contents = [trajectory.turns[0].messages[0]["content"] for trajectory in once]
    assert len(set(contents)) == 3, "each seed has its own randomness"


def test_nothing_is_carried_from_one_episode_to_the_next(tier: Tier) -> None:
    body = """
import builtins
seen = getattr(builtins, 'seen', 0)
builtins.seen = seen + 1
try:
    open('/tmp/note', 'a').write('x')
except OSError:
    pass
return await model.chat([{'role': 'user', 'content': str(seen)}])
"""
    trajectories = run(tier, body, *[QUESTION] * 4)

    assert {trajectory.turns[0].messages[0]["content"] for trajectory in trajectories} == {"0"}


def test_the_engine_sees_rounds_in_lock_step_in_the_order_of_the_specs(tier: Tier, loop: str) -> None:
    if loop == "flow":
        pytest.skip("lock step is what a deterministic engine needs")
    body = f"""
for _ in range(task['turns']):
    last = await model.chat({USER})
return last
"""
    engine = ScriptedEngine()
    publics = [{"question": str(i), "turns": i % 3 + 1} for i in range(6)]

    trajectories = run(tier, body, *publics, engine=engine)

    assert [len(trajectory.turns) for trajectory in trajectories] == [1, 2, 3, 1, 2, 3]
    assert [[text_of(request.prompt_ids)[5] for request in batch] for batch in engine.batches] == [
        list("012345"),
        list("1245"),
        list("25"),
    ]


def test_an_episode_that_hangs_holds_up_none_of_the_others(tier: Tier, loop: str) -> None:
    if loop != "flow":
        pytest.skip("in lock step all wait for the slowest")
    body = f"""
while task['hangs']:
    pass
for _ in range(4):
    last = await model.chat({USER})
return last
"""
    publics = [{"question": str(i), "hangs": i == 0} for i in range(4)]
    files = tree(body)
    with HarnessWorker(files, tier, replace(LIMITS, cpu_seconds=3)) as worker:
        still_there = []

        def say(prompt: str, request: GenerateRequest) -> str:
            still_there.append(0 in worker._alive)
            return "said"

        trajectories = rollouts(worker, publics, engine=ScriptedEngine(say))
    assert [trajectory.status for trajectory in trajectories] == ["cpu_limit", "ok", "ok", "ok"]
    assert still_there == [True] * 12, "all was sampled while the first one still hung"


def test_gathered_calls_are_one_round_and_keep_their_order(tier: Tier) -> None:
    body = f"""
async def one(n):
    await asyncio.sleep(10 - n)
    return await model.chat([{{'role': 'user', 'content': str(n)}}])
async def two():
    return await tools.lookup(key='answer')
*replies, found = await asyncio.gather(one(1), one(2), one(3), two())
assert found[0]['text'] == '42'
first = await asyncio.wait_for(model.chat({USER}), timeout=0.001)
return replies[1]
"""
    engine = ScriptedEngine()

    (trajectory,) = run(tier, body, engine=engine)

    assert trajectory.status == "ok", trajectory.reason
    # The tool's answer came first; then the clock jumped to each sleeper in turn.
    assert [len(batch) for batch in engine.batches] == [1, 1, 1, 1]
    assert trajectory.answer_turn == 1
    assert [turn.messages[0]["content"] for turn in trajectory.turns[:3]] == ["3", "2", "1"]


def test_calls_without_sleeps_share_a_round(tier: Tier, loop: str) -> None:
    body = f"return (await asyncio.gather(*(model.chat({USER}) for _ in range(3))))[2]"
    engine = ScriptedEngine()

    (trajectory,) = run(tier, body, engine=engine)

    assert [len(batch) for batch in engine.batches] == ([3] if loop == "lock step" else [1, 1, 1])
    assert trajectory.answer_turn == 2
    seeds = {request.seed for batch in engine.batches for request in batch}
    assert seeds == {call_seed(0, 0), call_seed(0, 1), call_seed(0, 2)}
    assert len(set(seeds)) == 3


def test_a_tool_refuses_with_its_reason_and_the_harness_goes_on(tier: Tier) -> None:
    body = """
said = []
for arguments in ({'key': 'atlantis'}, {'wrong': 1}):
    try:
        await tools.lookup(**arguments)
    except ToolError as error:
        said.append(str(error))
return await model.chat([{'role': 'user', 'content': ' | '.join(said)}])
"""
    (trajectory,) = run(tier, body)

    assert trajectory.status == "ok"
    assert [bool(call.error) for call in trajectory.calls] == [True, True]
    assert "there is no entry 'atlantis'" in trajectory.turns[0].messages[0]["content"]
    assert "unexpected keyword" in trajectory.turns[0].messages[0]["content"]


def test_a_tools_own_fault_stops_the_micro_batch_and_ends_every_process(tier: Tier) -> None:
    body = "await tools.broken() if task['broken'] else await asyncio.sleep(0)\nwhile True: pass"
    engine = ScriptedEngine()
    with HarnessWorker(tree(body), tier, LIMITS) as worker:
        with pytest.raises(KeyError):
            rollouts(worker, [{"broken": False}, {"broken": True}], engine=engine)
        assert {child.pid for child in psutil.Process(worker.pid).children(recursive=True)} <= set(worker.pids)
        with pytest.raises(ToolFault, match="unserialisable of facts returned no JSON"):
            rollouts_of_tool(tier, "unserialisable")
    assert engine.open_sessions == 0


def rollouts_of_tool(tier: Tier, name: str) -> None:
    run(tier, f"await tools.{name}()")


def test_an_engine_fault_rises_and_the_worker_serves_the_next_micro_batch(tier: Tier) -> None:
    def fail(prompt: str, request: GenerateRequest) -> str:
        raise RuntimeError("CUDA error")

    with HarnessWorker(tree(ASK_ONCE), tier, LIMITS) as worker:
        with pytest.raises(RuntimeError, match="CUDA"):
            rollouts(worker, [QUESTION] * 3, engine=ScriptedEngine(fail))
        assert [t.status for t in rollouts(worker, [QUESTION] * 3)] == ["ok"] * 3


def test_a_dead_worker_is_a_fault_of_ours_and_never_a_reward_of_zero(tier: Tier) -> None:
    with HarnessWorker(tree(ASK_ONCE), tier, LIMITS) as worker:

        def kill(prompt: str, request: GenerateRequest) -> str:
            psutil.Process(worker.pid).kill()
            return "x"

        with pytest.raises(WorkerDied, match="sandbox's worker"):
            rollouts(worker, [QUESTION] * 3, engine=ScriptedEngine(kill))


def test_episodes_that_several_processes_fork_are_the_same_as_those_of_one(tier: Tier) -> None:
    publics = [{"question": str(i)} for i in range(9)]
    given = []
    for forkers in (1, 3):
        with HarnessWorker(tree(SEARCH), tier, LIMITS, forkers=forkers) as worker:
            parents: dict[int, int] = {}

            def say(prompt: str, request: GenerateRequest, there: Any = worker, seen: Any = parents) -> str:
                for process in there._alive.values():
                    with contextlib.suppress(psutil.NoSuchProcess):  # it has ended already
                        seen[process.number] = psutil.Process(process.pid).ppid()
                return say_hash(prompt, request)

            given.append(rollouts(worker, publics, engine=ScriptedEngine(say)))
            assert parents == {number: worker.pids[number % forkers] for number in range(9)}
            assert len(set(worker.pids)) == forkers

    assert given[0] == given[1]
    assert [trajectory.status for trajectory in given[0]] == ["ok"] * 9


def test_64_episodes_are_alive_at_once(tier: Tier, loop: str) -> None:
    engine = ScriptedEngine()

    trajectories = run(tier, SEARCH, *[{"question": str(i)} for i in range(64)], engine=engine)

    assert [trajectory.status for trajectory in trajectories] == ["ok"] * 64
    assert [len(batch) for batch in engine.batches] == ([64, 64] if loop == "lock step" else [1] * 128)


def test_the_hosts_sampling_settings_bound_what_a_harness_asks_for(tier: Tier) -> None:
    body = f"""
first = await model.chat({USER}, max_tokens=1000, temperature=0)
second = await model.chat({USER}, max_tokens=50)
return await model.chat({USER}, max_tokens=50)
"""
    engine = ScriptedEngine(lambda prompt, request: "x" * 500)
    sampling = replace(SAMPLING, max_generated_tokens=100, max_tokens_per_turn=64, temperature=0.9)

    (trajectory,) = run(tier, body, engine=engine, sampling=sampling)

    asked = [(r.max_tokens, r.temperature) for batch in engine.batches for r in batch]
    assert asked == [(64, 0.0), (36, 0.9)]
    assert (trajectory.status, trajectory.generated) == ("token_limit", 100)
    assert len(trajectory.turns) == 2


def test_a_harness_cannot_raise_the_runs_turn_limit(tier: Tier) -> None:
    body = f"while True: await model.chat({USER})"

    (trajectory,) = run(tier, body, sampling=replace(SAMPLING, max_turns=2))

    assert (trajectory.status, trajectory.reason, len(trajectory.turns)) == (
        "turn_limit",
        "more than 2 model calls",
        2,
    )


def test_a_harness_sees_its_own_tree_and_the_public_fields_only(tier: Tier) -> None:
    body = """
from words import GREETING
assert self.files['words.py'] == 'GREETING = "hello"\\n'
assert self.files['data/table.json'] == '{"a": 1}'
assert sorted(task) == ['question']
assert dir(tools) == ['broken', 'lookup', 'unserialisable']
return await model.chat([{'role': 'user', 'content': GREETING + self.files['prompts/system.md']}])
"""
    files = {"words.py": 'GREETING = "hello"\n', "data/table.json": '{"a": 1}'}

    (trajectory,) = run(tier, body, files=files, private={"answer": "Paris"})

    assert trajectory.status == "ok", trajectory.reason
    assert trajectory.turns[0].messages[0]["content"] == "helloBe brief.\n"


def test_a_computed_answer_that_the_model_repeats_is_reported_as_fabricated(tier: Tier) -> None:
    body = """
found = await tools.lookup(key='france')
shown = {'computed': 'Say Paris', 'quoted': 'Read: ' + found[0]['text'], 'prefix': 'Say it'}[task['how']]
prefix = 'Paris' if task['how'] == 'prefix' else ''
return await model.chat([{'role': 'user', 'content': shown}], prefix=prefix)
"""
    engine = ScriptedEngine(lambda prompt, request: "Paris")
    publics = [{"how": how} for how in ("computed", "quoted", "prefix")]

    trajectories = run(tier, body, *publics, engine=engine, private={"answer": "Paris"})

    assert [trajectory.reward for trajectory in trajectories] == [1.0, 1.0, 1.0]
    assert [trajectory.fabricated for trajectory in trajectories] == [True, False, True]


def test_a_recorded_rollout_runs_again_without_a_model(tier: Tier) -> None:
    (trajectory,) = run(tier, SEARCH)

    replay = replay_episode(tree(SEARCH), Task("t0", QUESTION, {}), trajectory, tier=tier, limits=LIMITS)

    assert replay.same, replay.difference
    assert (replay.status, replay.answer_turn, replay.asked) == ("ok", 1, 3)
    assert "found [{'text': 'The capital of France" in replay.output


def test_a_replay_under_another_harness_names_the_first_difference(tier: Tier) -> None:
    (trajectory,) = run(tier, SEARCH)
    other = SEARCH.replace("stop=['</answer>']", "stop=['.']")

    replay = replay_episode(tree(other), Task("t0", QUESTION, {}), trajectory, tier=tier, limits=LIMITS)

    assert not replay.same
    assert replay.difference == "request 3 differs from the recorded one"


@pytest.mark.parametrize(
    "body",
    [
        f"while True: await model.chat({USER})",
        f"await model.chat({USER})\nraise ValueError('x')",
        "return 'Paris'",
        "while True: pass",
    ],
)
def test_a_failed_rollout_fails_the_same_way_in_a_replay(tier: Tier, body: str) -> None:
    (trajectory,) = run(tier, body)

    replay = replay_episode(tree(body), Task("t0", QUESTION, {}), trajectory, tier=tier, limits=LIMITS)

    assert replay.same, replay.difference
    assert (replay.status, replay.reason) == (trajectory.status, trajectory.reason)


def test_a_worker_of_another_harness_or_other_limits_is_refused(tier: Tier) -> None:
    with HarnessWorker(tree(ASK_ONCE), tier, LIMITS) as worker:
        for files, limits in ((tree(SEARCH), LIMITS), (worker.files, replace(LIMITS, cpu_seconds=2))):
            with pytest.raises(ValueError, match="another harness or other limits"):
                run_micro_batch(ScriptedEngine(), ByteChat(), files, {}, [], FactsDomain(), SAMPLING, limits, worker)


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many forks are asked for ahead, far fewer than the episodes."""
    monkeypatch.setattr("whale.rollout.episodes._STARTING", 3)
    return 3


def test_no_more_forks_are_asked_for_than_the_worker_takes_without_a_wait(
    tier: Tier, loop: str, few_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loop != "flow":
        pytest.skip("in lock step nothing can be sampled before all have asked")
    seen: list[int] = []
    open_episode = HarnessWorker.open_episode

    def watched(worker: HarnessWorker, *args: Any, **named: Any) -> Any:
        seen.append(worker.starting)
        return open_episode(worker, *args, **named)

    monkeypatch.setattr(HarnessWorker, "open_episode", watched)
    publics = [{"question": str(i)} for i in range(20)]
    trajectories = run(tier, ASK_ONCE, *publics)
    assert [trajectory.turns[0].messages[0]["content"] for trajectory in trajectories] == [str(i) for i in range(20)]
    assert [trajectory.seed for trajectory in trajectories] == list(range(20))
    assert len(seen) == 20
    assert max(seen) == few_at_once - 1


def test_forks_go_on_while_the_first_episodes_compute_and_while_others_are_sampled(
    tier: Tier, loop: str, few_at_once: int
) -> None:
    if loop != "flow":
        pytest.skip("in lock step nothing can be sampled before all have asked")
    body = f"while task['hangs']: pass\nreturn await model.chat({USER})"
    publics = [{"question": str(i), "hangs": i < few_at_once} for i in range(12)]
    with HarnessWorker(tree(body), tier, replace(LIMITS, cpu_seconds=3)) as worker:
        still_there: list[bool] = []

        def say(prompt: str, request: GenerateRequest) -> str:
            still_there.append(worker._alive.keys() >= {0, 1, 2})
            return "said"

        trajectories = rollouts(worker, publics, engine=ScriptedEngine(say))
    assert [trajectory.status for trajectory in trajectories] == ["cpu_limit"] * few_at_once + ["ok"] * 9
    assert still_there == [True] * 9, "all was sampled while the first ones still hung"


def test_a_worker_that_dies_among_its_forks_is_told_and_nothing_hangs(tier: Tier, few_at_once: int) -> None:
    with HarnessWorker(tree(SEARCH), tier, LIMITS) as worker:
        engine = ScriptedEngine()

        def kill(prompt: str, request: GenerateRequest) -> str:
            psutil.Process(worker.pid).kill()
            return "x"

        engine._say = kill
        with pytest.raises(WorkerDied, match="sandbox's worker"):
            rollouts(worker, [QUESTION] * 20, engine=engine)
    assert engine.open_sessions == 0


@pytest.mark.parametrize("forkers", [1, 3])
def test_a_fork_that_fails_is_a_fault_of_ours_with_its_reason(
    forkers: int, tier: Tier, few_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sixth episode gets no descriptor for its output, as if the machine had none left."""
    command = HarnessWorker._command

    def broken(worker: HarnessWorker, forker: Any, value: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        short = value.get("id") == 5 and value["type"] == "spawn"
        command(worker, forker, value, descriptors[:1] if short else descriptors)

    with HarnessWorker(tree(ASK_ONCE), tier, LIMITS, forkers=forkers) as worker:
        monkeypatch.setattr(HarnessWorker, "_command", broken)
        with pytest.raises(WorkerDied, match="IndexError"):
            rollouts(worker, [QUESTION] * 20)
