"""A local server that speaks the Messages protocol, streamed, and plays a session written by hand."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Block = dict[str, Any]


@dataclass
class Answer:
    """One HTTP answer: blocks that are streamed, or a failure."""

    blocks: Sequence[Block] = ()
    stop_reason: str = "tool_use"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    """Break the connection after so many events."""
    clean_cut: bool = False
    """End the stream in order, before the reply has ended."""
    tokens: tuple[int, int] = (100, 20)


def call(name: str, number: int = 0, **arguments: Any) -> Block:
    return {"type": "tool_use", "id": f"toolu_{name}_{number}", "name": name, "input": arguments}


def say(text: str) -> Block:
    return {"type": "text", "text": text}


def events(answer: Answer) -> Iterator[dict[str, Any]]:
    usage: Block = {"input_tokens": answer.tokens[0], "output_tokens": 1, "cache_read_input_tokens": 7,
             "cache_creation_input_tokens": 3}  # fmt: skip
    yield {
        "type": "message_start",
        "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "played", "content": [],
                    "stop_reason": None, "stop_sequence": None, "usage": usage},
    }  # fmt: skip
    for index, block in enumerate(answer.blocks):
        if block["type"] == "text":
            yield {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
            half = len(block["text"]) // 2
            for part in (block["text"][:half], block["text"][half:]):
                yield {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": part}}
        else:
            start = {**block, "input": {}}
            yield {"type": "content_block_start", "index": index, "content_block": start}
            text = json.dumps(block["input"])
            for at in range(0, len(text), 11):
                piece = {"type": "input_json_delta", "partial_json": text[at : at + 11]}
                yield {"type": "content_block_delta", "index": index, "delta": piece}
        yield {"type": "content_block_stop", "index": index}
    delta: Block = {"stop_reason": answer.stop_reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": answer.tokens[1]}}
    yield {"type": "message_stop"}


class Played:
    """The server's address, and the requests that it got."""

    def __init__(self, answers: Sequence[Answer], forever: bool) -> None:
        self.answers = list(answers)
        self.forever = forever
        self.requests: list[dict[str, Any]] = []
        self.looks: list[str] = []
        """Paths of GET requests, which cost nothing."""
        self.models_status = 404
        """What GET /v1/models answers; a server of one's own often has no such list."""
        self.key: str | None = None
        """The only key that is taken; None: any."""
        self.message = "played"
        """What a failure says."""
        self.base_url = ""

    def next(self) -> Answer:
        if self.forever and len(self.answers) == 1:
            return self.answers[0]
        return self.answers.pop(0) if self.answers else Answer([say("I am done.")], "end_turn")


@contextmanager
def messages_server(answers: Sequence[Answer], forever: bool = False) -> Iterator[Played]:
    """Serve the answers in order; with `forever` the last one again and again."""
    played = Played(answers, forever)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            assert self.path.split("?")[0] == "/v1/messages", self.path
            played.requests.append(body)
            answer = played.next() if self.known() else Answer(status=401)
            if answer.status != 200:
                self.fail(answer.status, answer.headers)
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for number, event in enumerate(events(answer)):
                if answer.cut_after is not None and number >= answer.cut_after:
                    if answer.clean_cut:
                        break
                    self.close_connection = True
                    self.wfile.flush()
                    self.connection.close()
                    return
                data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")

        def do_GET(self) -> None:
            played.looks.append(self.path.split("?")[0])
            status = played.models_status if self.known() else 401
            if status != 200:
                self.fail(status, {})
                return
            self.send_whole(200, {"data": [], "has_more": False, "first_id": None, "last_id": None}, {})

        def known(self) -> bool:
            bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
            return played.key in (None, bearer, self.headers.get("x-api-key"))

        def fail(self, status: int, headers: dict[str, str]) -> None:
            self.send_whole(
                status, {"type": "error", "error": {"type": "played_error", "message": played.message}}, headers
            )

        def send_whole(self, status: int, body: dict[str, Any], headers: dict[str, str]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    played.base_url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield played
    finally:
        server.shutdown()
        server.server_close()
