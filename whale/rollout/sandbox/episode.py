"""Inside an episode's own process, already locked: import the candidate, run it, report how it ended.

Everything sent from here is the candidate's to forge. The host believes nothing but what it checks itself.
"""

import asyncio
import importlib
import inspect
import json
import os
import random
import sys
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from whale.harness import api
from whale.rollout.sandbox import frames
from whale.rollout.sandbox.loop import EpisodeLoop

TREE_MODULE = "harness"
_REASON_CHARS = 2000


class Channel:
    """The episode's own socket, by plain reads and writes: the lock allows no socket calls."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, text: str) -> None:
        """Send a JSON text."""
        data = frames.wrap(text)
        sent = 0
        while sent < len(data):
            sent += os.write(self._descriptor, data[sent : sent + 65536])

    def receive(self) -> dict[str, Any]:
        """Return the host's next message."""
        length = frames.body_length(self._read(frames.HEADER_BYTES))
        return frames.decode(self._read(length))

    def _read(self, length: int) -> bytes:
        parts = []
        while length:
            part = os.read(self._descriptor, min(length, 1 << 16))
            if not part:
                os._exit(0)  # the host is gone
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


class EpisodeModel:
    """`model` of the harness contract."""

    __slots__ = ("_loop",)

    def __init__(self, loop: EpisodeLoop) -> None:
        self._loop = loop

    async def chat(
        self,
        messages: Sequence[api.Message],
        *,
        prefix: str = "",
        stop: Sequence[str] = (),
        max_tokens: int = 64,
        temperature: float | None = None,
    ) -> api.Reply:
        """Sample one assistant turn; see `whale.harness.api.Model`."""
        shown = [{"reply": message.id} if isinstance(message, api.Reply) else _plain(message) for message in messages]
        request = {
            "kind": "chat",
            "messages": shown,
            "prefix": prefix,
            "stop": [stop] if isinstance(stop, str) else list(stop),
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        answer = await self._loop.request(json.dumps(request))
        return api.Reply(answer["id"], answer["text"], answer["prefix"], answer["finish_reason"], answer["n_tokens"])


def _plain(message: Any) -> Any:
    return dict(message) if isinstance(message, Mapping) else message


class EpisodeTools:
    """`tools` of the harness contract."""

    def __init__(self, loop: EpisodeLoop, names: Sequence[str]) -> None:
        self._loop = loop
        self._names = tuple(names)

    def __dir__(self) -> list[str]:
        return sorted(self._names)

    def __getattr__(self, name: str) -> Any:
        """Return the async function of a tool."""
        if name not in self._names:
            raise AttributeError(f"there is no tool {name!r}; the tools are {', '.join(self._names) or 'none'}")

        async def call(**arguments: Any) -> Any:
            replies = {key: value.id for key, value in arguments.items() if isinstance(value, api.Reply)}
            plain = {key: value for key, value in arguments.items() if key not in replies}
            request = json.dumps({"kind": "tool", "name": name, "arguments": plain, "replies": replies})
            answer = await self._loop.request(request)
            if "error" in answer:
                raise api.ToolError(answer["error"])
            return answer["result"]

        call.__name__ = call.__qualname__ = name
        return call


def fix_randomness(seed: int) -> None:
    """Make `random` a function of the seed alone, an unseeded `random.Random()` included."""
    source = random.Random(seed)

    class Seeded(random.Random):
        def seed(self, a: Any = None, version: int = 2) -> None:
            super().seed(source.getrandbits(64) if a is None else a, version)

        def __new__(cls, *arguments: Any, **named: Any) -> "Seeded":
            # The base class seeds from the system here, before __init__ can say otherwise.
            return super().__new__(cls, 0)  # type: ignore[call-arg]  # the C type's own, which typeshed lacks

    unseeded = random.seed

    def reseed(a: Any = None, version: int = 2) -> None:
        unseeded(source.getrandbits(64) if a is None else a, version)

    random.Random = Seeded  # type: ignore[misc]  # meant: candidate code imports `random` after this
    random.seed = reseed
    del random.SystemRandom
    unseeded(seed)


def fix_clock(loop: EpisodeLoop) -> None:
    """Show the loop's clock wherever Python shows one, so that no result depends on the hour."""

    def now() -> float:
        return loop.time()

    def now_ns() -> int:
        return int(loop.time() * 1e9)

    def sleep(seconds: float, /) -> None:
        loop.advance(float(seconds))

    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        setattr(time, name, now)
        setattr(time, name + "_ns", now_ns)
    setattr(time, "sleep", sleep)  # noqa: B010 - a plain assignment is refused by typeshed


def run(channel: Channel, files: Mapping[str, str], tree: str) -> NoReturn:
    """Run one episode to its end. Never returns."""
    channel.send('{"type":"locked"}')
    start = channel.receive()
    try:
        end = _attempt(channel, files, tree, start)
        sys.stdout.flush()
        sys.stderr.flush()
        channel.send(json.dumps(end))
    except BaseException as error:
        _last_words(channel, error)
    os._exit(0)


def _last_words(channel: Channel, error: BaseException) -> None:
    try:
        channel.send(json.dumps({"type": "end", "status": "raised", "reason": type(error).__name__}))
    except BaseException:
        os._exit(0)


def _attempt(channel: Channel, files: Mapping[str, str], tree: str, start: Mapping[str, Any]) -> dict[str, Any]:
    turns = "0"

    def exchange(requests: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        channel.send(f'{{"type":"ask","max_turns":{turns},"requests":[{",".join(requests)}]}}')
        answers: Sequence[Mapping[str, Any]] = channel.receive()["answers"]
        return answers

    try:
        loop = EpisodeLoop(exchange)
        fix_randomness(start["seed"])
        fix_clock(loop)
        asyncio.set_event_loop(loop)
        # The tree comes last: a module of the candidate's never stands in for the standard library's.
        sys.path.append(tree)
        harness = _harness_class(importlib.import_module(TREE_MODULE))()
        harness.files = types.MappingProxyType(dict(files))
        turns = json.dumps(harness.max_turns)
        tools = EpisodeTools(loop, start["tools"])
        result = loop.run_until_complete(_solve(harness, start["task"], EpisodeModel(loop), tools))
    except MemoryError:
        return {"type": "end", "status": "memory_limit", "reason": "the memory limit was reached"}
    except BaseException as error:
        return {"type": "end", "status": "raised", "reason": _describe(error, tree)}
    if result is None:
        return {"type": "end", "status": "no_answer", "reason": "run returned None"}
    if not isinstance(result, api.Reply):
        name = type(result).__name__
        return {"type": "end", "status": "bad_reply", "reason": f"run returned {name}, not a Reply"}
    return {"type": "end", "status": "ok", "answer": result.id}


async def _solve(harness: api.Harness, task: Mapping[str, Any], model: EpisodeModel, tools: EpisodeTools) -> Any:
    result: Any = harness.run(task, model, tools)
    return await result if inspect.isawaitable(result) else result


def _harness_class(module: types.ModuleType) -> type[api.Harness]:
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, api.Harness)
        and value is not api.Harness
        and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise TypeError(f"harness.py defines {len(found)} subclasses of Harness; it must define exactly one")
    return found[0]


def _describe(error: BaseException, tree: str) -> str:
    """Return the error, and the innermost line of the candidate's own tree."""
    try:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    except BaseException:
        text = f"{type(error).__name__} (its text cannot be shown)"
    # Clean text, whatever the candidate raised: the host takes no lone surrogate.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    place = ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(tree + "/"):
            place = f" ({code.co_filename[len(tree) + 1 :]}, line {trace.tb_lineno}, in {code.co_name})"
        trace = trace.tb_next
    return text[: _REASON_CHARS - len(place)] + place
