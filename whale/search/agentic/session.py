"""One session of a model with the tools: replies are recorded as they are paid, and played again on a resume."""

import json
import time
from collections.abc import Sequence
from typing import Any

from whale.search.agentic.budget import Budget, Prices
from whale.search.agentic.toolbox import Toolbox
from whale.search.agentic.types import Block, Clock, Model, SessionResult, Suspended, Usage, Workbench

MAX_CUT = 3
MAX_IDLE = 2
"""Replies in a row that were cut, or that called no tool, after which the session ends."""

_CUT = "Your reply was cut off at its length limit. Go on in smaller steps."
_IDLE = "You called no tool. Work with the tools, hand over your drafts with submit_draft, or call finish."


def run_session(
    model: Model,
    toolbox: Toolbox,
    bench: Workbench,
    *,
    system: str,
    opening: str,
    budget: Budget,
    prices: Prices,
    clock: Clock = time.monotonic,
) -> SessionResult:
    """Work until enough is handed over, or until the model or a budget ends it.

    Each reply is recorded before its tools run. Tools are deterministic and a trial is recorded by its own key,
    so that playing recorded replies again brings the session to where it was.

    Raises:
        Suspended: the run was asked to stop; the session can be gone on with.
        WhaleError: the model's service does not answer; the session can be gone on with.
    """
    messages: list[Block] = [{"role": "user", "content": [_text(opening)]}]
    transcript: list[dict[str, Any]] = [{"system": system}, messages[0]]
    used, dollars, seconds = Usage(), 0.0, 0.0
    turn = cut = idle = 0
    outcome = ""
    while not outcome:
        over = budget.over(dollars, used.total, toolbox.calls, seconds)
        if over:
            outcome = f"budget: {over}"
            break
        turn += 1
        paid = bench.recorded(turn)
        if paid is None:
            if bench.leave():
                raise Suspended
            started = clock()
            reply = model.reply(system, messages, toolbox.schemas, bench)
            took = clock() - started
            bench.record(turn, reply, prices.of(reply.usage), took)
        else:
            reply, took = paid
        seconds += took
        used, dollars = used.plus(reply.usage), dollars + prices.of(reply.usage)
        transcript.append({"role": "assistant", "content": reply.content, "stop_reason": reply.stop_reason})
        if reply.stop_reason == "refusal":
            outcome = "refusal"
            break
        truncated = reply.stop_reason == "max_tokens"
        # A tool call that was cut off has half its arguments: it is not made.
        content = [b for b in reply.content if not (truncated and b["type"] == "tool_use") and not _empty(b)]
        calls = [block for block in content if block["type"] == "tool_use"]
        started = clock()
        if calls:
            cut = idle = 0
            answer = _answer(toolbox, calls, budget)
        elif truncated:
            cut += 1
            outcome = "cut" if cut >= MAX_CUT else ""
            answer = [_text(_CUT)]
        else:
            idle += 1
            outcome = ("gave up" if content else "empty") if idle >= MAX_IDLE else ""
            answer = [_text(_IDLE)]
        seconds += clock() - started if paid is None else 0.0
        if content:
            messages += [{"role": "assistant", "content": content}, {"role": "user", "content": answer}]
        else:
            messages[-1] = {"role": "user", "content": [*messages[-1]["content"], *answer]}
        transcript.append({"role": "user", "content": answer})
        if toolbox.finished:
            outcome = "submitted" if toolbox.handed else "gave up"
    proposals = toolbox.proposals()
    text = "".join(json.dumps(line, ensure_ascii=False, sort_keys=True) + "\n" for line in transcript)
    return SessionResult(
        proposals, outcome, turn, toolbox.calls, used, dollars, text.encode("utf-8", "backslashreplace")
    )


def _answer(toolbox: Toolbox, calls: Sequence[Block], budget: Budget) -> list[Block]:
    """The results of a reply's tool calls, in order. Past the budget no call is made."""
    results = []
    for block in calls:
        if budget.tool_calls and toolbox.calls >= budget.tool_calls:
            text, failed = "no further calls in this session", True
        else:
            text, failed = toolbox.call(block["name"], block.get("input") or {})
        result = {"type": "tool_result", "tool_use_id": block["id"], "content": text}
        results.append({**result, "is_error": True} if failed else result)
    return results


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _empty(block: Block) -> bool:
    return block["type"] == "text" and not block["text"].strip()
