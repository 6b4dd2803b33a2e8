"""Sessions of the `anthropic` proposer, played by hand, through the real SDK."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.search.messages_server import Answer, Played, call, messages_server, say
from tests.search.sample_trees import LOOKUP_TREE, entry
from whale.errors import UsageError, WhaleError
from whale.harness.validation import check_source
from whale.rollout.types import Trajectory
from whale.search.agentic.budget import Prices
from whale.search.agentic.types import ModelReply, SessionResult, Suspended, Usage
from whale.search.registry import proposer
from whale.search.types import Archive

ARCHIVE = Archive((entry("h0", LOOKUP_TREE, 0.25), entry("c1", {**LOOKUP_TREE, "notes.md": b"x"}, 0.5)), ())


class Bench:
    """A run's workbench, in memory."""

    def __init__(self) -> None:
        self.replies: dict[int, ModelReply] = {}
        self.trials: dict[str, int] = {}
        self.waited: list[float] = []
        self.notes: list[str] = []
        self.stop_after: int | None = None
        self.paid = 0

    def fence(self) -> str:
        return "f00dfeedf00dfeed"

    def check(self, files: Mapping[str, bytes]) -> str | None:
        return check_source(files)

    def trial(self, key: str, files: Mapping[str, bytes], tasks: int) -> str:
        self.trials.setdefault(key, tasks)
        return f"{tasks} rollouts of {len(files)} files"

    def training_tasks(self) -> Sequence[str]:
        return [f"weight-{n}" for n in range(8)]

    def rollouts(self, key: str, files: Mapping[str, bytes], tasks: Sequence[str]) -> Sequence[Trajectory]:
        raise AssertionError("no rollouts are asked for")

    def recorded(self, turn: int) -> tuple[ModelReply, float] | None:
        return (self.replies[turn], 1.0) if turn in self.replies else None

    def record(self, turn: int, reply: ModelReply, dollars: float, seconds: float) -> None:
        assert turn not in self.replies, "a recorded reply is never paid again"
        self.replies[turn] = reply
        self.paid += 1

    def leave(self) -> bool:
        return self.stop_after is not None and len(self.replies) >= self.stop_after

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        if self.leave():
            raise Suspended

    def note(self, text: str) -> None:
        self.notes.append(text)


def play(played: Played, bench: Bench | None = None, count: int = 2, **options: Any) -> SessionResult:
    made = proposer("anthropic", {"model": "played", "base_url": played.base_url, **options})
    result: SessionResult = made.session(ARCHIVE, bench or Bench(), count=count, seed=1, cycle=1, iteration=1)  # type: ignore[union-attr]
    return result


def hand_over(draft: str, number: int = 0, **more: Any) -> dict[str, Any]:
    texts = {
        "title": draft,
        "hypothesis": "It passes more.",
        "axis": "turns",
        "changes": "A line.",
        "critique": "Small.",
    }
    return call("submit_draft", number, draft=draft, **{**texts, **more})


def draft(name: str, text: str = "# better\n") -> list[Answer]:
    code = LOOKUP_TREE["harness.py"].decode() + text
    return [
        Answer([say("A draft."), call("new_draft", draft=name, parent="h0")]),
        Answer([call("write_file", draft=name, path="harness.py", content=code), call("check_draft", draft=name)]),
    ]


def results(played: Played) -> list[tuple[str, bool]]:
    """All tool results that the model was shown, (text, is an error)."""
    return [
        (block["content"], block.get("is_error", False))
        for block in played.requests[-1]["messages"][-1]["content"]
        if block["type"] == "tool_result"
    ]


