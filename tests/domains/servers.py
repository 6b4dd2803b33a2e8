"""Real HTTP servers of this process: a judge that speaks both protocols, and a retrieval service."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Served:
    """A running server, and what it was asked."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of POST requests, with the path as "path" and the headers' names in small letters as "headers"."""
    failing: list[tuple[int, str]] = field(default_factory=list)
    """(status, body) of the next answers, before it works again."""


@contextmanager
def serve(answer: Callable[[dict[str, Any]], Any]) -> Iterator[Served]:
    """A server on a free port; `answer` makes the JSON reply to a request."""
    served = Served("")
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = {**body, "path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}
            with lock:
                served.requests.append(request)
                status, text = served.failing.pop(0) if served.failing else (200, "")
            data = (text or json.dumps(answer(request))).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def judge_reply(request: dict[str, Any], text: str) -> dict[str, Any]:
    """`text` in the protocol of the path that was asked."""
    if request["path"].endswith("/messages"):
        return {
            "id": "m", "type": "message", "role": "assistant", "model": request["model"], "stop_reason": "end_turn",
            "stop_sequence": None, "content": [{"type": "text", "text": text}],
            "usage": {"input_tokens": 100, "output_tokens": 2},
        }  # fmt: skip
    return {
        "id": "c", "object": "chat.completion", "created": 0, "model": request["model"],
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 102},
    }  # fmt: skip


def fair_judge(request: dict[str, Any]) -> dict[str, Any]:
    """Right if the given answer, in small letters, stands among the references or has the word "same"."""
    lines = request["messages"][0]["content"].splitlines()
    given = next(line for line in lines if line.startswith("Given answer: ")).removeprefix("Given answer: ")
    answers = next(line for line in lines if line.startswith("Reference answers: "))
    right = given.strip('"').lower() in answers.lower() or "same" in given
    return judge_reply(request, "CORRECT" if right else "INCORRECT")
