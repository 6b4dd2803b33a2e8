"""One session of Claude Code: what its requests and tool calls come to, in the session's own thread."""

import json
import time
from typing import Any

from whale.errors import WhaleError
from whale.search.agentic.anthropic_model import AnthropicModel
from whale.search.agentic.budget import Budget, Prices
from whale.search.agentic.toolbox import Toolbox
from whale.search.agentic.types import Block, Clock, ModelReply, SessionResult, Suspended, Usage, Workbench
from whale.search.claude_code.streamed import stream

SERVER = "whale"
"""The MCP server's name; Claude Code calls its tools mcp__whale__list_files and so on."""

_BYE = ModelReply(
    content=[{"type": "text", "text": "The session is over."}], stop_reason="end_turn", model="", usage=Usage()
)


class Visit:
    """Counts, records and bounds what a session does. All methods run in one thread."""

    def __init__(
        self,
        model: AnthropicModel,
        toolbox: Toolbox,
        bench: Workbench,
        *,
        system: str,
        opening: str,
        budget: Budget,
        prices: Prices,
        clock: Clock = time.monotonic,
    ) -> None:
        self.model = model
        self.toolbox = toolbox
        self.bench = bench
        self.budget = budget
        self.prices = prices
        self.clock = clock
        self.used = Usage()
        self.dollars = self.seconds = 0.0
        self.turn = 0
        self.outcome = ""
        self.last: ModelReply | None = None
        self.lines: list[dict[str, Any]] = [{"system": system}, {"role": "user", "content": [_text(opening)]}]

    def answer(self, body: dict[str, Any], betas: str) -> bytes:
        """The streamed answer to a request: recorded, paid now, or the end of the session.

        Raises:
            Suspended: the run was asked to stop.
            WhaleError: the service does not answer, or refuses the request.
        """
        if self.toolbox.finished and not self.outcome:
            self.outcome = "submitted" if self.toolbox.handed else "gave up"
        over = self.budget.over(self.dollars, self.used.total, self.toolbox.calls, self.seconds)
        if over and not self.outcome:
            self.outcome = f"budget: {over}"
        if self.outcome or not any(t.get("name", "").startswith(f"mcp__{SERVER}__") for t in body.get("tools", [])):
            # A request without our tools is one of the program's own, such as for a title: it is not worth paying.
            return stream(_BYE, 0)
        self.turn += 1
        paid = self.bench.recorded(self.turn)
        if paid is None:
            if self.bench.leave():
                raise Suspended
            started = self.clock()
            reply = self.model.retry.call(lambda: self.model.send(self.request(body, betas)), self.bench, "service")
            took = self.clock() - started
            self.bench.record(self.turn, reply, self.prices.of(reply.usage), took)
        else:
            reply, took = paid
        self.seconds += took
        self.used, self.dollars = self.used.plus(reply.usage), self.dollars + self.prices.of(reply.usage)
        self.lines.append({"role": "assistant", "content": reply.content, "stop_reason": reply.stop_reason})
        self.last = reply
        if reply.stop_reason == "refusal":
            self.outcome = "refusal"  # the program would ask once more
        return stream(reply, self.turn)

    def request(self, body: dict[str, Any], betas: str) -> dict[str, Any]:
        """The program's request as it is sent on: the model and the length of a reply are the config's."""
        rest = {
            name: value for name, value in body.items() if name not in ("model", "max_tokens", "messages", "stream")
        }
        headers = {"anthropic-beta": betas} if betas else {}
        return {
            "model": self.model.model,
            "max_tokens": self.model.max_tokens,
            "messages": body["messages"],
            "extra_body": {**rest, **self.model.extra},
            "extra_headers": headers,
        }

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """A tool call (see `Toolbox.call`). Past the budget none is made."""
        started = self.clock()
        if self.budget.tool_calls and self.toolbox.calls >= self.budget.tool_calls:
            text, failed = "no further calls in this session", True
        else:
            text, failed = self.toolbox.call(name, arguments)
        self.lines.append({"role": "tool", "name": name, "content": text, "is_error": failed})
        if self.bench.recorded(self.turn + 1) is None:
            self.seconds += self.clock() - started
        return text, failed

    def result(self, fault: str) -> SessionResult:
        """How the session ended, with what it handed over.

        Raises WhaleError for a program that failed (`fault`) where no reply of the model explains it.
        """
        outcome = self.outcome
        if not outcome and self.last is not None and self.last.stop_reason == "max_tokens":
            outcome = "cut"
        elif not outcome and self.last is not None and not self.last.content:
            outcome = "empty"
        elif not outcome and fault:
            raise WhaleError(
                f"claude-code: the program failed after {self.turn} replies: {fault}; `whale resume` goes on from there"
            )
        elif not outcome:
            outcome = "submitted" if self.toolbox.handed else "gave up"
        text = "".join(json.dumps(line, ensure_ascii=False, sort_keys=True) + "\n" for line in self.lines)
        return SessionResult(
            self.toolbox.proposals(), outcome, self.turn, self.toolbox.calls, self.used, self.dollars,
            text.encode("utf-8", "backslashreplace"),
        )  # fmt: skip


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