def test_a_good_session_reads_tries_and_hands_over_m_candidates() -> None:
    script = [
        Answer([say("I look around."), call("list_files"), call("read_file", path="scores.jsonl")]),
        Answer([call("show_history"), call("search_files", text="class"), call("diff_harnesses", a="h0", b="c1")]),
        *draft("one"),
        Answer([call("try_draft", draft="one", tasks=2)]),
        Answer([hand_over("one", parents=["h0", "c1"])]),
        *draft("two", "# other\n"),
        Answer([hand_over("two")]),
    ]
    bench = Bench()
    with messages_server(script) as played:
        result = play(played, bench, prices={"input": 10.0, "output": 50.0})
    assert result.outcome == "submitted"
    assert [p.title for p in result.proposals] == ["one", "two"]
    assert result.proposals[0].parents == ("h0", "c1")
    assert "Self-critique: Small." in result.proposals[0].changes
    assert check_source(result.proposals[0].files) is None
    assert bench.trials == {"c001/harness/i01/try/0009": 2}
    assert (result.turns, bench.paid) == (9, 9)
    assert result.dollars == pytest.approx(9 * ((100 + 7 + 3) * 10 + 20 * 50) / 1e6)
    first, last = played.requests[0], played.requests[-1]
    assert first["stream"] is True
    assert first["system"][0]["cache_control"] == {"type": "ephemeral"}
    marks = [b for m in last["messages"] for b in m["content"] if "cache_control" in b]
    assert marks == [last["messages"][-1]["content"][-1]], "one mark, at the end"
    lines = [json.loads(line) for line in result.transcript.decode().splitlines()]
    assert sum(line.get("role") == "assistant" for line in lines) == 9


def test_the_model_is_told_no_figure_of_its_budget() -> None:
    with messages_server(draft("one")) as played:
        play(played, budget={"tool_calls": 4321, "seconds": 9876.0, "tokens": 7654321, "trials": 87})
    text = json.dumps(played.requests)
    assert not [figure for figure in ("4321", "9876", "7654321", "87") if figure in text]


def test_invalid_code_is_told_and_a_draft_that_stays_invalid_is_handed_over_as_such() -> None:
    script = [*draft("bad", "import os\n"), Answer([hand_over("bad")]), Answer([call("finish")])]
    with messages_server(script) as played:
        result = play(played)
    assert any("os" in text and failed for text, failed in _all_results(played))
    assert [p.title for p in result.proposals] == ["bad"], "the gates record it as invalid, with the reason"
    assert check_source(result.proposals[0].files) is not None


def _all_results(played: Played) -> list[tuple[str, bool]]:
    return [
        (block["content"], block.get("is_error", False))
        for message in played.requests[-1]["messages"]
        for block in message["content"]
        if block["type"] == "tool_result"
    ]


def test_fewer_than_m_candidates_are_an_outcome() -> None:
    script = [*draft("one"), Answer([hand_over("one")]), Answer([call("finish")])]
    with messages_server(script) as played:
        result = play(played, count=3)
    assert (result.outcome, len(result.proposals)) == ("submitted", 1)


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ([Answer([say("I cannot help with that.")], "refusal")], "refusal"),
        ([Answer([], "end_turn")] * 2, "empty"),
        ([Answer([say("I am done.")], "end_turn")] * 2, "gave up"),
        ([Answer([say("Well,"), call("list_files")], "max_tokens")] * 3, "cut"),
    ],
    ids=["refusal", "empty", "no tool", "cut"],
)
def test_a_refusal_an_empty_and_a_cut_answer_are_outcomes(script: list[Answer], outcome: str) -> None:
    with messages_server(script) as played:
        result = play(played)
    assert (result.outcome, result.proposals) == (outcome, ())


def test_what_was_handed_over_before_a_refusal_is_kept() -> None:
    script = [*draft("one"), Answer([hand_over("one")]), Answer([say("No.")], "refusal")]
    with messages_server(script) as played:
        result = play(played)
    assert (result.outcome, [p.title for p in result.proposals]) == ("refusal", ["one"])


def test_a_rate_limit_is_waited_out_as_long_as_it_says() -> None:
    script = [Answer(status=429, headers={"retry-after": "17"}), Answer([call("finish")])]
    bench = Bench()
    with messages_server(script) as played:
        result = play(played, bench)
    assert bench.waited == [17.0]
    assert result.outcome == "gave up"
    assert bench.paid == 1


def test_an_overloaded_service_is_a_fault_that_keeps_the_session() -> None:
    bench = Bench()
    script = [Answer([call("list_files")]), Answer(status=529)]
    told = "529.*`whale resume`"
    with messages_server(script, forever=True) as played, pytest.raises(WhaleError, match=told):
        play(played, bench, patience=100.0)
    assert sum(bench.waited) <= 100
    assert bench.waited[:4] == [1.0, 2.0, 4.0, 8.0]
    assert bench.paid == 1, "the reply before it is recorded"


