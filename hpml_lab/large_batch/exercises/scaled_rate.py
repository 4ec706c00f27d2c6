"""scaled-rate: linear scaling with a warm-up of some epochs, as a schedule."""

import itertools
import math
from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistakes import MORE, combined
from hpml_lab.core.judge.same import plain, same

Rate = Callable[[int, int, float, int, int, int], float]  # (t, batch, base_rate, base_batch, samples, warm_epochs)


def _linear(base: float, batch: int, base_batch: int) -> float:
    return base * batch / base_batch


def _steps(samples: int, batch: int, base_batch: int, epochs: int) -> float:
    return epochs * (samples // batch)


def _climb(base: float, peak: float, t: float, W: float) -> float:
    return base + (peak - base) * t / W


def _schedule(
    peak_of: Callable[[float, int, int], float] = _linear,
    steps_of: Callable[[int, int, int, int], float] = _steps,
    climb: Callable[[float, float, float, float], float] = _climb,
    then: Callable[[float, float, float, float], float] = lambda base, peak, t, W: peak,
    is_warm: Callable[[float, float], bool] = lambda t, W: t < W,
    what: Callable[[float, float], float] = lambda rate, base: rate,
) -> Rate:
    """The schedule whose parts can be replaced: the peak, the steps W of the warm-up, the climb, what follows it, and when."""

    def rate(t: int, batch: int, base_rate: float, base_batch: int, samples: int, warm_epochs: int) -> float:
        peak, W = peak_of(base_rate, batch, base_batch), steps_of(samples, batch, base_batch, warm_epochs)
        return what((climb if is_warm(t, W) else then)(base_rate, peak, t, W), base_rate)

    return rate


right = _schedule()

ROUNDED = "The last batch of an epoch is dropped if it is not full: 1,000 samples in batches of 256 are 3 steps."
FIXED = "You have written one of the recipe's numbers into the function: it is an argument."
PARTS: dict[str, dict[str, tuple[Callable, str]]] = {
    "peak_of": {
        "square-root": (
            lambda base, batch, base_batch: base * math.sqrt(batch / base_batch),
            "Your peak grows with √k; the exercise asks for linear scaling.",
        ),
        "not-scaled": (
            lambda base, batch, base_batch: base,
            "Your rate never leaves the base rate: a batch k times as large gets k times.",
        ),
        "scaled-the-wrong-way": (
            lambda base, batch, base_batch: base * base_batch / batch,
            "Your larger batch gets a smaller rate. It takes fewer steps, so each has to go further.",
        ),
        "times-the-batch": (
            lambda base, batch, base_batch: base * batch,
            "Your peak is the rate times the batch: how many times as large as the base batch is it?",
        ),
        "k-rounded": (
            lambda base, batch, base_batch: base * (batch // base_batch),
            "Your k is a whole number, but 50 is 2.5 times 20: do not round it.",
        ),
        "never-below-the-base": (
            lambda base, batch, base_batch: base * max(batch / base_batch, 1),
            "A batch smaller than the base batch gets a smaller rate: k may be below 1.",
        ),
        "k-added": (
            lambda base, batch, base_batch: base + batch / base_batch,
            "k multiplies the base rate; yours is added to it.",
        ),
        "fixed-numbers, batch": (lambda base, batch, base_batch: base * batch / 256, FIXED),
        "fixed-numbers, rate": (lambda base, batch, base_batch: 0.1 * batch / base_batch, FIXED),
    },
    "steps_of": {
        "epochs-taken-for-steps": (
            lambda samples, batch, base_batch, epochs: epochs,
            "Your warm-up lasts as many steps as it should last epochs. How many steps does an epoch have?",
        ),
        "epochs-of-the-base-batch": (
            lambda samples, batch, base_batch, epochs: epochs * (samples // base_batch),
            "You count the steps of an epoch at the base batch; at the large batch an epoch has fewer.",
        ),
        "incomplete-batch-counted": (lambda samples, batch, base_batch, epochs: epochs * -(-samples // batch), ROUNDED),
        "epoch-not-whole": (lambda samples, batch, base_batch, epochs: epochs * samples / batch, ROUNDED),
        "epoch-not-whole, rounded down": (lambda samples, batch, base_batch, epochs: epochs * samples // batch, ROUNDED),
        "epoch-rounded": (lambda samples, batch, base_batch, epochs: epochs * round(samples / batch), ROUNDED),
        "samples-taken-for-steps": (
            lambda samples, batch, base_batch, epochs: epochs * samples,
            "Your warm-up counts samples; t counts steps, and a step takes a whole batch.",
        ),
        "fixed-numbers, epochs": (lambda samples, batch, base_batch, epochs: 5 * (samples // batch), FIXED),
        "one-epoch": (lambda samples, batch, base_batch, epochs: samples // batch, "Your warm-up always takes one epoch."),
    },
    "is_warm": {
        "no-warm-up": (lambda t, W: False, "Your first step has the peak rate already: where is the climb?"),
        "climbs-on": (lambda t, W: W > 0, "After the warm-up your rate climbs on, beyond the peak."),
    },
    "climb": {
        "stays-at-the-base": (
            lambda base, peak, t, W: base,
            "Your rate waits at the base rate and then jumps; it should climb from step to step.",
        ),
        "starts-at-zero": (
            lambda base, peak, t, W: peak * t / W,
            "Your first step has the rate 0. Here the climb starts at the base rate, which the net is known to survive.",
        ),
        "starts-near-zero": (
            lambda base, peak, t, W: peak * (t + 1) / W,
            "Your climb starts at peak / W, which is another known form; here it starts at the base rate.",
        ),
        "starts-at-the-peak": (
            lambda base, peak, t, W: peak + (base - peak) * t / W,
            "Your climb starts at the peak and goes down to the base rate.",
        ),
        "adds-the-whole-peak": (
            lambda base, peak, t, W: base + peak * t / W,
            "Your climb ends above the peak, and then drops: from the base rate, only peak − base is left to climb.",
        ),
        "early-at-the-peak": (
            lambda base, peak, t, W: base + (peak - base) * (t / (W - 1) if W > 1 else 0),
            "Your climb is at its peak one step too early: step W, the first after the warm-up, is the first at the peak.",
        ),
        "starts-above-the-base": (
            lambda base, peak, t, W: base + (peak - base) * (t + 1) / W,
            "Your step 0 is above the base rate already: steps count from 0.",
        ),
        "starts-above-the-base, in W + 1 steps": (
            lambda base, peak, t, W: base + (peak - base) * (t + 1) / (W + 1),
            "Your step 0 is above the base rate already: it is one of the climb's points, the lowest.",
        ),
        "one-step-too-long": (
            lambda base, peak, t, W: base + (peak - base) * t / (W + 1),
            "Your climb has one step too many: step W is the first at the peak.",
        ),
        "grows-by-a-factor": (
            lambda base, peak, t, W: base * (peak / base) ** (t / W),
            "Your rate grows by a constant factor; it should climb in a straight line.",
        ),
        "limited-to-the-peak": (
            lambda base, peak, t, W: min(peak, base + (peak - base) * t / W),
            "A small batch has a peak below the base rate, and goes down to it in a straight line, too. Yours is there at "
            "once, as min(peak, …) makes it.",
        ),
    },
    "then": {
        "falls-after-the-climb": (
            lambda base, peak, t, W: base,
            "After the warm-up your rate falls back to the base rate; it should stay at the peak.",
        ),
        "adds-the-base-to-the-peak": (
            lambda base, peak, t, W: base + peak,
            "After the warm-up your rate is the base rate above the peak.",
        ),
        "nothing-after-the-climb": (
            lambda base, peak, t, W: None,
            "After the warm-up your function returns None; it should return the peak.",
        ),
    },
    "what": {
        "factor-only": (lambda rate, base: rate / base, "Yours is the factor of the base rate; the rate itself is asked for."),
        **{f"rounded, {n}": (lambda rate, base, n=n: round(rate, n), "Do not round the rate.") for n in (2, 3, 4, 5, 6, 7)},
        "rounded, whole": (lambda rate, base: int(rate), "Rates are fractions: int() leaves nothing of them."),
    },
}
RECIPE = {2: 0.1, 3: 256, 5: 5}  # the text's base_rate, base_batch and warm_epochs, by the argument's number


def _with_fixed(arguments: tuple[int, ...]) -> Rate:
    """The right schedule with some of the recipe's numbers, whatever is given."""
    return lambda *given: right(*(RECIPE[number] if number in arguments else value for number, value in enumerate(given)))


MISTAKES = {
    "one-step-too-long, at W too": (
        _schedule(climb=PARTS["climb"]["one-step-too-long"][0], is_warm=lambda t, W: t <= W),
        PARTS["climb"]["one-step-too-long"][1],
    ),
    "climbs-on, from the base rate without epochs": (
        _schedule(is_warm=lambda t, W: True, climb=lambda base, peak, t, W: _climb(base, peak, t, max(W, 1))),
        PARTS["is_warm"]["climbs-on"][1],
    ),
    "no-epochs-no-peak": (
        lambda t, batch, base_rate, base_batch, samples, warm_epochs: (
            right(t, batch, base_rate, base_batch, samples, warm_epochs) if warm_epochs else base_rate
        ),
        "With warm_epochs = 0 there is no climb: the first step after no epochs is step 0, and it has the peak.",
    ),
    "staircase": (
        lambda t, batch, base_rate, base_batch, samples, warm_epochs: right(
            t // (samples // batch) * (samples // batch), batch, base_rate, base_batch, samples, warm_epochs
        ),
        "Your rate changes once an epoch; it should climb with every step.",
    ),
    "adds-the-whole-peak, also afterwards": (
        _schedule(climb=PARTS["climb"]["adds-the-whole-peak"][0], then=PARTS["then"]["adds-the-base-to-the-peak"][0]),
        "Your climb ends at the base rate plus the peak. It ends at the peak: only peak − base is left to climb.",
    ),
    "limited-to-the-peak, without an end": (
        _schedule(is_warm=lambda t, W: True, climb=lambda base, peak, t, W: min(peak, _climb(base, peak, t, W)) if W else peak),
        PARTS["climb"]["limited-to-the-peak"][1],
    ),
    "limited-to-the-peak, without an end, nor a way around 0 epochs": (
        _schedule(is_warm=lambda t, W: True, climb=lambda base, peak, t, W: min(peak, _climb(base, peak, t, W))),
        f"{PARTS['climb']['limited-to-the-peak'][1]} {MORE}",
    ),
    **{
        f"fixed-numbers, {fixed}": (_with_fixed(fixed), f"{FIXED} {MORE}" if len(fixed) > 1 else FIXED)
        for count in (1, 2, 3)
        for fixed in itertools.combinations(RECIPE, count)
    },
} | combined(_schedule, PARTS)
_WORDS = "t = {}, batch = {}, base_rate = {}, base_batch = {}, samples = {}, warm_epochs = {}"
# batch, base_rate, base_batch, samples, warm_epochs; and the number of steps that are looked at
_SETTINGS = [
    ((256, 0.05, 32, 1000, 4), 18),
    ((50, 0.1, 20, 690, 2), 34),
    ((10, 0.4, 40, 125, 1), 16),
    ((64, 0.02, 16, 640, 0), 12),
    ((512, 3e-6, 128, 4100, 1), 10),  # a small rate, of which rounding to digits leaves little
]


@exercise("scaled-rate", notebook="15_large_batch")
def judge_scaled_rate(answer: Rate) -> None:
    cases = [(t, *setting) for setting, steps in _SETTINGS for t in range(steps)]
    try:
        expect_function(answer, right, {_WORDS.format(*case): case for case in cases}, mistakes=MISTAKES)
    except Mistake as mistake:
        if mistake.name == "wrong-value":
            for setting, steps in _SETTINGS:
                _explain([plain(answer(t, *setting)) for t in range(steps)], *setting)
        raise


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
    if any(not same(rates[t], _climb(base, peak, t, W)) for t in range(W)):
        hint = f"{setting}, your rate starts and ends right, but it does not climb in a straight line: all steps are equal."
        raise Mistake("not-straight", hint)
