"""rate-from-range-test: a tenth of the rate at which the smoothed loss of a range test is least."""

import copy
import itertools
import math
import random
from collections.abc import Callable, Sequence

import numpy as np

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistakes import combined
from hpml_lab.core.judge.same import plain, same
from hpml_lab.large_batch.lessons.range_test import growing_rates, smoothed

Losses = Sequence[float]
Smooth = Callable[[Losses, float], list[float]]
Rate = Callable[[Losses, Losses, float], float]  # (rates, losses, β)


def _finite(losses: Losses) -> Losses:
    """The losses before the first that is not finite."""
    end = next((t for t, loss in enumerate(losses) if not math.isfinite(loss)), len(losses))
    return losses[:end]


def _least(values: Losses) -> int:
    return min(range(len(values)), key=values.__getitem__)


def _tenth(rates: Losses, values: Losses, at: int) -> float:
    return rates[at] / 10


def _read(
    smooth: Smooth = smoothed,
    where: Callable[[Losses], int] = _least,
    what: Callable[[Losses, Losses, int], float] = _tenth,
    cut: Callable[[Losses], Losses] = _finite,
) -> Rate:
    """The answer whose parts can be replaced: the smoothing, the place that is read, what is returned, and where it ends."""

    def rate(rates: Losses, losses: Losses, beta: float) -> float:
        values = smooth(cut(losses), beta)
        return what(rates, values, where(values))

    return rate


def _average(weight_new: Callable[[float], float], weight_old: Callable[[float], float], corrected: str = "no") -> Smooth:
    """A running average with other weights; `corrected` by "no", by "beta" or by "new"."""

    def smooth(losses: Losses, beta: float) -> list[float]:
        m, values = 0.0, []
        for t, loss in enumerate(losses):
            m = weight_old(beta) * m + weight_new(beta) * loss
            kept = {"no": 0.0, "beta": beta, "new": weight_old(beta)}[corrected]
            values.append(m / (1 - kept ** (t + 1)))
        return values

    return smooth


def _from_the_first(losses: Losses, beta: float) -> list[float]:
    values = [losses[0]]
    for loss in losses[1:]:
        values.append(beta * values[-1] + (1 - beta) * loss)
    return values


def _late(losses: Losses, beta: float) -> list[float]:
    """A correction whose t is one too large."""
    return [value / (1 - beta ** (t + 2)) for t, value in enumerate(_uncorrected(losses, beta))]


def _from_the_first_corrected(losses: Losses, beta: float) -> list[float]:
    m, values = losses[0], []
    for t, loss in enumerate(losses):
        m = beta * m + (1 - beta) * loss
        values.append(m / (1 - beta ** (t + 1)))
    return values


def _early(losses: Losses, beta: float) -> list[float]:
    """A correction whose t is one too small, but for the first, which would divide by 0."""
    return [value / (1 - beta**t) if t else value for t, value in enumerate(_uncorrected(losses, beta))]


def _corrected_inside(losses: Losses, beta: float) -> list[float]:
    """The corrected average is what the next step goes on with."""
    s, values = 0.0, []
    for t, loss in enumerate(losses):
        s = (beta * s + (1 - beta) * loss) / (1 - beta ** (t + 1))
        values.append(s)
    return values


def _steepest(values: Losses) -> int:
    falls = [b - a for a, b in zip(values, values[1:], strict=False)]
    return _least(falls) + 1 if falls else 0


def _raw(losses: Losses, beta: float) -> list[float]:
    return list(losses)


def _skipping(losses: Losses) -> Losses:
    return [loss for loss in losses if math.isfinite(loss)]


def _as(number: float) -> Callable[[Losses], Losses]:
    return lambda losses: [loss if math.isfinite(loss) else number for loss in losses]


def _until(ends: Callable[[float], bool]) -> Callable[[Losses], Losses]:
    return lambda losses: list(itertools.takewhile(lambda loss: not ends(loss), losses))


def _before_four_times(values: Losses) -> int:
    """The least before the first value that is four times as large as the least so far."""
    least = list(itertools.accumulate(values, min))
    return _least(values[: next((t for t, value in enumerate(values) if value > 4 * least[t]), len(values))])


def _first_nan(values: Losses) -> int:
    """What argmin of NumPy and torch does: a NaN counts as the least."""
    return next((t for t, value in enumerate(values) if math.isnan(value)), _least(values))


