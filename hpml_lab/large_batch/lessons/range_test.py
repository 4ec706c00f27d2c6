"""The learning-rate range test: train for a short while with a rate that grows at every step, and read a rate from the losses.

    rates = growing_rates(1e-4, 3.0, steps=100)
    losses = [train_one_step(rate) for rate in rates]
    choose(rates, losses)

Source: L. N. Smith, Cyclical Learning Rates for Training Neural Networks (2015, 2017). The rate that grows by a constant
factor, the smoothing and the two ways to choose are those of the fastai library.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

BETA = 0.9  # of the smoothing
DIVERGED = 4.0  # times the least smoothed loss


def growing_rates(low: float, high: float, steps: int) -> list[float]:
    """From `low` to `high`, each a constant factor above the one before.

    rate(t) = low · (high / low) ^ (t / (steps − 1))
    """
    return [low * (high / low) ** (t / (steps - 1)) for t in range(steps)]


def smoothed(losses: Sequence[float], beta: float = BETA) -> list[float]:
    """A running average that forgets, divided by the weights that it has collected so far.

    m = β m + (1 − β) loss
    s(t) = m / (1 − β ^ (t + 1))
    """
    m, values = 0.0, []
    for t, loss in enumerate(losses):
        m = beta * m + (1 - beta) * loss
        values.append(m / (1 - beta ** (t + 1)))
    return values


@dataclass(frozen=True)
class RateChoice:
    """What a range test says: rates at which the smoothed loss falls fastest, is least, and has diverged."""

    steepest: float
    least: float
    diverged: float

    @property
    def tenth(self) -> float:
        """A tenth of the rate with the least loss: a cautious constant rate."""
        return self.least / 10


def choose(rates: Sequence[float], losses: Sequence[float], beta: float = BETA) -> RateChoice:
    """Read the rates from the losses of a range test.

    The test ends where the smoothed loss is no longer finite, or DIVERGED times the least one so far. The first steps have no
    say in where the loss falls fastest: their average holds few losses yet.
    """
    values = smoothed(losses, beta)
    least = end = 0
    for t, value in enumerate(values):
        if not math.isfinite(value) or value > DIVERGED * values[least]:
            break
        end, least = t, t if value < values[least] else least
    first = min(round(1 / (1 - beta)), least)
    falls = [values[t] - values[t - 1] for t in range(first + 1, least + 1)]
    steepest = first + 1 + falls.index(min(falls)) if falls else least
    return RateChoice(rates[steepest], rates[least], rates[min(end + 1, len(rates) - 1)])
