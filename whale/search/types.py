"""Records between the archive, the proposers and acceptance."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from whale.events.types import Outcome
from whale.rollout.types import Trajectory


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate harness as a proposer hands it over. All text in it is untrusted."""

    title: str
    hypothesis: str
    """A falsifiable statement of what should get better, and why."""
    axis: str
    """The part that it changes, such as "retrieval" or, for the mutation proposer, its operators."""
    changes: str
    parents: tuple[str, ...]
    """Candidate ids: one, or two for a crossover."""
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """A harness that was scored (or found invalid) and what is known of it."""

    candidate: str
    tree: str
    parents: tuple[str, ...]
    files: Mapping[str, bytes]
    valid: bool | None
    weights: str | None
    """The weights of `score`; scores under other weights are history, never ranked."""
    score: float | None
    n: int
    outcomes: tuple[Outcome, ...]
    """On D_harness, training tasks that a proposer may see."""
    current: bool
    """Scored under the current weights in this phase."""
    cycle: int
    title: str = ""
    hypothesis: str = ""
    axis: str = ""
    reason: str = ""
    mean_turns: float = 0.0


@dataclass(frozen=True, slots=True)
class PassedRollout:
    """A passed rollout on D_weight, from which worked examples may be mined."""

    task_id: str
    candidate: str
    messages: tuple[Mapping[str, str], ...]
    """The final call's messages plus the answer as an assistant message, {"role", "content"} each; the
    system message and the worked examples that the harness itself carried are taken off."""


def _nothing_is_outside(files: Mapping[str, bytes]) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Archive:
    """All that a proposer may see."""

    entries: tuple[ArchiveEntry, ...]
    passed: tuple[PassedRollout, ...]
    task_text: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """task id -> public fields, training tasks only."""
    trajectories: Mapping[str, Sequence[Trajectory]] = field(default_factory=dict)
    """candidate -> rollouts of its scoring in this phase, some of them."""
    incoming: str = ""
    """The harness that runs until another one is accepted."""
    outside: Callable[[Mapping[str, bytes]], str | None] = field(default=_nothing_is_outside, repr=False, compare=False)
    """Why a tree changes more than the search space allows, or None; such a proposal is refused unscored."""


class Proposer(Protocol):
    """Writes new harnesses from the archive."""

    name: str

    def propose(self, archive: Archive, *, count: int, seed: int, cycle: int, iteration: int) -> Sequence[Proposal]:
        """At most `count` proposals. Deterministic in its arguments if the proposer can be."""
        ...
