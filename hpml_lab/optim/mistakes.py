"""Wrong update rules that students write, for the judge: {name: (rule in the student's form, hint that leads on)}.

Each is the right formula with one mistake, in the form of formulas.py: (θ, g, state, t, …) gives the new θ. judging.py tells
how an exercise uses them.
"""

from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.optim.formulas import sqrt
from hpml_lab.optim.judging import Points, Rule, as_rule


def _wrong(function: Callable, hint: str, **state: float) -> tuple[Rule, str]:
    return as_rule(function, **state), hint


def _wrong_look_ahead(point: Callable, hint: str, step: Callable = None) -> tuple[Rule, str]:
    """Nesterov momentum as the lecture has it, with its gradient taken at `point(theta, v, lr, momentum)`."""

    def rule(params: Points, gradient: Callable, state: dict, lr: float, momentum: float) -> None:
        v = state.setdefault("v", [torch.zeros_like(p) for p in params])
        grads = gradient([point(p, one, lr, momentum) for p, one in zip(params, v, strict=True)])
        for i, (p, g) in enumerate(zip(params, grads, strict=True)):
            old, v[i] = v[i], momentum * v[i] + lr * g
            p.copy_(p - v[i] if step is None else step(p, g, old, v, i, lr, momentum))

    return rule, hint


def _average_velocity(theta, g, s, t, lr, momentum):
    s.b = momentum * s.b + (1 - momentum) * g
    return theta - lr * s.b


def _average_velocity_inside(theta, g, s, t, lr, momentum):
    s.b = momentum * s.b + (1 - momentum) * lr * g
    return theta - s.b


def _rate_inside(theta, g, s, t, lr, momentum):
    s.b = momentum * s.b + lr * g
    return theta - s.b


def _rate_outside(theta, g, s, t, lr, momentum):
    s.b = momentum * s.b + g
    return theta - lr * s.b


def _rate_twice(theta, g, s, t, lr, momentum):
    s.b = momentum * s.b + lr * g
    return theta - lr * s.b


def _no_memory(theta, g, s, t, lr, momentum):
    return theta - lr * g


def _old_velocity(theta, g, s, t, lr, momentum):
    old, s.b = s.b, momentum * s.b + g
    return theta - lr * old


def _old_velocity_inside(theta, g, s, t, lr, momentum):
    old, s.b = s.b, momentum * s.b + lr * g
    return theta - old


def _sum_of_gradients(theta, g, s, t, lr, momentum):
    s.b = s.b + g
    return theta - lr * s.b


def _first_gradient_averaged(theta, g, s, t, lr, momentum):
    s.b = 1 * g if t == 1 else momentum * s.b + (1 - momentum) * g
    return theta - lr * s.b


_AVERAGE_HINT = "Your velocity is a running average: its gradients are weighted with 1 - γ. In momentum they are added whole."
_NO_MEMORY_HINT = "Your steps are those of plain gradient descent: the velocity is not kept from one call to the next."

_MOMENTUM_EITHER = {
    "velocity-as-running-average": _wrong(_average_velocity, _AVERAGE_HINT, b=0.0),
    "velocity-not-kept": _wrong(_no_memory, _NO_MEMORY_HINT),
    "velocity-not-decayed": _wrong(
        _sum_of_gradients, "All old gradients count fully in yours: which factor makes them fade?", b=0.0
    ),
}

# torch's form is asked: b = γ b + g, θ = θ − α b.
MOMENTUM_MISTAKES: dict[str, tuple[Rule, str]] = {
    **_MOMENTUM_EITHER,
    "rate-inside-velocity": _wrong(
        _rate_inside,
        "Right until the learning rate changes: in yours the velocity still holds the old rate. Multiply by lr last.",
        b=0.0,
    ),
    "rate-twice": _wrong(_rate_twice, "lr enters twice: once into the velocity and once into the step.", b=0.0),
    "velocity-used-before-update": _wrong(
        _old_velocity, "Your step uses the velocity of the call before: update b first, then step with it.", b=0.0
    ),
    "running-average-after-the-first": _wrong(_first_gradient_averaged, _AVERAGE_HINT, b=0.0),
}

