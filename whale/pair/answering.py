"""Answer questions with a pair, by the one rollout path: a thread that owns the engine and the sandbox."""

import contextlib
import queue
import secrets
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from whale.alternation.compute import Compute
from whale.alternation.progress import Reporter
from whale.domains.base import Domain, Split, Task, ToolFunction, Verdict
from whale.pair.question import Question
from whale.pair.served import Served
from whale.rollout.types import Completion, EpisodeSpec, Trajectory

_LAST_BATCH_SECONDS = 10.0
"""How long an end waits for the answers that are being sampled."""


class Unjudged:
    """A domain's tools for questions that nobody has an answer to: every verdict is 0 and means nothing."""

    def __init__(self, domain: Domain) -> None:
        self.name = domain.name
        self._domain = domain

    def splits(self) -> Mapping[Split, Sequence[Task]]:
        """None of its own."""
        return {}

    def fingerprint(self) -> str:
        """That of the domain."""
        return self._domain.fingerprint()

    def h0(self) -> Mapping[str, bytes]:
        """That of the domain."""
        return self._domain.h0()

    def tools(self, task: Task) -> Mapping[str, ToolFunction]:
        """Those of the domain."""
        return self._domain.tools(task)

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """No verdict."""
        return Verdict(0.0)

    def answer_in(self, task: Task, text: str) -> bool:
        """No answer is known."""
        return False

    def leak(self, text: str) -> str | None:
        """Nothing is hidden."""
        return None


@dataclass(frozen=True, slots=True)
class _Waiting:
    question: Question
    seed: int
    future: "Future[Trajectory]"


class Answerer:
    """Answers questions, those that wait together in one micro-batch of at most `batch`.

    A question that names its seed is answered alone, so that its answer depends on nothing else.
    """

    def __init__(self, served: Served, reporter: Reporter, batch: int = 8, most_waiting: int = 64) -> None:
        self.served = served
        self.batch = batch
        self._reporter = reporter
        self._queue: queue.Queue[_Waiting | None] = queue.Queue(most_waiting)
        self._held: deque[_Waiting] = deque()
        self._ready: Future[None] = Future()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="answers", daemon=True)

    def start(self) -> None:
        """Load the model and start the sandbox. Raises what that raises."""
        self._thread.start()
        self._ready.result()

    def submit(self, question: Question) -> "Future[Trajectory]":
        """Queue a question; raises queue.Full if too many wait.

        The future's exception is a RolloutFault, or whatever engine or tool raised: a fault of ours.
        """
        seed = secrets.randbits(63) if question.seed is None else question.seed
        waiting = _Waiting(question, seed, Future())
        self._queue.put_nowait(waiting)
        return waiting.future

    def close(self) -> None:
        """Answer nothing more; ends the sandbox."""
        self._closing.set()
        self._held.clear()
        with contextlib.suppress(queue.Full):  # then the thread has work, and looks at the flag after it
            self._queue.put_nowait(None)
        if self._thread.is_alive():
            self._thread.join(_LAST_BATCH_SECONDS)

    def _serve(self) -> None:
        served = self.served
        compute: Compute | None = None
        try:
            compute = Compute(served.config, served.folder, served.domain, self._reporter)
            compute.ready(served.state, served.weights, served.files)
        except BaseException as error:
            if compute is not None:
                compute.close()
            self._ready.set_exception(error)
            return
        self._ready.set_result(None)
        try:
            while not self._closing.is_set():
                together = self._next()
                if together:
                    self._answer(compute, together)
        finally:
            compute.close()

    def _next(self) -> list[_Waiting]:
        """The questions of the next micro-batch, each marked as begun; none at the end."""
        first = self._held.popleft() if self._held else self._queue.get()
        if first is None:
            return []
        together = [first]
        while len(together) < self.batch and first.question.seed is None:
            try:
                following = self._held.popleft() if self._held else self._queue.get_nowait()
            except queue.Empty:
                break
            if following is None:
                break
            if following.question.seed is not None or _key(following) != _key(first):
                self._held.append(following)
                break
            together.append(following)
        return [waiting for waiting in together if waiting.future.set_running_or_notify_cancel()]

    def _answer(self, compute: Compute, together: Sequence[_Waiting]) -> None:
        served, question = self.served, together[0].question
        sampling = compute.sampling()
        if question.temperature is not None:
            sampling = replace(sampling, temperature=question.temperature)
        if question.max_tokens is not None:
            sampling = replace(sampling, max_generated_tokens=min(sampling.max_generated_tokens, question.max_tokens))
        episodes = []
        for i, waiting in enumerate(together):
            task = Task(f"served-{i}", waiting.question.public, {})
            episodes.append((task, EpisodeSpec(task.id, 0, waiting.seed)))
        try:
            trajectories = compute.sample(
                served.state, served.weights, served.files, Unjudged(served.domain), episodes, sampling
            )
        except Exception as error:
            for waiting in together:
                waiting.future.set_exception(error)
            return
        for waiting, trajectory in zip(together, trajectories, strict=True):
            waiting.future.set_result(trajectory)


def _key(waiting: _Waiting) -> tuple[float | None, int | None]:
    return waiting.question.temperature, waiting.question.max_tokens
