"""Wrong rules for momentum, Nesterov's momentum and SGD with weight decay, for the judge of update rules.

Each catalogue is {name of the mistake: (the rule that makes it, a hint that leads on)}. Notebook 04's exercises use
MOMENTUM_MISTAKES and LOOK_AHEAD_MISTAKES.
"""

from collections.abc import Callable

import torch

from hpml_lab.optim_exercises.rules import Rule, Tensors, WrongRules, altered, as_rule

_AVERAGE_HINT = "Your velocity is a running average: its gradients are weighted with 1 - γ. In momentum they are added whole."
_NOT_KEPT_HINT = "Your steps are those of plain gradient descent: the velocity is not kept from one call to the next."
_NOT_DECAYED_HINT = "All old gradients count fully in yours: which factor makes them fade?"
_TWICE_HINT = "lr enters twice: once into the velocity and once into the step."
_UNTIL_RATE_HINT = "Right until the learning rate changes: in yours the velocity still holds the old rate."

_SWAPPED_HINT = "The weights are swapped: γ belongs to the old velocity, not to the gradient."
_FIRST_TWICE_HINT = "Right but for the first gradient, which counts twice: the velocity starts with it, and it is added again."
_SKIPPED_HINT = "Where a gradient is 0, your velocity stands still: it must fade there, and the parameter still moves by it."

# Asked for: torch's form, b = γ b + g, θ = θ − α b.
MOMENTUM_MISTAKES: WrongRules = {
    "weights-swapped": (altered("momentum", "s.b = (1 - momentum) * s.b + momentum * g"), _SWAPPED_HINT),
    "weights-swapped, whole velocity": (altered("momentum", "s.b = s.b + momentum * g"), _SWAPPED_HINT),
    "first-gradient-twice": (altered("momentum", "s.b = momentum * (g if t == 1 else s.b) + g"), _FIRST_TWICE_HINT),
    "first-gradient-missing": (
        altered("momentum", "s.b = 0 * g if t == 1 else momentum * s.b + g"),
        "Your first step has the length 0: the first gradient is lost.",
    ),
    "zeros-skipped": (altered("momentum", "s.b = s.b + (momentum * s.b + g - s.b) * (g != 0)"), _SKIPPED_HINT),
    "gradient-damped-too": (
        altered("momentum", "s.b = momentum * (s.b + g)"),
        "γ enters once too often: it shortens the new gradient's step as well, not only the old velocity.",
    ),
    "nesterov-instead": (as_rule("nesterov"), "That is Nesterov's step, g + γ b. Classical momentum steps along b."),
    "gradient-added-again": (
        altered("momentum", "theta = theta - lr * (s.b + g)"),
        "The new gradient enters twice: b already contains it.",
    ),
    "velocity-as-running-average": (altered("momentum", "s.b = momentum * s.b + (1 - momentum) * g"), _AVERAGE_HINT),
    "velocity-not-kept": (altered("momentum", "s.b = g"), _NOT_KEPT_HINT),
    "velocity-not-decayed": (altered("momentum", "s.b = s.b + g"), _NOT_DECAYED_HINT),
    "rate-inside-velocity": (as_rule("lecture_momentum"), f"{_UNTIL_RATE_HINT} Multiply by lr last."),
    "rate-twice": (altered("momentum", "s.b = momentum * s.b + lr * g"), _TWICE_HINT),
    "last-gradient-only": (
        altered("momentum", "s.b = momentum * before + g", first=["before = getattr(s, 'last', 0 * g)", "s.last = 1 * g"]),
        "Your velocity holds two gradients, the new one and the last: keep b itself, which holds them all.",
    ),
    "velocity-used-before-update": (
        altered("momentum", order=("theta", "s.b")),
        "Your step uses the velocity of the previous call: update b first, then step with it.",
    ),
    "running-average-after-the-first": (
        altered("momentum", "s.b = 1 * g if t == 1 else momentum * s.b + (1 - momentum) * g"),
        _AVERAGE_HINT,
    ),
}

