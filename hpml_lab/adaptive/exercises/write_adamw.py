"""Exercise `write-adamw`: θ = θ − α λ θ, then Adam's step."""

from collections.abc import Callable

from hpml_lab.adaptive.exercises.write_adam import MOMENTS, adam_mistakes
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.optim_exercises.judge import judge_rule
from hpml_lab.optim_exercises.rules import Rule, WrongRules, altered, as_rule

DECOUPLED = "theta = theta - lr * weight_decay * theta"
COUPLED = "g = g + weight_decay * theta"
_STEP = "s.m_hat / (sqrt(s.v_hat) + eps)"

_NO_DECAY = (altered("adam"), "Your steps equal Adam without any decay.")

ADAMW_MISTAKES: WrongRules = {
    "coupled-decay": (
        altered("adam", first=[COUPLED]),
        "λθ goes into your gradient, so that Adam divides it by √v̂ like the rest: that is torch's Adam(weight_decay=λ). AdamW "
        "takes it from the parameter itself.",
    ),
    "decay-missing": _NO_DECAY,
    "decay-without-rate": (
        altered("adam", first=["theta = theta - weight_decay * theta"]),
        "You shrink θ by λ; AdamW shrinks it by α λ, so that a schedule slows the decay, too.",
    ),
    "decay-grows": (
        altered("adam", first=["theta = theta + lr * weight_decay * theta"]),
        "Your decay makes the parameters larger: mind its sign.",
    ),
    "wrong-sign, of the step alone": (
        altered("adamw", f"theta = theta + lr * {_STEP}"),
        "The decay is right, but Adam's step has the right length and the wrong direction: it climbs. Mind its sign.",
    ),
    "decay-after-step": (
        altered("adam", f"theta = (theta - lr * {_STEP}) * (1 - lr * weight_decay)"),
        "You decay the parameter after its step; AdamW decays it as it was before.",
    ),
    "decay-scaled": (
        altered("adam", "theta = theta - lr * (s.m_hat + weight_decay * theta) / (sqrt(s.v_hat) + eps)"),
        "You divide the decay by √v̂ + ε, too. Decoupled means: only the gradient is scaled.",
    ),
    "argument-ignored, in the decay": (
        altered("adam", first=[DECOUPLED.replace("lr", "0.001")]),
        "Your decay is α λ for α = 0.001 alone: use the argument `lr`, so that a schedule slows the decay, too.",
    ),
    "argument-ignored, in the step": (
        altered("adamw", f"theta = theta - 0.001 * {_STEP}"),
        "Your decay follows `lr`, but Adam's step has the rate 0.001 whatever the caller passes.",
    ),
    "decay-of-some": (
        altered("adam", first=["theta = theta - (lr * weight_decay * theta if theta.dim() > 1 else 0)"]),
        "Only the matrices shrink. Many trainings spare the biases, but by parameter groups: the rule decays what it gets.",
    ),
    "decay-twice": (altered("adam", first=[DECOUPLED, DECOUPLED]), "You shrink θ twice in each step."),
    "decay-twice, once in the gradient": (
        altered("adam", first=[DECOUPLED, COUPLED]),
        "You shrink θ and also add λθ to the gradient: that decays twice. Decoupled means that the gradient stays as it is.",
    ),
    "decay-by-sign": (
        altered("adam", first=["theta = theta - lr * weight_decay * theta.sign()"]),
        "Your decay takes the same from every number: that is L1. Decay takes a share of each, α λ θ.",
    ),
    "decay-halved": (
        altered("adam", first=["theta = theta - lr * weight_decay * theta / 2"]),
        "Your decay is half of α λ θ: the derivative of ½ λ θ² has no ½ left.",
    ),
    "rate-twice": (
        altered("adam", first=["theta = theta - lr * lr * weight_decay * theta"]),
        "The rate enters your decay twice: it is α λ θ.",
    ),
    "decay-of-fixed-length": (
        altered("adam", first=["theta = theta - lr * weight_decay * theta / theta.norm()"]),
        "You divide the decay by the norm of θ, so that it is as long for small weights as for large ones: it is α λ θ.",
    ),
    "decay-of-the-step": (
        altered("adam", f"theta = theta - (1 - lr * weight_decay) * lr * {_STEP}"),
        "You shrink the step, not the parameter: where is the factor 1 - α λ applied?",
    ),
    **adam_mistakes(first=[DECOUPLED]),
}

# Asked for: Adam with its decay in the gradient, torch.optim.Adam(weight_decay=λ).
COUPLED_ADAM_MISTAKES: WrongRules = {
    "decoupled-decay": (
        as_rule("adamw"),
        "You shrink θ directly: that is AdamW. In Adam's own decay λθ is added to the gradient, before the moments see it.",
    ),
    "decay-missing": _NO_DECAY,
    **adam_mistakes(first=[COUPLED]),
}


def coupled_adam() -> Rule:
    """The rule of torch.optim.Adam(weight_decay=λ): g = g + λ θ, then Adam's step."""
    return altered("adam", first=[COUPLED])


@exercise("write-adamw", notebook="05_adaptive")
def judge_write_adamw(answer: Callable) -> None:
    """θ = θ − α λ θ, then Adam's step with the gradient as it came, for every parameter, in place."""
    judge_rule(answer, as_rule("adamw"), ADAMW_MISTAKES, **MOMENTS, weight_decay=0.1)
