"""One episode on the host: it checks what the harness asks, runs tools, and keeps every token."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from whale.domains.base import Domain, Task
from whale.rollout.calls import ChatCall, EpisodeFailed, ToolRequest, parse_max_turns, parse_requests
from whale.rollout.chat import ChatError, EncodedPrompt, ReplyRecord
from whale.rollout.errors import ToolFault
from whale.rollout.fabrication import stands_in_own_text
from whale.rollout.sandbox.limits import Limits
from whale.rollout.sandbox.process import clean
from whale.rollout.types import (
    Completion,
    EpisodeSpec,
    GenerateRequest,
    Generation,
    Status,
    ToolCall,
    Trajectory,
    Turn,
    completion_of,
)

_ERROR_CHARS = 1000
_END_STATUSES = frozenset({"raised", "no_answer", "bad_reply", "memory_limit"})


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a run samples; a harness chooses within it."""

    temperature: float = 0.7
    """Of a call that names none."""
    max_turns: int = 8
    """Model calls of an episode, whatever the harness's own `max_turns`."""
    max_generated_tokens: int = 1024
    """Sampled tokens of an episode. A call gets what is left; with nothing left it is token_limit."""
    max_tokens_per_turn: int = 256
    """Sampled tokens of one call: a larger `max_tokens` is cut to this."""

    def __post_init__(self) -> None:
        """Reject what no episode could run under."""
        if self.temperature < 0 or min(self.max_turns, self.max_generated_tokens, self.max_tokens_per_turn) < 1:
            raise ValueError("sampling needs temperature >= 0 and limits of at least 1")


class Codec(Protocol):
    """What an episode needs of `whale.rollout.chat.ChatCodec`."""

    def encode(self, messages: Sequence[Mapping[str, str] | ReplyRecord], prefix: str = "") -> EncodedPrompt:
        """Return the prompt's ids. Raises ChatError for what cannot be encoded."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, special tokens skipped."""
        ...


@dataclass(frozen=True, slots=True)
class _PendingChat:
    """A chat call that waits for its generation."""

    call: ChatCall
    prompt: EncodedPrompt
    request: GenerateRequest


@dataclass(frozen=True, slots=True)
class _ToolAnswer:
    """A tool call that was made in this round."""

    answer: Mapping[str, Any]


State = Literal["running", "asked", "done"]