def _all(losses: Losses) -> Losses:
    return losses


_uncorrected = _average(lambda beta: 1 - beta, lambda beta: beta)
right = _read()

_TOLD = "A loss that is not finite ends the test: nothing from there on may be read."
_ENDS = f"NaN, +inf and −inf are all not finite. {_TOLD}"
_FALLS = "That is where the loss falls fastest; the exercise asks for the least loss."
_SWAPPED = "Your β is the weight of the new loss; it is the weight of what the average held before."
_BETA = "Your β is always the same number; it is an argument."
_BLIND = "Your rate does not depend on the losses. Where is the smoothed loss least?"
EARLY = "Your exponent is t, which is 0 for the first loss; the formula has t + 1."
_TOO_FAR = "You return a tenth of the rate after the right one: rates[t] belongs to losses[t]."
PARTS: dict[str, dict[str, tuple[Callable, str]]] = {
    "where": {
        "steepest": (_steepest, _FALLS),
        "steepest, before the fall": (lambda values: max(_steepest(values) - 1, 0), _FALLS),
        "largest-loss": (lambda values: _least([-value for value in values]), "That is where the loss is largest."),
        "last-rate": (lambda values: len(values) - 1, "That is where the test ended; where was the loss least?"),
        "one-rate-too-far, of those that count": (lambda values: min(_least(values) + 1, len(values) - 1), _TOO_FAR),
        "first-rise": (
            lambda values: next((t for t in range(len(values) - 1) if values[t + 1] > values[t]), len(values) - 1),
            "You stop where the smoothed loss first rises. It may fall further after that: which of all is the least?",
        ),
        "stops-at-a-multiple": (
            _before_four_times,
            "You stop where the loss is some times the least so far. Only a loss that is not finite ends this test.",
        ),
    },
    "smooth": {
        "not-smoothed": (_raw, "That is where a single batch had the least loss: smooth the losses first."),
        "not-corrected": (
            _uncorrected,
            "Your average starts from m = 0 and is far too small in the first steps, so it finds its least value there: "
            "divide each m by the weights that it has collected so far, which are fewer in the first steps.",
        ),
        "correction-late": (
            _late,
            "Your correction is one step late: after the first loss the average has collected 1 − β, which is t + 1 = 1.",
        ),
        "correction-early": (_early, EARLY),
        "correction-early, not for the first": (lambda losses, beta: [losses[0], *_early(losses, beta)[1:]], EARLY),
        "correction-multiplied": (
            lambda losses, beta: [m * (1 - beta ** (t + 1)) for t, m in enumerate(_uncorrected(losses, beta))],
            "You multiply by 1 − β^(t+1), which makes the small first values smaller still: divide by it.",
        ),
        "correction-goes-on": (
            _corrected_inside,
            "Your next step starts from the corrected average. Keep m as it is, and correct only what you compare.",
        ),
        "weights-swapped": (_average(lambda beta: beta, lambda beta: 1 - beta, "new"), _SWAPPED),
        "weights-swapped, corrected by β": (_average(lambda beta: beta, lambda beta: 1 - beta, "beta"), _SWAPPED),
        "weights-swapped, not corrected": (_average(lambda beta: beta, lambda beta: 1 - beta), _SWAPPED),
        "starts-from-the-first-loss": (
            _from_the_first,
            "Your average starts from the first loss, which then keeps a large weight. Start from 0, and correct.",
        ),
        "starts-from-the-first-loss, corrected": (
            _from_the_first_corrected,
            "The correction belongs to an average that starts from m = 0; yours starts from the first loss.",
        ),
        **{
            f"fixed-beta, {number}": (lambda losses, beta, fixed=number: smoothed(losses, fixed), _BETA)
            for number in (0.9, 0.95, 0.98, 0.99, 0.5)
        },
    },
    "cut": {
        "counts-on-after-nan": (_skipping, f"You leave out what is not finite and go on behind it. {_TOLD}"),
        "nan-is-zero": (_as(0.0), f"You count what is not finite as 0, which makes it the least loss. {_TOLD}"),
        "nan-is-zero, infinity large": (
            lambda losses: np.nan_to_num(losses).tolist(),
            f"nan_to_num makes 0 of NaN, which is the least loss, and large numbers of infinities. {_TOLD}",
        ),
        "nan-is-large": (_as(1e9), f"You count what is not finite as a large number, and then go on. {_TOLD}"),
        "reads-past-the-end, never-ends": (_all, _ENDS),
        "reads-past-the-end, only-nan-ends": (_until(math.isnan), _ENDS),
        "reads-past-the-end, only-infinity-ends": (_until(math.isinf), _ENDS),
        "reads-past-the-end, minus-infinity-counts": (_until(lambda loss: math.isnan(loss) or loss == math.inf), _ENDS),
        "reads-past-the-end, reads-the-bad-one": (
            lambda losses: losses[: len(_finite(losses)) + 1],
            f"You read one loss too many. {_TOLD}",
        ),
        "ends-too-early": (
            lambda losses: _finite(losses) if len(_finite(losses)) == len(losses) else _finite(losses)[:-1],
            "You lose the last loss before the one that is not finite; it still counts.",
        ),
    },
    "what": {
        "not-a-tenth": (lambda rates, values, at: rates[at], "That is the rate with the least loss: too near the edge."),
        "ten-times": (lambda rates, values, at: 10 * rates[at], "A tenth was asked for, and yours is ten times the rate."),
        "whole-tenth": (lambda rates, values, at: rates[at] // 10, "// gives whole numbers; a rate is a small fraction."),
        "all-rates": (lambda rates, values, at: [rate / 10 for rate in rates], "Return one rate, that of the least loss."),
        "logarithm": (
            lambda rates, values, at: math.log10(rates[at]) - 1,
            "That is the rate's logarithm, less 1: return the rate itself.",
        ),
        "index": (lambda rates, values, at: at, "That is the number of the step; what was its rate?"),
        "index, a tenth": (lambda rates, values, at: at / 10, "That is a tenth of the step's number; what was its rate?"),
        "loss": (lambda rates, values, at: values[at], "That is the least loss; the rate of that step is asked for."),
        "loss, a tenth": (lambda rates, values, at: values[at] / 10, "That is a tenth of the loss, not of the rate."),
        "a-tenth-of-the-step": (
            lambda rates, values, at: rates[at // 10],
            "Your step is a tenth of the right one. The rate grows exponentially: that is far less than a tenth of the rate.",
        ),
        "one-rate-too-far": (lambda rates, values, at: rates[min(at + 1, len(rates) - 1)] / 10, _TOO_FAR),
        "one-rate-too-early": (
            lambda rates, values, at: rates[at - 1] / 10,
            "You return a tenth of the rate before the right one: rates[t] belongs to losses[t].",
        ),
        "ten-steps-before": (
            lambda rates, values, at: rates[max(at - 10, 0)],
            "You go ten steps back; how much smaller the rate is there depends on the test.",
        ),
        "blind": (lambda rates, values, at: min(rates) / 10, _BLIND),
        "blind, largest": (lambda rates, values, at: max(rates) / 10, _BLIND),
        "blind, middle": (lambda rates, values, at: rates[len(rates) // 2] / 10, _BLIND),
    },
}
_NAN = f"argmin takes a NaN for the least value, and that is where your net diverged. {_TOLD}"
MISTAKES = {
    "nan-is-least": (_read(where=_first_nan, cut=_all), _NAN),
    "nan-is-least, not smoothed": (_read(_raw, where=_first_nan, cut=_all), _NAN),
} | combined(_read, PARTS)


def _test(seed: int, steps: int, bottom: float, ends: tuple[int, float] | None = None) -> tuple[Losses, list[float]]:
    """Rates and noisy losses that fall to a bottom and rise again; from step ends[0] on every third loss is ends[1]."""
    made, rates = random.Random(seed), growing_rates(1e-4, 2.0, steps)
    losses = []
    for t in range(steps):
        part = t / (steps - 1)
        losses.append(2.3 - 1.5 * math.exp(-(((part - bottom) / 0.12) ** 2)) + 4 * max(0, part - bottom) ** 2)
        losses[-1] += made.uniform(-0.25, 0.25) + (-0.9 if t in (steps // 3, steps // 2) else 0)  # two lucky batches
        if ends is not None and t >= ends[0]:
            losses[-1] = ends[1] if (t - ends[0]) % 3 == 0 else 0.01
    return rates, losses


_CASES = {
    "100 noisy losses, β = 0.9": (*_test(0, 100, 0.75), 0.9),
    "60 losses that end in NaN, β = 0.8": (*_test(1, 60, 0.6, (50, math.nan)), 0.8),
    "80 losses with an infinite one, β = 0.7": (*_test(2, 80, 0.7, (74, math.inf)), 0.7),
    "losses 3, 1, 2, β = 0.5": ([0.01, 0.1, 1.0], [3.0, 1.0, 2.0], 0.5),
    "a large first loss, β = 0.9": (growing_rates(0.001, 1.0, 8), [5.0, 0.5, 0.5, 0.5, 2.0, 2.0, 2.0, 2.0], 0.9),
    "losses that fall until the NaN, β = 0.5": ([1e-3, 1e-2, 0.1, 1.0, 10.0], [4.0, 3.0, 2.0, 1.0, math.nan], 0.5),
    "losses with −∞, β = 0.5": ([1e-3, 1e-2, 0.1, 1.0, 10.0, 20.0], [3.0, 2.0, 2.5, -math.inf, 1.0, 0.5], 0.5),
    "60 losses of which the sixth is NaN, β = 0.5": (
        growing_rates(1e-4, 1.0, 60),
        [3.0, 2.5, 2.0, 2.5, 3.0, math.nan, *[0.5 - t / 200 for t in range(54)]],
        0.5,
    ),
    "losses that rise and fall again, β = 0.2": (growing_rates(0.001, 1.0, 8), [3.0, 1.0, 20.0, 9.0, 1.0, 0.4, 0.3, 2.0], 0.2),
    "losses that only rise, β = 0.5": (growing_rates(0.001, 1.0, 6), [1.0, 1.2, 1.5, 2.0, 4.0, 9.0], 0.5),
    "rates that fall, β = 0.5": ([1.0, 0.3, 0.1, 0.03, 0.01], [3.0, 1.0, 2.5, 4.0, 5.0], 0.5),
    "losses of thousands, β = 0.3": (growing_rates(0.001, 1.0, 5), [9000.0, 7000.0, 4000.0, 6000.0, 12000.0], 0.3),
    "losses below 0, β = 0.5": (growing_rates(0.001, 1.0, 5), [1.0, -3.0, -4.0, -1.0, 2.0], 0.5),
    "losses that differ in the fifth digit, β = 0.1": (
        growing_rates(0.001, 1.0, 6),
        [1.0002, 1.0, 1.00004, 1.00003, 1.00002, 1.0003],
        0.1,
    ),
    "losses that fall slowly, β = 0.9": (growing_rates(0.002, 0.5, 8), [2.0, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3], 0.9),
}


@exercise("rate-from-range-test", notebook="15_large_batch")
def judge_rate_from_range_test(answer: Rate) -> None:
    try:
        expect_function(answer, right, _CASES, mistakes=MISTAKES)
    except Mistake as mistake:
        if mistake.name == "wrong-value":
            _explain(answer)
        raise


def _explain(answer: Rate) -> None:
    """Raise the Mistake that says to which step a rate belongs, or by which factor all are wrong."""
    pairs = [(plain(answer(*given)), right(*given)) for given in copy.deepcopy(list(_CASES.values()))]
    if not all(isinstance(own, int | float) for own, _ in pairs):
        raise Mistake("not-one-rate", "Return one number, a tenth of one rate.")
    factors = [own / wanted for own, wanted in pairs]
    if same(factors, [factors[0]] * len(factors)):
        raise Mistake("wrong-factor", f"Your rate is {factors[0]:.4g} times the right one in each case: a tenth is asked for.")
    for (case, (rates, losses, beta)), (own, wanted) in zip(_CASES.items(), pairs, strict=True):
        if same(own, wanted):
            continue
        step = next((t for t, rate in enumerate(rates) if same(own, rate / 10)), None)
        if step is None:
            raise Mistake("none-of-the-rates", f"For {case}, yours is {own:g}, which is not a tenth of any of the rates.")
        values = smoothed(_finite(losses), beta)
        least = _least(values)
        ended = f" Step {end} has the loss {losses[end]:g}. {_TOLD}" if (end := len(values)) < len(losses) else ""
        if step >= end:
            raise Mistake("reads-past-the-end", f"For {case}, yours is the rate of step {step}.{ended}")
        hint = f"For {case}, yours is step {step}'s, where the smoothed loss is {values[step]:.7g}; in step {least} it is"
        raise Mistake("another-step", f"{hint} {values[least]:.7g}, the least.{ended}")
