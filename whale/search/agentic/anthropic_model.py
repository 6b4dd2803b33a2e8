"""Any model behind the Messages protocol, through the `anthropic` SDK: streamed, with prompt caching."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whale.errors import WhaleError
from whale.search.agentic.retrying import Retry, Transient
from whale.search.agentic.types import Block, ModelReply, Usage, Workbench

if TYPE_CHECKING:
    import anthropic

_CACHE = {"cache_control": {"type": "ephemeral"}}
_AGAIN = frozenset({200, 408, 409, 429})
"""Besides 5xx; 200 is an error event inside a stream that had begun well."""


class AnthropicModel:
    """One model at one address."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "",
        api_key: str,
        max_tokens: int = 16_000,
        extra: Mapping[str, Any] | None = None,
        retry: Retry | None = None,
        read_timeout: float = 300.0,
    ) -> None:
        self.model = model
        self.base_url = base_url
        self.api_key = api_key
        self.max_tokens = max_tokens
        self.extra = dict(extra or {})
        self.retry = retry or Retry()
        self.read_timeout = read_timeout
        self._client: anthropic.Anthropic | None = None

    def client(self) -> "anthropic.Anthropic":
        """The SDK's client; its own retries are off, since they would outlast a stop."""
        if self._client is None:
            import anthropic

            self._client = anthropic.Anthropic(
                api_key=self.api_key, base_url=self.base_url or None, max_retries=0, timeout=self.read_timeout
            )
        return self._client

    def reply(self, system: str, messages: Sequence[Block], tools: Sequence[Block], bench: Workbench) -> ModelReply:
        """The next reply (see `Model`)."""
        return self.retry.call(lambda: self._ask(system, messages, tools), bench, self.model)

    def _ask(self, system: str, messages: Sequence[Block], tools: Sequence[Block]) -> ModelReply:
        import anthropic

        request: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "system": [{"type": "text", "text": system, **_CACHE}],
            "messages": cached(messages),
            "tools": list(tools),
            "extra_body": self.extra or None,
        }
        try:
            with self.client().messages.stream(**request) as stream:
                message = stream.get_final_message()
        except anthropic.APIStatusError as error:
            told = f"{error.status_code}: {str(error.message)[:300]}"
            if error.status_code in _AGAIN or error.status_code >= 500:
                raise Transient(told, _retry_after(error.response.headers)) from error
            raise WhaleError(f"{self.model}: the service refuses the request, {told}") from error
        except anthropic.APIConnectionError as error:
            raise Transient(f"no connection: {error.__cause__ or error}") from error
        except (WhaleError, Transient):
            raise
        except Exception as error:
            # A stream that breaks off raises whatever its reader was doing: a transport or a JSON error.
            raise Transient(f"the stream broke off: {type(error).__name__}: {str(error)[:200]}") from error
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


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return max(0.0, float(headers["retry-after"]))
    except (KeyError, ValueError):
        return None
