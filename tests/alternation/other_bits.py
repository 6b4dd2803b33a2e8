"""`python other_bits.py ARGUMENTS...`: `whale ARGUMENTS...` on a machine whose training gives other last bits.

As a GPU's does, which adds in no fixed order: each step ends with one weight moved by its smallest amount.
"""

import sys
from collections.abc import Sequence

import torch

from whale.cli.__main__ import main
from whale.weights.trainer import Trainer
from whale.weights.types import Sample, StepResult

_step = Trainer.step


def step(self: Trainer, rollouts: Sequence[Sequence[Sample]], seed: int, label: str | None = None) -> StepResult:
    """The real step, and one bit more."""
    result = _step(self, rollouts, seed, label)
    with torch.no_grad():
        weight = next(self.model.parameters()).view(-1)[:1]
        weight.copy_(torch.nextafter(weight, torch.full_like(weight, torch.inf)))
    return result


Trainer.step = step  # type: ignore[method-assign]  # the point of this program

if __name__ == "__main__":
    main(sys.argv[1:])