# The lecture's form is asked: v = γ v + α g, θ = θ − v.
LECTURE_MOMENTUM_MISTAKES: dict[str, tuple[Rule, str]] = {
    **_MOMENTUM_EITHER,
    "velocity-as-running-average": _wrong(_average_velocity_inside, _AVERAGE_HINT, b=0.0),
    "rate-outside-velocity": _wrong(
        _rate_outside,
        "That is torch's form: the same until the learning rate changes. In the lecture's form α is inside the velocity.",
        b=0.0,
    ),
    "rate-twice": _wrong(_rate_twice, "lr enters twice: once into the velocity and once into the step.", b=0.0),
    "velocity-used-before-update": _wrong(
        _old_velocity_inside, "Your step uses the velocity of the call before: update v first, then step with it.", b=0.0
    ),
}


def _nesterov_minus(theta, g, s, t, lr, momentum):
    s.b = momentum * s.b + g
    return theta - lr * (g - momentum * s.b)


def _nesterov_old(theta, g, s, t, lr, momentum):
    old, s.b = s.b, momentum * s.b + g
    return theta - lr * (g + momentum * old)


def _nesterov_average(theta, g, s, t, lr, momentum):
    s.b = momentum * s.b + (1 - momentum) * g
    return theta - lr * (g + momentum * s.b)


def _nesterov_inside(theta, g, s, t, lr, momentum):
    s.b = momentum * s.b + lr * g
    return theta - (lr * g + momentum * s.b)


def _nesterov_undamped(theta, g, s, t, lr, momentum):
    s.b = momentum * s.b + g
    return theta - lr * (g + s.b)


# torch's form of Nesterov is asked, with the gradient at θ: b = γ b + g, θ = θ − α (g + γ b).
# (g + γ b with the b of the call before is the same as plain momentum, so it is named so.)
NESTEROV_MISTAKES: dict[str, tuple[Rule, str]] = {
    "nesterov-as-plain-momentum": _wrong(
        _nesterov_old,
        "Your steps equal plain momentum. The step of Nesterov goes along g + γ b with the new b: the old one gives b itself.",
        b=0.0,
    ),
    "look-ahead-wrong-way": _wrong(_nesterov_minus, "Your step looks back, not ahead: γ b has the wrong sign beside g.", b=0.0),
    "velocity-as-running-average": _wrong(_nesterov_average, _AVERAGE_HINT, b=0.0),
    "rate-inside-velocity": _wrong(
        _nesterov_inside, "Right until the learning rate changes: in yours the velocity still holds the old rate.", b=0.0
    ),
    "look-ahead-not-damped": _wrong(_nesterov_undamped, "Your step is g + b: the look-ahead is γ times the velocity.", b=0.0),
    "velocity-not-kept": _wrong(_no_memory, _NO_MEMORY_HINT),
}


def _look_ahead_average(params, gradient, state, lr, momentum):
    v = state.setdefault("v", [torch.zeros_like(p) for p in params])
    grads = gradient([p - momentum * one for p, one in zip(params, v, strict=True)])
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        v[i] = momentum * v[i] + (1 - momentum) * lr * g
        p -= v[i]


def _look_ahead_outside(params, gradient, state, lr, momentum):
    b = state.setdefault("b", [torch.zeros_like(p) for p in params])
    grads = gradient([p - lr * momentum * one for p, one in zip(params, b, strict=True)])
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        b[i] = momentum * b[i] + g
        p -= lr * b[i]


def _plain_descent(params, gradient, state, lr, momentum):
    for p, g in zip(params, gradient(list(params)), strict=True):
        p -= lr * g


