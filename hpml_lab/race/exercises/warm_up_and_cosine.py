"""Exercise: a straight climb to the peak rate, then half a cosine wave down; each has a clock of its own, from 0 to 1."""

import math
from collections.abc import Callable

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function

Phase = Callable[[int, int, int], float]  # (t, T, number of warm-up steps) -> factor
Schedule = Callable[[int, int, float], float]  # (t, T, peak) -> rate


def schedule(climb: Phase, fall: Phase) -> Schedule:
    """A schedule from its two phases."""
    return lambda t, T, peak: peak * (climb if t < T // 10 else fall)(t, T, T // 10)


def half_wave(fraction: float) -> float:
    """From 1 to 0 along half a cosine wave."""
    return (1 + math.cos(math.pi * fraction)) / 2


def climb(t: int, T: int, W: int) -> float:
    return (t + 1) / W


def fall(t: int, T: int, W: int) -> float:
    return half_wave((t - W) / (T - W))


def warm_up_of(steps: Callable[[int], float]) -> Schedule:
    """The schedule with another number of warm-up steps."""
    return lambda t, T, peak: peak * (climb if t < steps(T) else fall)(t, T, steps(T))


ROUNDED_HINT = "For T = 57 the climb has 5 steps: T / 10 is rounded down."

CLIMB_MISTAKES = {
    "warm-up-left-out": (
        schedule(lambda t, T, W: 1.0, fall),
        "In the first T // 10 steps the rate should climb; yours is the peak at once.",
    ),
    "starts-at-zero": (
        schedule(lambda t, T, W: t / W, fall),
        "Your first step has the rate 0 and does nothing: count the steps of the climb from 1.",
    ),
    "climb-does-not-grow": (
        schedule(lambda t, T, W: 1 / W, fall),
        "All steps of your climb have the same rate: it should grow by peak / W from step to step.",
    ),
    "misses-the-peak": (
        schedule(lambda t, T, W: (t + 1) / (W + 1), fall),
        "Your climb is one step short of the peak: at step W - 1 the rate is the peak.",
    ),
    "starts-at-zero, and reaches the peak": (
        schedule(lambda t, T, W: t / max(W - 1, 1), fall),
        "Your first step has the rate 0 and does nothing: the climb begins at peak / W.",
    ),
    "one-cycles-climb": (
        schedule(lambda t, T, W: (1 + 24 * t / max(W - 1, 1)) / 25, fall),
        "Your climb starts at peak / 25, as one-cycle's does; here it starts at peak / W.",
    ),
    "peak-forgotten, in the climb": (
        lambda t, T, peak: schedule(climb, fall)(t, T, 1.0 if t < T // 10 else peak),
        "Your climb ends at 1 for every peak: where is `peak` in it?",
    ),
}
FALL_MISTAKES = {
    "clock-not-reset": (
        schedule(climb, lambda t, T, W: half_wave(t / T)),
        "The wave should begin where the climb ends. Yours has been running since step 0, so the rate jumps down there.",
    ),
    "quarter-wave": (
        schedule(climb, lambda t, T, W: math.cos(math.pi / 2 * (t - W) / (T - W))),
        "Yours is a quarter of a wave: it falls fastest at the end. Half a wave goes from cos 0 = 1 to cos π = -1.",
    ),
    "not-halved": (
        schedule(climb, lambda t, T, W: 2 * fall(t, T, W)),
        "1 + cos goes from 2 to 0: your rate jumps to twice the peak.",
    ),
    "below-zero": (
        schedule(climb, lambda t, T, W: math.cos(math.pi * (t - W) / (T - W))),
        "cos goes down to -1, and with a rate below 0 the optimizer climbs the loss. Shift and halve it.",
    ),
    "rises": (
        schedule(climb, lambda t, T, W: 1 - fall(t, T, W)),
        "After the climb your rate drops to 0 and rises again: check the sign of the cosine.",
    ),
    "reaches-zero": (
        schedule(climb, lambda t, T, W: half_wave((t - W) / (T - W - 1))),
        "Your last step has the rate 0 and does nothing: the wave would reach 0 at step T, one step after the last.",
    ),
    "wave-too-long": (
        schedule(climb, lambda t, T, W: half_wave((t - W) / T)),
        "Your wave has not come down at the end: of the T steps, T // 10 went to the climb.",
    ),
    "wave-begins-late": (
        schedule(climb, lambda t, T, W: half_wave((t - W + 1) / (T - W))),
        "Your wave is one step ahead: at step T // 10 its clock stands at 0, so the rate is the peak once more.",
    ),
    "whole-wave": (
        schedule(climb, lambda t, T, W: half_wave(2 * (t - W) / (T - W))),
        "Your wave falls and rises again: half a wave goes from cos 0 to cos π.",
    ),
    "stays-at-peak": (schedule(climb, lambda t, T, W: 1.0), "After the climb your rate stays at the peak: where is the wave?"),
    "straight-down": (
        schedule(climb, lambda t, T, W: 1 - (t - W) / (T - W)),
        "That is a straight line; half a cosine wave is flat at both ends.",
    ),
    "peak-forgotten, in the wave": (
        lambda t, T, peak: schedule(climb, fall)(t, T, peak if t < T // 10 else 1.0),
        "Your wave falls from 1 for every peak: where is `peak` in it?",
    ),
    "parentheses-missing": (
        schedule(climb, lambda t, T, W: 1 + math.cos(math.pi * (t - W) / (T - W)) / 2),
        "Only the cosine is halved: 1 + cos belongs in parentheses.",
    ),
    "pi-missing": (
        schedule(climb, lambda t, T, W: half_wave((t - W) / (T - W) / math.pi)),
        "Your wave ends at cos 1 = 0.54: half a wave goes from cos 0 to cos π.",
    ),
    "degrees": (
        schedule(climb, lambda t, T, W: half_wave(180 * (t - W) / (T - W) / math.pi)),
        "cos takes radians: half a wave is π, not 180.",
    ),
}
MISTAKES = {
    "peak-forgotten": (
        lambda t, T, peak: schedule(climb, fall)(t, T, 1.0),
        "The highest rate is 1 for every peak: where is `peak`?",
    ),
    "no-warm-up": (
        lambda t, T, peak: peak * half_wave(t / T),
        "The rate falls from the first step on: where are the first T // 10 steps?",
    ),
    "fixed-warm-up": (warm_up_of(lambda T: 10), "The climb has 10 steps for every T: it should have T // 10."),
    "warm-up-rounded": (warm_up_of(lambda T: round(T / 10)), ROUNDED_HINT),
    "warm-up-rounded-up": (warm_up_of(lambda T: -(-T // 10)), ROUNDED_HINT),
    "warm-up-not-rounded": (warm_up_of(lambda T: T / 10), ROUNDED_HINT),
    "fixed-warm-up, as in the example": (warm_up_of(lambda T: 2), "The climb has 2 steps for every T: it should have T // 10."),
    "climb-too-long": (
        lambda t, T, peak: peak * (climb if t <= T // 10 else fall)(t, T, T // 10),
        "Your climb has one step too many, above the peak: its last step is W - 1.",
    ),
    "wave-during-the-climb": (
        lambda t, T, peak: peak * min(1.0, climb(t, T, T // 10)) * half_wave(t / T),
        "Your wave begins at step 0, and lowers the climb: the two come one after the other, and are not multiplied.",
    ),
    **CLIMB_MISTAKES,
    **FALL_MISTAKES,
}


@exercise("warm-up-and-cosine", notebook="06_race")
def judge_warm_up_and_cosine(answer: Schedule) -> None:
    cases = [(t, T, peak) for T, peak in ((100, 0.1), (57, 3.0)) for t in range(T)]
    climbs, falls = ([case for case in cases if (case[0] < case[1] // 10) is first] for first in (True, False))
    try:
        _judge(answer, cases, MISTAKES)
    except Mistake as mistake:
        if mistake.name == "wrong-value":  # perhaps there is a mistake in each phase
            _judge(answer, climbs, CLIMB_MISTAKES)
            _judge(answer, falls, FALL_MISTAKES)
        raise


def _judge(answer: Schedule, cases: list[tuple[int, int, float]], mistakes: dict[str, tuple[Schedule, str]]) -> None:
    words = {f"t = {t}, T = {T}, peak = {peak}": (t, T, peak) for t, T, peak in cases}
    expect_function(answer, schedule(climb, fall), words, mistakes=mistakes)
