"""Any model behind the Messages protocol, through the `anthropic` SDK: streamed, with prompt caching."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

from whale.search.agentic.retrying import Transient
from whale.search.agentic.service import ServiceModel
from whale.search.agentic.types import Block, ModelReply, Usage

if TYPE_CHECKING:
    import anthropic

_CACHE = {"cache_control": {"type": "ephemeral"}}


class AnthropicModel(ServiceModel):
    """One model at one address."""

    @cached_property
    def sdk(self) -> ModuleType:
        """The SDK."""
        import anthropic

        return anthropic

    @cached_property
    def client(self) -> "anthropic.Anthropic":
        """The SDK's client."""
        import anthropic

        return anthropic.Anthropic(**self.client_options())

    def ask(self, system: str, messages: Sequence[Block], tools: Sequence[Block]) -> ModelReply:
        """One streamed request (see `ServiceModel`)."""
        request: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "messages": cached(messages),
            "extra_body": self.extra or None,
        }
        if system:  # an empty block is refused, as an empty list of tools is
            request["system"] = [{"type": "text", "text": system, **_CACHE}]
        if tools:
            request["tools"] = list(tools)
        return self.send(request)

    def send(self, request: Mapping[str, Any]) -> ModelReply:
        """The reply to a request in the SDK's own terms (see `ServiceModel`)."""

        def streamed() -> "anthropic.types.Message":
            with self.client.messages.stream(**request) as stream:
                return stream.get_final_message()

        message = self.classified(streamed)
        if message.stop_reason is None:
            raise Transient("the stream ended before the reply did")
        usage = message.usage
        return ModelReply(
            content=[_sendable(block.model_dump(mode="json", exclude_none=True)) for block in message.content],
            stop_reason=message.stop_reason,
            model=message.model,
            usage=Usage(
                input=usage.input_tokens or 0,
                cache_read=usage.cache_read_input_tokens or 0,
                cache_write=usage.cache_creation_input_tokens or 0,
                output=usage.output_tokens or 0,
            ),
        )


def cached(messages: Sequence[Block]) -> list[Block]:
    """The messages with a cache mark at the end of the last one: the next turn reads all of it from the cache."""
    *before, last = messages
    *blocks, end = last["content"]
    return [*before, {**last, "content": [*blocks, {**end, **_CACHE}]}]


_FIELDS = {
    "text": ("type", "text"),
    "tool_use": ("type", "id", "name", "input"),
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
}


def _sendable(block: Block) -> Block:
    """A block as the protocol takes it back: the SDK's own additions are left out."""
    fields = _FIELDS.get(block["type"])
    return {name: block[name] for name in fields if name in block} if fields else block
