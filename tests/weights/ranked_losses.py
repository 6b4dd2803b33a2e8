"""Losses that go wrong on one rank, by a name that the ranks' processes can import."""

import os
import signal

import torch

from whale.weights.objective import Loss, Terms

POISON = 47
"""A token: whichever rank has it to train on is the one where things go wrong."""


def _likelihood(terms: Terms) -> torch.Tensor:
    return -(terms.weight_T * terms.logprobs_T()).sum()


def _poisoned(terms: Terms) -> bool:
    return bool((terms.token_T == POISON).any())


def nan_at_the_poison(terms: Terms) -> Loss:
    total = _likelihood(terms)
    return Loss(total * float("nan") if _poisoned(terms) else total)


def steep_at_the_poison(terms: Terms) -> Loss:
    total = _likelihood(terms)
    return Loss(total + (total * 0).sqrt() if _poisoned(terms) else total)  # 0, of infinite slope


def killed_at_the_poison(terms: Terms) -> Loss:
    if _poisoned(terms):
        os.kill(os.getpid(), signal.SIGKILL)
    return Loss(_likelihood(terms))


def broken_at_the_poison(terms: Terms) -> Loss:
    if _poisoned(terms):
        raise MemoryError("no room for the poison")
    return Loss(_likelihood(terms))
