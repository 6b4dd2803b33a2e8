"""The address that Claude Code is given: on this machine, for this session, and the one way to the service.

It holds the key, which the program never sees, and records each reply before the program gets it. A reply that is
recorded already is played again, so that a session that was left comes back to where it was without paying.
"""

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from whale.search.claude_code.desk import Closed

Answerer = Callable[[dict[str, Any], str], bytes]
"""(a request's body, its anthropic-beta header) -> the streamed answer. Raises Closed when the session is over."""

MAX_BODY = 64 * 2**20


@contextmanager
def gateway(answer: Answerer) -> Iterator[tuple[str, str]]:
    """Serve on a free port of the loopback address; gives (the address, the key that it takes)."""
    token = secrets.token_urlsafe(24)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            # Any process of the machine can connect: only the one that was given the key may spend.
            if not secrets.compare_digest(self._key().encode(), token.encode()) or not 0 < length <= MAX_BODY:
                self.close_connection = True  # its body is not read
                self._send(401, b'{"type":"error","error":{"type":"authentication_error","message":"not for you"}}')
                return
            body = self.rfile.read(length)
            if self.path.partition("?")[0] != "/v1/messages":
                self._send(404, b'{"type":"error","error":{"type":"not_found_error","message":"messages only"}}')
                return
            try:
                content = answer(json.loads(body), self.headers.get("anthropic-beta", ""))
            except Closed:
                # No status that the program would ask again for.
                self._send(400, b'{"type":"error","error":{"type":"invalid_request_error","message":"closed"}}')
                return
            self._send(200, content, "text/event-stream")

        def _key(self) -> str:
            bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
            return str(self.headers.get("x-api-key") or bearer)

        def _send(self, status: int, content: bytes, kind: str = "application/json") -> None:
            try:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:
                self.close_connection = True  # the program is gone; the reply is recorded

        def do_GET(self) -> None:
            self._send(404, b"{}")

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", token
    finally:
        server.shutdown()
        server.server_close()
