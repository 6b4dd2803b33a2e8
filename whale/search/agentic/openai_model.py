"""Any model behind the Chat Completions protocol, through the `openai` SDK (extra `openai`)."""

import json
from collections.abc import Sequence
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

from whale.errors import UsageError
from whale.search.agentic.retrying import Transient
from whale.search.agentic.service import ServiceModel
from whale.search.agentic.types import Block, ModelReply, Usage

if TYPE_CHECKING:
    import openai

_STOP = {"length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use", "stop": "end_turn"}


class OpenAIModel(ServiceModel):
    """One model at one address."""

    @cached_property
    def sdk(self) -> ModuleType:
        """The SDK."""
        try:
            import openai
        except ImportError:
            raise UsageError('the proposer "openai" needs its SDK: pip install "whale-evolve[openai]"') from None
        return openai

    @cached_property
    def client(self) -> "openai.OpenAI":
        """The SDK's client."""
        client: openai.OpenAI = self.sdk.OpenAI(**self.client_options())
        return client

    def ask(self, system: str, messages: Sequence[Block], tools: Sequence[Block]) -> ModelReply:
        """One request (see `ServiceModel`)."""
        request: dict[str, Any] = {
            "model": self.model,
            "max_completion_tokens": self.max_tokens,
            "messages": chat_messages(system, messages),
            "extra_body": self.extra or None,
        }
        if tools:  # an empty list is refused
            request["tools"] = [
                {"type": "function", "function": {"name": t["name"], "description": t["description"],
                                                  "parameters": t["input_schema"]}}
                for t in tools
            ]  # fmt: skip
        answer: openai.types.chat.ChatCompletion = self.classified(
            lambda: self.client.chat.completions.create(**request)
        )
        if not answer.choices:
            raise Transient("an answer without a choice")
        choice = answer.choices[0]
        content: list[Block] = []
        if choice.message.content:
            content.append({"type": "text", "text": choice.message.content})
        for call in choice.message.tool_calls or []:
            if call.type == "function":
                content.append(
                    {"type": "tool_use", "id": call.id, "name": call.function.name,
                     "input": _arguments(call.function.arguments)}
                )  # fmt: skip
        usage = answer.usage
        details = usage.prompt_tokens_details if usage else None
        read = (details.cached_tokens or 0) if details else 0
        return ModelReply(
            content=content,
            stop_reason="refusal" if choice.message.refusal else _STOP.get(choice.finish_reason, "end_turn"),
            model=answer.model,
            usage=Usage(
                input=(usage.prompt_tokens - read) if usage else 0,
                cache_read=read,
                output=usage.completion_tokens if usage else 0,
            ),
        )


def _arguments(text: str) -> dict[str, Any]:
    """A call's arguments; what is no JSON object becomes an argument that no tool knows, and its tool says so."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {"not_json": text[:200]}
    return value if isinstance(value, dict) else {"not_an_object": str(value)[:200]}


def chat_messages(system: str, messages: Sequence[Block]) -> list[dict[str, Any]]:
    """Messages with content blocks as Chat Completions takes them."""
    result: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for message in messages:
        texts = [block["text"] for block in message["content"] if block["type"] == "text"]
        calls = [block for block in message["content"] if block["type"] == "tool_use"]
        for block in message["content"]:
            if block["type"] == "tool_result":
                result.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": block["content"]})
        if message["role"] == "assistant":
            said: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts) or None}
            if calls:
                said["tool_calls"] = [
                    {"id": c["id"], "type": "function",
                     "function": {"name": c["name"], "arguments": json.dumps(c["input"])}}
                    for c in calls
                ]  # fmt: skip
            result.append(said)
        elif texts:
            result.append({"role": "user", "content": "\n".join(texts)})
    return result