@pytest.mark.parametrize(
    ("headers", "waited", "told"),
    [
        ({}, [1.0, 1.5], "no answer after 2.5 s of waiting: 529: played;"),
        ({"retry-after": "60"}, [], "no answer after 0 s of waiting, and it asks to wait 60 s: 529: played;"),
    ],
    ids=["backoff", "retry-after"],
)
def test_all_of_the_patience_is_waited_and_the_error_says_how_long(
    headers: dict[str, str], waited: list[float], told: str
) -> None:
    bench = Bench()
    script = [Answer(status=529, headers=headers)]
    with messages_server(script, forever=True) as played, pytest.raises(WhaleError, match=told):
        play(played, bench, patience=2.5)
    assert bench.waited == waited


@pytest.mark.parametrize(("status", "named"), [(401, "ANTHROPIC_API_KEY"), (403, "MY_KEY"), (400, "the request")])
def test_a_wrong_key_or_request_is_not_tried_again_and_is_said_once(status: int, named: str) -> None:
    options: dict[str, Any] = {"api_key_env": "MY_KEY"} if named == "MY_KEY" else {}
    with messages_server([Answer(status=status)], forever=True) as played, pytest.raises(WhaleError) as caught:
        play(played, **options)
    assert len(played.requests) == 1
    text = str(caught.value)
    assert named in text and f"{status}: played" in text
    assert "Error code" not in text and "{" not in text
    assert ("`whale resume`" in text) == (status != 400)


def look(played: Played, name: str = "anthropic", **options: Any) -> None:
    made = proposer(name, {"model": "m", "base_url": played.base_url, **options})
    made.preflight()  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["anthropic", "openai", "gepa", "claude-code"])
def test_a_wrong_key_is_found_by_a_look_that_costs_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = {"openai": "openai", "gepa": "gepa", "claude-code": "claude_agent_sdk"}.get(name)
    if package:
        pytest.importorskip(package, reason="the extra is not installed")
    monkeypatch.setenv("MY_KEY", "wrong")
    with messages_server([]) as played:
        played.key = "right"
        with pytest.raises(WhaleError, match=r"the key in MY_KEY, 401: played; .*`whale resume`"):
            look(played, name, api_key_env="MY_KEY")
        monkeypatch.setenv("MY_KEY", "right")
        look(played, name, api_key_env="MY_KEY")
        assert not played.requests and len(played.looks) == 2


@pytest.mark.parametrize("status", [200, 403, 404, 405, 429, 500, 529])
def test_a_service_that_answers_the_look_at_all_is_there(status: int) -> None:
    with messages_server([]) as played:
        played.models_status = status
        look(played)
        assert played.looks == ["/v1/models"] and not played.requests


def test_a_key_that_may_ask_and_not_list_is_no_wrong_key() -> None:
    pytest.importorskip("openai", reason="the extra `openai` is not installed")
    with messages_server([]) as played:
        played.models_status = 401
        played.message = "You have insufficient permissions. Missing scopes: api.model.read."
        look(played, "openai")


@pytest.mark.parametrize("clean", [False, True])
def test_a_cut_stream_is_asked_again_and_half_a_reply_is_never_used(clean: bool) -> None:
    script = [Answer([call("finish")], cut_after=3, clean_cut=clean), Answer([call("finish")])]
    bench = Bench()
    with messages_server(script) as played:
        play(played, bench)
    assert (len(played.requests), bench.paid, bench.waited) == (2, 1, [1.0])


def test_a_service_that_is_not_there_is_named() -> None:
    made = proposer("anthropic", {"model": "m", "base_url": "http://127.0.0.1:9", "patience": 3.0})
    with pytest.raises(WhaleError, match="nothing answers there"):
        made.preflight()  # type: ignore[union-attr]
    with pytest.raises(WhaleError, match="no connection"):
        made.session(ARCHIVE, Bench(), count=1, seed=1, cycle=1, iteration=1)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("budget", "turns"),
    [
        ({"dollars": 0.004}, 2),
        ({"tokens": 300}, 3),
        ({"tool_calls": 3}, 3),
        ({"seconds": 1e-6}, 1),
    ],
    ids=["dollars", "tokens", "tool calls", "seconds"],
)
def test_each_budget_ends_a_session_with_what_it_handed_over(budget: dict[str, Any], turns: int) -> None:
    (name,) = budget
    with messages_server([Answer([call("list_files")])], forever=True) as played:
        result = play(played, budget=budget, prices={"input": 10.0, "output": 50.0})
    assert (result.outcome, result.turns) == (f"budget: {name}", turns)


