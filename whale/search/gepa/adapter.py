"""GEPA's adapter: its batches are rollouts of ours on training tasks, and it reflects on their trajectories."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whale.rollout.types import Trajectory
from whale.search.gate import shown
from whale.search.gepa.pool import Pool, Texts

if TYPE_CHECKING:
    from gepa.core.adapter import EvaluationBatch, ProposalFn

TEXT_CHARS = 1500
"""Of one message, reply or tool result in a reflection."""


class OverBudget(BaseException):
    """A budget is used up. No Exception: GEPA catches those around a reflection and tries again."""


class NoText(BaseException):
    """The reply holds no whole text. No Exception, for the same reason: another reply would be paid at once."""


class RolloutAdapter:
    """Texts and training tasks in, rewards and trajectories out."""

    propose_new_texts: "ProposalFn | None" = None
    """GEPA's own reflection is used."""

    def __init__(
        self,
        pool: Pool,
        check: Callable[[Mapping[str, bytes]], str | None],
        rollouts: Callable[[Mapping[str, bytes], Sequence[str]], Sequence[Trajectory]],
        fence: str,
    ) -> None:
        self.pool = pool
        self.check = check
        self.rollouts = rollouts
        self.fence = fence

    def evaluate(
        self, batch: list[str], candidate: Texts, capture_traces: bool = False
    ) -> "EvaluationBatch[Trajectory, None]":
        """Run the harness with these texts on the tasks. An invalid one is not run and passes nothing."""
        from gepa.core.adapter import EvaluationBatch

        files = self.pool.files(candidate)
        if self.check(files) is not None:
            return EvaluationBatch([None] * len(batch), [0.0] * len(batch), [], num_metric_calls=0)
        unique = list(dict.fromkeys(batch))  # GEPA fills its last minibatch up with tasks that it holds already
        told = dict(zip(unique, self.rollouts(files, unique), strict=True))
        found = [told[task] for task in batch]
        return EvaluationBatch([None] * len(batch), [t.reward for t in found], found, num_metric_calls=len(unique))

    def make_reflective_dataset(
        self, candidate: Texts, eval_batch: "EvaluationBatch[Trajectory, None]", components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """The batch's rollouts as records of text, for each text that is to be rewritten."""
        unique = {trajectory.task_id: trajectory for trajectory in eval_batch.trajectories or ()}
        records = [self.record(trajectory) for trajectory in unique.values()]
        return dict.fromkeys(components_to_update, records)

    def record(self, trajectory: Trajectory) -> dict[str, Any]:
        """One rollout as GEPA's prompt shows it. No reference answer is in it: none is in a trajectory."""
        turns = []
        for number, turn in enumerate(trajectory.turns):
            turns.append({
                "shown": [f"{m['role']}: {self.safe(m['content'])}" for m in turn.messages],
                "replied": self.safe(turn.prefix + turn.text),
                "tools called": [
                    f"{call.name}: {self.safe(str(dict(call.arguments)))}: {self.safe(call.error or str(call.result))}"
                    for call in trajectory.calls
                    if call.after_turn == number + 1
                ],
            })  # fmt: skip
        passed = "passed" if trajectory.reward >= 1 else f"not passed (reward {trajectory.reward:g})"
        failed = "" if trajectory.status == "ok" else f"; the program failed: {trajectory.status}: {trajectory.reason}"
        return {"Turns": turns, "Verdict": passed + self.safe(failed)}

    def safe(self, text: str) -> str:
        """Bounded, without control characters, and without what could close the mark or be taken for a placeholder."""
        text = re.sub(r"<(curr_param|side_info)>", r"<\1 >", text.replace(self.fence, ""))
        return shown(text if len(text) <= TEXT_CHARS else text[: TEXT_CHARS - 1] + "…")
