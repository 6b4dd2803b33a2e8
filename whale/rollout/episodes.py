"""The one rollout path: a micro-batch of episodes under one harness, for training, scoring and testing.

Lock step, on a deterministic engine: every running episode computes until it has asked or ended; then all that
was asked of the model is sampled in one call, in the order of the specs. So what the engine sees depends on the
seeds alone, never on which process was faster.

Flow, on an engine that batches continuously: what an episode asks joins what is being sampled, and its answer
goes back as soon as it is there. A slow episode holds up none of the others, and the engine stays full.
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
from whale.rollout.types import (
    ContinuousSession,
    Engine,
    EpisodeSpec,
    Generation,
    GenerationSession,
    Trajectory,
)
from whale.stopwatch import Stopwatch

_STARTING = 32
"""Forks asked for ahead of the worker: enough for a step of the engine, few enough that asking never waits."""

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
    *,
    beside: int = 1,
    watch: Stopwatch | None = None,
) -> list[Trajectory]:
    """Run the episodes together and return their trajectories in the order of `specs`, verified.

    `beside`: how many processes carry out a share each, and share what the domain's judge is asked at the same time.
    `worker` was started for `files` under `limits`. A harness's failure is in its trajectory's status. A
    fault of ours rises (RolloutFault, or whatever the engine or a tool raised): then nothing of the
    micro-batch counts, and all its processes are gone.

    `watch` is told what goes into "generate", the engine's own time; "harness", whatever the episodes' processes are
    waited for, with the tools that they call; and "verify".
    """
    watch = watch or Stopwatch()
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
        with watch.part("harness"):
            if isinstance(session, ContinuousSession):
                _Flow(episodes, session, worker, watch).run()
            else:
                _LockStep(episodes, session, worker, watch).run()
        with watch.part("verify"):
            return _verified(episodes, getattr(domain, "verify_threads", 1) // beside)
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


class _Processes:
    """The processes of a micro-batch's episodes."""

    def __init__(self, episodes: Sequence[Episode], worker: HarnessWorker) -> None:
        self._episodes = episodes
        self._worker = worker
        self._processes: dict[int, EpisodeProcess] = {}
        self._by_number: dict[int, int] = {}

    def open(self, at_once: int | None = None) -> int:
        """Start episodes, in order, until `at_once` are starting; all that are left if it is None.

        Returns how many have not begun to compute.
        """
        opened, starting = len(self._processes), self._worker.starting
        end = len(self._episodes) if at_once is None else min(len(self._episodes), opened + at_once - starting)
        for index in range(opened, end):
            episode = self._episodes[index]
            process = self._worker.open_episode(episode.task.public, seed=episode.spec.seed, tools=episode.tool_names)
            self._processes[index] = process
            self._by_number[process.number] = index
        return len(self._episodes) - opened + starting

    def hear(self, wait: bool = True) -> list[int]:
        """Take what the episodes say; returns which of them asked the model or ended.

        May return none while not all are started.
        """
        more = len(self._processes) < len(self._episodes)
        happened = self._worker.poll(wait, begun=more)  # then there is room to start another
        if wait and not happened and not more:
            raise RolloutFault("the sandbox lost sight of an episode")
        moved = []
        for event in happened:
            index = self._by_number[event.process.number]
            episode = self._episodes[index]
            if episode.done:
                continue
            if isinstance(event, Ended):
                episode.fail(event.status, event.reason)
            else:
                self._take(episode, event)
            if episode.done:
                self._worker.finish(event.process)
            if episode.state != "running":
                moved.append(index)
        return moved

    def answer(self, index: int, generations: Sequence[Generation]) -> None:
        """Give an episode what it asked for."""
        self._worker.answer(self._processes[index], self._episodes[index].resume(generations))

    def _take(self, episode: Episode, event: Message) -> None:
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


class _LockStep:
    """All episodes compute, then all that they asked is sampled."""

    def __init__(
        self, episodes: Sequence[Episode], session: GenerationSession, worker: HarnessWorker, watch: Stopwatch
    ) -> None:
        self._episodes = episodes
        self._session = session
        self._watch = watch
        self._processes = _Processes(episodes, worker)

    def run(self) -> None:
        self._processes.open()
        while not all(episode.done for episode in self._episodes):
            if any(episode.state == "running" for episode in self._episodes):
                self._processes.hear()
            else:
                self._generate()

    def _generate(self) -> None:
        asked = [(index, episode) for index, episode in enumerate(self._episodes) if episode.state == "asked"]
        requests = [request for _, episode in asked for request in episode.pending]
        with self._watch.part("generate"):
            generations = self._session.generate(requests)
        if len(generations) != len(requests):
            raise RolloutFault(f"the engine answered {len(generations)} of {len(requests)} requests")
        start = 0
        for index, episode in asked:
            end = start + len(episode.pending)
            self._processes.answer(index, generations[start:end])
            start = end


class _Flow:
    """Each episode's requests join the engine's batch as they come."""

    def __init__(
        self, episodes: Sequence[Episode], session: ContinuousSession, worker: HarnessWorker, watch: Stopwatch
    ) -> None:
        self._episodes = episodes
        self._session = session
        self._watch = watch
        self._processes = _Processes(episodes, worker)
        self._tickets: dict[int, tuple[int, int]] = {}
        """Of what is being sampled: which episode asked it, as which of its requests."""
        self._answers: dict[int, list[Generation | None]] = {}

    def run(self) -> None:
        running = set(range(len(self._episodes)))
        open_ = set(running)
        while open_:
            # A few at a time: the worker forks on another core while the engine samples for the first ones.
            coming = self._processes.open(_STARTING)
            # A step takes nearly as long for a few as for many. So it waits while most are still being forked,
            # which is our own work; once an episode computes, nothing waits for it as long as there is any to sample.
            enough = len(self._tickets) >= max(1, coming)
            for index in self._processes.hear(wait=not enough) if running else ():
                running.discard(index)
                if self._episodes[index].done:
                    open_.discard(index)
                else:
                    self._submit(index)
            if enough:
                running.update(self._advance())

    def _submit(self, index: int) -> None:
        pending = self._episodes[index].pending
        self._answers[index] = [None] * len(pending)
        for place, request in enumerate(pending):
            self._tickets[self._session.submit(request)] = (index, place)

    def _advance(self) -> list[int]:
        """Sample on; returns the episodes that run again."""
        resumed = []
        with self._watch.part("generate"):
            finished = self._session.advance()
        for ticket, generation in finished:
            index, place = self._tickets.pop(ticket)
            if self._episodes[index].done:  # it died while it waited
                continue
            answers = self._answers[index]
            answers[place] = generation
            complete = [answer for answer in answers if answer is not None]
            if len(complete) == len(answers):
                self._processes.answer(index, complete)
                resumed.append(index)
        return resumed