# The lecture's form is asked, with gradient(points): v = γ v + α ∇J(θ − γ v), θ = θ − v.
LOOK_AHEAD_MISTAKES: dict[str, tuple[Rule, str]] = {
    "nesterov-as-plain-momentum": _wrong_look_ahead(
        lambda p, v, lr, momentum: p, "You take the gradient at θ: these are the steps of plain momentum. Where will θ be soon?"
    ),
    "look-ahead-wrong-way": _wrong_look_ahead(
        lambda p, v, lr, momentum: p + momentum * v,
        "You take the gradient at θ + γ v. The step is θ - v: which side of θ is ahead?",
    ),
    "look-ahead-whole-velocity": _wrong_look_ahead(
        lambda p, v, lr, momentum: p - v, "You look ahead by the whole velocity; only γ v of it will be left in the next step."
    ),
    "look-ahead-scaled-by-rate": _wrong_look_ahead(
        lambda p, v, lr, momentum: p - lr * momentum * v,
        "The velocity already holds the learning rate: the look-ahead point is θ - γ v, without another α.",
    ),
    "stays-at-look-ahead": _wrong_look_ahead(
        lambda p, v, lr, momentum: p - momentum * v,
        "You step from the look-ahead point. It is only where the gradient is taken; the step starts at θ.",
        lambda p, g, old, v, i, lr, momentum: p - momentum * old - v[i],
    ),
    "wrong-sign, in the velocity": _wrong_look_ahead(
        lambda p, v, lr, momentum: p + momentum * v,
        "Your steps climb: with v = γ v - α g, θ - v goes up the slope. Mind the sign of α g.",
        lambda p, g, old, v, i, lr, momentum: p + v[i],
    ),
    "velocity-as-running-average": (_look_ahead_average, _AVERAGE_HINT),
    "rate-outside-velocity": (
        _look_ahead_outside,
        "Right until the learning rate changes. In the lecture's form α is inside the velocity.",
    ),
    "velocity-not-kept": (_plain_descent, _NO_MEMORY_HINT),
}


# ---- Adagrad: G = G + g², θ = θ − α g / (√G + ε) -----------------------------------------------------------


def _adagrad_inside(theta, g, s, t, lr, eps):
    s.G = s.G + g * g
    return theta - lr * g / sqrt(s.G + eps)


def _adagrad_outside(theta, g, s, t, lr, eps):
    s.G = s.G + g * g
    return theta - lr * g / (sqrt(s.G) + eps)


def _adagrad_on_weights(theta, g, s, t, lr, eps):
    s.G = s.G + g * g
    return theta - (lr * g / sqrt(s.G) + eps)


def _adagrad_on_step(theta, g, s, t, lr, eps):
    s.G = s.G + g * g
    return theta - lr * (g / sqrt(s.G) + eps)


def _adagrad_no_eps(theta, g, s, t, lr, eps):
    s.G = s.G + g * g
    return theta - lr * g / sqrt(s.G)


def _adagrad_no_sum(theta, g, s, t, lr, eps):
    return theta - lr * g / (abs(g) + eps)


def _adagrad_after(theta, g, s, t, lr, eps):
    old, s.G = s.G, s.G + g * g
    return theta - lr * g / (sqrt(old) + eps)


def _adagrad_no_root(theta, g, s, t, lr, eps):
    s.G = s.G + g * g
    return theta - lr * g / (s.G + eps)


def _adagrad_not_squared(theta, g, s, t, lr, eps):
    s.G = s.G + abs(g)
    return theta - lr * g / (sqrt(s.G) + eps)


def _adagrad_signed_sum(theta, g, s, t, lr, eps):
    s.G = s.G + g
    return theta - lr * g / (abs(s.G) + eps)


def _adagrad_mean(theta, g, s, t, lr, eps):
    s.G = s.G + g * g
    return theta - lr * g / (sqrt(s.G / t) + eps)


_ON_WEIGHTS_HINT = "ε is added to the step itself, so every weight drifts by ε in each step. It belongs to the denominator."

ADAGRAD_MISTAKES: dict[str, tuple[Rule, str]] = {
    "eps-inside-root": _wrong(
        _adagrad_inside, "That is the lecture's form, √(G + ε). Asked is torch's: where does ε stand there?", G=0.0
    ),
    "eps-on-weights": _wrong(_adagrad_on_weights, _ON_WEIGHTS_HINT, G=0.0),
    "eps-on-weights, times α": _wrong(_adagrad_on_step, _ON_WEIGHTS_HINT, G=0.0),
    "eps-missing": _wrong(
        _adagrad_no_eps, "A gradient that starts at exactly 0 gives 0/0: which term keeps the denominator off zero?", G=0.0
    ),
    "squares-not-accumulated": _wrong(
        _adagrad_no_sum, "Your G holds only this step's g²: each step is then about as long as α. G is the sum of all of them."
    ),
    "accumulated-after-use": _wrong(
        _adagrad_after, "Your first step divides by √0 + ε and is huge: g² must be in G before G is used.", G=0.0
    ),
    "root-missing": _wrong(_adagrad_no_root, "G is a sum of squares: take its root before you divide.", G=0.0),
    "not-squared": _wrong(_adagrad_not_squared, "G adds up squares of gradients, not their magnitudes.", G=0.0),
    "signs-cancel": _wrong(
        _adagrad_signed_sum, "In your sum, gradients of opposite sign cancel. Square each one first.", G=0.0
    ),
    "mean-instead-of-sum": _wrong(_adagrad_mean, "You divide G by t: Adagrad's G is the sum, which only grows.", G=0.0),
}

