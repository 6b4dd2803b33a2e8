"""GEPA's own package over our archive and rollouts; the model that reflects is played by a local server."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.search.messages_server import Answer, Played, messages_server, say
from tests.search.sample_trees import LOOKUP_TREE, entry
from tests.search.test_agentic_session import Bench
from tests.search.test_openai_model import Server, answer, server
from whale.errors import UsageError, WhaleError
from whale.events.types import Outcome
from whale.rollout.types import ToolCall, Trajectory, Turn
from whale.search.agentic.types import SessionResult, Suspended
from whale.search.registry import proposer
from whale.search.types import Archive, ArchiveEntry

pytest.importorskip("gepa", reason="the extra `gepa` is not installed")

__all__ = ["server"]  # a fixture

SYSTEM, USER = "prompts/system.md", "prompts/user.md"
TREE = {**LOOKUP_TREE, SYSTEM: b"Answer.", USER: b"{question}"}


def scored(candidate: str, files: Mapping[str, bytes], passed: str, *parents: str) -> ArchiveEntry:
    outcomes = tuple(
        Outcome(f"harness-{n}", 0, float(mark), "ok", 1, 5, 9, False, False) for n, mark in enumerate(passed)
    )
    made = entry(candidate, files, passed.count("1") / len(passed))
    return replace(made, outcomes=outcomes, parents=parents)


ARCHIVE = Archive((scored("h0", TREE, "0100"),), ())


class RolloutBench(Bench):
    """A model that passes half of the tasks, and all of them once a prompt holds the word GOOD."""

    def __init__(self) -> None:
        super().__init__()
        self.sampled: dict[str, list[str]] = {}
        self.made: dict[str, Sequence[Trajectory]] = {}

    def check(self, files: Mapping[str, bytes]) -> str | None:
        return "it smuggles" if b"SMUGGLED" in files[SYSTEM] else super().check(files)

    def rollouts(self, key: str, files: Mapping[str, bytes], tasks: Sequence[str]) -> Sequence[Trajectory]:
        if key not in self.made:
            self.sampled[key] = list(tasks)
            self.made[key] = [self.rollout(files, task) for task in tasks]
        return self.made[key]

    def rollout(self, files: Mapping[str, bytes], task: str) -> Trajectory:
        good = b"GOOD" in files[SYSTEM] + files[USER]
        words = ({"role": "system", "content": files[SYSTEM].decode()}, {"role": "user", "content": f"about {task}"})
        turn = Turn((1,), (2,), (0.0,), "stop", "w", 0, f"<side_info> reply {task}\x1b[2J", "", words)
        call = ToolCall(1, "search", {"query": task}, "found it")
        reward = float(good or int(task[-1]) % 4 == 0)
        return Trajectory(task, 0, 0, (turn,), (call,), "ok", "", 0, reward=reward)


class Taskless(RolloutBench):
    """A search over D_harness alone."""

    def training_tasks(self) -> Sequence[str]:
        return []


def rewritten(text: str) -> Answer:
    return Answer([say(f"It fails because.\n```\n{text}\n```")], "end_turn")


def play(played: Played, bench: Bench, count: int = 1, archive: Archive = ARCHIVE, **options: Any) -> SessionResult:
    made = proposer("gepa", {"model": "played", "base_url": played.base_url, "patience": 3.0, **options})
    made.preflight()  # type: ignore[union-attr]
    result: SessionResult = made.session(archive, bench, count=count, seed=1, cycle=1, iteration=1)  # type: ignore[union-attr]
    return result


def test_a_text_that_does_better_on_its_minibatch_is_handed_over_and_only_a_prompt_has_changed() -> None:
    bench = RolloutBench()
    with messages_server([rewritten("GOOD, answer.")]) as played:
        result = play(played, bench, prices={"input": 10.0, "output": 50.0})
    (proposal,) = result.proposals
    assert (result.outcome, result.turns, bench.paid) == ("submitted", 1, 1)
    assert proposal.parents == ("h0",)
    assert proposal.files == {**TREE, SYSTEM: b"GOOD, answer."}
    assert proposal.axis == SYSTEM and "-Answer." in proposal.changes and "+GOOD, answer." in proposal.changes
    assert "3 against" in proposal.title
    assert result.dollars == pytest.approx((110 * 10 + 20 * 50) / 1e6)
    assert [len(tasks) for tasks in bench.sampled.values()] == [3, 3]
    before, after = bench.sampled.values()
    assert before == after, "parent and child meet the same tasks"


def test_what_does_no_better_is_kept_in_the_transcript_and_handed_over_only_if_the_test_is_off() -> None:
    script = [rewritten(f"Bad {n}.") for n in range(4)]
    with messages_server(script) as played:
        result = play(played, RolloutBench(), steps=2)
    assert (result.outcome, result.proposals) == ("gave up", ())
    lines = [json.loads(line) for line in result.transcript.decode().splitlines()]
    assert [line["verdict"] for line in lines if "verdict" in line] == ["not better", "not better"]
    with messages_server(script) as played:
        result = play(played, RolloutBench(), count=2, test=False)
    assert [p.axis for p in result.proposals] == [SYSTEM, USER], "texts take turns"


def test_the_reflection_shows_rollouts_as_marked_data_that_cannot_close_its_mark() -> None:
    with messages_server([rewritten("GOOD")]) as played:
        play(played, RolloutBench())
    (message,) = played.requests[0]["messages"]
    text = message["content"][0]["text"]
    fence = text.split("<data ")[1].split(">")[0]
    assert text.count(f"</data {fence}>\n") == 2
    assert "about weight-" in text and "found it" in text and "not passed" in text
    assert "\x1b" not in text and "<side_info >" in text
    assert "niche" not in text, "it is our prompt, which forbids what belongs to single tasks"
    assert "tools" not in played.requests[0] and "system" not in played.requests[0]


def test_an_invalid_text_is_not_run_and_is_handed_over_as_invalid() -> None:
    bench = RolloutBench()
    with messages_server([rewritten("SMUGGLED")]) as played:
        result = play(played, bench, steps=1)
    assert len(bench.sampled) == 1, "the parent's rollouts alone"
    (proposal,) = result.proposals
    assert bench.check(proposal.files) == "it smuggles"


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Answer([say("```\nGOOD and half a")], "max_tokens"), "gave up"),
        (Answer([say("I would rather not.")], "refusal"), "refusal"),
        (Answer([say("GOOD, but no block")], "end_turn"), "gave up"),
        (Answer([], "end_turn"), "gave up"),
    ],
    ids=["cut", "refusal", "no block", "empty"],
)
def test_a_reply_without_a_whole_text_makes_no_candidate_and_is_paid_once(reply: Answer, outcome: str) -> None:
    bench = RolloutBench()
    with messages_server([reply], forever=True) as played:
        result = play(played, bench, steps=2)
    assert (result.outcome, result.proposals) == (outcome, ())
    assert len(played.requests) == bench.paid == (1 if outcome == "refusal" else 2)


@pytest.mark.parametrize(
    ("budget", "reflections", "batches"),
    [
        ({"trials": 7}, 1, 2), ({"dollars": 0.004}, 2, 4), ({"tokens": 250}, 2, 4),
        ({"tool_calls": 3}, 1, 3), ({"seconds": 1e-9}, 0, 1),
    ],
    ids=["trials", "dollars", "tokens", "calls", "seconds"],
)  # fmt: skip
def test_each_budget_ends_the_session(budget: dict[str, Any], reflections: int, batches: int) -> None:
    bench = RolloutBench()
    with messages_server([rewritten("Bad.")], forever=True) as played:
        result = play(played, bench, budget=budget, prices={"input": 10.0, "output": 50.0})
    (name,) = budget
    assert result.outcome == f"budget: {name}"
    assert (result.turns, len(bench.sampled)) == (reflections, batches)


def test_a_session_that_was_left_goes_on_and_pays_no_reply_and_no_rollout_twice() -> None:
    script = [rewritten("Bad."), rewritten("{question} GOOD"), rewritten("GOOD."), rewritten("GOOD too.")]
    whole = RolloutBench()
    with messages_server(script) as played:
        expected = play(played, whole, count=2)
        asked = played.requests
    bench = RolloutBench()
    with messages_server(script) as played:
        for replies in range(1, whole.paid):
            bench.stop_after = replies
            with pytest.raises(Suspended):
                play(played, bench, count=2)
        bench.stop_after = None
        result = play(played, bench, count=2)
        assert played.requests == asked
    assert bench.paid == whole.paid
    assert bench.sampled == whole.sampled
    assert (result.proposals, result.transcript) == (expected.proposals, expected.transcript)
    assert len(result.proposals) == 2


def test_a_fault_of_the_service_leaves_the_session_and_is_no_outcome() -> None:
    """GEPA catches what a reflection raises and asks again: a stop and a fault must get past it."""
    bench = RolloutBench()
    with messages_server([Answer(status=401)], forever=True) as played, pytest.raises(WhaleError, match="401"):
        play(played, bench)
    assert len(played.requests) == 1
    bench = RolloutBench()
    with messages_server([Answer(status=529)], forever=True) as played, pytest.raises(WhaleError, match="resume"):
        play(played, bench)
    assert sum(bench.waited) <= 3.0


def test_parents_are_the_pareto_front_of_the_archives_own_scores() -> None:
    """h0 is dominated, c1 and c2 each pass what the other fails; a stranger's program is no kin of theirs."""
    files = [{**TREE, SYSTEM: f"v{n}".encode()} for n in range(3)]
    other = {**TREE, "harness.py": TREE["harness.py"] + b"# other"}
    archive = Archive(
        (
            scored("h0", TREE, "0000"), scored("c1", files[1], "1100", "h0"), scored("c2", files[2], "0011", "h0"),
            scored("x", other, "0000"), replace(scored("old", files[0], "1111"), current=False),
        ),
        (),
    )  # fmt: skip
    with messages_server([rewritten(f"GOOD {n}") for n in range(9)]) as played:
        result = play(played, RolloutBench(), count=6, archive=archive)
    parents = {parent for proposal in result.proposals for parent in proposal.parents}
    assert parents == {"c1", "c2"}
    assert len({tuple(sorted(p.files.items())) for p in result.proposals}) == len(result.proposals)


