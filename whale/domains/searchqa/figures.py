"""What a recorded rollout shows of retrieval: whether the answer was found, and whether it was then given."""

from collections.abc import Mapping

from whale.domains.base import Domain, Task
from whale.rollout.types import Trajectory


def answer_bearing(domain: Domain, task: Task, trajectory: Trajectory) -> bool:
    """Whether a passage that this rollout's searches returned holds an answer, title included."""
    return any(
        domain.answer_in(task, f"{passage['title']}. {passage['text']}")
        for call in trajectory.calls
        if call.name == "search" and not call.error
        for passage in call.result
    )


def retrieval_figures(domain: Domain, task: Task, trajectory: Trajectory) -> Mapping[str, float]:
    """The paper's two figures: `answer_bearing`, and where that is 1 also `extraction` (passed or not)."""
    if not answer_bearing(domain, task, trajectory):
        return {"answer_bearing": 0.0}
    return {"answer_bearing": 1.0, "extraction": float(trajectory.reward >= 1)}
