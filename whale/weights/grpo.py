"""Group relative policy optimisation: a rollout is pushed up or down by how it did beside others of its question.

With the rewards r_1 … r_K of a question's rollouts, the advantage of all tokens of rollout i is

    A_i = (r_i - mean(r)) / std(r)                              (std over the K rollouts themselves)

(Shao et al. 2024, DeepSeekMath, arXiv:2402.03300, section 4.1.2, outcome supervision). Each update minimises

    L(θ) = - Σ_i Σ_{t in I(i)} min(ρ A_i, clip(ρ, 1 - low, 1 + high) A_i)  /  Σ_i |I(i)|,
    ρ = π_θ(τ_t | τ_<t) / π_old(τ_t | τ_<t)

the clipped ratio of PPO (Schulman et al. 2017, arXiv:1707.06347, equation 7) with two bounds and one number
of tokens for the whole update (Yu et al. 2025, DAPO, arXiv:2503.14476, equation 8), and without a penalty for
leaving θ0, as there. π_old is what the engine recorded when it sampled the token, so a difference between
engine and trainer is in ρ too. At ρ = 1 the gradient is that of the policy gradient, -A ∇ log π_θ.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt

import torch

from whale.rollout.types import Trajectory
from whale.weights.objective import Loss, Terms
from whale.weights.samples import FilterMode, TrainTurns, drop_reason, samples_from
from whale.weights.types import Selection

SAME_REWARD = "same_reward"
"""The rule that drops a question whose rollouts all got the same reward: its advantages are all 0."""
_MOST = 20.0
"""Of |log ρ|: far beyond any clip, and e to it is still a number whose product with 0 is 0."""


@dataclass(frozen=True, slots=True)
class GRPO:
    """A `WeightMethod`."""

    filters: FilterMode = "default"
    train_turns: TrainTurns = "all"
    clip_low: float = 0.2
    clip_high: float = 0.2
    name: str = "grpo"

    def select(self, trajectories: Sequence[Trajectory]) -> Selection:
        """Return the rollouts of questions whose rewards differ, each with its advantage.

        The filters look at all rollouts of such a question, passed or not, and drop some from training, never
        from the group: a truncated rollout counts in mean and std with the reward that it got.
        """
        groups = advantages(trajectories)
        kept = []
        dropped: Counter[str] = Counter()
        for trajectory, advantage in zip(trajectories, groups, strict=True):
            reason = SAME_REWARD if advantage is None else drop_reason(trajectory, self.filters)
            if reason is None:
                kept.append(samples_from(trajectory, self.train_turns, advantage))
            else:
                dropped[reason] += 1
        return Selection(kept, {reason: dropped[reason] for reason in sorted(dropped)})

    def loss(self, terms: Terms) -> Loss:
        """Return -Σ weight · min(ρ A, clip(ρ) A), and of how many tokens the clip stopped the gradient."""
        weight_T, advantage_T = terms.weight_T, terms.advantage_T
        change_T = terms.logprobs_T() - terms.recorded_T
        ratio_T = change_T.clamp(-_MOST, _MOST).exp()
        low, high = 1 - self.clip_low, 1 + self.clip_high
        surrogate_T = torch.minimum(ratio_T * advantage_T, ratio_T.clamp(low, high) * advantage_T)
        with torch.no_grad():
            stopped_T = torch.where(advantage_T > 0, ratio_T > high, ratio_T < low)
            sums: Mapping[str, float] = {
                "clipped": (weight_T * stopped_T).sum().item(),
                "log_ratio": (weight_T * change_T.abs()).sum().item(),
            }
        return Loss(-(weight_T * surrogate_T).sum(), sums)


def advantages(trajectories: Sequence[Trajectory]) -> list[float | None]:
    """Return (r - mean) / std of each rollout within its question's group; None where all rewards are equal."""
    rewards: dict[str, list[float]] = {}
    for trajectory in trajectories:
        rewards.setdefault(trajectory.task_id, []).append(trajectory.reward)
    scales = {task: _scale(group) for task, group in rewards.items()}
    result: list[float | None] = []
    for trajectory in trajectories:
        scale = scales[trajectory.task_id]
        result.append(None if scale is None else (trajectory.reward - scale[0]) / scale[1])
    return result


def _scale(rewards: Sequence[float]) -> tuple[float, float] | None:
    """Mean and standard deviation, both independent of the order; None if there is no spread."""
    if min(rewards) == max(rewards):  # asked first: the mean of equal numbers may be off by a rounding
        return None
    mean = fsum(rewards) / len(rewards)
    std = sqrt(fsum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return (mean, std) if std else None
