"""The same session and tools behind Chat Completions, through the real `openai` SDK."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.search.test_agentic_session import ARCHIVE, Bench
from whale.errors import WhaleError
from whale.search.agentic.openai_model import chat_messages
from whale.search.registry import proposer

pytest.importorskip("openai", reason="the extra `openai` is not installed")


class Server:
    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.requests: list[dict[str, Any]] = []
        self.url = ""


@pytest.fixture
def server() -> Iterator[Server]:
    played = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            played.requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            status, body = played.answers.pop(0)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    played.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    yield played
    http.shutdown()
    http.server_close()


def answer(*calls: tuple[str, str], text: str = "", reason: str = "tool_calls") -> tuple[int, dict[str, Any]]:
    message = {
        "role": "assistant",
        "content": text or None,
        "tool_calls": [
            {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for i, (name, arguments) in enumerate(calls)
        ],
    }
    return 200, {
        "id": "x", "object": "chat.completion", "created": 0, "model": "played",
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
                  "prompt_tokens_details": {"cached_tokens": 60}},
    }  # fmt: skip


def test_a_session_uses_tools_and_pays_by_the_services_count(server: Server) -> None:
    server.answers = [
        answer(("list_files", "{}"), ("read_file", '{"path": "scores.jsonl"}'), text="I look."),
        (429, {"error": {"message": "slow down"}}),
        answer(("read_file", "not json")),
        answer(("finish", "")),
    ]
    bench = Bench()
    made = proposer("openai", {"model": "played", "base_url": server.url})
    result = made.session(ARCHIVE, bench, count=1, seed=1, cycle=1, iteration=1)  # type: ignore[union-attr]
    assert (result.outcome, result.turns, bench.paid, bench.waited) == ("gave up", 3, 3, [1.0])
    assert (result.usage.input, result.usage.cache_read, result.usage.output) == (120, 180, 60)
    last = server.requests[-1]["messages"]
    assert [message["role"] for message in last] == [
        "system", "user", "assistant", "tool", "tool", "assistant", "tool",
    ]  # fmt: skip
    assert "unknown not_json" in last[-1]["content"]
    assert {tool["function"]["name"] for tool in server.requests[0]["tools"]} >= {"submit_draft", "try_draft"}


def test_a_refused_request_is_not_tried_again(server: Server) -> None:
    server.answers = [(401, {"error": {"message": "no"}})]
    made = proposer("openai", {"model": "played", "base_url": server.url})
    with pytest.raises(WhaleError, match="401"):
        made.session(ARCHIVE, Bench(), count=1, seed=1, cycle=1, iteration=1)  # type: ignore[union-attr]


def test_tool_results_come_before_what_a_user_says() -> None:
    content = [{"type": "tool_result", "tool_use_id": "a", "content": "r"}, {"type": "text", "text": "go on"}]
    told = chat_messages("s", [{"role": "user", "content": content}])
    assert [message["role"] for message in told] == ["system", "tool", "user"]
