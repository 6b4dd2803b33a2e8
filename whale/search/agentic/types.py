"""Records and ports between a session, the model behind it and the run around it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import msgspec

from whale.rollout.types import Trajectory
from whale.search.types import Archive, Proposal

Block = dict[str, Any]
"""A content block of the Messages protocol: text, tool_use, tool_result, thinking."""


class Suspended(Exception):
    """The session was left at a safe point; it goes on from its recorded replies."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one reply."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        """All tokens that were processed."""
        return self.input + self.cache_read + self.cache_write + self.output

    def plus(self, other: "Usage") -> "Usage":
        """The sum, field by field."""
        return Usage(
            input=self.input + other.input,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            output=self.output + other.output,
        )


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """One whole reply. Its JSON is what a run keeps as an artifact."""

    content: list[Block]
    stop_reason: str
    model: str
    usage: Usage


class Model(Protocol):
    """A model that can call tools."""

    def reply(self, system: str, messages: Sequence[Block], tools: Sequence[Block], bench: "Workbench") -> ModelReply:
        """The next reply, retried while that can help.

        Raises:
            Suspended: the run was asked to stop.
            WhaleError: the service cannot be reached or refuses the request.
        """
        ...


class Workbench(Protocol):
    """What a run lends to a session. Nothing else of the run can be reached from one."""

    def fence(self) -> str:
        """The word that marks untrusted text in this session: another one in another session or run."""
        ...

    def check(self, files: Mapping[str, bytes]) -> str | None:
        """Why a tree is no valid candidate, or None. Runs nothing."""
        ...

    def training_tasks(self) -> Sequence[str]:
        """Ids of the tasks of D_weight, in an order that is the session's own."""
        ...

    def rollouts(self, key: str, files: Mapping[str, bytes], tasks: Sequence[str]) -> Sequence[Trajectory]:
        """Run a draft once on each of these training tasks in the sandbox. Recorded under `key`, paid once.

        Drafts of one session meet a task under the same seed.
        """
        ...

    def trial(self, key: str, files: Mapping[str, bytes], tasks: int) -> str:
        """Rollouts on the first so many training tasks; what happened, as text."""
        ...

    def recorded(self, turn: int) -> tuple[ModelReply, float] | None:
        """A reply that is paid already, from 1, and the seconds that it took."""
        ...

    def record(self, turn: int, reply: ModelReply, dollars: float, seconds: float) -> None:
        """Keep a paid reply before anything is done with it."""
        ...

    def leave(self) -> bool:
        """Whether the run wants the session to be left here."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait, unless the run is asked to stop: then raise Suspended at once."""
        ...

    def note(self, text: str) -> None:
        """One line for the user."""
        ...


@dataclass(frozen=True, slots=True)
class SessionResult:
    """How a session ended, with what it handed over."""

    proposals: tuple[Proposal, ...]
    outcome: str
    turns: int
    tool_calls: int
    usage: Usage
    dollars: float
    transcript: bytes
    """The whole session as JSON lines."""


@runtime_checkable
class SessionProposer(Protocol):
    """A proposer that works in a session, which can be left and gone on with."""

    name: str

    def preflight(self) -> None:
        """Raise WhaleError if the service does not answer or refuses the key, before a run pays for anything."""
        ...

    def session(
        self, archive: Archive, bench: Workbench, *, count: int, seed: int, cycle: int, iteration: int
    ) -> SessionResult:
        """Work until `count` candidates are handed over, or a budget or the model's patience is used up."""
        ...


Clock = Callable[[], float]
