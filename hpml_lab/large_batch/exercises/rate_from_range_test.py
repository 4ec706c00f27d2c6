"""rate-from-range-test: a tenth of the rate at which the smoothed loss of a range test is least."""

import itertools
import math
import random
from collections.abc import Callable, Sequence

import numpy as np

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same
from hpml_lab.large_batch.lessons.range_test import growing_rates, smoothed

Losses = Sequence[float]
Rate = Callable[[Losses, Losses, float], float]  # (rates, losses, β)


def right(rates: Losses, losses: Losses, beta: float) -> float:
    m, values = 0.0, []
    for t, loss in enumerate(finite(losses)):
        m = beta * m + (1 - beta) * loss
        values.append(m / (1 - beta ** (t + 1)))
    at = values.index(min(values))
    return rates[at] / 10


def finite(losses: Losses) -> Losses:
    """The losses before the first that is not finite."""
    return list(itertools.takewhile(math.isfinite, losses))


def before(losses: Losses, ends: Callable[[float], bool]) -> Losses:
    return list(itertools.takewhile(lambda loss: not ends(loss), losses))


def without_last(losses: Losses) -> Losses:
    """One loss too few, where the test ends early."""
    return finite(losses) if len(finite(losses)) == len(losses) else finite(losses)[:-1]


def zeros_for_nan(losses: Losses) -> Losses:
    return np.nan_to_num(losses).tolist()


def steepest(values: Losses) -> int:
    falls = [b - a for a, b in itertools.pairwise(values)]
    return falls.index(min(falls)) + 1 if falls else 0


def first_rise(values: Losses) -> int:
    return next((t for t in range(len(values) - 1) if values[t + 1] > values[t]), len(values) - 1)


def first_nan(values: Losses) -> int:
    """What argmin of NumPy and torch does: a NaN counts as the least."""
    return next((t for t, value in enumerate(values) if math.isnan(value)), values.index(min(values)))


LEAST, AVERAGE, CORRECTED = "values.index(min(values))", "m = beta * m + (1 - beta) * loss", "m / (1 - beta ** (t + 1))"
_REPORTED = "A loss that is not finite ends the test: nothing from there on may be read."
RUBRIC = Rubric(
    right,
    """
values.index(min(values))
    steepest :: steepest(values) :: $FALLS
    steepest :: max(steepest(values) - 1, 0) :: $FALLS
    largest-loss :: values.index(max(values)) :: That is where the loss is largest.
    last-rate :: len(values) - 1 :: That is where the test ended; where was the loss least?
    one-rate-too-far :: min(values.index(min(values)) + 1, len(values) - 1) :: $FAR
    first-rise :: first_rise(values) :: You stop where the smoothed loss first rises. It may fall further after that: which of
        all is the least?
m = beta * m + (1 - beta) * loss
    weights-swapped :: m = (1 - beta) * m + beta * loss :: $SWAPPED
m / (1 - beta ** (t + 1))
    not-smoothed :: loss :: A single batch may have the least loss by chance: smooth the losses first.
    not-corrected :: m :: Your average starts from m = 0 and is far too small in the first steps, so it finds its least value
        there: divide each m by the weights that it has collected so far, which are fewer in the first steps.
    correction-late :: m / (1 - beta ** (t + 2)) :: Your correction is one step late: after the first loss the average has
        collected 1 − β, which is t + 1 = 1.
finite(losses)
    counts-on-after-nan :: [loss for loss in losses if math.isfinite(loss)] :: A loss that is not finite ends the test. It is
        not enough to leave it out: nothing from there on may be read.
    nan-is-zero :: [loss if math.isfinite(loss) else 0.0 for loss in losses] :: You count what is not finite as 0, which makes
        it the least loss. $REPORTED
    nan-is-zero :: zeros_for_nan(losses) :: nan_to_num makes 0 of NaN, which is the least loss, and large numbers of infinities.
        $REPORTED
    nan-is-large :: [loss if math.isfinite(loss) else 1e9 for loss in losses] :: You count what is not finite as a large number,
        and then go on. $REPORTED
    reads-past-the-end :: losses :: $ENDS
    reads-past-the-end :: before(losses, math.isnan) :: $ENDS
    reads-past-the-end :: before(losses, lambda loss: math.isnan(loss) or loss == math.inf) :: $ENDS
    ends-too-early :: without_last(losses) :: You lose the last loss before the one that is not finite; it still counts.
return rates[at] / 10
    one-rate-too-far :: return rates[min(at + 1, len(rates) - 1)] / 10 :: $FAR
    blind :: return max(rates) / 10 :: Your rate does not depend on the losses. Where is the smoothed loss least?
whole answer
    nan-is-least :: RUBRIC.edited(("finite(losses)", "losses"), (LEAST, "first_nan(values)")) :: $NAN
    nan-is-least :: RUBRIC.edited(("finite(losses)", "losses"), (LEAST, "first_nan(values)"), (CORRECTED, "loss")) :: $NAN
    weights-swapped :: lambda rates, losses, beta: right(rates, losses, 1 - beta) :: $SWAPPED
""",
    REPORTED=_REPORTED,
    ENDS=f"NaN, +inf and −inf are all not finite. {_REPORTED}",
    NAN=f"argmin takes a NaN for the least value, and that is where your net diverged. {_REPORTED}",
    FALLS="The exercise asks for the least loss, not for the place where the loss falls fastest.",
    SWAPPED="β is the weight of what the average held before, not of the new loss.",
    FAR="You return a tenth of the rate after the right one: rates[t] belongs to losses[t].",
)


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


@exercise("rate-from-range-test", notebook="15_large_batch", takes="rates, losses, beta", returns=float)
def judge_rate_from_range_test(answer: Rate) -> None:
    RUBRIC.expect(answer, _CASES, explain=_explain)


def _explain(_: Rate, judged: list[Judged]) -> None:
    """Raise the Mistake that says to which step a rate belongs, or how many times too large all are."""
    factors = [float(got) / wanted for _, _, got, wanted in judged]
    if same(factors, [factors[0]] * len(factors)):
        raise Mistake("wrong-factor", f"Your rate is {factors[0]:.4g} times the right one in each case: a tenth is asked for.")
    for case, (rates, losses, beta), got, wanted in judged:
        if same(got, wanted):
            continue
        own = float(got)
        step = next((t for t, rate in enumerate(rates) if same(own, rate / 10)), None)
        if step is None:
            raise Mistake("none-of-the-rates", f"For {case}, yours is {own:g}, which is not a tenth of any of the rates.")
        values = smoothed(finite(losses), beta)
        least = values.index(min(values))
        ended = f" Step {end} has the loss {losses[end]:g}. {_REPORTED}" if (end := len(values)) < len(losses) else ""
        if step >= end:
            raise Mistake("reads-past-the-end", f"For {case}, yours is the rate of step {step}.{ended}")
        hint = f"For {case}, yours is step {step}'s, where the smoothed loss is {values[step]:.7g}; in step {least} it is"
        raise Mistake("another-step", f"{hint} {values[least]:.7g}, the least.{ended}")
