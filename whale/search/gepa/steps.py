"""GEPA's steps, made by the package's own parts: parent, minibatch, reflection, the test on the minibatch."""

import difflib
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from whale.rollout.types import Trajectory
from whale.search.agentic.types import Workbench
from whale.search.gepa.adapter import NoText, OverBudget, RolloutAdapter
from whale.search.gepa.ledger import Ledger, Left
from whale.search.gepa.pool import Pool, Texts, gepa_state
from whale.search.types import Proposal

if TYPE_CHECKING:
    from gepa.core.adapter import GEPAAdapter
    from gepa.proposer.base import CandidateProposal


class Steps:
    """One iteration's steps."""

    def __init__(
        self,
        pool: Pool,
        ledger: Ledger,
        bench: Workbench,
        *,
        template: str,
        fence: str,
        minibatch: int,
        test: bool,
        rng: random.Random,
    ) -> None:
        from gepa.logging.experiment_tracker import create_experiment_tracker
        from gepa.proposer.reflective_mutation.reflective_mutation import ReflectiveMutationProposer
        from gepa.strategies.acceptance import StrictImprovementAcceptance
        from gepa.strategies.batch_sampler import EpochShuffledBatchSampler
        from gepa.strategies.candidate_selector import ParetoCandidateSelector
        from gepa.strategies.component_selector import RoundRobinReflectionComponentSelector

        self.pool = pool
        self.ledger = ledger
        self.bench = bench
        self.test = test
        self.trials = 2 * minibatch
        self.state = gepa_state(pool)
        self.handed: list[Proposal] = []
        self.invalid: list[Proposal] = []
        self.acceptance = StrictImprovementAcceptance()
        tasks = list(bench.training_tasks())
        adapter: GEPAAdapter[str, Trajectory, None] = RolloutAdapter(pool, bench.check, ledger.rollouts, fence)
        self.proposer = ReflectiveMutationProposer(
            logger=_Silent(),
            trainset=tasks,
            adapter=adapter,
            candidate_selector=ParetoCandidateSelector(rng=rng),
            module_selector=RoundRobinReflectionComponentSelector(),
            batch_sampler=EpochShuffledBatchSampler(min(minibatch, len(tasks)), rng=rng),
            perfect_score=1.0,
            skip_perfect_score=True,
            experiment_tracker=create_experiment_tracker(),
            reflection_lm=ledger.reflect,
            reflection_prompt_template=template,
        )

    def run(self, count: int, limit: int) -> str:
        """Make steps until `count` harnesses are handed over; how it ended.

        Raises what left the session: Suspended, or WhaleError of the service.
        """
        try:
            for _ in range(limit):
                if len(self.handed) >= count:
                    break
                self.ledger.check(self.trials)
                try:
                    self.step()
                except NoText as none:
                    self.ledger.note({"step": self.state.i + 1, "verdict": f"no text: {none}"})
                if self.ledger.refused:
                    return "refusal"
        except OverBudget as over:
            return f"budget: {over}"
        except Left as left:
            raise left.cause from None
        return "submitted" if self.handed else "gave up"

    def step(self) -> None:
        """One step of GEPA's loop, up to its test."""
        state = self.state
        state.i += 1
        state.full_program_trace.append({"i": state.i})
        for made in self.proposer.propose(state):
            files = self.pool.files(made.candidate)
            known = [dict(e.files) for e in self.pool.entries] + [dict(p.files) for p in (*self.handed, *self.invalid)]
            reason = self.bench.check(files)
            better = self.acceptance.should_accept(made, state)
            verdict = "unchanged" if files in known else "invalid" if reason else "better" if better else "not better"
            self.ledger.note({"step": state.i + 1, "texts": made.candidate, "verdict": verdict, "reason": reason or ""})
            if verdict == "invalid":
                self.invalid.append(self.proposal(made, files))
            elif verdict == "better" or (verdict == "not better" and not self.test):
                self.handed.append(self.proposal(made, files))

    def proposals(self, count: int) -> tuple[Proposal, ...]:
        """What is handed over: valid ones first, then those that the gates will record as invalid."""
        return (*self.handed, *self.invalid)[:count]

    def proposal(self, made: "CandidateProposal[Any]", files: Mapping[str, bytes]) -> Proposal:
        """A rewritten harness with what is known of it."""
        (parent,) = made.parent_program_ids
        before = self.pool.texts(parent)
        path = next((name for name, text in made.candidate.items() if text != before[name]), "prompts")
        scores = [sum(made.subsample_scores_before or []), sum(made.subsample_scores_after or [])]
        tasks = len(made.subsample_indices or [])
        told = f"{scores[1]:g} against {scores[0]:g} on {tasks} training tasks"
        return Proposal(
            title=f"{path} rewritten: {told}",
            hypothesis=f"With the new {path} more tasks pass than under {self.pool.entries[parent].candidate}: {told}.",
            axis=path,
            changes=changes(before, made.candidate),
            parents=(self.pool.entries[parent].candidate,),
            files=dict(files),
        )


def changes(before: Texts, after: Texts) -> str:
    """What was rewritten, as a diff."""
    lines: list[str] = []
    for path in sorted(after):
        lines += difflib.unified_diff(before[path].splitlines(), after[path].splitlines(), path, path, lineterm="")
    return "\n".join(lines)


class _Silent:
    """GEPA's log; the transcript has what matters."""

    def log(self, message: str) -> None:
        """Drop it."""
