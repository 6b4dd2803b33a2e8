"""What a run says when memory runs out while it samples or trains: one line with what needs less."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from whale.errors import WhaleError

SAMPLING = (
    "sampling",
    "the micro-batch has not happened: free some and `whale resume` goes on, or `whale fork` the run with a smaller "
    "engine.micro_batch",
)
TRAINING = (
    "training",
    "the step has not happened: `whale resume RUN --set weights.activation_checkpointing=true` needs less, a "
    "`whale fork` with a smaller weights.micro_batch_tokens less still",
)


@contextmanager
def told(doing: tuple[str, str]) -> Iterator[None]:
    """Raise WhaleError for an allocation that fails on the device or on the CPU; other errors pass."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [""])[0][:300]
        # On the CPU torch's allocator has no error of its own.
        if not isinstance(error, (MemoryError, torch.OutOfMemoryError)) and "can't allocate memory" not in reason:
            raise
        what, advice = doing
        raise WhaleError(f"{what} ran out of memory ({reason or type(error).__name__}); {advice}") from error
