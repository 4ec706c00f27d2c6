"""Answers to `loss-scaler`: look, step or skip, and only then change the scale."""

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
    ("wrong-value", changed(growth=2.0, backoff=0.5)),
    ("wrong-value", scaled_for_the_look_only),
    ("tries-again", until_finite),
    ("returns-nothing", no_return),
    ("not-three-values", weight_only),
]
