"""Losses that go wrong on one rank, by a name that the ranks' processes can import."""

import os
import signal

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