# Asked for: the lecture's form, v = γ v + α g, θ = θ − v.
LECTURE_MOMENTUM_MISTAKES: WrongRules = {
    "velocity-as-running-average": (
        altered("lecture_momentum", "s.v = momentum * s.v + (1 - momentum) * lr * g"),
        _AVERAGE_HINT,
    ),
    "velocity-not-kept": (altered("lecture_momentum", "s.v = lr * g"), _NOT_KEPT_HINT),
    "velocity-not-decayed": (altered("momentum", "s.b = s.b + g"), _NOT_DECAYED_HINT),
    "rate-outside-velocity": (
        as_rule("momentum"),
        "That is torch's form: the same until the learning rate changes. In the lecture's form α is inside the velocity.",
    ),
    "rate-twice": (altered("lecture_momentum", "theta = theta - lr * s.v"), _TWICE_HINT),
    "velocity-used-before-update": (
        altered("lecture_momentum", order=("theta", "s.v")),
        "Your step uses the velocity of the previous call: update v first, then step with it.",
    ),
}

# Asked for: torch's form of Nesterov, with the gradient at θ: b = γ b + g, θ = θ − α (g + γ b).
# g + γ b with the b of the previous call is the same as plain momentum, and is named so.
NESTEROV_MISTAKES: WrongRules = {
    "nesterov-as-plain-momentum": (
        altered("nesterov", order=("theta", "s.b")),
        "Your steps equal plain momentum. The step of Nesterov goes along g + γ b with the new b: the old one gives b itself.",
    ),
    "look-ahead-wrong-way": (
        altered("nesterov", "theta = theta - lr * (g - momentum * s.b)"),
        "Your step looks back, not ahead: γ b has the wrong sign next to g.",
    ),
    "velocity-as-running-average": (altered("nesterov", "s.b = momentum * s.b + (1 - momentum) * g"), _AVERAGE_HINT),
    "rate-inside-velocity": (
        altered("nesterov", "s.b = momentum * s.b + lr * g", "theta = theta - (lr * g + momentum * s.b)"),
        _UNTIL_RATE_HINT,
    ),
    "look-ahead-not-damped": (
        altered("nesterov", "theta = theta - lr * (g + s.b)"),
        "Your step is g + b: the look-ahead is γ times the velocity.",
    ),
    "velocity-not-kept": (altered("gradient_descent"), _NOT_KEPT_HINT),
}


def _look_ahead(at: str, *lines: str, first: tuple[str, ...] = ()) -> Rule:
    return altered("lecture_nesterov", *lines, first=first, at=at)


def _one_after_another(params: Tensors, gradient: Callable, state: dict, lr: float, momentum: float) -> None:
    velocities = state.setdefault("v", [torch.zeros_like(p) for p in params])
    for index, (p, v) in enumerate(zip(params, velocities, strict=True)):
        g = gradient([p - momentum * v for p, v in zip(params, velocities, strict=True)])[index]
        p.sub_(v.mul_(momentum).add_(lr * g))


