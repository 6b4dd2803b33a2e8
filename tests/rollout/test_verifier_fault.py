"""A verifier that cannot judge: a fault of ours on the one rollout path, and verdicts side by side."""

import threading

import pytest

from tests.rollout.scripted import LIMITS, SAMPLING, ByteChat, FactsDomain, ScriptedEngine, tree
from whale.domains.base import Task, Verdict
from whale.rollout.episodes import run_micro_batch
from whale.rollout.errors import VerifierFault
from whale.rollout.sandbox.host import HarnessWorker
from whale.rollout.sandbox.probe import best_tier
from whale.rollout.types import Completion, EpisodeSpec, Trajectory

BODY = "return await model.chat([{'role': 'user', 'content': task['question']}])"
TASKS = {f"t{i}": Task(f"t{i}", {"question": f"q{i}"}, {"number": i}) for i in range(4)}


class Judged(FactsDomain):
    """Judges by a service that may be down, several verdicts at once."""

    def __init__(self, threads: int, down_for: int | None = None) -> None:
        super().__init__()
        self.verify_threads = threads
        self.down_for = down_for
        self.together = threading.Barrier(threads) if threads > 1 else None
        self.asked = 0
        self.asking: set[int] = set()

    def verify(self, task: Task, completion: Completion) -> Verdict:
        self.asked += 1
        self.asking.add(threading.get_ident())
        if self.together is not None:
            self.together.wait(timeout=60)
        if task.private["number"] == self.down_for:
            raise VerifierFault("the judge is down")
        return Verdict(1.0, {"number": float(task.private["number"])})


def run(domain: Judged, beside: int = 1) -> list[Trajectory]:
    specs = [EpisodeSpec(name, 0, seed) for seed, name in enumerate(TASKS)]
    with HarnessWorker(tree(BODY), best_tier(), LIMITS) as worker:
        return run_micro_batch(
            ScriptedEngine(), ByteChat(), worker.files, TASKS, specs, domain, SAMPLING, worker.limits, worker,
            beside=beside,
        )  # fmt: skip


@pytest.mark.parametrize("threads", [1, 4])
def test_a_judge_that_is_down_is_a_fault_and_no_rollout_of_the_batch_counts(threads: int) -> None:
    with pytest.raises(VerifierFault, match="the judge is down"):
        run(Judged(threads, down_for=2))


def test_verdicts_that_are_asked_for_together_keep_their_episodes() -> None:
    # With a barrier of four, one after the other would never end.
    trajectories = run(Judged(4))
    assert [t.metrics["number"] for t in trajectories] == [0, 1, 2, 3]
    assert trajectories == run(Judged(1))


def test_replicas_ask_the_judge_together_no_more_than_one_engine_would() -> None:
    judged = Judged(2)
    judged.verify_threads = 4
    run(judged, beside=2)
    assert len(judged.asking) == 2
    alone = Judged(1)
    alone.verify_threads = 2
    assert len(run(alone, beside=3)) == 4
    assert alone.asking == {threading.get_ident()}
