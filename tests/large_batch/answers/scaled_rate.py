"""Answers to `scaled-rate`: linear scaling, with a climb from the base rate over some epochs."""

from fractions import Fraction

import numpy as np
import torch
from edited_source import wrong_answers


def solution(t, batch, base_rate, base_batch, samples, warm_epochs):
    peak = base_rate * batch / base_batch
    warm = warm_epochs * (samples // batch)
    if t >= warm:
        return peak
    return base_rate + (peak - base_rate) * t / warm


PEAK = "base_rate * batch / base_batch"
CLIMB = "base_rate + (peak - base_rate) * t / warm"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("wrong-peak", (PEAK, f"{PEAK} / 2")),
            ("wrong-start", (CLIMB, "base_rate / 2 + (peak - base_rate / 2) * t / warm")),
            ("not-straight", (CLIMB, "base_rate + (peak - base_rate) * (t / warm) ** 2")),
        ],
    ),
    ("peak-too-late", lambda t, *given: solution(t - 1, *given)),
    ("peak-too-early", lambda t, *given: solution(2 * t, *given)),
    ("not-constant", lambda t, *given: solution(t, *given) * 0.99 ** max(0, t - 13)),
]


def with_numpy(t, batch, base_rate, base_batch, samples, warm_epochs):
    warm = warm_epochs * (samples // batch)
    return np.interp(t, [0, warm], [base_rate, base_rate * batch / base_batch]) if warm else base_rate * batch / base_batch


def with_torch(t, batch, base_rate, base_batch, samples, warm_epochs):
    warm = torch.tensor(warm_epochs * (samples // batch))
    part = torch.clamp(torch.tensor(t) / warm.clamp(min=1), max=1) if warm > 0 else torch.tensor(1.0)
    return torch.lerp(torch.tensor(base_rate), torch.tensor(base_rate * batch / base_batch), part)


def with_fractions(t, batch, base_rate, base_batch, samples, warm_epochs):
    k, warm = Fraction(batch, base_batch), warm_epochs * (samples // batch)
    part = Fraction(min(t, warm), warm) if warm else 1
    return Fraction(base_rate) * (1 + (k - 1) * part)


def weighted(t, batch, base_rate, base_batch, samples, warm_epochs):
    warm = samples // batch * warm_epochs
    left = max(0.0, 1 - t / max(warm, 1)) if warm > 0 else 0.0
    return left * base_rate + (1 - left) * (base_rate / base_batch) * batch


def with_a_scheduler(t, batch, base_rate, base_batch, samples, warm_epochs):
    k, warm = batch / base_batch, warm_epochs * (samples // batch)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base_rate * k)
    if warm == 0:
        return optimizer.param_groups[0]["lr"]
    start = 1 / k if k >= 1 else 1.0
    if k < 1:  # LinearLR takes no factor above 1
        return base_rate * (1 + (k - 1) * min(1, t / warm))
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=start, total_iters=warm)
    for _ in range(t):
        optimizer.step()
        scheduler.step()
    return scheduler.get_last_lr()[0]


def added_up(t, batch, base_rate, base_batch, samples, warm_epochs):
    peak, (steps, _) = base_rate * batch / base_batch, divmod(samples, batch)
    warm, rate = warm_epochs * steps, base_rate
    if not warm:
        return peak
    for _ in range(min(t, warm)):
        rate += (peak - base_rate) / warm
    return rate


ALSO_RIGHT = [with_numpy, with_torch, with_fractions, weighted, with_a_scheduler, added_up]
