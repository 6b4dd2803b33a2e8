"""The endpoint: /v1/models and /v1/chat/completions as OpenAI's clients speak them, on aiohttp.

It answers on loopback, and elsewhere only with a token. The answer is known when the harness has ended, so a
stream says at once that it began, keeps the line open, and brings the text in one piece.
"""

import asyncio
import hmac
import json
import queue
import secrets
import socket
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from whale.address import is_loopback
from whale.errors import UsageError, WhaleError
from whale.pair.answering import Answerer
from whale.pair.question import Question, QuestionForm, Refused, read_request
from whale.rollout.types import Trajectory

MOST_BYTES = 2**20
"""Of a request's body."""
STILL_HERE_SECONDS = 10.0
"""Between two signs of life of a stream whose answer is not there yet."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def check_address(host: str, token: str | None) -> None:
    """Refuse to serve strangers. Raises UsageError without a token beyond loopback, or with too short a one."""
    if token is not None and len(token) < 16:
        raise UsageError("the token needs at least 16 characters")
    if not is_loopback(host) and token is None:
        raise UsageError(
            f"--host {host}: others could use this machine; set WHALE_SERVE_TOKEN (for instance to "
            f"{secrets.token_urlsafe(16)}), or stay on 127.0.0.1 and forward the port by ssh"
        )


def bound(host: str, port: int) -> socket.socket:
    """A socket on the address, which nobody is served on yet. Raises UsageError if it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise UsageError(f"{host}:{port}: {error.strerror or error}") from error
    return listener


def application(answerer: Answerer, token: str | None, *, last_only: bool = False) -> web.Application:
    """The web application of one pair."""
    app = web.Application(middlewares=[_errors, _guard(token)], client_max_size=MOST_BYTES)
    endpoint = _Endpoint(answerer, last_only)
    app.add_routes(
        [
            web.get("/health", endpoint.health),
            web.get("/v1/models", endpoint.models),
            web.get("/v1/models/{name}", endpoint.model),
            web.post("/v1/chat/completions", endpoint.complete),
        ]
    )
    return app


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every failure as the protocol's error object."""
    try:
        return await handler(request)
    except Refused as error:
        return web.json_response(error.body, status=error.status)
    except web.HTTPRequestEntityTooLarge:
        refused = Refused(413, f"the body is larger than {MOST_BYTES} bytes", code="request_too_large")
    except web.HTTPException as error:
        refused = Refused(error.status, f"{request.method} {request.path[:200]}: {error.reason}")
    return web.json_response(refused.body, status=refused.status)


def _guard(token: str | None) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != request.host:
            raise Refused(403, "another site's page may not use this", code="forbidden_origin")
        if token is None:
            # A name that a stranger's page made point here would pass as its own origin.
            if not is_loopback(request.url.host or ""):
                raise Refused(403, "without a token this server answers to 127.0.0.1 and localhost only")
        elif request.path != "/health":
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), token.encode()):
                raise Refused(401, "give the server's token as the API key", code="invalid_api_key")
        return await handler(request)

    return guard


