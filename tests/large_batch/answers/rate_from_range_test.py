"""Answers to `rate-from-range-test`: a tenth of the rate with the least smoothed loss."""

import math
from itertools import accumulate, takewhile

import numpy as np
import pandas as pd
import torch
from edited_source import wrong_answers


def solution(rates, losses, beta):
    m, best, chosen = 0.0, float("inf"), None
    for t, (rate, loss) in enumerate(zip(rates, losses, strict=True)):
        if not abs(loss) < float("inf"):
            break
        m = beta * m + (1 - beta) * loss
        s = m / (1 - beta ** (t + 1))
        if s < best:
            best, chosen = s, rate
    return chosen / 10


def smooth(losses, beta):
    m, values = 0.0, []
    for t, loss in enumerate(losses):
        m = beta * m + (1 - beta) * loss
        values.append(m / (1 - beta ** (t + 1)))
    return values


def before_nan(losses):
    return list(takewhile(math.isfinite, losses))


def uncorrected(losses, beta):
    return list(accumulate(losses, lambda m, loss: beta * m + (1 - beta) * loss, initial=0.0))[1:]


CORRECTED, TENTH = "m / (1 - beta ** (t + 1))", "chosen / 10"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("none-of-the-rates", (CORRECTED, "loss"), (TENTH, "chosen")),
            ("another-step", ("abs(loss) <", "0 < loss <")),
            ("wrong-factor", (TENTH, "chosen / 100")),
        ],
    ),
    (
        "reads-past-the-end",
        lambda rates, losses, beta: solution(rates, [x if x < 1e3 or x == math.inf else 1e3 for x in losses], beta),
    ),
]


def with_pandas(rates, losses, beta):
    finite = pd.Series(before_nan(losses))
    return rates[int(finite.ewm(alpha=1 - beta, adjust=True).mean().argmin())] / 10


def with_weights(rates, losses, beta):
    values = []
    for t in range(len(before_nan(losses))):
        weights = beta ** np.arange(t, -1, -1)
        values.append(weights @ np.array(losses[: t + 1]) / weights.sum())
    return np.array(rates)[np.argmin(values)] / 10


def with_torch(rates, losses, beta):
    values = torch.tensor(smooth(losses, beta), dtype=torch.float64)
    values[~torch.isfinite(torch.tensor(losses)).cumprod(0).bool()] = torch.inf
    return torch.tensor(rates, dtype=torch.float64)[values.argmin()] / 10


def nan_stays(rates, losses, beta):
    values = [value if math.isfinite(value) else math.inf for value in smooth(losses, beta)]
    return 0.1 * min(zip(values, rates, strict=True))[1]


def by_accumulate(rates, losses, beta):
    m = uncorrected(before_nan(losses), beta)
    seen = uncorrected([1.0] * len(m), beta)
    return rates[min(range(len(m)), key=lambda t: m[t] / seen[t])] / 10


def with_convolution(rates, losses, beta):
    finite = np.array(before_nan(losses))
    kernel = beta ** np.arange(len(finite))
    sums = np.convolve(finite, kernel)[: len(finite)]
    return float(rates[int((sums / np.cumsum(kernel)).argmin())]) / 10


ALSO_RIGHT = [with_pandas, with_weights, with_torch, nan_stays, by_accumulate, with_convolution]
