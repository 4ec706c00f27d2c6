"""A line search for L-BFGS: how far to go along d, for both of Wolfe's strong conditions to hold.

    f(t) ≤ f(0) + 10⁻⁴ t f′(0)    the loss has fallen enough
    |f′(t)| ≤ 0.9 |f′(0)|         and has become flatter

f is the loss as a function of the length t, and f′ its slope. The order of operations is that of torch.optim.LBFGS, so that
bitwise the same lengths are tried.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

ENOUGH, FLATTER, NARROW = 1e-4, 0.9, 1e-9


class Trial(NamedTuple):
    """A length that was tried, with the loss, the gradient and the slope that were found there."""

    t: Any  # a number, or a tensor with one
    f: float
    g: Tensor
    slope: Tensor


def strong_wolfe(start: Trial, t: Any, evaluate: Callable[[Any], Trial], most: int, size: Tensor) -> tuple[Trial, int]:
    """(the trial to take, how many there were).

    start     where the step begins, with t = 0
    t         the first length to try
    evaluate  makes a trial of a length
    most      the largest number of trials after the first
    size      the largest element of d: a bracket is not searched if it moves no parameter by 1e-9
    """

    def too_high(trial: Trial) -> bool:
        return trial.f > start.f + ENOUGH * trial.t * start.slope

    def flat(trial: Trial) -> bool:
        return abs(trial.slope) <= -FLATTER * start.slope

    # Ever longer steps, until two of them have a minimum between them, or one satisfies both conditions.
    before, trial, count = start, evaluate(t), 0
    while count < most:
        if too_high(trial) or (count > 1 and trial.f >= before.f):
            break
        if flat(trial):
            return trial, count + 1
        if trial.slope >= 0:
            break
        shortest, longest = trial.t + 0.01 * (trial.t - before.t), trial.t * 10
        before, trial = trial, evaluate(lowest_of_cubic(before, trial, shortest, longest))
        count += 1
    bracket = [before if count < most else start, trial]

    # The bracket shrinks around the minimum.
    low = 0 if bracket[0].f <= bracket[1].f else 1
    close_to_an_end = False
    while count < most and not abs(bracket[1].t - bracket[0].t) * size < NARROW:
        left, right = min(bracket[0].t, bracket[1].t), max(bracket[0].t, bracket[1].t)
        t, margin = lowest_of_cubic(*bracket, left, right), 0.1 * (right - left)
        if min(right - t, t - left) < margin:
            if close_to_an_end or t >= right or t <= left:  # for the second time: not so close
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                close_to_an_end = False
            else:
                close_to_an_end = True
        else:
            close_to_an_end = False
        trial = evaluate(t)
        count += 1
        if too_high(trial) or trial.f >= bracket[low].f:
            bracket[1 - low] = trial
            low = 0 if bracket[0].f <= bracket[1].f else 1
        else:
            done = flat(trial)
            if not done and trial.slope * (bracket[1 - low].t - bracket[low].t) >= 0:
                bracket[1 - low] = bracket[low]
            bracket[low] = trial
            if done:
                break
    return bracket[low], count + 1


def lowest_of_cubic(a: Trial, b: Trial, shortest: Any, longest: Any) -> Any:
    """Where the cubic with the losses and slopes of two trials has its minimum, within limits; their middle if it has none."""
    mean = a.slope + b.slope - 3 * (a.f - b.f) / (a.t - b.t)
    square = mean**2 - a.slope * b.slope
    if not square >= 0:
        return (shortest + longest) / 2.0
    root = square.sqrt()
    a, b = (a, b) if a.t <= b.t else (b, a)
    t = b.t - (b.t - a.t) * ((b.slope + root - mean) / (b.slope - a.slope + 2 * root))
    return min(max(t, shortest), longest)
