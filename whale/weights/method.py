"""What a weight method is: which rollouts of a step it trains on, and what it minimises over their tokens.

A weight update is a black box to the alternation. All that differs between methods is behind this protocol;
sampling, packing, the optimiser, checkpoints and the log are the same for all of them.
"""

from collections.abc import Sequence
from typing import Protocol

from whale.config import WeightsConfig
from whale.rollout.types import Trajectory
from whale.weights.grpo import GRPO
from whale.weights.objective import Loss, Terms
from whale.weights.rsft import RSFT
from whale.weights.types import Selection


class WeightMethod(Protocol):
    """A pure function of recorded rollouts: the same rollouts always give the same update."""

    @property
    def name(self) -> str:
        """As the config has it; part of the seed that shuffles a step."""
        ...

    def select(self, trajectories: Sequence[Trajectory]) -> Selection:
        """Return what to train on of all rollouts of a step, in the order recorded."""
        ...

    def loss(self, terms: Terms) -> Loss:
        """Return a micro-batch's share of the loss, summed over its tokens."""
        ...


def method_of(config: WeightsConfig) -> WeightMethod:
    """The method that `weights.method` names."""
    if config.method == "grpo":
        return GRPO(config.filters, config.train_turns, config.clip_low, config.clip_high)
    return RSFT(config.filters, config.train_turns)
