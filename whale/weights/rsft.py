"""Online rejection-sampling fine-tuning: the likelihood of the rollouts that passed is raised.

    L(θ) = - Σ_{τ in S+} Σ_{t in I(τ)} log π_θ(τ_t | τ_<t)  /  Σ_{τ in S+} |I(τ)|

over S+, the step's rollouts with R = 1 after the filters (the method's equation for online RSFT).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from whale.rollout.types import Trajectory
from whale.weights.objective import Loss, Terms, negative_log_likelihood
from whale.weights.samples import FilterMode, TrainTurns, filter_rollouts, samples_from
from whale.weights.types import Selection


@dataclass(frozen=True, slots=True)
class RSFT:
    """A `WeightMethod`."""

    filters: FilterMode = "default"
    train_turns: TrainTurns = "all"
    name: str = "rsft"

    def select(self, trajectories: Sequence[Trajectory]) -> Selection:
        """Return S+, and how many passed rollouts a filter dropped."""
        kept, dropped = filter_rollouts(trajectories, self.filters)
        return Selection([samples_from(trajectory, self.train_turns) for trajectory in kept], dropped)

    def loss(self, terms: Terms) -> Loss:
        """Return the negative log-likelihood."""
        return negative_log_likelihood(terms)
