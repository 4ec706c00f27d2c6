"""Learning-rate schedules: the factor by which the peak rate is multiplied before step t of T.

Steps count from 0 here, as torch's schedulers count them. Each schedule equals one of torch.optim.lr_scheduler, which
`torch_scheduler` makes. As plain functions of time they also serve code that steps many settings at once, or no optimizer.
"""

import math
from collections.abc import Callable, Sequence

from torch.optim import Optimizer, lr_scheduler

Schedule = Callable[[int, int], float]  # (t, T) -> factor

DROPS = (0.5, 0.75)  # where "step" divides the rate by 10, as fractions of the training
WARM_UP = 0.3  # the fraction of the training in which one-cycle climbs
START, END = 1 / 25, 1 / 25 / 1e4  # the factors with which one-cycle starts and ends, OneCycleLR's defaults
HIGH, LOW = 0.95, 0.85  # its momentum at both ends and at the peak of the rate


def constant(t: int, T: int) -> float:
    """No change.

    factor = 1
    """
    return 1.0


def multi_step(t: int, milestones: Sequence[int], gamma: float = 0.1) -> float:
    """A tenth of the rate from each milestone on (MultiStepLR).

    factor = γ ^ (number of milestones ≤ t)
    """
    return gamma ** sum(t >= milestone for milestone in milestones)


def step_at(*fractions: float) -> Schedule:
    """The schedule that divides the rate by 10 after each of these fractions of the training."""
    return lambda t, T: multi_step(t, milestones(fractions, T))


def milestones(fractions: Sequence[float], T: int) -> list[int]:
    """The steps at which these fractions of T steps have been taken."""
    return [int(round(fraction * T, 6)) for fraction in fractions]  # 0.58 · 100 is 57.99999999999999


def cosine(t: int, T: int) -> float:
    """Half a cosine wave from 1 to 0 (CosineAnnealingLR).

    factor = (1 + cos(π t / T)) / 2
    """
    return (1 + math.cos(math.pi * t / T)) / 2


def one_cycle(t: int, T: int) -> float:
    """Up from 1/25 to 1 in the first 30 % of the steps, then down to 1/250 000, both along half a cosine wave (OneCycleLR)."""
    return _up_and_down(t, T, START, 1.0, END)


def one_cycle_momentum(t: int, T: int) -> float:
    """The momentum that goes with it, not a factor: from 0.95 down to 0.85 while the rate climbs, and back (OneCycleLR)."""
    return _up_and_down(t, T, HIGH, LOW, HIGH)


def _up_and_down(t: int, T: int, start: float, middle: float, end: float) -> float:
    """From `start` to `middle` in the first WARM_UP of the steps and on to `end`, both along half a cosine wave."""
    top = WARM_UP * T - 1
    a, b, fraction = (start, middle, t / top) if t <= top else (middle, end, (t - top) / (T - 1 - top))
    return b + (a - b) * (1 + math.cos(math.pi * fraction)) / 2


def warm_up(t: int, T: int) -> float:
    """A straight climb over the first tenth of the steps, then constant (LinearLR).

    factor = min(1, (t + 1) / (T / 10))
    """
    return min(1.0, (t + 1) / max(1, T // 10))


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "step": step_at(*DROPS),
    "cosine": cosine,
    "one-cycle": one_cycle,
    "warm-up": warm_up,
}


def factor(schedule: str, t: int, T: int) -> float:
    """The factor of the schedule of this name before step t of T."""
    return SCHEDULES[schedule](t, T)


def torch_scheduler(
    schedule: str, optimizer: Optimizer, peak: float, T: int, drops: Sequence[float] = DROPS
) -> lr_scheduler.LRScheduler:
    """torch's own scheduler for the schedule of this name, over T steps of `optimizer`, whose rate is `peak`.

    drops  where "step" drops, as fractions of the training
    """
    if schedule == "step":
        return lr_scheduler.MultiStepLR(optimizer, milestones(drops, T), gamma=0.1)
    if schedule == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimizer, T_max=T)
    if schedule == "one-cycle":
        return lr_scheduler.OneCycleLR(optimizer, max_lr=peak, total_steps=T, pct_start=WARM_UP, cycle_momentum=False)
    if schedule == "warm-up":
        climb = max(1, T // 10)
        return lr_scheduler.LinearLR(optimizer, start_factor=1 / climb, total_iters=climb - 1)
    return lr_scheduler.ConstantLR(optimizer, factor=1.0, total_iters=0)