# Asked for: the lecture's form, with gradient(points): v = γ v + α ∇J(θ − γ v), θ = θ − v.
_AHEAD = "theta - momentum * s.v"
LOOK_AHEAD_MISTAKES: WrongRules = {
    "argument-ignored, ahead": (
        _look_ahead("theta - 0.9 * s.v"),
        "γ is always 0.9 in your look-ahead point: use the argument.",
    ),
    "weights-swapped": (_look_ahead(_AHEAD, "s.v = (1 - momentum) * s.v + momentum * lr * g"), _SWAPPED_HINT),
    "first-gradient-twice": (_look_ahead(_AHEAD, "s.v = momentum * (lr * g if t == 1 else s.v) + lr * g"), _FIRST_TWICE_HINT),
    "zeros-skipped": (_look_ahead(_AHEAD, "s.v = s.v + (momentum * s.v + lr * g - s.v) * (g != 0)"), _SKIPPED_HINT),
    "velocity-not-decayed": (_look_ahead(_AHEAD, "s.v = s.v + lr * g"), _NOT_DECAYED_HINT),
    "rate-twice": (_look_ahead(_AHEAD, "theta = theta - lr * s.v"), _TWICE_HINT),
    "velocity-used-before-update": (
        altered("lecture_nesterov", order=("theta", "s.v"), at=_AHEAD),
        "Your step uses the velocity of the previous call: update v first, then step with it.",
    ),
    "rate-missing": (
        _look_ahead(_AHEAD, "s.v = momentum * s.v + g"),
        "The learning rate never enters: α multiplies the gradient.",
    ),
    "torchs-nesterov": (
        altered("nesterov", at="theta"),
        "That is torch's form, with the gradient at θ and a step along g + γ b. The lecture's takes the gradient ahead of θ.",
    ),
    "nesterov-as-plain-momentum": (
        _look_ahead("theta"),
        "You take the gradient at θ: these are the steps of plain momentum. Where will θ be soon?",
    ),
    "look-ahead-wrong-way": (
        _look_ahead("theta + momentum * s.v"),
        "You take the gradient at θ + γ v. The step is θ - v: which side of θ is ahead?",
    ),
    "look-ahead-whole-velocity": (
        _look_ahead("theta - s.v"),
        "You look ahead by the whole velocity; only γ v of it will be left in the next step.",
    ),
    "look-ahead-scaled-by-rate": (
        _look_ahead("theta - lr * momentum * s.v"),
        "The velocity already contains the learning rate: the look-ahead point is θ - γ v, without another α.",
    ),
    "stays-at-look-ahead": (
        _look_ahead("theta - momentum * s.v", first=("theta = theta - momentum * s.v",)),
        "You step from the look-ahead point. It is only where the gradient is taken; the step starts at θ.",
    ),
    "wrong-sign, in the velocity": (
        _look_ahead("theta + momentum * s.v", "theta = theta + s.v"),
        "Your steps climb: with v = γ v - α g, θ - v goes up the slope. Mind the sign of α g.",
    ),
    "velocity-as-running-average": (
        _look_ahead("theta - momentum * s.v", "s.v = momentum * s.v + (1 - momentum) * lr * g"),
        _AVERAGE_HINT,
    ),
    "rate-outside-velocity": (
        _look_ahead("theta - lr * momentum * s.v", "s.v = momentum * s.v + g", "theta = theta - lr * s.v"),
        "Right until the learning rate changes. In the lecture's form α is inside the velocity.",
    ),
    "velocity-not-kept": (_look_ahead("theta", "s.v = lr * g"), _NOT_KEPT_HINT),
    "velocity-damped-twice": (
        _look_ahead(_AHEAD, "s.v = momentum * momentum * s.v + lr * g"),
        "γ multiplies the velocity twice in each step. Does the look-ahead change v itself, by an operation that ends in _?",
    ),
    "velocity-not-in-the-step": (
        _look_ahead(_AHEAD, "theta = theta - lr * g"),
        "Your step is α times the gradient alone: it goes along the whole velocity, θ = θ - v.",
    ),
    "one-after-another": (
        _one_after_another,
        "When you take the second gradient, the first parameter has already moved: look ahead with all parameters first, then "
        "move them.",
    ),
}

# Asked for: torch's SGD with decay in the gradient, b = γ b + g + λ θ, θ = θ − α b.
SGD_DECAY_MISTAKES: WrongRules = {
    "decoupled-decay": (
        altered("momentum", first=["theta = theta - lr * weight_decay * theta"]),
        "You shrink θ directly, apart from the velocity. In torch's SGD λθ is part of the gradient and goes into the velocity.",
    ),
    "decay-missing": (altered("momentum"), "Your steps are those without any decay."),
}


def sgd_with_decay() -> Rule:
    """The rule of torch.optim.SGD(momentum=γ, weight_decay=λ): b = γ b + g + λ θ, θ = θ − α b."""
    return altered("momentum", first=["g = g + weight_decay * theta"])
