"""Run a recorded rollout again from its recorded replies, without a model.

The harness runs in the sandbox as it did; each of its requests is compared with the recorded one and answered
from the record. So a harness's author sees what it printed and where it went another way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whale.domains.base import Task
from whale.rollout.calls import ChatCall, EpisodeFailed, parse_max_turns, parse_requests
from whale.rollout.episode import reply_answer
from whale.rollout.errors import RolloutFault
from whale.rollout.sandbox.host import start_worker
from whale.rollout.sandbox.limits import Limits
from whale.rollout.sandbox.process import Ended, Message
from whale.rollout.sandbox.tiers import Tier
from whale.rollout.types import Status, ToolCall, Trajectory

_TURNS = 1 << 30
_HOST_LIMITS = frozenset({"turn_limit", "token_limit", "overlong", "bad_call"})


@dataclass(frozen=True, slots=True)
class Replay:
    """How a rollout went the second time."""

    status: Status
    reason: str
    answer_turn: int | None
    asked: int
    """Requests that were answered from the record."""
    difference: str
    """The first way in which it differs from the record; empty if it does not."""
    output: str
    """The end of what the harness printed."""

    @property
    def same(self) -> bool:
        """Whether the harness did what the record says."""
        return not self.difference


def replay_episode(
    files: Mapping[str, bytes],
    task: Task,
    trajectory: Trajectory,
    *,
    tier: Tier | None = None,
    limits: Limits | None = None,
) -> Replay:
    """Run `trajectory` again under the tree `files`, which may be another than the one that made it.

    Raises RolloutFault and SandboxUnavailable as a rollout does.
    """
    record = _Record(trajectory)
    with start_worker(files, tier, limits, forkers=1) as worker:
        process = worker.open_episode(task.public, seed=trajectory.seed, tools=record.tools)
        while True:
            happened = worker.poll()
            if not happened:
                raise RolloutFault("the sandbox lost sight of the episode")
            try:
                answers = record.hear(happened[0])
            except EpisodeFailed as failure:
                record.end(failure.status, failure.reason)
                answers = None
            if answers is None:
                return record.replay(process.tail())
            worker.answer(process, {"answers": answers})


class _Record:
    """The recorded requests and answers, in order, and how far the replay has come."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        self._calls = list(trajectory.calls)
        self._asked = 0
        self._turns = 0
        self._status: Status = "ok"
        self._reason = ""
        self._answer: int | None = None
        self._difference = ""
        self.tools = sorted({str(r["name"]) for r in trajectory.replies if r["kind"] == "tool"})

    def hear(self, event: Message | Ended) -> list[dict[str, Any]] | None:
        """Return the recorded answers to what was asked, or None at the end."""
        if isinstance(event, Ended):
            self.end(event.status, event.reason)
            return None
        message = event.value
        if message.get("type") != "ask":
            self._take_last_word(message)
            return None
        requests = parse_requests(message, replies=self._turns, tools=self.tools)
        parse_max_turns(message, _TURNS)
        answers = []
        done = self._turns
        for request in requests:
            recorded = self._trajectory.replies
            if self._asked >= len(recorded) and self._trajectory.status in _HOST_LIMITS:
                # The host ended the rollout at this request and did not answer it.
                self.end(self._trajectory.status, self._trajectory.reason)
                return None
            if self._asked >= len(recorded):
                self._difference = f"request {self._asked + 1} is not in the record, which ends before it"
            elif request.record() != recorded[self._asked]:
                self._difference = f"request {self._asked + 1} differs from the recorded one"
            elif isinstance(request, ChatCall) and done >= len(self._trajectory.turns):
                # The same, for a request that is in the record.
                self.end(self._trajectory.status, self._trajectory.reason)
                return None
            if self._difference:
                return None
            self._asked += 1
            if isinstance(request, ChatCall):
                answers.append(reply_answer(done, self._trajectory.turns[done]))
                done += 1
            elif self._calls:
                answers.append(_tool_answer(self._calls.pop(0)))
        self._turns = done
        return answers

    def end(self, status: Status, reason: str) -> None:
        """Take how the episode ended."""
        self._status, self._reason = status, reason

    def _take_last_word(self, message: Mapping[str, Any]) -> None:
        status, answer = message.get("status"), message.get("answer")
        if status == "ok" and isinstance(answer, int) and 0 <= answer < self._turns:
            self._answer = answer
        elif status in ("raised", "no_answer", "bad_reply", "memory_limit"):
            self.end(status, str(message.get("reason", "")))
        else:
            self.end("bad_reply", "run returned no reply of this episode")

    def replay(self, output: str) -> Replay:
        """Return what came of it."""
        recorded = self._trajectory
        difference = self._difference
        if not difference and self._status != recorded.status:
            difference = f"it ended as {self._status}; the record says {recorded.status}"
        if not difference and self._answer != recorded.answer_turn:
            difference = f"it answered with turn {self._answer}; the record says {recorded.answer_turn}"
        return Replay(self._status, self._reason, self._answer, self._asked, difference, output)


def _tool_answer(call: ToolCall) -> dict[str, Any]:
    return {"error": call.error} if call.error else {"result": call.result}
