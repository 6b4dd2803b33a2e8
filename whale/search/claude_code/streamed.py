"""A recorded reply as the Messages protocol streams it."""

import json
from collections.abc import Iterator
from typing import Any

from whale.search.agentic.types import Block, ModelReply


def stream(reply: ModelReply, number: int) -> bytes:
    """The whole answer to a streamed request. `number` makes the message's id: the reader joins equal ones."""
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in _events(reply, number)
    )


def _events(reply: ModelReply, number: int) -> Iterator[dict[str, Any]]:
    usage = {
        "input_tokens": reply.usage.input,
        "output_tokens": 0,
        "cache_read_input_tokens": reply.usage.cache_read,
        "cache_creation_input_tokens": reply.usage.cache_write,
    }
    message: Block = {"id": f"msg_{number:06d}", "type": "message", "role": "assistant", "model": reply.model,
                      "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
    yield {"type": "message_start", "message": message}
    for index, block in enumerate(reply.content):
        start, deltas = _parts(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": reply.stop_reason, "stop_sequence": None},
        "usage": {"output_tokens": reply.usage.output},
    }
    yield {"type": "message_stop"}


def _parts(block: Block) -> tuple[Block, list[Block]]:
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "tool_use":
            text = json.dumps(block.get("input") or {})
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]
        case "thinking":
            signature = {"type": "signature_delta", "signature": block.get("signature", "")}
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}, signature]
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case _:
            return block, []
