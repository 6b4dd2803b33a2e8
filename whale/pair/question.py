"""A chat-completions request as a question for the harness: what it must hold, and what cannot be served.

The harness writes every prompt, so a request brings the question alone: the text of one user message. In a domain
whose tasks have one public field, such as `question`, that text is the field; elsewhere it is a JSON object
with the task's public fields.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whale.config import HOTTEST
from whale.domains.base import Domain, Task
from whale.errors import UsageError

_HARMLESS = frozenset(
    {"model", "messages", "stream", "stream_options", "temperature", "max_tokens", "max_completion_tokens", "seed",
     "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
)  # fmt: skip
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,), "top_p": (1,), "presence_penalty": (0,), "frequency_penalty": (0,), "logprobs": (False,),
    "tools": ([],), "functions": ([],), "logit_bias": ({},), "stop": ([],), "response_format": ({"type": "text"},),
}  # fmt: skip
"""Fields that may be sent with the value that asks for nothing."""


class Refused(Exception):
    """A request that is not served, as the protocol's error object."""

    def __init__(self, status: int, message: str, *, code: str = "", param: str = "", kind: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "error": {
                "message": message,
                "type": kind or "invalid_request_error",
                "param": param or None,
                "code": code or None,
            }
        }


@dataclass(frozen=True, slots=True)
class QuestionForm:
    """What a domain's question is made of."""

    fields: tuple[str, ...]

    @classmethod
    def of(cls, domain: Domain) -> "QuestionForm":
        """From the public fields of the domain's tasks.

        Raises:
            UsageError: the domain's tools work on its own tasks only, so that no new question can be served.
        """
        example = domain.splits()["validation"][0]
        try:
            domain.tools(Task("served", dict(example.public), {}))
        except Exception as error:
            raise UsageError(
                f"domain {domain.name}: its tools work on its own tasks only, so that no new question can be served "
                f"({type(error).__name__})"
            ) from error
        return cls(tuple(example.public))

    def read(self, text: str) -> Mapping[str, Any]:
        """The public fields of the task that this text asks."""
        if len(self.fields) == 1:
            if not text.strip():
                raise Refused(400, "the user message is empty: it must hold the question", param="messages")
            return {self.fields[0]: text}
        wanted = ", ".join(self.fields)
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict) or set(value) != set(self.fields):
            raise Refused(
                400, f"the user message must be a JSON object with the fields {wanted}: the task's question",
                param="messages",
            )  # fmt: skip
        return value


@dataclass(frozen=True, slots=True)
class Question:
    """A request that can be answered."""

    public: Mapping[str, Any]
    temperature: float | None = None
    max_tokens: int | None = None
    """Sampled tokens of the whole episode."""
    seed: int | None = None
    stream: bool = False
    include_usage: bool = False


def read_request(body: Any, form: QuestionForm, model: str, *, last_only: bool = False) -> Question:
    """A decoded body as a question. With `last_only` the messages before the last one are dropped.

    Raises:
        Refused: what is wrong, as the client shows it.
    """
    if not isinstance(body, dict):
        raise Refused(400, "the body must be a JSON object")
    if body.get("model") != model:
        raise Refused(
            404, f"no model {str(body.get('model'))[:100]!r} here: this server has {model!r}",
            code="model_not_found", param="model",
        )  # fmt: skip
    for key, value in body.items():
        if key not in _HARMLESS and value is not None and value not in _NEUTRAL.get(key, ()):
            raise Refused(400, f"{key[:100]}: not supported: the harness decides how the model is called", param=key)
    options = body.get("stream_options") or {}
    return Question(
        public=form.read(_text(body.get("messages"), last_only)),
        temperature=_number(body, "temperature", 0, HOTTEST),
        max_tokens=_whole(body, "max_completion_tokens", 1) or _whole(body, "max_tokens", 1),
        seed=_whole(body, "seed", 0),
        stream=body.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _text(messages: Any, last_only: bool) -> str:
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise Refused(400, "messages must be a list with one user message: the question", param="messages")
    if messages[-1].get("role") != "user":
        raise Refused(400, "the last message must be the user's: it holds the task's question", param="messages")
    if len(messages) > 1 and not last_only:
        raise Refused(
            400, f"{len(messages)} messages: send the question alone, as one user message; the harness writes the "
            "prompts and knows no earlier turns (`whale serve --last-only` drops them)", param="messages",
        )  # fmt: skip
    content = messages[-1].get("content")
    if isinstance(content, list):
        parts = [
            part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content
        ]
        texts = [part for part in parts if isinstance(part, str)]
        content = "".join(texts) if len(texts) == len(parts) else None
    if not isinstance(content, str):
        raise Refused(400, "the user message must be text", param="messages")
    return content


def _number(body: Mapping[str, Any], key: str, low: float, high: float) -> float | None:
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Refused(400, f"{key} must be a number from {low:g} to {high:g}", param=key)
    return float(value)


def _whole(body: Mapping[str, Any], key: str, least: int) -> int | None:
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise Refused(400, f"{key} must be a whole number of at least {least}", param=key)
    return value
