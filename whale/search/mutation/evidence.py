"""What rollouts of a tree show of its calls, so that an operator skips a change that could not be seen.

It says where a change has an effect, never which effect is good: a limit that no reply reached, a stop string that
no reply met, a cut longer than every text, a tool that is asked the task's own words already. Nothing of a domain is
in it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from whale.rollout.types import Trajectory
from whale.search.tree import digest

if TYPE_CHECKING:
    from whale.search.mutation.calls import Call
    from whale.search.mutation.operator import Material
    from whale.search.mutation.program import Program


@dataclass(frozen=True, slots=True)
class Heard:
    """One reply of the model at a call."""

    text: str
    tokens: int
    cut: bool
    """It ended at a token limit."""
    passed: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the rollouts of one tree show."""

    episodes: tuple[tuple[Heard, ...], ...]
    """Each episode's replies in order."""
    longest_text: Mapping[str, int]
    """Tool -> words of the longest text that it returned."""
    left_out: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(tool, public field of the task) -> the share of failed rollouts in which no call of the tool was asked most of
    the field's words."""


def evidence_of(
    trajectories: Iterable[Trajectory], task_text: Mapping[str, Mapping[str, Any]] | None = None
) -> Evidence:
    """Read the rollouts of one tree. `task_text`: task id -> public fields."""
    episodes, longest = [], dict[str, int]()
    lacking = defaultdict[tuple[str, str], list[bool]](list)
    for trajectory in trajectories:
        passed = trajectory.reward > 0
        if not passed:
            for tool, name, lacks in _lacking(trajectory, (task_text or {}).get(trajectory.task_id, {})):
                lacking[tool, name].append(lacks)
        episodes.append(
            tuple(
                Heard(turn.text.strip(), len(turn.output_ids), turn.finish_reason == "length", passed)
                for turn in trajectory.turns
            )
        )
        for call in trajectory.calls:
            longest[call.name] = max(longest.get(call.name, 0), _words(call.result))
    return Evidence(tuple(episodes), longest, {key: sum(found) / len(found) for key, found in lacking.items()})


def _lacking(trajectory: Trajectory, public: Mapping[str, Any]) -> Iterable[tuple[str, str, bool]]:
    """(tool, field, whether no call of the tool was asked most of the field's words)."""
    asked = defaultdict[str, list[set[str]]](list)
    for call in trajectory.calls:
        asked[call.name].append(_vocabulary(call.arguments))
    for name, value in public.items():
        words = _vocabulary(value)
        for tool, calls in asked.items():
            if words:
                yield tool, name, all(2 * len(words & arguments) <= len(words) for arguments in calls)


def _vocabulary(value: Any) -> set[str]:
    return {word for text in _texts(value) for word in re.findall(r"\w+", text.lower())}


def _words(value: Any) -> int:
    return max((len(text.split()) for text in _texts(value)), default=0)


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
        return
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for part in inner:
        yield from _texts(part)


def heard_at(program: "Program", material: "Material", call: "Call") -> Sequence[Heard]:
    """Replies at a model call; empty where the rollouts do not tell the program's calls apart.

    They do where most episodes hold one reply per model call of the program.
    """
    evidence = material.evidence.get(digest(program.files))
    if evidence is None or call.repeated:
        return ()
    told = [episode for episode in evidence.episodes if len(episode) == len(program.chats)]
    if 2 * len(told) <= len(evidence.episodes):
        return ()
    return [episode[call.position] for episode in told]


def limit_matters(heard: Sequence[Heard], old: object, new: float) -> bool:
    """Whether replies would end elsewhere under a token limit of `new` in place of `old` (None: the run's own)."""
    if not heard:
        return True
    longest = max(reply.tokens for reply in heard)
    if new < longest:
        return True
    # Above the longest reply a limit is felt only by replies that this very limit cut.
    raised = not isinstance(old, int) or new > old
    reached = not isinstance(old, int) or longest >= old
    return raised and reached and any(reply.cut for reply in heard)


def share_cut(heard: Sequence[Heard]) -> float:
    """The share of failed replies that a limit ended."""
    failed = [reply for reply in heard if not reply.passed]
    return sum(reply.cut for reply in failed) / len(failed) if failed else 0.0


def goes_on_after(heard: Sequence[Heard], text: str) -> bool:
    """Whether a reply went on after this text, so that stopping there would be felt; true where nothing is known."""
    return not heard or any(text in reply.text and not reply.text.endswith(text) for reply in heard)


def stopped_at(heard: Sequence[Heard], texts: Sequence[str]) -> bool:
    """Whether a reply met one of these stop strings; true where nothing is known."""
    return not heard or any(text in reply.text for reply in heard for text in texts)


def share_without(heard: Sequence[Heard], text: str) -> float | None:
    """The share of failed replies that lack this text, such as a closing tag; None where nothing is known."""
    if not heard:
        return None
    failed = [reply for reply in heard if not reply.passed]
    return sum(text not in reply.text for reply in failed) / len(failed) if failed else 0.0
