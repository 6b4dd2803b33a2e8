"""What an acceptance rule sees of a phase: who was scored, how often, and by how much."""

from dataclasses import dataclass

import numpy as np

from whale.search.estimates import Scoring, binomial_sd, paired_gain, shrinkage
from whale.search.scoring import PairedGain


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """A valid harness that is scored in full under the current weights."""

    candidate: str
    tree: str
    scorings: tuple[Scoring, ...]
    """The first scoring, then those on fresh seeds; all on the same tasks."""
    mean_turns: float = 0.0
    mean_tokens: float = 0.0

    @property
    def score(self) -> float:
        """Mean reward of the first scoring, on which candidates are compared."""
        return float(self.scorings[0].mean())

    def pooled(self, scorings: int) -> Scoring:
        """Mean reward per task over the first so many scorings."""
        mean: Scoring = np.mean(self.scorings[:scorings], axis=0)
        return mean


@dataclass(frozen=True, slots=True, eq=False)
class Board:
    """A phase's contenders in order of scoring. Barred trees and those that a guard refused are not on it."""

    contenders: tuple[Contender, ...]
    incoming: str
    samples: int = 1
    """Rollouts per task in a scoring."""
    planned: int = 0
    """Rollouts that scoring every candidate of the phase in full, once, costs."""
    saved: int = 0
    """Rollouts that stopped candidates did not cost."""
    rescored: int = 0
    """Rollouts of scorings after the first ones, in this phase."""
    noise: float | None = None
    """The noise floor: SD of one score, where it was measured."""

    def find(self, candidate: str) -> Contender | None:
        """The contender of this name, if it is on the board."""
        return next((c for c in self.contenders if c.candidate == candidate), None)

    @property
    def own(self) -> Contender | None:
        """The incoming harness, if it may be ranked."""
        return self.find(self.incoming)

    def ranked(self) -> list[Contender]:
        """Best first: score, then fewer turns, fewer tokens, the incoming harness, the earlier one."""
        return sorted(
            self.contenders,
            key=lambda c: (-c.score, c.mean_turns, c.mean_tokens, c.candidate != self.incoming),
        )

    def challengers(self) -> list[Contender]:
        """Those that are another harness than the incoming one, best first."""
        own = self.own
        return [c for c in self.ranked() if own is None or c.tree != own.tree]

    def score_noise(self) -> float:
        """SD of one score: as measured, else of independent draws."""
        if self.noise is not None:
            return self.noise
        if not self.contenders:
            return 0.0
        rollouts = self.contenders[0].scorings[0].size * self.samples
        return binomial_sd([c.score for c in self.contenders], rollouts)

    def gain(self, challenger: Contender, alpha: float, scorings: int = 1) -> PairedGain | None:
        """A challenger's paired gain over the incoming harness on their first so many scorings."""
        own = self.own
        if own is None:
            return None
        return paired_gain(own.pooled(scorings), challenger.pooled(scorings), alpha)

    def corrected(self, gain: float, scorings: int = 1) -> float:
        """The gain that is expected to last: the share that the noise of selection does not explain."""
        noise = self.score_noise() / scorings**0.5
        return gain * shrinkage([c.score for c in self.contenders], noise)


@dataclass(frozen=True, slots=True)
class Decision:
    """The harness that the next phase runs, and why."""

    candidate: str
    accepted: bool
    """False: the incoming harness is retained, and there is no commit."""
    reason: str
    challenger: str = ""
    """The best harness that is not the incoming one, to which the figures below belong."""
    gain: float | None = None
    """Its paired gain over the incoming harness, on the rollouts on which the rule judges."""
    low: float | None = None
    high: float | None = None
    corrected: float | None = None
    """The gain with the winner's curse taken off."""


@dataclass(frozen=True, slots=True)
class Rescore:
    """A rule's wish: another scoring of this candidate, on the seeds of `replicate` (from 1)."""

    candidate: str
    replicate: int
