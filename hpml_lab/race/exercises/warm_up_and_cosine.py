"""Exercise: a straight climb to the peak rate, then half a cosine wave down."""

import math
from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric


def right(t: int, T: int, peak: float) -> float:
    W = T // 10
    if t < W:
        return peak * (t + 1) / W
    fraction = (t - W) / (T - W)
    return peak * (1 + math.cos(math.pi * fraction)) / 2


RUBRIC = Rubric(
    right,
    """
T // 10
    warm-up-not-rounded :: T / 10 :: $ROUNDED
    warm-up-rounded :: round(T / 10) :: $ROUNDED
    fixed-warm-up :: 10 :: The climb has 10 steps for every T: it should have T // 10.
    fixed-warm-up :: 2 :: The climb has 2 steps for every T: it should have T // 10.
t < W
    climb-too-long :: t <= W :: Your climb has one step too many, above the peak. || The climb's last step is W - 1.
peak * (t + 1) / W
    starts-at-zero :: peak * t / W :: Your first step has the rate 0 and does nothing. || Count the steps of the climb from 1.
    starts-at-zero :: peak * t / max(W - 1, 1) :: Your first step has the rate 0 and does nothing: the climb begins at peak / W.
    warm-up-left-out :: peak :: In the first T // 10 steps the rate should climb; yours is the peak at once.
    climb-does-not-grow :: peak / W :: All steps of your climb have the same rate: it should grow by peak / W from step to step.
    misses-the-peak :: peak * (t + 1) / (W + 1) :: Your climb is one step short of the peak: at step W - 1 the rate is the peak.
    one-cycles-climb :: peak * (1 + 24 * t / max(W - 1, 1)) / 25 :: Your climb starts at peak / 25, as one-cycle's does; here it
        starts at peak / W.
    peak-forgotten :: (t + 1) / W :: Your climb ends at 1 for every peak: where is `peak` in it?
(t - W) / (T - W)
    clock-not-reset :: t / T :: Your wave has been running since step 0, so the rate jumps down. || The wave should begin where
        the climb ends.
    reaches-zero :: (t - W) / (T - W - 1) :: Your last step has the rate 0 and does nothing: the wave would reach 0 at step T,
        one step after the last.
    wave-too-long :: (t - W) / T :: Your wave has not come down at the end: of the T steps, T // 10 went to the climb.
    wave-begins-late :: (t - W + 1) / (T - W) :: Your wave is one step ahead: at step T // 10 its clock stands at 0, so the rate
        is the peak once more.
math.pi * fraction
    whole-wave :: 2 * math.pi * fraction :: Your wave falls and rises again. || Half a wave goes from cos 0 to cos π.
    pi-missing :: fraction :: Your wave ends at cos 1 = 0.54: half a wave goes from cos 0 to cos π.
    degrees :: 180 * fraction :: cos takes radians: half a wave is π, not 180.
peak * (1 + math.cos(math.pi * fraction)) / 2
    below-zero :: peak * math.cos(math.pi * fraction) :: cos goes down to -1, and with a rate below 0 the optimizer climbs the
        loss. Shift and halve it.
    not-halved :: peak * (1 + math.cos(math.pi * fraction)) :: 1 + cos goes from 2 to 0: your rate jumps to twice the peak.
    parentheses-missing :: peak * (1 + math.cos(math.pi * fraction) / 2) :: Only the cosine is halved: 1 + cos belongs in
        parentheses.
    rises :: peak * (1 - math.cos(math.pi * fraction)) / 2 :: After the climb your rate drops to 0 and rises again: check the
        sign of the cosine.
    quarter-wave :: peak * math.cos(math.pi / 2 * fraction) :: Yours is a quarter of a wave: it falls fastest at the end. Half a
        wave goes from cos 0 = 1 to cos π = -1.
    straight-down :: peak * (1 - fraction) :: That is a straight line; half a cosine wave is flat at both ends.
    stays-at-peak :: peak :: After the climb your rate stays at the peak: where is the wave?
    peak-forgotten :: (1 + math.cos(math.pi * fraction)) / 2 :: Your wave falls from 1 for every peak: where is `peak` in it?
whole answer
    wave-during-the-climb :: lambda t, T, peak: min(1, (t + 1) / (T // 10)) * peak * (1 + math.cos(math.pi * t / T)) / 2 :: Your
        wave begins at step 0, and lowers the climb: the two come one after the other, and are not multiplied.
""",
    ROUNDED="For T = 57 the climb has 5 steps: T / 10 is rounded down.",
)


@exercise("warm-up-and-cosine", notebook="06_race", takes="t, T, peak", returns=float)
def judge_warm_up_and_cosine(answer: Callable[[int, int, float], float]) -> None:
    cases = [(t, T, peak) for T, peak in ((100, 0.1), (57, 3.0), (10, 0.5)) for t in range(T)]
    cases += [(t, 10_000, 1.0) for t in (0, 499, 998, 999, 1000, 1001, 5500, 9998, 9999)]  # rounding errors add up to here
    RUBRIC.expect(answer, {f"t = {t}, T = {T}, peak = {peak}": (t, T, peak) for t, T, peak in cases})