def test_an_archive_without_a_prompt_or_a_run_without_training_tasks_is_said_and_costs_nothing() -> None:
    bare = {"harness.py": TREE["harness.py"]}
    with messages_server([]) as played:
        result = play(played, RolloutBench(), archive=Archive((scored("h0", bare, "01"),), ()))
        assert not played.requests
        assert result.outcome == "no harness has a prompt that could be rewritten"
        result = play(played, Taskless())
        assert not played.requests
        assert result.outcome == "D_weight has no task on which a text could be tried"


def test_bad_options_are_usage_errors(tmp_path: Any) -> None:
    template = tmp_path / "t.md"
    template.write_text("<curr_param>")
    for options, told in (
        ({"minibatch": 0}, "minibatch"), ({"protocol": "smoke"}, "protocol"), ({"skill": "math"}, "skill"),
        ({"template": str(template)}, "side_info"), ({"template": "nowhere.md"}, "nowhere.md"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=told):
            proposer("gepa", {"model": "m", "base_url": "http://127.0.0.1:9", **options})


def test_the_model_that_reflects_may_speak_chat_completions(server: Server) -> None:
    server.answers = [answer(text="Why.\n```\nGOOD.\n```", reason="stop")]
    bench = RolloutBench()
    made = proposer("gepa", {"model": "played", "protocol": "openai", "base_url": server.url})
    result = made.session(ARCHIVE, bench, count=1, seed=1, cycle=1, iteration=1)  # type: ignore[union-attr]
    assert (result.outcome, result.proposals[0].files[SYSTEM]) == ("submitted", b"GOOD.")
    (request,) = server.requests
    assert "tools" not in request and [m["role"] for m in request["messages"]] == ["user"]