# The lecture's form is asked: θ = θ − α g / √(G + ε).
LECTURE_ADAGRAD_MISTAKES: dict[str, tuple[Rule, str]] = {
    **{name: mistake for name, mistake in ADAGRAD_MISTAKES.items() if name != "eps-inside-root"},
    "eps-outside-root": _wrong(
        _adagrad_outside, "That is torch's form, √G + ε. In the lecture's ε stands under the root.", G=0.0
    ),
}


# ---- RMSprop: v = ρ v + (1 − ρ) g², θ = θ − α g / (√v + ε); ρ is torch's `alpha` ----------------------------


def _rmsprop(average: Callable, step: Callable) -> Callable:
    """RMSprop with `average(v, g², alpha)` for the line of v, and `step(g, v before, v, eps, lr)` for α g / (√v + ε)."""

    def rmsprop(theta, g, s, t, lr, alpha, eps):
        old, s.v = s.v, average(s.v, g * g, alpha)
        return theta - step(g, old, s.v, eps, lr)

    return rmsprop


def _rms_average(v, g2, alpha):
    return alpha * v + (1 - alpha) * g2


def _rms_step(g, old, v, eps, lr):
    return lr * g / (sqrt(v) + eps)


def _rms_wrong(hint: str, average: Callable = _rms_average, step: Callable = _rms_step) -> tuple[Rule, str]:
    return _wrong(_rmsprop(average, step), hint, v=0.0)


RMSPROP_MISTAKES: dict[str, tuple[Rule, str]] = {
    "accumulated-after-use": _rms_wrong(
        "Your step divides by v as it was before this gradient: the first step by √0 + ε. Update v first.",
        step=lambda g, old, v, eps, lr: lr * g / (sqrt(old) + eps),
    ),
    "eps-inside-root": _rms_wrong(
        "That is Ruder's form, √(v + ε). Asked is torch's: ε is added to the root.",
        step=lambda g, old, v, eps, lr: lr * g / sqrt(v + eps),
    ),
    "eps-on-weights": _rms_wrong(_ON_WEIGHTS_HINT, step=lambda g, old, v, eps, lr: lr * g / sqrt(v) + eps),
    "eps-on-weights, times α": _rms_wrong(_ON_WEIGHTS_HINT, step=lambda g, old, v, eps, lr: lr * (g / sqrt(v) + eps)),
    "eps-missing": _rms_wrong(
        "A gradient that starts at exactly 0 gives 0/0: which term keeps the denominator off zero?",
        step=lambda g, old, v, eps, lr: lr * g / sqrt(v),
    ),
    "squares-not-accumulated": _rms_wrong(
        "Your v holds only this step's g²; it is a running average of all squares so far.", average=lambda v, g2, alpha: g2
    ),
    "squares-not-accumulated, weighted": _rms_wrong(
        "Your v holds only this step's g²; it is a running average of all squares so far.",
        average=lambda v, g2, alpha: (1 - alpha) * g2,
    ),
    "averages-as-sums": _rms_wrong(
        "v adds the whole square; a running average adds 1 - ρ of it.", average=lambda v, g2, alpha: alpha * v + g2
    ),
    "weights-swapped": _rms_wrong(
        "The old average keeps ρ and the new square gets 1 - ρ; in yours it is the other way round.",
        average=lambda v, g2, alpha: (1 - alpha) * v + alpha * g2,
    ),
    "adagrad-instead": _rms_wrong("Your v only grows: that is Adagrad's sum.", average=lambda v, g2, alpha: v + g2),
    "root-missing": _rms_wrong(
        "v is a mean of squares: take its root before you divide.", step=lambda g, old, v, eps, lr: lr * g / (v + eps)
    ),
}


# ---- Adam and AdamW ----------------------------------------------------------------------------------------


