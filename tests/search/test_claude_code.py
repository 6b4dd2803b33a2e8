"""The real Claude Code program, through the real Agent SDK, with the service played by a local server."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.search.messages_server import Answer, Block, Played, call, messages_server, say
from tests.search.sample_trees import LOOKUP_TREE
from tests.search.test_agentic_session import ARCHIVE, Bench
from whale.errors import UsageError, WhaleError
from whale.search.agentic.types import ModelReply, SessionResult, Suspended, Usage
from whale.search.claude_code.desk import Closed, Desk
from whale.search.claude_code.gateway import gateway
from whale.search.claude_code.streamed import stream
from whale.search.registry import proposer


def play(played: Played, bench: Bench | None = None, count: int = 2, **options: Any) -> SessionResult:
    pytest.importorskip("claude_agent_sdk", reason="the extra `claude-code` is not installed")
    made = proposer("claude-code", {"model": "played", "base_url": played.base_url, "patience": 3.0, **options})
    made.preflight()  # type: ignore[union-attr]
    result: SessionResult = made.session(ARCHIVE, bench or Bench(), count=count, seed=1, cycle=1, iteration=1)  # type: ignore[union-attr]
    return result


def use(name: str, number: int = 0, **arguments: Any) -> Block:
    return {**call(name, number, **arguments), "name": f"mcp__whale__{name}"}


def whole() -> list[Answer]:
    code = LOOKUP_TREE["harness.py"].decode() + "# better\n"
    texts: dict[str, Any] = dict.fromkeys(("title", "hypothesis", "axis", "changes", "critique"), "words")
    return [
        Answer([say("I look."), use("list_files"), use("new_draft", draft="one", parent="h0")]),
        Answer([use("write_file", draft="one", path="harness.py", content=code), use("check_draft", draft="one")]),
        Answer([use("try_draft", draft="one", tasks=2)]),
        Answer([use("submit_draft", draft="one", **texts)]),
        Answer([use("finish")]),
    ]


def test_a_session_hands_over_and_the_program_has_no_tool_but_ours_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "s3cr3t-word")
    bench = Bench()
    with messages_server(whole()) as played:
        result = play(played, bench, prices={"input": 10.0, "output": 50.0})
    assert (result.outcome, result.turns, bench.paid) == ("submitted", 5, 5)
    (proposal,) = result.proposals
    assert proposal.files["harness.py"].endswith(b"# better\n")
    assert bench.trials == {"c001/harness/i01/try/0005": 2}
    assert result.dollars == pytest.approx(5 * (110 * 10 + 20 * 50) / 1e6)
    assert len(played.requests) == 5, "nothing else of the program's was paid"
    for request in played.requests:
        names = [tool["name"] for tool in request["tools"]]
        assert len([name for name in names if name.startswith("mcp__whale__")]) == 13
        assert not {"Bash", "Read", "Write", "Edit", "WebFetch", "Task", "Agent"} & set(names)
        assert "s3cr3t-word" not in json.dumps(request)
    assert "You improve the harness" in json.dumps(played.requests[0]["system"])
    lines = [json.loads(line) for line in result.transcript.decode().splitlines()]
    assert [line["name"] for line in lines if line.get("role") == "tool"][:2] == ["list_files", "new_draft"]


def test_a_session_that_was_left_goes_on_from_its_recorded_replies_and_pays_none_twice() -> None:
    expected_bench = Bench()
    with messages_server(whole()) as played:
        expected = play(played, expected_bench)
    bench = Bench()
    with messages_server(whole()) as played:
        bench.stop_after = 3
        with pytest.raises(Suspended):
            play(played, bench)
        assert len(played.requests) == 3
        bench.stop_after = None
        result = play(played, bench)
        assert len(played.requests) == 5
    assert (bench.paid, bench.trials) == (5, expected_bench.trials)
    assert (result.proposals, result.transcript) == (expected.proposals, expected.transcript)


@pytest.mark.parametrize(
    ("script", "options", "outcome"),
    [
        ([Answer([say("I cannot help with that.")], "refusal")], {}, "refusal"),
        ([Answer([say("I am done.")], "end_turn")], {}, "gave up"),
        ([Answer([use("list_files")])] * 9, {"budget": {"tool_calls": 2}}, "budget: tool_calls"),
        ([Answer([use("list_files")])] * 9, {"budget": {"tokens": 300}}, "budget: tokens"),
    ],
    ids=["refusal", "no tool", "tool calls", "tokens"],
)
def test_how_a_session_ends_is_an_outcome(script: list[Answer], options: dict[str, Any], outcome: str) -> None:
    with messages_server(script) as played:
        result = play(played, **options)
    assert (result.outcome, result.proposals) == (outcome, ())


def test_a_rate_limit_is_waited_out_and_a_service_that_stays_overloaded_is_a_fault() -> None:
    bench = Bench()
    with messages_server([Answer(status=429, headers={"retry-after": "2"}), Answer([use("finish")])]) as played:
        play(played, bench)
    assert (bench.waited, bench.paid) == ([2.0], 1)
    with messages_server([Answer(status=529)], forever=True) as played, pytest.raises(WhaleError, match="resume"):
        play(played)


def test_a_refused_key_is_said_once() -> None:
    with messages_server([Answer(status=401)], forever=True) as played, pytest.raises(WhaleError, match="401"):
        play(played)
    assert len(played.requests) == 1


class Killing(Bench):
    """A bench on which the program dies of a signal in the middle of a session, once."""

    killed = 0

    def trial(self, key: str, files: Mapping[str, bytes], tasks: int) -> str:
        for child in psutil.Process().children(recursive=True):
            if "claude" in child.name() and not self.killed:
                child.kill()
                self.killed += 1
        return super().trial(key, files, tasks)


def test_a_program_that_dies_is_a_fault_and_the_session_goes_on_from_its_last_reply() -> None:
    bench = Killing()
    with messages_server(whole()) as played:
        with pytest.raises(WhaleError, match=r"failed after 3 replies.*`whale resume`"):
            play(played, bench)
        assert (bench.killed, len(played.requests)) == (1, 3)
        result = play(played, bench)
        assert len(played.requests) == 5
    assert (result.outcome, len(result.proposals), bench.paid) == ("submitted", 1, 5)


def test_a_program_that_cannot_start_is_a_fault(tmp_path: Path) -> None:
    broken = tmp_path / "claude"
    broken.write_text("#!/bin/sh\necho no >&2\nexit 3\n")
    broken.chmod(0o755)
    with messages_server([]) as played, pytest.raises(WhaleError, match="after 0 replies"):
        play(played, cli=str(broken))
    with messages_server([]) as played, pytest.raises(UsageError, match="no such program"):
        play(played, cli=str(tmp_path / "nothing"))


def test_without_the_sdk_or_the_program_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    with pytest.raises(UsageError, match="claude-code\\]"):
        proposer("claude-code", {"model": "m", "base_url": "http://127.0.0.1:9"})


# --- the parts, without the program ---


def test_the_gateway_spends_for_no_process_that_has_not_its_key() -> None:
    asked: list[Any] = []

    def answer(body: dict[str, Any], betas: str) -> bytes:
        asked.append(body)
        if body.get("closed"):
            raise Closed
        return b"data"

    def post(address: str, key: str, path: str, **body: Any) -> int:
        request = urllib.request.Request(
            address + path, json.dumps(body).encode(), {"x-api-key": key, "content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    with gateway(answer) as (address, key):
        told = [
            post(address, "guess", "/v1/messages"), post(address, key, "/v1/files"),
            post(address, key, "/v1/messages?beta=true", a=1), post(address, key, "/v1/messages", closed=True),
        ]  # fmt: skip
    assert told == [401, 404, 200, 400]
    assert asked == [{"a": 1}, {"closed": True}]


def test_what_is_streamed_is_the_recorded_reply() -> None:
    """Read back by the SDK that the program's own is a sibling of."""
    from whale.search.agentic.anthropic_model import AnthropicModel

    content: list[Block] = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"}, {"type": "text", "text": "é\n漢"},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": [1, {"b": "c"}]}},
    ]  # fmt: skip
    reply = ModelReply(
        content=content, stop_reason="tool_use", model="m", usage=Usage(input=3, output=5, cache_read=7, cache_write=2)
    )
    with gateway(lambda body, betas: stream(reply, 1)) as (address, key):
        model = AnthropicModel("m", base_url=address, api_key=key)
        read = model.ask("", [{"role": "user", "content": [{"type": "text", "text": "x"}]}], [])
    assert read == reply


def test_a_job_runs_in_the_thread_that_serves_and_its_exception_rises_there() -> None:
    import threading

    desk = Desk()
    seen: list[int | str] = []

    def client() -> None:
        seen.append(desk.ask(threading.get_ident))
        try:
            desk.ask(lambda: 1 // 0)
        except Closed:
            seen.append("closed")
        try:
            desk.ask(lambda: 1)
        except Closed:
            seen.append("closed")

    thread = threading.Thread(target=client)
    thread.start()
    with pytest.raises(ZeroDivisionError):
        desk.serve(lambda: False)
    thread.join()
    assert seen == [threading.get_ident(), "closed", "closed"]
