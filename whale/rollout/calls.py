"""What an episode asks of the host: every field is the candidate's, so every field is checked here."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from whale.config import HOTTEST
from whale.rollout.types import Status

_ROLES = frozenset({"system", "user", "assistant", "tool"})
_MAX_STOPS = 16
_MAX_STOP_CHARS = 200
_MAX_REQUESTS = 512


class EpisodeFailed(Exception):
    """The episode ends here by the harness's own fault."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status: Status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A valid request for one assistant turn. A message is its role and content, or a reply's id."""

    messages: tuple[tuple[str, str] | int, ...]
    prefix: str
    stop: tuple[str, ...]
    max_tokens: int
    temperature: float | None

    def record(self) -> dict[str, Any]:
        """Return the request as the trajectory keeps it."""
        shown = [
            {"reply": item} if isinstance(item, int) else {"role": item[0], "content": item[1]}
            for item in self.messages
        ]
        return {
            "kind": "chat",
            "messages": shown,
            "prefix": self.prefix,
            "stop": list(self.stop),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
        }


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A valid request to call a tool that exists."""

    name: str
    arguments: Mapping[str, Any]
    replies: Mapping[str, int]
    """Further arguments, which are replies of the episode: name -> the reply's id."""

    def record(self) -> dict[str, Any]:
        """Return the request as the trajectory keeps it."""
        record: dict[str, Any] = {"kind": "tool", "name": self.name, "arguments": dict(self.arguments)}
        return record | {"replies": dict(self.replies)} if self.replies else record


def parse_requests(message: Mapping[str, Any], *, replies: int, tools: Sequence[str]) -> list[ChatCall | ToolRequest]:
    """Return the requests of an "ask" message. `replies` is how many replies the episode has had.

    Raises EpisodeFailed with status bad_call.
    """
    requests = message.get("requests")
    if not isinstance(requests, list) or not 0 < len(requests) <= _MAX_REQUESTS:
        raise _bad(f"a message must hold 1 to {_MAX_REQUESTS} requests")
    return [_request(request, replies, tools) for request in requests]


def parse_max_turns(message: Mapping[str, Any], cap: int) -> int:
    """Return the turns that the harness gives itself, at most `cap`."""
    turns = message.get("max_turns")
    if not _is_int(turns) or turns < 1:
        raise _bad(f"max_turns must be a whole number above 0, not {_shown(turns)}")
    return min(turns, cap)


def _request(request: Any, replies: int, tools: Sequence[str]) -> ChatCall | ToolRequest:
    kind = request.get("kind") if isinstance(request, dict) else None
    if kind == "chat":
        return _chat(request, replies)
    if kind != "tool":
        raise _bad("a request is neither a chat nor a tool call")
    name, arguments = request.get("name"), request.get("arguments")
    if not isinstance(name, str) or name not in tools:
        raise _bad(f"there is no tool {_shown(name)}")
    if not isinstance(arguments, dict):
        raise _bad("a tool's arguments must be an object")
    handed = request.get("replies", {})
    if not isinstance(handed, dict) or handed.keys() & arguments.keys():
        raise _bad("a tool's replies must be an object of further arguments")
    return ToolRequest(name, arguments, {key: _reply_id(number, replies) for key, number in handed.items()})


def _chat(request: Mapping[str, Any], replies: int) -> ChatCall:
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _bad("messages must be a list and not empty")
    prefix, stop = request.get("prefix"), request.get("stop")
    if not isinstance(prefix, str):
        raise _bad(f"prefix must be a string, not {_shown(prefix)}")
    if not isinstance(stop, list) or len(stop) > _MAX_STOPS:
        raise _bad(f"stop must be a list of at most {_MAX_STOPS} strings")
    for text in stop:
        if not isinstance(text, str) or not 0 < len(text) <= _MAX_STOP_CHARS:
            raise _bad(f"a stop must be a string of 1 to {_MAX_STOP_CHARS} characters, not {_shown(text)}")
    max_tokens = request.get("max_tokens")
    if not _is_int(max_tokens) or max_tokens < 1:
        raise _bad(f"max_tokens must be a whole number above 0, not {_shown(max_tokens)}")
    temperature = request.get("temperature")
    if temperature is not None:
        if isinstance(temperature, bool) or not isinstance(temperature, int | float):
            raise _bad(f"temperature must be a number, not {_shown(temperature)}")
        if not 0 <= temperature <= HOTTEST or not math.isfinite(temperature):
            raise _bad(f"temperature must be between 0 and {HOTTEST:g}, not {_shown(temperature)}")
        temperature = float(temperature)
    shown = tuple(_message(message, replies) for message in messages)
    return ChatCall(shown, prefix, tuple(stop), max_tokens, temperature)


def _message(message: Any, replies: int) -> tuple[str, str] | int:
    if not isinstance(message, dict):
        raise _bad(f"a message must be a mapping or a Reply, not {_shown(message)}")
    if "reply" in message:
        return _reply_id(message["reply"], replies)
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or role not in _ROLES:
        raise _bad(f"unknown role {_shown(role)}")
    if not isinstance(content, str):
        raise _bad(f"the content of a {role} message must be a string, not {_shown(content)}")
    return role, content


def _reply_id(number: Any, replies: int) -> int:
    if not _is_int(number) or not 0 <= number < replies:
        raise _bad(f"this is no reply of this episode: {_shown(number)}")
    return number


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return repr(value)[:80]


def _bad(reason: str) -> EpisodeFailed:
    return EpisodeFailed("bad_call", reason)
