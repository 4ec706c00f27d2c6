"""scaled-rate: linear scaling with a warm-up of some epochs, as a schedule."""

import math
from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import MORE, Judged, Rubric
from hpml_lab.core.judge.same import plain, same

Rate = Callable[[int, int, float, int, int, int], float]  # (t, batch, base_rate, base_batch, samples, warm_epochs)


def right(t: int, batch: int, base_rate: float, base_batch: int, samples: int, warm_epochs: int) -> float:
    base = base_rate
    peak = base * (batch / base_batch)
    W = warm_epochs * (samples // batch)
    if t >= W:
        rate = peak
    else:
        rate = base + (peak - base) * t / W
    return rate


def square_root(k: float) -> float:
    return math.sqrt(k)


def up(part: float) -> int:
    return math.ceil(part)


def each_epoch(t: int, batch: int, *given: Any) -> float:
    return right(t // (given[2] // batch) * (given[2] // batch), batch, *given)


def at_once_without_epochs(*given: Any) -> float:
    return right(*given) if given[-1] else given[2]


def recipe(*given: Any) -> float:
    """The rate with the recipe's base batch and epochs, whatever is given."""
    return right(*given[:2], 0.1, 256, given[4], 5)


RUBRIC = Rubric(
    right,
    """
base * (batch / base_batch)
    square-root :: base * square_root(batch / base_batch) :: The exercise asks for linear scaling: the peak does not grow with
        √k.
    not-scaled :: base :: Your rate never leaves the base rate: a batch k times as large gets k times.
    scaled-the-wrong-way :: base * base_batch / batch :: Your larger batch gets a smaller rate. It takes fewer steps, so each
        has to go further.
    times-the-batch :: base * batch :: Your peak is the rate times the batch: how many times as large as the base batch is it?
    k-rounded :: base * (batch // base_batch) :: Your k is a whole number, but 50 is 2.5 times 20: do not round it.
    never-below-the-base :: base * max(batch / base_batch, 1) :: A batch smaller than the base batch gets a smaller rate: k may
        be below 1.
    k-added :: base + batch / base_batch :: k multiplies the base rate; yours is added to it.
    fixed-numbers :: base * batch / 256 :: $FIXED
    fixed-numbers :: 0.1 * batch / base_batch :: $FIXED
samples // batch
    epochs-taken-for-steps :: 1 :: The warm-up is given in epochs, not in steps. How many steps does an epoch have?
    epochs-of-the-base-batch :: samples // base_batch :: You count the steps of an epoch at the base batch; at the large batch
        an epoch has fewer.
    incomplete-batch-counted :: up(samples / batch) :: $WHOLE
    epoch-not-whole :: samples / batch :: $WHOLE
    epoch-rounded :: round(samples / batch) :: $WHOLE
    samples-taken-for-steps :: samples :: Your warm-up counts samples; t counts steps, and a step takes a whole batch.
warm_epochs * (samples // batch)
    epoch-not-whole :: warm_epochs * samples // batch :: $WHOLE
t >= W
    no-warm-up :: True :: The first step does not have the peak rate yet: where is the climb?
    climbs-on :: W == 0 :: After the warm-up your rate climbs on, beyond the peak.
(peak - base) * t / W
    stays-at-the-base :: 0 :: The rate climbs from step to step; it does not wait at the base rate and then jump.
    adds-the-whole-peak :: peak * t / W :: Your climb ends above the peak, and then drops: from the base rate, only peak − base
        is left to climb.
    early-at-the-peak :: (peak - base) * t / max(W - 1, 1) :: Your climb is at its peak one step too early: step W, the first
        after the warm-up, is the first at the peak.
    starts-above-the-base :: (peak - base) * (t + 1) / W :: Your step 0 is above the base rate already: steps count from 0.
    starts-above-the-base :: (peak - base) * (t + 1) / (W + 1) :: Your step 0 is above the base rate already: it is one of the
        climb's points, the lowest.
    one-step-too-long :: (peak - base) * t / (W + 1) :: Your climb has one step too many: step W is the first at the peak.
base + (peak - base) * t / W
    starts-at-zero :: peak * t / W :: The climb does not start at 0 but at the base rate, which the net is known to survive.
    starts-near-zero :: peak * (t + 1) / W :: Your climb starts at peak / W, which is another known form; here it starts at the
        base rate.
    grows-by-a-factor :: base * (peak / base) ** (t / W) :: Your rate grows by a constant factor; it should climb in a straight
        line.
    limited-to-the-peak :: min(peak, base + (peak - base) * t / W) :: $LIMITED
rate = peak
    falls-after-the-climb :: rate = base :: After the warm-up the rate stays at the peak; it does not fall back to the base
        rate.
return rate
    factor-only :: return rate / base :: The rate itself is asked for, not the factor of the base rate.
    rounded :: return round(rate, 3) :: Do not round the rate.
    rounded :: return round(rate, 6) :: Do not round the rate.
    rounded :: return round(rate, 7) :: Do not round the rate.
whole answer
    one-step-too-long :: RUBRIC.edited(("(peak - base) * t / W", "(peak - base) * t / (W + 1)"), ("t >= W", "t > W")) :: Your
        climb has one step too many: step W is the first at the peak.
    limited-to-the-peak :: RUBRIC.edited(("t >= W", "W == 0"), ("base + (peak - base) * t / W", LIMIT)) :: $LIMITED
    limited-to-the-peak :: RUBRIC.edited(("t >= W", "False"), ("base + (peak - base) * t / W", LIMIT)) :: $LIMITED $MORE
    no-epochs-no-peak :: at_once_without_epochs :: With warm_epochs = 0 there is no climb: the first step after no epochs is
        step 0, and it has the peak.
    staircase :: each_epoch :: Your rate changes once an epoch; it should climb with every step.
    fixed-numbers :: recipe :: $FIXED
""",
    WHOLE="The last batch of an epoch is dropped if it is not full: 1,000 samples in batches of 256 are 3 steps.",
    FIXED="You have written one of the recipe's numbers into the function: it is an argument.",
    LIMITED="A small batch has a peak below the base rate, and goes down to it in a straight line, too. Yours is there at "
    "once, as min(peak, …) makes it.",
    MORE=MORE,
)
LIMIT = "min(peak, base + (peak - base) * t / W)"
_WORDS = "t = {}, batch = {}, base_rate = {}, base_batch = {}, samples = {}, warm_epochs = {}"
# batch, base_rate, base_batch, samples, warm_epochs; and the number of steps that are looked at
_SETTINGS = [
    ((256, 0.05, 32, 1000, 4), 18),
    ((50, 0.1, 20, 690, 2), 34),
    ((10, 0.4, 40, 125, 1), 16),
    ((64, 0.02, 16, 640, 0), 12),
    ((512, 3e-6, 128, 4100, 1), 10),  # a small rate, of which rounding to digits leaves little
]


@exercise(
    "scaled-rate", notebook="15_large_batch", takes="t, batch, base_rate, base_batch, samples, warm_epochs", returns=float
)
def judge_scaled_rate(answer: Rate) -> None:
    cases = [(t, *setting) for setting, steps in _SETTINGS for t in range(steps)]
    try:
        RUBRIC.expect(answer, {_WORDS.format(*case): case for case in cases}, explain=_explain_settings)
    except ArithmeticError:
        _explain_settings(answer, [])  # those before the one that fails
        raise


def _explain_settings(answer: Rate, judged: list[Judged]) -> None:
    for setting, steps in _SETTINGS:
        _explain([plain(answer(t, *setting)) for t in range(steps)], *setting)


def _explain(rates: list[Any], batch: int, base: float, base_batch: int, samples: int, epochs: int) -> None:
    """Raise the Mistake that says what the rates of one setting get wrong: their end, their start, or the way between."""
    if not all(isinstance(rate, int | float) for rate in rates):
        raise Mistake("not-one-rate", "Return one number: the rate of step t.")
    peak, W = base * batch / base_batch, epochs * (samples // batch)
    setting = f"With batch {batch}, base rate {base} at {base_batch}, {samples} samples and {epochs} epochs of warm-up"
    last = rates[W:]
    if same(rates[-1], peak) and not same(last[0], peak):
        late = next(t for t in range(len(rates)) if same(rates[t:], [peak] * len(rates[t:])))
        raise Mistake("peak-too-late", f"{setting}, the first step at the peak is {W}; yours is there from step {late} on.")
    if not same(last, [last[0]] * len(last)):
        raise Mistake("not-constant", f"{setting}, the rate should stay the same from step {W} on; yours goes on changing.")
    if not same(last[0], peak):
        hint = f"{setting}, the peak is {peak / base:g} times the base rate; yours is {last[0] / base:.8g} times."
        raise Mistake("wrong-peak", hint)
    if W and not same(rates[0], base):
        raise Mistake("wrong-start", f"{setting}, step 0 has the base rate {base}; yours is {rates[0]:.4g}.")
    there = next(t for t, rate in enumerate(rates) if same(rate, peak))
    if there < W:
        raise Mistake("peak-too-early", f"{setting}, the first step at the peak is {W}; yours is at the peak in step {there}.")
    if any(not same(rates[t], base + (peak - base) * t / W) for t in range(W)):
        hint = f"{setting}, your rate starts and ends right, but it does not climb in a straight line: all steps are equal."
        raise Mistake("not-straight", hint)
