"""How the learning rate should follow the batch: three rules, and a warm-up.

From a batch of b and a rate of η to a batch of k·b:
    rate kept    η
    square root  η √k, which keeps the variance of a step (η² / B)
    linear       η k, which keeps the distance of an epoch: k steps of η become one of k η
"""

from collections.abc import Callable

Rate = Callable[[int], float]  # the learning rate of step t = 0, 1, …
KEPT, ROOT, LINEAR, WARM = "rate kept", "square root", "linear", "linear, warm-up"
RULES = (KEPT, ROOT, LINEAR, WARM)
EXPONENTS = {KEPT: 0.0, ROOT: 0.5, LINEAR: 1.0, WARM: 1.0}
WARM_SHARE = 1 / 2  # of the steps


def scaled_rate(rule: str, rate: float, k: float) -> float:
    """The (peak) rate for k times the batch."""
    return rate * k ** EXPONENTS[rule]


def warmed_up(peak: float, warm: int, steps: int, decay: bool = False) -> Rate:
    """A straight climb to `peak` in the first `warm` steps, then constant; with `decay` a straight fall towards 0 at `steps`.

    rate(t) = peak · (t + 1) / warm, then peak, or peak · (steps − t) / (steps − warm)
    """

    def rate(t: int) -> float:
        if t < warm:
            return peak * (t + 1) / warm
        return peak * (steps - t) / (steps - warm) if decay else peak

    return rate


def schedule(rule: str, rate: float, k: float, steps: int) -> Rate:
    """The rate of step t of `steps` under the rule."""
    warm = int(WARM_SHARE * steps) if rule == WARM else 0
    return warmed_up(scaled_rate(rule, rate, k), warm, steps)
