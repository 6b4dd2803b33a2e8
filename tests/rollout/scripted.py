"""A model that is a pure function of its request, a byte-wise chat codec, and a domain of two facts."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from whale.domains.base import SPLITS, Domain, Split, Task, Verdict
from whale.rollout.chat import ChatError, EncodedPrompt, ReplyRecord
from whale.rollout.episodes import Limits, Sampling, run_micro_batch
from whale.rollout.sandbox.host import HarnessWorker
from whale.rollout.types import Completion, EpisodeSpec, GenerateRequest, Generation, Trajectory
from whale.stopwatch import Stopwatch

END = 0
"""The stop token; every other id is a byte plus one."""


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(byte + 1 for byte in text.encode())


def text_of(ids: Sequence[int]) -> str:
    return bytes(i - 1 for i in ids if i != END).decode("utf-8", "replace")


class ByteChat:
    """`role>content` and the stop token for each message."""

    def encode(self, messages: Sequence[Mapping[str, str] | ReplyRecord], prefix: str = "") -> EncodedPrompt:
        ids: list[int] = []
        for message in messages:
            if isinstance(message, ReplyRecord):
                ids += [*ids_of("assistant>"), *message.prefix_ids, *message.output_ids]
            elif message["role"] == "tool":
                raise ChatError("this template knows no tool messages")
            else:
                ids += [*ids_of(f"{message['role']}>{message['content']}"), END]
        opened = ids_of(prefix)
        return EncodedPrompt((*ids, *ids_of("assistant>"), *opened), len(opened))

    def decode(self, ids: Sequence[int]) -> str:
        return text_of(ids)


Say = Callable[[str, GenerateRequest], str]


def say_hash(prompt: str, request: GenerateRequest) -> str:
    """Words that depend on the prompt, the seed and the temperature."""
    return hashlib.sha256(f"{prompt} {request.seed} {request.temperature}".encode()).hexdigest()[:8]


class ScriptedEngine:
    """Says what `say` returns, cut at max_tokens and at stop strings."""

    name = "scripted"
    deterministic = True

    def __init__(self, say: Say = say_hash, context_length: int = 20_000) -> None:
        self.context_length = context_length
        self.batches: list[list[GenerateRequest]] = []
        self.open_sessions = 0
        self._say = say

    @property
    def weights_version(self) -> str:
        return "weights-0"

    def session(self) -> "ScriptedEngine":
        self.open_sessions += 1
        return self

    def close(self) -> None:
        self.open_sessions -= 1

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        self.batches.append(list(requests))
        return [self._one(request) for request in requests]

    def _one(self, request: GenerateRequest) -> Generation:
        text = self._say(text_of(request.prompt_ids), request)
        for stop in request.stop:
            if stop in text:
                text = text[: text.index(stop) + len(stop)]
        ids = (*ids_of(text), END)
        cut = ids[: request.max_tokens]
        return Generation(cut, tuple(-0.5 for _ in cut), "stop" if len(cut) == len(ids) else "length")

    def update_weights(self, state_dict: Mapping[str, Any], version: str) -> None:
        raise NotImplementedError

    def logprobs(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        raise NotImplementedError


class ScriptedFlow:
    """A continuous session of a ScriptedEngine: one request a step, the newest first."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine
        self._queue: list[tuple[int, GenerateRequest]] = []
        self._tickets = 0
        engine.open_sessions += 1

    def submit(self, request: GenerateRequest) -> int:
        self._tickets += 1
        self._queue.append((self._tickets, request))
        return self._tickets

    def advance(self) -> list[tuple[int, Generation]]:
        ticket, request = self._queue.pop()
        return [(ticket, self._engine.generate([request])[0])]

    def close(self) -> None:
        self._engine.close()


FACTS = {"france": "The capital of France is Paris, on the Seine.", "answer": "42"}


class FactsDomain:
    """One tool, `lookup`; an answer is right if it stands in the sampled text."""

    name = "facts"

    def splits(self) -> Mapping[Split, Sequence[Task]]:
        return dict.fromkeys(SPLITS, ())

    def fingerprint(self) -> str:
        return "facts"

    def h0(self) -> Mapping[str, bytes]:
        return {}

    def tools(self, task: Task) -> Mapping[str, Callable[..., Any]]:
        def lookup(key: str) -> Any:
            if key not in FACTS:
                raise ValueError(f"there is no entry {key!r}")
            return [{"text": FACTS[key], "score": 1.5}]

        def broken() -> Any:
            raise KeyError("a fault of ours")

        def unserialisable() -> Any:
            return {1, 2}

        return {"lookup": lookup, "broken": broken, "unserialisable": unserialisable}

    def verify(self, task: Task, completion: Completion) -> Verdict:
        right = task.private.get("answer", "") in completion.sampled
        return Verdict(float(right), {"format": 1.0})

    def answer_in(self, task: Task, text: str) -> bool:
        return str(task.private.get("answer", "")) in text

    def leak(self, text: str) -> str | None:
        return None


LIMITS = Limits(cpu_seconds=1, memory_bytes=256 << 20, output_bytes=20_000, wall_seconds=20.0)
SAMPLING = Sampling(temperature=1.0, max_turns=4, max_generated_tokens=200, max_tokens_per_turn=64)


def tree(body: str, **files: str) -> dict[str, bytes]:
    """A harness whose `run` is `body`, indented by eight spaces or less."""
    lines = [
        "import asyncio, json, os, random, sys",
        "from whale.harness import Harness, Reply, ToolError",
        "class Tested(Harness):",
        "    max_turns = 4",
        "    async def run(self, task, model, tools):",
        *("        " + line for line in body.strip("\n").splitlines()),
    ]
    return {
        "harness.py": "\n".join(lines).encode(),
        "prompts/system.md": b"Be brief.\n",
        **{name: text.encode() for name, text in files.items()},
    }


def rollouts(
    worker: HarnessWorker,
    publics: Sequence[Mapping[str, Any]],
    *,
    engine: ScriptedEngine | None = None,
    private: Mapping[str, Any] | None = None,
    sampling: Sampling = SAMPLING,
    domain: Domain | None = None,
    watch: Stopwatch | None = None,
) -> list[Trajectory]:
    """Run one episode for each task's public fields; the seed is its position."""
    tasks = {f"t{i}": Task(f"t{i}", public, private or {}) for i, public in enumerate(publics)}
    specs = [EpisodeSpec(name, 0, seed) for seed, name in enumerate(tasks)]
    return run_micro_batch(
        engine or ScriptedEngine(),
        ByteChat(),
        worker.files,
        tasks,
        specs,
        domain or FactsDomain(),
        sampling,
        worker.limits,
        worker,
        watch=watch,
    )
