"""The one rollout path: a micro-batch of episodes under one harness, for training, scoring and testing.

Lock step: every running episode computes until it has asked or ended; then all that was asked of the model is
sampled in one call, in the order of the specs. So what the engine sees depends on the seeds alone, never on
which process was faster.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from whale.domains.base import Domain, Task
from whale.rollout.calls import EpisodeFailed
from whale.rollout.episode import Codec, Episode, Sampling
from whale.rollout.errors import RolloutFault
from whale.rollout.sandbox.host import HarnessWorker
from whale.rollout.sandbox.limits import Limits
from whale.rollout.sandbox.process import Ended, EpisodeProcess, Message
from whale.rollout.types import Engine, EpisodeSpec, GenerationSession, Trajectory

__all__ = ["Codec", "Limits", "Sampling", "run_micro_batch"]


def run_micro_batch(
    engine: Engine,
    chat: Codec,
    files: Mapping[str, bytes],
    tasks: Mapping[str, Task],
    specs: Sequence[EpisodeSpec],
    domain: Domain,
    sampling: Sampling,
    limits: Limits,
    worker: HarnessWorker,
) -> list[Trajectory]:
    """Run the episodes together and return their trajectories in the order of `specs`, verified.

    `worker` was started for `files` under `limits`. A harness's failure is in its trajectory's status. A
    fault of ours rises (RolloutFault, or whatever the engine or a tool raised): then nothing of the
    micro-batch counts, and all its processes are gone.
    """
    if worker.limits != limits or worker.files != dict(files):
        raise ValueError("the worker was started for another harness or other limits")
    weights = engine.weights_version
    episodes = [
        Episode(
            spec,
            tasks[spec.task_id],
            domain,
            chat,
            sampling,
            limits,
            context_length=engine.context_length,
            weights=weights,
        )
        for spec in specs
    ]
    session = engine.session()
    try:
        _Batch(episodes, session, worker).run()
        return _verified(episodes, getattr(domain, "verify_threads", 1))
    finally:
        try:
            worker.abandon()
        finally:
            session.close()


def _verified(episodes: Sequence[Episode], threads: int) -> list[Trajectory]:
    """The trajectories, judged; a domain that waits for a judge names how many verdicts to ask for at once."""
    if threads <= 1:
        return [episode.trajectory() for episode in episodes]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(Episode.trajectory, episodes))


class _Batch:
    """The processes of a micro-batch's episodes."""

    def __init__(self, episodes: Sequence[Episode], session: GenerationSession, worker: HarnessWorker) -> None:
        self._episodes = episodes
        self._session = session
        self._worker = worker
        self._processes: dict[int, EpisodeProcess] = {}
        self._by_number: dict[int, Episode] = {}

    def run(self) -> None:
        for index, episode in enumerate(self._episodes):
            process = self._worker.open_episode(episode.task.public, seed=episode.spec.seed, tools=episode.tool_names)
            self._processes[index] = process
            self._by_number[process.number] = episode
        while not all(episode.done for episode in self._episodes):
            if any(episode.state == "running" for episode in self._episodes):
                self._step()
            else:
                self._generate()

    def _step(self) -> None:
        happened = self._worker.poll()
        if not happened:
            raise RolloutFault("the sandbox lost sight of an episode")
        for event in happened:
            episode = self._by_number[event.process.number]
            if episode.done:
                continue
            if isinstance(event, Ended):
                episode.fail(event.status, event.reason)
            else:
                self._hear(episode, event)
            if episode.done:
                self._worker.finish(event.process)

    def _hear(self, episode: Episode, event: Message) -> None:
        try:
            kind = event.value.get("type")
            if kind == "ask":
                episode.ask(event.value)
                if not episode.pending:
                    self._worker.answer(event.process, episode.resume([]))
            elif kind == "end":
                episode.end(event.value)
            else:
                raise EpisodeFailed("bad_call", "a message is neither a request nor a last word")
        except EpisodeFailed as failure:
            episode.fail(failure.status, failure.reason)

    def _generate(self) -> None:
        asked = [(index, episode) for index, episode in enumerate(self._episodes) if episode.state == "asked"]
        requests = [request for _, episode in asked for request in episode.pending]
        generations = self._session.generate(requests)
        if len(generations) != len(requests):
            raise RolloutFault(f"the engine answered {len(generations)} of {len(requests)} requests")
        start = 0
        for index, episode in asked:
            end = start + len(episode.pending)
            self._worker.answer(self._processes[index], episode.resume(generations[start:end]))
            start = end