@pytest.mark.parametrize(
    ("prices", "dollars"),
    [
        ({}, 1.0 + 2.0 + 3.0),
        ({"cache_read": 0.1}, 1.0 + 0.2 + 3.0),
        ({"cache_read": 0.1, "cache_write": 1.25}, 1.0 + 0.2 + 3.75),
        ({"cache_read": 0.0, "cache_write": 0.0}, 1.0),
    ],
    ids=["none given", "reads", "both", "given as free"],
)
def test_cached_tokens_cost_what_input_costs_unless_they_have_a_price(prices: dict[str, float], dollars: float) -> None:
    usage = Usage(input=1_000_000, cache_read=2_000_000, cache_write=3_000_000, output=1_000_000)
    assert Prices(input=1.0, output=0.0, **prices).of(usage) == pytest.approx(dollars)


@pytest.mark.parametrize("name", ["anthropic", "claude-code", "gepa", "openai"])
def test_no_proposer_takes_a_price_below_zero_or_a_budget_in_dollars_without_prices(name: str) -> None:
    place = {"model": "m", "base_url": "http://x"}
    with pytest.raises(UsageError, match="prices"):
        proposer(name, {**place, "budget": {"dollars": 1.0}, "prices": {"cache_read": 1.0}})
    with pytest.raises(UsageError, match=r"prices\.cache_read"):
        proposer(name, {**place, "prices": {"input": 1.0, "output": 1.0, "cache_read": -1.0}})


def test_a_budget_in_dollars_counts_a_session_that_reads_nearly_all_from_the_cache() -> None:
    with messages_server([Answer([call("list_files")], tokens=(0, 0))], forever=True) as played:
        result = play(played, budget={"dollars": 0.0002}, prices={"input": 10.0, "output": 50.0})
    assert (result.outcome, result.turns) == ("budget: dollars", 2)


def test_calls_past_the_budget_are_not_made() -> None:
    with messages_server([Answer([call("list_files", n) for n in range(9)])], forever=True) as played:
        result = play(played, budget={"tool_calls": 4})
    assert result.tool_calls == 4


def test_a_session_that_was_left_goes_on_from_its_recorded_replies_and_pays_none_twice() -> None:
    script = [
        *draft("one"),
        Answer([call("try_draft", draft="one")]),
        Answer([hand_over("one")]),
        Answer([call("finish")]),
    ]
    whole = Bench()
    with messages_server(script) as played:
        expected = play(played, whole)
        requests = played.requests
    bench = Bench()
    seen: list[dict[str, Any]] = []
    with messages_server(script) as played:
        for replies in range(1, len(script) + 1):
            bench.stop_after = replies
            if replies < len(script):
                with pytest.raises(Suspended):
                    play(played, bench)
        bench.stop_after = None
        result = play(played, bench)
        seen = played.requests
    assert bench.paid == len(script)
    assert seen == requests, "what the model was shown is the same"
    assert (result.proposals, result.transcript) == (expected.proposals, expected.transcript)
    assert bench.trials == whole.trials


def test_a_stop_ends_the_wait_for_a_rate_limit_at_once() -> None:
    bench = Bench()
    bench.stop_after = 1
    script = [Answer([call("list_files")]), Answer(status=429, headers={"retry-after": "3600"})]
    with messages_server(script, forever=True) as played, pytest.raises(Suspended):
        play(played, bench)


def test_a_bad_option_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    for options, told in (
        ({"model": "m"}, "ANTHROPIC_API_KEY"),
        ({}, "model"),
        ({"model": "m", "base_url": "http://x", "budget": {"dollars": 1.0}}, "prices"),
        ({"model": "m", "base_url": "http://x", "skill": "cooking"}, "searchqa"),
        ({"model": "m", "base_url": "http://x", "bugdet": {}}, "bugdet"),
    ):
        with pytest.raises(UsageError, match=told):
            proposer("anthropic", options)
