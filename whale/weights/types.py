"""Records between rollouts and the trainer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sample:
    """A token sequence to train on. `loss_mask[t]` says that token t was sampled by the model and counts."""

    token_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    advantage: float | None = None
    """How much better its rollout was than its group, for a policy gradient; None: its likelihood is raised."""
    logprobs: tuple[float, ...] = ()
    """With an advantage: log π(token t | context) as it was recorded at sampling, 0 where the mask is."""

    def __post_init__(self) -> None:
        """A mask covers its tokens, and the first token has no prediction."""
        if len(self.token_ids) != len(self.loss_mask):
            raise ValueError("token_ids and loss_mask differ in length")
        if self.loss_mask and self.loss_mask[0]:
            raise ValueError("the first token of a sequence cannot be trained: nothing predicts it")
        if len(self.logprobs) != (0 if self.advantage is None else len(self.token_ids)):
            raise ValueError("logprobs come with an advantage, one per token")

    @property
    def trained(self) -> int:
        """|I(τ)|: the number of trained positions."""
        return sum(self.loss_mask)


@dataclass(frozen=True, slots=True)
class Selection:
    """What a method trains on in one step."""

    rollouts: Sequence[Sequence[Sample]]
    """Each kept rollout's samples."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Rollouts that the method would have trained on but for a rule, by the rule's name."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one pass over a step's kept rollouts did."""

    loss: float | None
    """Token-normalised loss before the updates, averaged over them by tokens; None if nothing was trained."""
    trained_tokens: int
    updates: int
    grad_norm: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The method's own figures, each a mean over the trained tokens before their update."""
    learning_rate: float | None = None
    """Of the last update, where a schedule moves it."""