class _Endpoint:
    def __init__(self, answerer: Answerer, last_only: bool) -> None:
        self.answerer = answerer
        self.served = answerer.served
        self.form = QuestionForm.of(self.served.domain)
        self.last_only = last_only
        self.created = int(time.time())

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [self._model()]})

    async def model(self, request: web.Request) -> web.Response:
        if request.match_info["name"] != self.served.name:
            raise Refused(404, f"this server has {self.served.name!r}", code="model_not_found")
        return web.json_response(self._model())

    def _model(self) -> dict[str, Any]:
        served = self.served
        return {
            "id": served.name, "object": "model", "created": self.created, "owned_by": "whale",
            "weights": served.weights, "harness": served.tree, "domain": served.domain.name,
            "question": list(self.form.fields),
        }  # fmt: skip

    async def complete(self, request: web.Request) -> web.StreamResponse:
        if request.content_type != "application/json":
            raise Refused(415, "send the request as application/json")
        try:
            body = json.loads(await request.read())
        except (ValueError, RecursionError):
            raise Refused(400, "the body is not JSON") from None
        question = read_request(body, self.form, self.served.name, last_only=self.last_only)
        try:
            answer = asyncio.wrap_future(self.answerer.submit(question))
        except queue.Full:
            raise Refused(429, "too many questions wait; ask again later", code="busy", kind="rate_limit") from None
        try:
            if question.stream:
                return await self._stream(request, question, answer)
            return web.json_response(self._completion(await _settled(answer)))
        finally:
            answer.cancel()  # a client that went away waits for nothing; one that was answered, neither

    def _completion(self, trajectory: Trajectory) -> dict[str, Any]:
        text, reason = _answer(trajectory)
        message = {"role": "assistant", "content": text, "refusal": None}
        return {
            **self._envelope("chat.completion"),
            "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
            "usage": _usage(trajectory),
            "whale": {
                "turns": len(trajectory.turns), "tool_calls": len(trajectory.calls), "seed": trajectory.seed,
                "weights": self.served.weights, "harness": self.served.tree,
            },
        }  # fmt: skip

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "object": kind,
            "created": int(time.time()),
            "model": self.served.name,
            "system_fingerprint": f"{self.served.weights[:12]}-{self.served.tree[:12]}",
        }

    async def _stream(
        self, request: web.Request, question: Question, answer: "asyncio.Future[Trajectory]"
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        envelope = self._envelope("chat.completion.chunk")

        async def send(value: object) -> None:
            text = value if isinstance(value, str) else json.dumps(value)
            await response.write(f"data: {text}\n\n".encode())

        def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
            return {**envelope, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

        await send(chunk({"role": "assistant", "content": ""}))
        while not (await asyncio.wait([answer], timeout=STILL_HERE_SECONDS))[0]:
            await response.write(b": the harness is at work\n\n")
        try:
            trajectory = await _settled(answer)
            text, reason = _answer(trajectory)
        except Refused as error:
            await send(error.body)  # the status is out already: clients raise on such an object
        else:
            await send(chunk({"content": text}))
            await send(chunk({}, reason))
            if question.include_usage:
                await send({**envelope, "choices": [], "usage": _usage(trajectory)})
            await send("[DONE]")
        await response.write_eof()
        return response


async def _settled(answer: "asyncio.Future[Trajectory]") -> Trajectory:
    """The rollout; a fault of ours as an error that a client may try again after."""
    try:
        return await answer
    except WhaleError as error:
        raise Refused(503, f"this machine could not answer: {error}", kind="server_error") from error
    except Exception as error:
        traceback.print_exception(error, file=sys.stderr)
        raise Refused(
            500, f"unexpected {type(error).__name__}; the server's stderr has it", kind="server_error"
        ) from error


def _answer(trajectory: Trajectory) -> tuple[str, str]:
    """The reply that the harness chose, whole, and how it ended; the harness's own failure as a refusal."""
    if trajectory.answer_turn is None:
        reason = f": {trajectory.reason}" if trajectory.reason else ""
        if trajectory.status == "overlong":
            raise Refused(400, f"the question is too long{reason}", code="context_length_exceeded", param="messages")
        # Not a 5xx: clients would ask again, and the same harness fails on the same question.
        raise Refused(
            422, f"the harness failed ({trajectory.status}){reason}", code=trajectory.status, kind="harness_error"
        )
    turn = trajectory.turns[trajectory.answer_turn]
    return turn.prefix + turn.text, turn.finish_reason


def _usage(trajectory: Trajectory) -> dict[str, int]:
    """Tokens over all turns."""
    prompted, generated = trajectory.prompted, trajectory.generated
    return {"prompt_tokens": prompted, "completion_tokens": generated, "total_tokens": prompted + generated}
