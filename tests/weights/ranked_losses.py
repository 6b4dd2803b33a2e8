"""Losses that go wrong on one rank, or look at how one computes, by a name that the ranks' processes can import."""

import os
import signal
from typing import Any

from whale.weights import head
from whale.weights.objective import Loss, Terms, negative_log_likelihood

POISON = 99.0
"""An advantage: whichever rank has it to train on is the one where things go wrong."""


def _poisoned(terms: Terms) -> bool:
    return bool((terms.advantage_T == POISON).any())


def nan_at_the_poison(terms: Terms) -> Loss:
    total = negative_log_likelihood(terms).total
    return Loss(total * float("nan") if _poisoned(terms) else total)


def steep_at_the_poison(terms: Terms) -> Loss:
    total = negative_log_likelihood(terms).total
    return Loss(total + (total * 0).sqrt() if _poisoned(terms) else total)  # 0, of infinite slope


def killed_at_the_poison(terms: Terms) -> Loss:
    if _poisoned(terms):
        os.kill(os.getpid(), signal.SIGKILL)
    return negative_log_likelihood(terms)


def broken_at_the_poison(terms: Terms) -> Loss:
    if _poisoned(terms):
        raise MemoryError("no room for the poison")
    return negative_log_likelihood(terms)


class InChunks:
    """Has the process that it comes to compute at most `logits` logits at once, and sees that it does."""

    def __init__(self, logits: int) -> None:
        self._logits = logits

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_few_logits, (self._logits,)

    def __call__(self, terms: Terms) -> Loss:
        nodes = [terms.lse_P.grad_fn]
        for _ in range(3):  # what splits the one output, what made it, and the head itself
            nodes += [after for node in nodes if node is not None for after, _ in node.next_functions]
        assert any("Chunked" in node.name() for node in nodes if node is not None), "the head was applied all at once"
        return negative_log_likelihood(terms)


def _with_few_logits(logits: int) -> InChunks:
    head.LOGITS["cpu"] = logits
    return InChunks(logits)