def _adam(
    *,
    correct: str = "both moments",  # first, second, none, without exponent
    exponent: int = 0,  # added to t
    swapped: bool = False,
    eps: str = "outside",  # inside, on weights, on the step, missing, before correction
    squares: str = "accumulated",  # this step's, this step's weighted
    after: bool = False,
    momentum: bool = True,
    whole: bool = False,
    root: bool = True,
    decay: str = "",  # coupled, decoupled, without rate, grows, after, scaled
    uphill: bool = False,
) -> Callable:
    """Adam's formula with the mistakes that are switched on."""
    place = eps

    def adam(theta, g, s, t, lr, beta1, beta2, eps, weight_decay=0.0):
        if swapped:
            beta1, beta2 = beta2, beta1
        old, shrink = theta, lr * weight_decay * theta
        if decay == "coupled":
            g = g + weight_decay * theta
        theta = theta - {"decoupled": shrink, "without rate": weight_decay * theta, "grows": -shrink}.get(decay, 0.0)

        m, v = s.m, s.v
        s.m = beta1 * m + (1 if whole else 1 - beta1) * g
        s.v = beta2 * v + (1 if whole else 1 - beta2) * g * g
        if squares != "accumulated":
            s.v = g * g if squares == "this step's" else (1 - beta2) * g * g
        if not after:
            m, v = (s.m if momentum else g), s.v
        power = 1 if correct == "without exponent" else t + exponent
        if correct not in ("second", "none"):
            m = m / (1 - beta1**power)
        if correct not in ("first", "none"):
            v = v / (1 - beta2**power)

        if place == "inside":
            step = m / sqrt(v + eps)
        elif place == "on weights":
            step = m / sqrt(v) + eps / lr
        elif place == "on the step":
            step = m / sqrt(v) + eps
        elif place == "missing":
            step = m / sqrt(v)
        elif place == "before correction":
            step = m / ((sqrt(s.v) + eps) / (1 - beta2**t) ** 0.5)
        else:
            step = m / ((sqrt(v) if root else v) + eps)
        if uphill:
            step = -step
        if decay == "after":
            theta = theta - lr * step
            return theta - lr * weight_decay * theta
        if decay == "scaled":
            return old - lr * (step + weight_decay * old / (sqrt(v) + eps))
        return theta - lr * step

    return adam


def _adam_mistakes(**right: Any) -> dict[str, tuple[Rule, str]]:
    """The mistakes in Adam's own lines, in a rule that is otherwise `_adam(**right)`."""

    def wrong(hint: str, **mistake: Any) -> tuple[Rule, str]:
        return _wrong(_adam(**{**right, **mistake}), hint, m=0.0, v=0.0)

    exponent = "The exponent of the correction is off by one: at the first step t is 1, and m̂ = g. When do you count?"
    squares = "Your v holds only this step's g²; it is a running average of all squares so far."
    return {
        "no-bias-correction": wrong(
            "Your steps equal Adam without bias correction: m and v start at 0 and are too small at first. "
            "Divide each by 1 - βᵗ.",
            correct="none",
        ),
        "bias-exponent-off-by-one, late": wrong(exponent, exponent=1),
        "bias-exponent-off-by-one, early": wrong(exponent, exponent=-1),
        "bias-exponent-missing": wrong(
            "You divide by 1 - β in every step; the exponent t is missing.", correct="without exponent"
        ),
        "second-moment-not-corrected": wrong("m is corrected, v is not: both start at zero.", correct="first"),
        "first-moment-not-corrected": wrong("v is corrected, m is not: both start at zero.", correct="second"),
        "betas-swapped": wrong("β₁ and β₂ have changed places: which of the moments forgets faster?", swapped=True),
        "eps-inside-root": wrong("ε stands under the root in yours; Adam adds it to the root.", eps="inside"),
        "eps-on-weights": wrong(_ON_WEIGHTS_HINT, eps="on weights"),
        "eps-on-weights, times α": wrong(_ON_WEIGHTS_HINT, eps="on the step"),
        "eps-missing": wrong(
            "Where a gradient starts at exactly 0, your step is 0/0: which term keeps the denominator off zero?", eps="missing"
        ),
        "eps-before-correction": wrong(
            "You add ε to √v before v is corrected, so that ε counts for too much at first.", eps="before correction"
        ),
        "squares-not-accumulated": wrong(squares, squares="this step's", correct="first"),
        "squares-not-accumulated, corrected": wrong(squares, squares="this step's"),
        "squares-not-accumulated, weighted": wrong(squares, squares="this step's, weighted"),
        "accumulated-after-use": wrong("Your step uses m and v of the call before: update them first.", after=True),
        "momentum-missing": wrong(
            "The numerator of your step is g, not m: the average over the past steps is missing.", momentum=False
        ),
        "momentum-missing, uncorrected": wrong(
            "The numerator of your step is g, not m: the average over the past steps is missing.",
            momentum=False,
            correct="second",
        ),
        "averages-as-sums": wrong("Your moments add the whole gradient; a running average adds 1 - β of it.", whole=True),
        "root-missing": wrong("v̂ is a mean of squares: take its root before you divide.", root=False),
    }


