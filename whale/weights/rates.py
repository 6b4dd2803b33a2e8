"""The learning rate of an optimiser update, as a function of how many updates were made before it.

A function of that number alone has no state to save: a run that goes on from a checkpoint, a step that is undone and
another number of ranks all have the rate that the run had there. The factors are those of transformers' schedules.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import get_constant_schedule_with_warmup, get_wsd_schedule

RateSchedule = Literal["constant", "linear", "cosine"]


def rates(lr: float, schedule: RateSchedule, warmup: int, decay: int, decay_to: float) -> Callable[[int], float] | None:
    """Return the rate after so many updates; None where it is always `lr`.

    The first `warmup` updates rise towards `lr` in equal steps, 1 / (warmup + 1) of it each: none has rate 0. The one
    behind them has `lr`. From there a schedule that is not constant falls within `decay` updates to `decay_to` of
    `lr`, and stays.
    """
    if schedule == "constant" and not warmup:
        return None
    nothing = torch.optim.SGD([torch.zeros(())], lr=lr)  # only asked for factors, the schedules move no optimiser
    rising = _factor(get_constant_schedule_with_warmup(nothing, warmup + 1))
    if schedule == "constant":
        return lambda made: lr * rising(made + 1)
    falling = _factor(
        get_wsd_schedule(nothing, 0, decay, num_stable_steps=0, decay_type=schedule, min_lr_ratio=decay_to)
    )
    return lambda made: lr * rising(made + 1) * falling(max(0, made - warmup))


def _factor(schedule: LambdaLR) -> Callable[[int], float]:
    factor: Callable[[int], float] = schedule.lr_lambdas[0]
    return factor
