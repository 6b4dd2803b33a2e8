"""Records between rollouts and the trainer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """A token sequence to train on. `loss_mask[t]` says that token t was sampled by the model and counts."""

    token_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]

    def __post_init__(self) -> None:
        """A mask covers its tokens, and the first token has no prediction."""
        if len(self.token_ids) != len(self.loss_mask):
            raise ValueError("token_ids and loss_mask differ in length")
        if self.loss_mask and self.loss_mask[0]:
            raise ValueError("the first token of a sequence cannot be trained: nothing predicts it")

    @property
    def trained(self) -> int:
        """|I(τ)|: the number of trained positions."""
        return sum(self.loss_mask)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one pass over S+ did."""

    loss: float | None
    """Token-normalised loss before the updates, averaged over them by tokens; None if nothing was trained."""
    trained_tokens: int
    updates: int
    grad_norm: float | None
