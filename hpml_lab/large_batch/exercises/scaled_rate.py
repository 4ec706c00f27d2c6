"""scaled-rate: linear scaling with a warm-up of some epochs, as a schedule."""

import math
from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same

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


def at_once_without_epochs(*given: Any) -> float:
    return right(*given) if given[-1] else given[2]


RUBRIC = Rubric(
    right,
    """
base * (batch / base_batch)
    square-root :: base * square_root(batch / base_batch) :: The exercise asks for linear scaling: the peak does not grow with
        √k.
samples // batch
    epochs-of-the-base-batch :: samples // base_batch :: You count the steps of an epoch at the base batch; at the large batch
        an epoch has fewer.
    incomplete-batch-counted :: up(samples / batch) :: $WHOLE
(peak - base) * t / W
    early-at-the-peak :: (peak - base) * t / max(W - 1, 1) :: Your climb is at its peak one step too early: step W, the first
        after the warm-up, is the first at the peak.
base + (peak - base) * t / W
    starts-near-zero :: peak * (t + 1) / W :: Your climb starts at peak / W, which is another known form; here it starts at the
        base rate.
    grows-by-a-factor :: base * (peak / base) ** (t / W) :: Your rate grows by a constant factor; it should climb in a straight
        line.
    limited-to-the-peak :: min(peak, base + (peak - base) * t / W) :: $LIMITED
return rate
    rounded :: return round(rate, 3) :: Do not round the rate.
    rounded :: return round(rate, 6) :: Do not round the rate.
    rounded :: return round(rate, 7) :: Do not round the rate.
whole answer
    limited-to-the-peak :: RUBRIC.edited(("t >= W", "W == 0"), ("base + (peak - base) * t / W", LIMIT)) :: $LIMITED
    no-epochs-no-peak :: at_once_without_epochs :: With warm_epochs = 0 there is no climb: the first step after no epochs is
        step 0, and it has the peak.
""",
    WHOLE="The last batch of an epoch is dropped if it is not full: 1,000 samples in batches of 256 are 3 steps.",
    LIMITED="A small batch has a peak below the base rate, and goes down to it in a straight line, too. Yours is there at "
    "once, as min(peak, …) makes it.",
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
    RUBRIC.expect(answer, {_WORDS.format(*case): case for case in cases}, explain=_explain)


def _explain(answer: Rate, _: list[Judged]) -> None:
    """Raise the Mistake that says what the rates of one setting get wrong: their end, their start, or the way between."""
    for given, steps in _SETTINGS:
        rates = [float(answer(t, *given)) for t in range(steps)]
        batch, base, base_batch, samples, epochs = given
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
            hint = f"{setting}, the first step at the peak is {W}; yours is at the peak in step {there}."
            raise Mistake("peak-too-early", hint)
        if any(not same(rates[t], base + (peak - base) * t / W) for t in range(W)):
            hint = f"{setting}, your rate starts and ends right, but it does not climb in a straight line: all steps are equal."
            raise Mistake("not-straight", hint)