ADAM_MISTAKES: dict[str, tuple[Rule, str]] = _adam_mistakes()


def _decay(how: str, hint: str) -> tuple[Rule, str]:
    return _wrong(_adam(decay=how), hint, m=0.0, v=0.0)


# AdamW is asked: θ = θ − α λ θ, then Adam's step.
ADAMW_MISTAKES: dict[str, tuple[Rule, str]] = {
    "coupled-decay": _decay(
        "coupled",
        "λθ goes into your gradient, so that Adam divides it by √v̂ like the rest: that is torch's Adam(weight_decay=λ). AdamW "
        "takes it from the parameter itself.",
    ),
    "decay-missing": _decay("", "Your steps equal Adam without any decay."),
    "decay-without-rate": _decay(
        "without rate", "You shrink θ by λ; AdamW shrinks it by α λ, so that a schedule slows the decay, too."
    ),
    "decay-grows": _decay("grows", "Your decay makes the parameters larger: mind its sign."),
    "wrong-sign, of the step alone": _wrong(
        _adam(decay="decoupled", uphill=True),
        "The decay is right, but Adam's step has the right length and the wrong direction: it climbs. Mind its sign.",
        m=0.0,
        v=0.0,
    ),
    "decay-after-step": _decay("after", "You decay the parameter after its step; AdamW decays it as it was before."),
    "decay-scaled": _decay("scaled", "You divide the decay by √v̂ + ε, too. Decoupled means: only the gradient is scaled."),
    **_adam_mistakes(decay="decoupled"),
}

# Adam with its decay in the gradient is asked (torch.optim.Adam(weight_decay=λ)).
COUPLED_ADAM_MISTAKES: dict[str, tuple[Rule, str]] = {
    "decoupled-decay": _decay(
        "decoupled",
        "You shrink θ directly: that is AdamW. In Adam's own decay λθ is added to the gradient, before the moments see it.",
    ),
    "decay-missing": ADAMW_MISTAKES["decay-missing"],
    **_adam_mistakes(decay="coupled"),
}


def coupled_adam() -> Rule:
    """The rule of torch.optim.Adam(weight_decay=λ): g = g + λ θ, then Adam's step."""
    return as_rule(_adam(decay="coupled"), m=0.0, v=0.0)


# ---- SGD's weight decay ------------------------------------------------------------------------------------


def _sgd_coupled(theta, g, s, t, lr, momentum, weight_decay):
    s.b = momentum * s.b + g + weight_decay * theta
    return theta - lr * s.b


def _sgd_decoupled(theta, g, s, t, lr, momentum, weight_decay):
    s.b = momentum * s.b + g
    return theta - lr * weight_decay * theta - lr * s.b


def _sgd_no_decay(theta, g, s, t, lr, momentum, weight_decay):
    s.b = momentum * s.b + g
    return theta - lr * s.b


def sgd_with_decay() -> Rule:
    """The rule of torch.optim.SGD(momentum=γ, weight_decay=λ): b = γ b + g + λ θ, θ = θ − α b."""
    return as_rule(_sgd_coupled, b=0.0)


SGD_DECAY_MISTAKES: dict[str, tuple[Rule, str]] = {
    "decoupled-decay": _wrong(
        _sgd_decoupled,
        "You shrink θ directly, beside the velocity. In torch's SGD λθ is part of the gradient and goes into the velocity.",
        b=0.0,
    ),
    "decay-missing": _wrong(_sgd_no_decay, "Your steps are those without any decay.", b=0.0),
}