def call_seed(episode_seed: int, index: int) -> int:
    """Return the sampling seed of an episode's model call, 63 bits, counted from 0."""
    digest = hashlib.sha256(f"whale call {episode_seed} {index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


class Episode:
    """State of one episode. `ask` and `resume` alternate until `finish`."""

    def __init__(
        self,
        spec: EpisodeSpec,
        task: Task,
        domain: Domain,
        chat: Codec,
        sampling: Sampling,
        limits: Limits,
        *,
        context_length: int,
        weights: str,
    ) -> None:
        self.spec = spec
        self.task = task
        self.state: State = "running"
        self._domain = domain
        self._tools = domain.tools(task)
        self._chat = chat
        self._sampling = sampling
        self._limits = limits
        self._context_length = context_length
        self._weights = weights
        self._turns: list[Turn] = []
        self._calls: list[ToolCall] = []
        self._requests: list[Mapping[str, Any]] = []
        self._round: list[_PendingChat | _ToolAnswer] = []
        self._history: list[tuple[str, Any]] = []
        self._generated = 0
        self._status: Status = "ok"
        self._reason = ""
        self._answer: int | None = None

    @property
    def tool_names(self) -> list[str]:
        """The tools of this task."""
        return sorted(self._tools)

    @property
    def done(self) -> bool:
        """Whether its outcome is known."""
        return self.state == "done"

    @property
    def pending(self) -> list[GenerateRequest]:
        """What it waits for the model to sample."""
        return [item.request for item in self._round if isinstance(item, _PendingChat)]

    def ask(self, message: Mapping[str, Any]) -> None:
        """Take the requests of one round and run its tools. Raises EpisodeFailed.

        A fault of a tool, any exception but ValueError and TypeError, rises.
        """
        requests = parse_requests(message, replies=len(self._turns), tools=self.tool_names)
        max_turns = parse_max_turns(message, self._sampling.max_turns)
        chats = sum(isinstance(request, ChatCall) for request in requests)
        if len(self._turns) + chats > max_turns:
            raise EpisodeFailed("turn_limit", f"more than {max_turns} model calls")
        self._round = []
        reserved = 0
        for request in requests:
            self._requests.append(request.record())
            if isinstance(request, ToolRequest):
                self._round.append(self._run_tool(request))
            else:
                index = len(self._turns) + len(self.pending)
                chat = self._prepare(request, index, reserved)
                reserved += chat.request.max_tokens
                self._round.append(chat)
        self.state = "asked"

    def resume(self, generations: Sequence[Generation]) -> dict[str, Any]:
        """Return the round's answers for the harness, given one generation for each of `pending`."""
        left = iter(generations)
        answers: list[Mapping[str, Any]] = []
        for item in self._round:
            if isinstance(item, _ToolAnswer):
                answers.append(item.answer)
                self._history.append(("tool", item.answer))
            else:
                answers.append(self._add_turn(item, next(left)))
        self._round = []
        self.state = "running"
        return {"answers": answers}

    def end(self, message: Mapping[str, Any]) -> None:
        """Take the harness's last word, which may claim anything. Raises EpisodeFailed for nonsense."""
        status, answer = message.get("status"), message.get("answer")
        if status == "ok":
            if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer < len(self._turns):
                raise EpisodeFailed("bad_reply", "run returned no reply of this episode")
            self._answer = answer
            self.state = "done"
        elif status in _END_STATUSES:
            self.fail(status, str(message.get("reason", "")))
        else:
            raise EpisodeFailed("bad_call", "a malformed last word")

    def fail(self, status: Status, reason: str) -> None:
        """End the episode by the harness's own fault."""
        self._status = status
        self._reason = clean(reason)
        self._round = []
        self.state = "done"

    def trajectory(self) -> Trajectory:
        """Return the complete rollout, verified."""
        reward, metrics, fabricated = 0.0, dict[str, float](), False
        if self._answer is not None:
            verdict = self._domain.verify(self.task, completion_of(self._turns, self._calls, self._answer))
            reward, metrics = float(verdict.reward), {k: float(v) for k, v in verdict.metrics.items()}
            fabricated = reward > 0 and self._answer_is_own_text()
        return Trajectory(
            task_id=self.spec.task_id,
            sample=self.spec.sample,
            seed=self.spec.seed,
            turns=tuple(self._turns),
            calls=tuple(self._calls),
            status=self._status,
            reason=self._reason,
            answer_turn=self._answer,
            replies=tuple(self._requests),
            reward=reward,
            metrics=metrics,
            fabricated=fabricated,
        )

    def _answer_is_own_text(self) -> bool:
        def answer_in(text: str) -> bool:
            return self._domain.answer_in(self.task, text)

        return stands_in_own_text(answer_in, self.task.public, self._history)

    def _run_tool(self, request: ToolRequest) -> _ToolAnswer:
        if len(self._calls) >= self._limits.tool_calls:
            raise EpisodeFailed("turn_limit", f"more than {self._limits.tool_calls} tool calls")
        result, error = None, ""
        # A reply goes by its id: what the tool reads is what the host saw the model sample.
        replies = {
            name: Completion(self._turns[turn].prefix, self._turns[turn].text, turn)
            for name, turn in request.replies.items()
        }
        try:
            result = self._tools[request.name](**request.arguments, **replies)
        except (ValueError, TypeError) as refusal:
            error = clean(str(refusal))[:_ERROR_CHARS] or type(refusal).__name__
        try:
            # The harness, the trajectory and a replay all see what survives JSON.
            result = json.loads(json.dumps(result, allow_nan=False))
        except (TypeError, ValueError) as fault:
            raise ToolFault(f"the tool {request.name} of {self._domain.name} returned no JSON: {fault}") from fault
        call = ToolCall(len(self._turns), request.name, dict(request.arguments), result, error, dict(request.replies))
        self._calls.append(call)
        return _ToolAnswer({"error": error} if error else {"result": result})

    def _prepare(self, call: ChatCall, index: int, reserved: int) -> _PendingChat:
        left = self._sampling.max_generated_tokens - self._generated - reserved
        if left < 1:
            raise EpisodeFailed("token_limit", f"more than {self._sampling.max_generated_tokens} sampled tokens")
        max_tokens = min(call.max_tokens, self._sampling.max_tokens_per_turn, left)
        try:
            prompt = self._chat.encode([self._spliced(item) for item in call.messages], call.prefix)
        except ChatError as error:
            raise EpisodeFailed("bad_call", str(error)) from None
        if len(prompt.ids) + max_tokens > self._context_length:
            raise EpisodeFailed(
                "overlong",
                f"a prompt of {len(prompt.ids)} tokens and {max_tokens} to sample exceed "
                f"the context of {self._context_length}",
            )
        temperature = self._sampling.temperature if call.temperature is None else call.temperature
        request = GenerateRequest(prompt.ids, max_tokens, temperature, call_seed(self.spec.seed, index), call.stop)
        return _PendingChat(call, prompt, request)

    def _spliced(self, item: tuple[str, str] | int) -> Mapping[str, str] | ReplyRecord:
        if isinstance(item, int):
            turn = self._turns[item]
            return ReplyRecord(turn.prompt_ids[len(turn.prompt_ids) - turn.prefix_len :], turn.output_ids)
        return {"role": item[0], "content": item[1]}

    def _shown(self, item: tuple[str, str] | int) -> Mapping[str, str]:
        if isinstance(item, int):
            turn = self._turns[item]
            return {"role": "assistant", "content": turn.prefix + turn.text}
        return {"role": item[0], "content": item[1]}

    def _add_turn(self, chat: _PendingChat, generation: Generation) -> Mapping[str, Any]:
        call = chat.call
        self._history += [("wrote", item[1]) for item in call.messages if not isinstance(item, int)]
        if call.prefix:
            self._history.append(("wrote", call.prefix))
        turn = Turn(
            prompt_ids=chat.prompt.ids,
            output_ids=tuple(generation.output_ids),
            logprobs=tuple(generation.logprobs),
            finish_reason=generation.finish_reason,
            weights=self._weights,
            prefix_len=chat.prompt.prefix_len,
            text=self._chat.decode(generation.output_ids),
            prefix=call.prefix,
            messages=tuple(self._shown(item) for item in call.messages),
        )
        self._turns.append(turn)
        self._generated += len(turn.output_ids)
        self._history.append(("sampled", turn.text))
        return reply_answer(len(self._turns) - 1, turn)


def reply_answer(index: int, turn: Turn) -> dict[str, Any]:
    """Return what the harness gets of a turn; `index` is the reply's id."""
    return {
        "id": index,
        "text": turn.text,
        "prefix": turn.prefix,
        "finish_reason": turn.finish_reason,
        "n_tokens": len(turn.output_ids),
    }
