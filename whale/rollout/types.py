"""Records of a rollout: what the model saw and sampled, token by token, and how the episode ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

Status = Literal[
    "ok", "raised", "no_answer", "bad_reply", "bad_call", "turn_limit", "token_limit", "overlong",
    "cpu_limit", "memory_limit", "output_limit", "wall_limit", "killed",
]  # fmt: skip
"""How an episode ended. All but "ok" are the harness's own failures: reward 0, counted in n.

no_answer: `run` returned None; bad_reply: it returned something that is not one of the episode's replies;
bad_call: a malformed request to the host; overlong: a prompt that does not fit the context; killed: the
process died of a signal. A fault of ours (engine, machine) is an exception, never a status.
"""

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One continuation to sample."""

    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reject what no engine can serve."""
        if not self.prompt_ids or self.max_tokens < 1 or self.temperature < 0:
            raise ValueError("a request needs a prompt, max_tokens >= 1 and temperature >= 0")


@dataclass(frozen=True, slots=True)
class Generation:
    """What was sampled. `output_ids` ends with the stop token if the model sampled it."""

    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """log π(output_ids[t] | ...) under the untempered softmax, one per output id."""
    finish_reason: FinishReason


class GenerationSession(Protocol):
    """One micro-batch on an engine; prefixes are shared inside it only."""

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """Sample all requests together; results in request order."""
        ...

    def close(self) -> None:
        """Free the micro-batch's cache."""
        ...


@runtime_checkable
class ContinuousSession(Protocol):
    """A micro-batch on an engine that takes requests while it samples others."""

    def submit(self, request: GenerateRequest) -> int:
        """Queue a request; returns its ticket. Raises ContextError for one that does not fit."""
        ...

    def advance(self) -> list[tuple[int, Generation]]:
        """Sample on, a little; returns what is finished by ticket. Called while tickets are out only."""
        ...

    def close(self) -> None:
        """Drop what is not finished."""
        ...


class Engine(Protocol):
    """Token ids in, token ids and logprobs out.

    `deterministic`: equal calls of a session give equal bits. Such an engine is fed in lock step.
    """

    name: str
    deterministic: bool
    context_length: int

    @property
    def weights_version(self) -> str:
        """Digest of the weights that are loaded."""
        ...

    def session(self) -> GenerationSession | ContinuousSession:
        """Open a micro-batch."""
        ...

    def update_weights(self, state_dict: Mapping[str, Any], version: str) -> None:
        """Load new weights in place and drop every cached prefix. Tensors by parameter name."""
        ...

    def logprobs(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """Per sequence: log π(id_t | id_<t) for t >= 1 (length len(ids) - 1)."""
        ...


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call. `prompt_ids` includes the opened assistant prefix, its last `prefix_len` ids."""

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    weights: str
    prefix_len: int
    text: str
    """The sampled text, special tokens skipped."""
    prefix: str
    messages: tuple[Mapping[str, str], ...]
    """What the harness passed, {"role", "content"}; a spliced reply shows its prefix and text."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of the harness and what came back."""

    after_turn: int
    """How many turns had ended when it was made."""
    name: str
    arguments: Mapping[str, Any]
    result: Any
    error: str = ""
    replies: Mapping[str, int] = field(default_factory=dict)
    """Arguments that were replies of the episode: name -> index into its turns."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A reply as a verifier or a tool sees it: an answer span may be read from `sampled` only."""

    prefix: str
    sampled: str
    turn: int = 0
    """Which of the episode's replies it is."""
    actions: tuple["Action", ...] = ()
    """Of a final answer: what the environment was given before, in order."""


@dataclass(frozen=True, slots=True)
class Action:
    """A reply that the harness handed to a tool, and that the tool took."""

    tool: str
    reply: Completion


def completion_of(turns: Sequence[Turn], calls: Sequence[ToolCall], answer: int) -> Completion:
    """The final answer with all that was done before it, from the record alone."""

    def reply(index: int) -> Completion:
        return Completion(turns[index].prefix, turns[index].text, index)

    actions = tuple(
        Action(call.name, reply(index)) for call in calls if not call.error for index in call.replies.values()
    )
    return Completion(turns[answer].prefix, turns[answer].text, answer, actions)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One rollout, complete."""

    task_id: str
    sample: int
    seed: int
    turns: tuple[Turn, ...]
    calls: tuple[ToolCall, ...]
    status: Status
    reason: str
    """The harness's error, at most 2,000 characters; empty when ok."""
    answer_turn: int | None
    """Index into `turns` of the reply that `run` returned."""
    replies: tuple[Mapping[str, Any], ...] = ()
    """The episode's requests in order of asking, as the sandbox sent them, for a replay without a model."""
    reward: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    fabricated: bool = False

    @property
    def completion(self) -> Completion | None:
        """The answer as the verifier saw it, or None if the episode has none."""
        if self.answer_turn is None:
            return None
        return completion_of(self.turns, self.calls, self.answer_turn)

    @property
    def truncated(self) -> bool:
        """Whether the final turn hit its token limit."""
        return bool(self.turns) and self.turns[-1].finish_reason == "length"

    @property
    def generated(self) -> int:
        """Number of tokens that the model sampled."""
        return sum(len(turn.output_ids) for turn in self.turns)

    @property
    def prompted(self) -> int:
        """Number of prompt tokens over all turns."""
        return sum(len(turn.prompt_ids) for turn in self.turns)


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """Which task to run, as which of its samples, under which seed."""

    task_id: str
    sample: int
    seed: int
