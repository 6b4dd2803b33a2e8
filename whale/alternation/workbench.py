"""What a run lends to a proposer's session: checks, trials, recorded replies. Nothing else can be reached."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from whale.alternation.units import derive_seed
from whale.events import types as ev
from whale.rollout.parquet import decode_trajectories, encode_trajectories
from whale.rollout.types import EpisodeSpec, Trajectory
from whale.search.agentic.types import ModelReply, Suspended
from whale.search.archive import trajectory_view

if TYPE_CHECKING:
    from whale.alternation.runner import Runner

TRIAL_CHARS = 3000
"""Per text of a trial's trajectory that the model reads."""


HIDDEN = "it holds text that no harness may hold"
"""All that a proposer learns of a hidden task that a draft names: not which one, nor of which split."""

HIDDEN_LIMIT = 3
"""Drafts of a session that may hold such text; then none is checked any more, so that nobody guesses on."""


class RunWorkbench:
    """The bench of one iteration's session."""

    def __init__(self, runner: "Runner", cycle: int, iteration: int) -> None:
        self.runner = runner
        self.cycle = cycle
        self.iteration = iteration
        self.key = f"c{cycle:03d}/harness/i{iteration:02d}"
        self._hidden = 0

    def fence(self) -> str:
        """By the run's name and data, not by its log's hashes: equal runs show a model equal prompts."""
        state = self.runner.state
        session = (state.name, state.model, state.data, self.runner.config.seed, self.cycle, self.iteration)
        return hashlib.sha256(json.dumps(["fence", *session]).encode()).hexdigest()[:16]

    def check(self, files: Mapping[str, bytes]) -> str | None:
        """The gates that run nothing, without what they know of hidden tasks."""
        from whale.alternation.search_step import source_problem

        if self._hidden >= HIDDEN_LIMIT:
            return f"{HIDDEN_LIMIT} drafts of this session held text that no harness may hold: no draft is checked now"
        reason = source_problem(self.runner, files, leak=self._leak)
        self._hidden += bool(reason and reason.endswith(HIDDEN))
        return reason

    def _leak(self, text: str) -> str | None:
        return HIDDEN if self.runner.domain.leak(text) else None

    def training_tasks(self) -> Sequence[str]:
        """The tasks of D_weight, from a place that depends on the iteration."""
        pool = self.runner.compute.tasks_of(self.runner.state, "weight")
        if not pool:
            return []  # a search over D_harness alone
        first = derive_seed(self.runner.config.seed, "try", self.cycle, self.iteration) % len(pool)
        return [task.id for task in (*pool[first:], *pool[:first])]

    def rollouts(self, key: str, files: Mapping[str, bytes], tasks: Sequence[str]) -> list[Trajectory]:
        """Run a draft on training tasks; recorded under `key`, so that a resume pays it once."""
        recorded = self.runner.log.find(f"rollouts/{key}", "run")
        if recorded is not None:
            assert isinstance(recorded.event, ev.RolloutsRecorded)
            return decode_trajectories(self.runner.folder.artifacts.get(recorded.event.artifact))
        return self._sample(key, files, tasks)

    def trial(self, key: str, files: Mapping[str, bytes], tasks: int) -> str:
        """Rollouts on a few training tasks, as a model reads them."""
        trajectories = self.rollouts(key, files, self.training_tasks()[:tasks])
        views = (trajectory_view(trajectory, TRIAL_CHARS) for trajectory in trajectories)
        return "\n".join(json.dumps(view, ensure_ascii=False) for view in views)

    def _sample(self, key: str, files: Mapping[str, bytes], tasks: Sequence[str]) -> list[Trajectory]:
        from whale.alternation.runner import outcome

        runner, seed = self.runner, self.runner.config.seed
        started = time.monotonic()
        pool = runner.compute.weight_tasks_by_id(runner.state)
        chosen = [pool[task] for task in tasks]
        # The same tasks under the same seeds for all drafts of a session: they can be compared.
        episodes = [
            (task, EpisodeSpec(task.id, 0, derive_seed(seed, "try", self.cycle, self.iteration, task.id)))
            for task in chosen
        ]
        state = runner.state
        trajectories = runner.compute.sample(state, state.weights, files, runner.domain, episodes)
        runner.append(
            f"rollouts/{key}",
            ev.RolloutsRecorded(
                batch=key,
                purpose="try",
                candidate="",
                weights=state.weights,
                artifact=runner.folder.artifacts.put(encode_trajectories(trajectories)),
                outcomes=[outcome(trajectory) for trajectory in trajectories],
            ),
            seconds=round(time.monotonic() - started, 3),
        )
        return trajectories

    def recorded(self, turn: int) -> tuple[ModelReply, float] | None:
        """A paid reply, from the log."""
        found = self.runner.log.find(self._turn(turn), "run")
        if found is None:
            return None
        assert isinstance(found.event, ev.ProposerReplied)
        content = self.runner.folder.artifacts.get(found.event.artifact)
        return msgspec.json.decode(content, type=ModelReply), float(found.meta.get("seconds", 0.0))

    def record(self, turn: int, reply: ModelReply, dollars: float, seconds: float) -> None:
        """The reply's artifact, then its event."""
        calls = sum(block["type"] == "tool_use" for block in reply.content)
        self.runner.append(
            self._turn(turn),
            ev.ProposerReplied(
                cycle=self.cycle,
                iteration=self.iteration,
                turn=turn,
                model=reply.model,
                artifact=self.runner.folder.artifacts.put(msgspec.json.encode(reply)),
                stop_reason=reply.stop_reason,
                tool_calls=calls,
                input_tokens=reply.usage.input,
                cache_read_tokens=reply.usage.cache_read,
                cache_write_tokens=reply.usage.cache_write,
                output_tokens=reply.usage.output,
                dollars=dollars,
            ),
            seconds=round(seconds, 3),
        )
        self.runner.reporter.note(f"session turn {turn}: {calls} tool calls, {reply.usage.output} tokens")

    def _turn(self, turn: int) -> str:
        return f"{self.key}/turn/{turn:04d}"

    def leave(self) -> bool:
        """A stop, or a request that waits for its answer."""
        runner = self.runner
        if runner.stopping.is_set() or runner.interrupted.is_set():
            return True
        return runner.asked()

    def wait(self, seconds: float) -> None:
        """Wait for a service, with an eye on the run."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self.leave():
                raise Suspended
            self.runner.stopping.wait(min(left, 1.0))
        if self.leave():
            raise Suspended

    def note(self, text: str) -> None:
        """To the user."""
        self.runner.reporter.note(text)
