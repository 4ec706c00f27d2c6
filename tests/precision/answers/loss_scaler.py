"""Answers to `loss-scaler`: look, step or skip, and only then change the scale."""

import math

import numpy as np
import torch


def solution(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = gradient_of(scale) / scale
    if not torch.isfinite(gradient).all():
        return weight, scale * backoff, 0
    weight = weight - lr * gradient
    good += 1
    if good == interval:
        return weight, scale * growth, 0
    return weight, scale, good


def changed(**how):
    """A scaler with one part replaced."""

    def step(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
        growth, backoff, interval = how.get("growth", growth), how.get("backoff", backoff), how.get("interval", interval)
        gradient = gradient_of(how.get("asked", scale))
        overflow = how.get("overflow", lambda g: not g.isfinite().all())(gradient)
        if how.get("early") and not overflow and good + 1 == interval:
            scale = scale * growth
        if not overflow or how.get("always"):
            weight = weight - lr * gradient / how.get("divisor", lambda s: s)(scale)
        if overflow:
            return weight, how.get("fallen", lambda s: s * backoff)(scale), good if how.get("remembers") else 0
        good += 1
        if good >= interval:
            return weight, scale * (1 if how.get("early") else growth), good if how.get("goes_on") else 0
        return weight, scale, good

    return step


def no_return(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    weight -= lr * gradient_of(scale) / scale


def weight_only(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    return weight - lr * gradient_of(scale) / scale


def scaled_for_the_look_only(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    after, scale, good = solution(weight, scale, good, gradient_of, lr, growth, backoff, interval)
    return (weight if after is weight else weight - lr * gradient_of(1.0)), scale, good


def until_finite(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    while not (gradient := gradient_of(scale)).isfinite().all():
        scale, good = scale * backoff, 0
    return weight - lr * gradient / scale, scale, good + 1


WRONG = [
    ("loss-not-scaled", changed(asked=1.0)),
    ("nan-missed", changed(overflow=lambda g: torch.isinf(g).any())),
    ("steps-on-overflow", changed(always=True)),
    ("scale-never-halved", changed(fallen=lambda s: s)),
    ("stops-scaling", changed(fallen=lambda s: 1.0)),
    ("grows-every-step", changed(interval=1)),
    ("grows-right-after-backoff", changed(remembers=True)),
    ("count-goes-on", changed(goes_on=True)),
    ("never-grows", changed(growth=1.0)),
    ("unscaled-by-the-new-scale", changed(early=True)),
    ("not-unscaled", changed(divisor=lambda s: 1.0)),
    ("unscaled-twice", changed(divisor=lambda s: s**2)),
    ("wrong-value", changed(backoff=0.9)),
    ("option-ignored", changed(growth=2.0, backoff=0.5)),
    ("wrong-value", scaled_for_the_look_only),
    ("tries-again", until_finite),
    ("returns-nothing", no_return),
    ("not-three-values", weight_only),
]


# ---- more wrong answers, and right ones that compute in another way --------------------------------------------------------


def ignoring(**fixed):
    """The right step with an option that is fixed in the code."""

    def step(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
        options = {"lr": lr, "growth": growth, "backoff": backoff, "interval": interval, **fixed}
        return solution(weight, scale, good, gradient_of, **options)

    return step


def then(after):
    """The right step, with what it returns changed by after(scale before, weight, scale, good)."""

    def step(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
        return after(scale, *solution(weight, scale, good, gradient_of, lr, growth, backoff, interval))

    return step


def skips_elements(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = gradient_of(scale) / scale
    finite = gradient.isfinite()
    weight = torch.where(finite, weight - lr * gradient, weight)
    if not finite.all():
        return weight, scale * backoff, 0
    good += 1
    return (weight, scale * growth, 0) if good == interval else (weight, scale, good)


def clears_the_overflow(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = gradient_of(scale)
    finite = bool(gradient.isfinite().all())
    weight = weight - lr * torch.nan_to_num(gradient, 0.0, 0.0, 0.0) / scale
    if not finite:
        return weight, scale * backoff, 0
    good += 1
    return (weight, scale * growth, 0) if good == interval else (weight, scale, good)


def modulo(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = gradient_of(scale) / scale
    if not gradient.isfinite().all():
        return weight, scale * backoff, 0
    good += 1
    return weight - lr * gradient, scale * growth if good % interval == 0 else scale, good


def one_late(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = gradient_of(scale) / scale
    if not gradient.isfinite().all():
        return weight, scale * backoff, 0
    weight = weight - lr * gradient
    return (weight, scale * growth, 0) if good == interval else (weight, scale, good + 1)


def counts_overflows(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = gradient_of(scale) / scale
    good += 1
    if not gradient.isfinite().all():
        return weight, scale * backoff, good
    weight = weight - lr * gradient
    return (weight, scale * growth, 0) if good >= interval else (weight, scale, good)


def swapped(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    return solution(weight, scale, good, gradient_of, lr, backoff, growth, interval)


def scale_first(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    good += 1
    if good == interval:
        scale, good = scale * growth, 0
    gradient = gradient_of(scale) / scale
    if not gradient.isfinite().all():
        return weight, scale * backoff, 0
    return weight - lr * gradient, scale, good


def unscaled_by_scale_times_rate(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = gradient_of(scale)
    _, after, good = solution(weight, scale, good, gradient_of, lr, growth, backoff, interval)
    return (weight + lr * gradient / scale if gradient.isfinite().all() else weight), after, good


WRONG += [
    ("option-ignored", ignoring(lr=0.1)),
    ("option-ignored", ignoring(growth=2.0)),
    ("option-ignored", ignoring(backoff=0.5)),
    ("option-ignored", ignoring(interval=3)),
    ("inf-missed", changed(overflow=lambda g: torch.isnan(g).any())),
    ("one-finite-is-enough", changed(overflow=lambda g: not g.isfinite().any())),
    ("looks-at-one-element", changed(overflow=lambda g: not g[0].isfinite())),
    ("skips-elements", skips_elements),
    ("skips-elements", clears_the_overflow),
    ("count-wrong", modulo),
    ("grows-late", one_late),
    ("grows-right-after-backoff", counts_overflows),
    ("growth-and-backoff-swapped", swapped),
    ("scale-changed-first", scale_first),
    ("scale-limited", then(lambda before, weight, scale, good: (weight, max(scale, 1.0), good))),
    ("scale-limited", then(lambda before, weight, scale, good: (weight, min(scale, 2.0**16), good))),
    ("uphill", unscaled_by_scale_times_rate),
    ("values-in-another-order", then(lambda before, weight, scale, good: (scale, weight, good))),
    ("values-in-another-order", then(lambda before, weight, scale, good: (weight, good, scale))),
    ("not-numbers", then(lambda before, weight, scale, good: (weight, None, good))),
    ("wrong-shape", then(lambda before, weight, scale, good: (weight.sum(), scale, good))),
    ("count-starts-at-one", then(lambda before, weight, scale, good: (weight, scale, max(good, 1)))),
    ("unscaled-twice", changed(divisor=lambda s: s * s)),
    ("not-unscaled", changed(divisor=lambda s: 1)),
]


def in_place(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = gradient_of(scale).div_(scale)
    if gradient.isfinite().all():
        weight -= lr * gradient
        good += 1
        if good == interval:
            scale *= growth
            good = 0
    else:
        scale *= backoff
        good = 0
    return weight, scale, good


def by_the_norm(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = gradient_of(scale)
    if not math.isfinite(gradient.norm()):
        return [weight, backoff * scale, 0]
    good = good + 1
    grows = good >= interval
    return [weight - gradient * (lr / scale), scale * (growth if grows else 1.0), good * (not grows)]


def in_numpy(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = gradient_of(float(scale)).numpy() / np.float32(scale)
    weight = np.asarray(weight)
    if not np.isfinite(gradient).all():
        return weight, np.float64(scale) * backoff, np.int64(0)
    good = np.int64(good + 1)
    if good == interval:
        return weight - np.float32(lr) * gradient, np.float64(scale) * growth, np.int64(0)
    return weight - np.float32(lr) * gradient, np.float64(scale), good


def scale_as_tensor(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    scale = torch.as_tensor(scale)
    gradient = gradient_of(scale) / scale
    finite = gradient.isfinite().all()
    good = torch.where(finite, torch.as_tensor(good) + 1, 0)
    grows = good == interval
    weight = torch.where(finite, weight - lr * gradient, weight)
    scale = scale * torch.where(finite, torch.where(grows, growth, 1.0), backoff)
    return weight, scale, torch.where(grows, 0, good)


def with_torchs_own_rule(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = gradient_of(scale)
    bad = torch.tensor(0.0 if gradient.isfinite().all() else 1.0)
    new, count = torch.tensor(scale), torch.tensor(good, dtype=torch.int32)
    torch._amp_update_scale_(new, count, bad, growth, backoff, interval)
    return (weight if bad else weight - lr * gradient / scale), new.item(), count.item()


def in_fractions(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    from fractions import Fraction

    weight, after, good = solution(weight, float(scale), good, gradient_of, lr, 1.0, 1.0, interval)
    gradient = gradient_of(float(scale))
    if not gradient.isfinite().all():
        return weight, Fraction(scale) * Fraction(backoff), 0
    return weight, Fraction(scale) * Fraction(growth if good == 0 else 1), good


ALSO_RIGHT = [in_place, by_the_norm, in_numpy, scale_as_tensor, with_torchs_own_rule, in_fractions]


def divides_in_fp16(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = gradient_of(scale).half() / scale
    if not gradient.isfinite().all():
        return weight, scale * backoff, 0
    good = (good + 1) % interval
    return weight - lr * gradient, scale if good else scale * growth, good


def for_one_number(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = gradient_of(scale)
    if not math.isfinite(gradient):
        return weight, scale * backoff, 0
    good = (good + 1) % interval
    return weight - lr * gradient / scale, scale if good else scale * growth, good


def for_one_number_of_numpy(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = np.asarray(gradient_of(scale)) / scale
    if not np.isfinite(gradient):
        return weight, scale * backoff, 0
    good = (good + 1) % interval
    return weight - lr * gradient, scale if good else scale * growth, good


WRONG += [
    ("unscaled-in-fp16", divides_in_fp16),
    ("for-one-number-only", for_one_number),
    ("for-one-number-only", for_one_number_of_numpy),
]

WRONG += [("looks-at-one-element", changed(overflow=lambda g: not g.max() < math.inf))]  # misses minus infinity


def limited(lowest, highest):
    def step(*arguments, **options):
        weight, scale, good = solution(*arguments, **options)
        return weight, min(max(scale, lowest), highest), good

    return step


WRONG += [
    ("scale-limited", limited(0, 2.0**24)),
    ("scale-limited", limited(1e-4, math.inf)),
    ("scale-limited", limited(1, 2.0**20)),
    ("scale-limited", limited(0, 65504.0)),
]
