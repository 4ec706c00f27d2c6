"""Answers to `scaled-rate`: linear scaling, with a climb from the base rate over some epochs."""

import math
from fractions import Fraction

import numpy as np
import torch


def solution(t, batch, base_rate, base_batch, samples, warm_epochs):
    peak = base_rate * batch / base_batch
    warm = warm_epochs * (samples // batch)
    if t >= warm:
        return peak
    return base_rate + (peak - base_rate) * t / warm


def with_peak(peak_of):
    def rate(t, batch, base_rate, base_batch, samples, warm_epochs):
        peak, warm = peak_of(batch, base_rate, base_batch), warm_epochs * (samples // batch)
        return peak if t >= warm else base_rate + (peak - base_rate) * t / warm

    return rate


def with_epoch(steps_of):
    def rate(t, batch, base_rate, base_batch, samples, warm_epochs):
        peak, warm = base_rate * batch / base_batch, warm_epochs * steps_of(samples, batch, base_batch)
        return peak if t >= warm else base_rate + (peak - base_rate) * t / warm

    return rate


def with_climb(climb):
    def rate(t, batch, base_rate, base_batch, samples, warm_epochs):
        peak, warm = base_rate * batch / base_batch, warm_epochs * (samples // batch)
        return peak if t >= warm else climb(base_rate, peak, t, warm)

    return rate


def rounded_at_the_end(t, batch, base_rate, base_batch, samples, warm_epochs):
    peak, warm = base_rate * batch / base_batch, warm_epochs * samples // batch
    return peak if t >= warm else base_rate + (peak - base_rate) * t / warm


def goes_on(t, batch, base_rate, base_batch, samples, warm_epochs):
    peak, warm = base_rate * batch / base_batch, warm_epochs * (samples // batch)
    return base_rate + (peak - base_rate) * t / warm if warm else peak


def divides_by_zero(t, batch, base_rate, base_batch, samples, warm_epochs):
    peak, warm = base_rate * batch / base_batch, warm_epochs * (samples // batch)
    return base_rate + (peak - base_rate) * min(1, t / warm)


def falls_back(t, batch, base_rate, base_batch, samples, warm_epochs):
    return (
        base_rate if t >= warm_epochs * (samples // batch) else solution(t, batch, base_rate, base_batch, samples, warm_epochs)
    )


def off_by_one(t, batch, base_rate, base_batch, samples, warm_epochs):
    peak, warm = base_rate * batch / base_batch, warm_epochs * (samples // batch)
    return peak if t > warm else base_rate + (peak - base_rate) * t / (warm + 1)


def per_epoch(t, batch, base_rate, base_batch, samples, warm_epochs):
    steps = samples // batch
    return solution(t // steps * steps, batch, base_rate, base_batch, samples, warm_epochs)


def nothing(t, batch, base_rate, base_batch, samples, warm_epochs):
    solution(t, batch, base_rate, base_batch, samples, warm_epochs)


def factor(t, batch, base_rate, base_batch, samples, warm_epochs):
    return solution(t, batch, 1.0, base_batch, samples, warm_epochs)


def peak_at_once(t, batch, base_rate, base_batch, samples, warm_epochs):
    return base_rate * batch / base_batch


def whole_list(t, batch, base_rate, base_batch, samples, warm_epochs):
    return [solution(s, batch, base_rate, base_batch, samples, warm_epochs) for s in range(t + 1)]


def limited(t, batch, base_rate, base_batch, samples, warm_epochs):
    peak, warm = base_rate * batch / base_batch, warm_epochs * (samples // batch)
    return min(peak, base_rate + (peak - base_rate) * t / warm) if warm else peak


def the_recipe(t, batch, base_rate, base_batch, samples, warm_epochs):
    return solution(t, batch, 0.1, 256, samples, 5)


def least_of_both(t, batch, base_rate, base_batch, samples, warm_epochs):
    peak = base_rate * batch / base_batch
    return min(peak, base_rate + (peak - base_rate) * t / (warm_epochs * (samples // batch)))


def small_at_once(t, batch, base_rate, base_batch, samples, warm_epochs):
    return solution(t, batch, base_rate, base_batch, samples, warm_epochs if batch > base_batch else 0)


WRONG = [
    ("rounded", lambda *given: round(solution(*given), 6)),
    ("square-root", with_peak(lambda batch, base, base_batch: base * math.sqrt(batch / base_batch))),
    ("not-scaled", with_peak(lambda batch, base, base_batch: base)),
    ("scaled-the-wrong-way", with_peak(lambda batch, base, base_batch: base * base_batch / batch)),
    ("times-the-batch", with_peak(lambda batch, base, base_batch: base * batch)),
    ("k-rounded", with_peak(lambda batch, base, base_batch: base * (batch // base_batch))),
    ("never-below-the-base", with_peak(lambda batch, base, base_batch: max(base, base * batch / base_batch))),
    ("k-added", with_peak(lambda batch, base, base_batch: base + batch / base_batch)),
    ("factor-only", factor),
    ("no-warm-up", peak_at_once),
    ("stays-at-the-base", with_climb(lambda base, peak, t, warm: base)),
    ("starts-at-zero", with_climb(lambda base, peak, t, warm: peak * t / warm)),
    ("starts-near-zero", with_climb(lambda base, peak, t, warm: peak * (t + 1) / warm)),
    ("adds-the-whole-peak", with_climb(lambda base, peak, t, warm: base + peak * t / warm)),
    ("early-at-the-peak", with_climb(lambda base, peak, t, warm: np.linspace(base, peak, warm)[t])),
    ("starts-above-the-base", with_climb(lambda base, peak, t, warm: base + (t + 1) * (peak - base) / warm)),
    ("one-step-too-long", off_by_one),
    ("grows-by-a-factor", with_climb(lambda base, peak, t, warm: base * (peak / base) ** (t / warm))),
    ("climbs-on", goes_on),
    ("raises", divides_by_zero),
    ("falls-after-the-climb", falls_back),
    ("epochs-taken-for-steps", with_epoch(lambda samples, batch, base_batch: 1)),
    ("epochs-of-the-base-batch", with_epoch(lambda samples, batch, base_batch: samples // base_batch)),
    ("incomplete-batch-counted", with_epoch(lambda samples, batch, base_batch: math.ceil(samples / batch))),
    ("epoch-not-whole", with_epoch(lambda samples, batch, base_batch: samples / batch)),
    ("epoch-rounded", with_epoch(lambda samples, batch, base_batch: round(samples / batch))),
    ("samples-taken-for-steps", with_epoch(lambda samples, batch, base_batch: samples)),
    ("epoch-not-whole", rounded_at_the_end),
    ("fixed-numbers", with_peak(lambda batch, base, base_batch: base * batch / 256)),
    ("fixed-numbers", with_peak(lambda batch, base, base_batch: 0.1 * batch / base_batch)),
    ("limited-to-the-peak", limited),
    ("no-epochs-no-peak", lambda *given: solution(*given) if given[-1] else given[2]),
    (
        "square-root",
        lambda t, *given: with_peak(lambda batch, base, base_batch: base * math.sqrt(batch / base_batch))(t + 1, *given),
    ),
    ("rounded", lambda *given: round(solution(*given), 3)),
    ("wrong-peak", with_peak(lambda batch, base, base_batch: base * batch / base_batch / 2)),
    ("wrong-start", with_climb(lambda base, peak, t, warm: base / 2 + (peak - base / 2) * t / warm)),
    ("peak-too-late", lambda t, *given: solution(t - 1, *given)),
    ("peak-too-early", lambda t, *given: solution(2 * t, *given)),
    ("not-constant", lambda t, *given: solution(t, *given) * 0.99 ** max(0, t - 13)),
    ("staircase", per_epoch),
    ("returns-nothing", nothing),
    ("not-one-rate", whole_list),
    ("not-straight", with_climb(lambda base, peak, t, warm: base + (peak - base) * (t / warm) ** 2)),
    ("not-straight", with_climb(lambda base, peak, t, warm: base + (peak - base) * (1 - math.cos(math.pi * t / warm)) / 2)),
    ("fixed-numbers", the_recipe),
    ("limited-to-the-peak", least_of_both),
    ("limited-to-the-peak", small_at_once),
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

WRONG += [("rounded", lambda *given, digits=digits: round(solution(*given), digits)) for digits in (6, 7)]
