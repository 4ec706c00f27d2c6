"""Learning-rate schedules as one function of time: what the peak rate is multiplied with before step t of T.

Each equals a scheduler of torch, which is told to the optimizer's groups step by step; here every setting of a program may
have another.
"""

import math

STEP_AT = (0.5, 0.75)  # the step schedule divides by 10 after these parts of the training
WARM_UP = 0.3  # the part of the training in which one-cycle climbs
START, END = 1 / 25, 1 / 25 / 1e4  # where one-cycle starts and ends, as torch.optim.lr_scheduler.OneCycleLR does


def constant(t: int, T: int) -> float:
    """The rate as it is.

    factor = 1
    """
    return 1.0


def step(t: int, T: int) -> float:
    """A tenth of the rate after half of the training, a hundredth after three quarters (MultiStepLR).

    factor = 0.1 ^ (number of milestones ≤ t)
    """
    return 0.1 ** sum(t >= int(part * T) for part in STEP_AT)


def cosine(t: int, T: int) -> float:
    """Half a cosine wave from 1 to 0 (CosineAnnealingLR).

    factor = (1 + cos(π t / T)) / 2
    """
    return (1 + math.cos(math.pi * t / T)) / 2


def one_cycle(t: int, T: int) -> float:
    """Up from 1/25 to 1 in the first 30 %, then down to almost 0, both by half a cosine wave (OneCycleLR)."""
    top = WARM_UP * T - 1
    a, b, part = (START, 1.0, t / top) if t <= top else (1.0, END, (t - top) / (T - 1 - top))
    return b + (a - b) * (1 + math.cos(math.pi * part)) / 2


SCHEDULES = {"constant": constant, "step": step, "cosine": cosine, "one-cycle": one_cycle}


def factor(schedule: str, t: int, T: int) -> float:
    """What the peak rate is multiplied with before step `t` (from 0) of `T`, by the schedule's name."""
    return SCHEDULES[schedule](t, T)
