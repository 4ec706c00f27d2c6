"""Answers to `loss-scaler`: look, step or skip, and only then change the scale."""

import math

import torch
from edited_source import wrong_answers


def solution(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = gradient_of(scale) / scale
    if not torch.isfinite(gradient).all():
        return weight, scale * backoff, 0
    weight = weight - lr * gradient
    good += 1
    if good == interval:
        return weight, scale * growth, 0
    return weight, scale, good


def scaled_for_the_look_only(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    after, scale, good = solution(weight, scale, good, gradient_of, lr, growth, backoff, interval)
    return (weight if after is weight else weight - lr * gradient_of(1.0)), scale, good


def until_finite(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    while not (gradient := gradient_of(scale)).isfinite().all():
        scale, good = scale * backoff, 0
    return weight - lr * gradient / scale, scale, good + 1


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


FINITE, UPDATE = "torch.isfinite(gradient).all()", "lr * gradient"
FULL, GROWN, FALLEN, ALL = "good == interval", "scale * growth, 0", "scale * backoff, 0", "return weight, scale, good"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("for-one-number-only", (FINITE, "math.isfinite(gradient)")),
            ("option-ignored", (UPDATE, "0.1 * gradient")),
            ("option-ignored", (GROWN, "scale * 2.0, 0")),
            ("wrong-value", (FALLEN, "scale * 0.9, 0")),
            ("count-wrong", (GROWN, "scale * growth, good"), (FULL, "good % interval == 0")),
        ],
    ),
    *wrong_answers(
        in_place,
        [
            ("scale-limited", (ALL, "return weight, max(scale, 1.0), good")),
            ("scale-limited", (ALL, "return weight, min(scale, 2.0**16), good")),
            ("wrong-shape", (ALL, "return weight.sum(), scale, good")),
            ("count-starts-at-one", (ALL, "return weight, scale, max(good, 1)")),
        ],
    ),
    ("tries-again", until_finite),
    ("wrong-value", scaled_for_the_look_only),
]


def by_the_norm(weight, scale, good, gradient_of, lr=0.1, growth=2.0, backoff=0.5, interval=3):
    gradient = gradient_of(scale)
    if not math.isfinite(gradient.norm()):
        return [weight, backoff * scale, 0]
    good = good + 1
    grows = good >= interval
    return [weight - gradient * (lr / scale), scale * (growth if grows else 1.0), good * (not grows)]


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


ALSO_RIGHT = [in_place, by_the_norm, scale_as_tensor, with_torchs_own_rule, in_fractions]
