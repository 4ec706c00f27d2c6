"""One step of dynamic loss scaling, compared with torch.amp.GradScaler over known gradients."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from hpml_lab.core.exercises import Mistake, exercise, same
from hpml_lab.precision.recording import RecordingOptimizer

NAN, TINY = math.nan, 2.0**-26
START = torch.tensor([1.0, -1.0, 0.0])  # the third weight only has gradients of 2^-26: added to 1, such a step would be lost
# The true gradients step by step. With a scale of 2^16, those of 2 and more overflow fp16; without a scale, 2^-26 is zero.
PAIRS = [(0.5, TINY), (0.25, 0.1), (2.0, 0.1), (0.5, 0.1), (-0.3, TINY), (0.5, 0.2), (0.1, 0.1), (0.2, 0.1)]
PAIRS += [(NAN, 0.1), (0.5, 0.1), (0.5, 0.3), (0.1, 0.1), (0.1, 0.2), (0.2, -8.0), (0.1, 0.1)]
GRADIENTS = [(*pair, TINY) for pair in PAIRS]
OPTIONS = ({"growth": 2.0, "backoff": 0.5, "interval": 3}, {"growth": 4.0, "backoff": 0.25, "interval": 2})
MOST_CALLS = 100  # of gradient_of in one step: some gradients are NaN with every scale
Trace = list[list[float]]


def numbers(weight: torch.Tensor, scale: float) -> list[float]:
    """The weights, the third in units of its gradient, and the scale."""
    *large, tiny = torch.as_tensor(weight).tolist()
    return [*large, tiny / TINY, float(scale)]


def trace_of_torch(growth: float, backoff: float, interval: int) -> Trace:
    """Weights and scale after each step with torch's GradScaler."""
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=2.0**16, growth_factor=growth, backoff_factor=backoff, growth_interval=interval
    )
    weight = START.clone().requires_grad_()
    optimizer, trace = RecordingOptimizer([weight], 0.1), []
    for gradient in GRADIENTS:
        scale = scaler.scale(torch.ones(()))
        weight.grad = (scale * torch.tensor(gradient)).half().float()
        scaler.step(optimizer)
        scaler.update()
        trace.append(numbers(weight, scaler.get_scale()))
    return trace


def trace_of(step: Callable, options: dict[str, Any]) -> Trace:
    """Weights and scale after each step with a student's function."""
    weight, scale, good, trace = START, 2.0**16, 0, []
    for gradient in GRADIENTS:
        calls = 0

        def gradient_of(scale: float, gradient: tuple[float, ...] = gradient) -> torch.Tensor:
            nonlocal calls
            calls += 1
            if calls > MOST_CALLS:
                raise Mistake(
                    "tries-again", "A step asks for its gradient repeatedly. Skip the step: the next one tries again."
                )
            return (scale * torch.tensor(gradient)).half().float()

        given = step(weight.clone(), scale, good, gradient_of, lr=0.1, **options)
        if given is None:
            raise Mistake("returns-nothing", "Your function returns None: end it with `return weight, scale, good`.")
        if not (isinstance(given, tuple | list) and len(given) == 3):
            raise Mistake("not-three-values", "Return three values: the weight, the scale and the count of good steps.")
        weight, scale, good = given
        trace.append(numbers(weight, scale))
    return trace


@dataclass(frozen=True)
class ScalerRule:
    """The right step of dynamic loss scaling, one rule per field. A known mistake replaces one of them.

    asked         the scale that the gradient is computed with
    finite        whether the gradient allows a step
    steps_anyway  whether a step is taken even if it does not
    divisor       of the gradient, from the scale before and after the step
    fallen        the scale after an overflow, from scale and backoff
    grown         the scale after enough good steps, from scale and growth
    enough        whether there were enough good steps in a row, from their count and interval
    restarted_…   the count after the scale has grown, and after an overflow
    """

    asked: Callable[[float], float] = lambda scale: scale
    finite: Callable[[torch.Tensor], bool] = lambda grad: bool(grad.isfinite().all())
    steps_anyway: bool = False
    divisor: Callable[[float, float], float] = lambda before, after: before
    fallen: Callable[[float, float], float] = lambda scale, backoff: scale * backoff
    grown: Callable[[float, float], float] = lambda scale, growth: scale * growth
    enough: Callable[[int, int], bool] = lambda good, interval: good >= interval
    restarted_after_growth: Callable[[int], int] = lambda good: 0
    restarted_after_overflow: Callable[[int], int] = lambda good: 0

    def step(self, weight, scale, good, gradient_of, lr, growth, backoff, interval):
        grad, after = gradient_of(self.asked(scale)), scale
        finite = self.finite(grad)
        if not finite:
            after, good = self.fallen(scale, backoff), self.restarted_after_overflow(good)
        else:
            good += 1
            if self.enough(good, interval):
                after, good = self.grown(scale, growth), self.restarted_after_growth(good)
        if finite or self.steps_anyway:
            weight = weight - lr * grad / self.divisor(scale, after)
        return weight, after, good


RIGHT = ScalerRule()
MISTAKES: dict[str, tuple[ScalerRule, str]] = {
    "loss-not-scaled": (
        replace(RIGHT, asked=lambda scale: 1.0),
        "The gradient was computed with scale 1. Ask for it with the scale, because 2⁻²⁶ is zero in fp16.",
    ),
    "nan-missed": (
        replace(RIGHT, finite=lambda grad: not bool(grad.isinf().any())),
        "A step was taken with a NaN in the gradient. An overflow shows as infinity or as NaN: inf - inf is NaN.",
    ),
    "steps-on-overflow": (
        replace(RIGHT, steps_anyway=True),
        "A step was taken with infinite gradients. Check them first, and leave the weights unchanged.",
    ),
    "scale-never-halved": (
        replace(RIGHT, fallen=lambda scale, backoff: scale),
        "The step was skipped, but the scale stayed: the next step overflows again.",
    ),
    "stops-scaling": (
        replace(RIGHT, fallen=lambda scale, backoff: 1.0),
        "After an overflow the scale fell to 1. Multiply it by backoff, once.",
    ),
    "grows-every-step": (
        replace(RIGHT, enough=lambda good, interval: True),
        "The scale grows after each good step. It should grow after `interval` good steps in a row.",
    ),
    "grows-right-after-backoff": (
        replace(RIGHT, restarted_after_overflow=lambda good: good),
        "Good steps from before an overflow still count: restart at 0 after an overflow.",
    ),
    "count-goes-on": (
        replace(RIGHT, restarted_after_growth=lambda good: good),
        "After the scale has grown once, it grows at every step: the count of good steps must restart at 0.",
    ),
    "never-grows": (
        replace(RIGHT, grown=lambda scale, growth: scale),
        "The scale never grows, so small gradients stay lost after the first overflow.",
    ),
    "unscaled-by-the-new-scale": (
        replace(RIGHT, divisor=lambda before, after: after),
        "The gradient was computed with the old scale but divided by the new one. Update the scale last.",
    ),
    "not-unscaled": (
        replace(RIGHT, divisor=lambda before, after: 1.0),
        "The weights move 65536 times too far: divide the gradient by the scale before the step.",
    ),
    "unscaled-twice": (
        replace(RIGHT, divisor=lambda before, after: before * before),
        "The weights hardly move: the gradient is divided by the scale twice.",
    ),
}


@exercise("loss-scaler", notebook="11_precision")
def judge_loss_scaler(answer: Callable) -> None:
    """One step of dynamic loss scaling, compared with torch.amp.GradScaler over known gradients."""
    for options in OPTIONS:
        given, right = trace_of(answer, options), trace_of_torch(**options)
        if same(given, right):
            continue
        for name, (rule, hint) in MISTAKES.items():
            if same(given, trace_of(rule.step, options)):
                raise Mistake(name, hint)
        index = next(i for i, (a, b) in enumerate(zip(given, right, strict=True)) if not same(a, b))
        case = ", ".join(f"{name} {value:g}" for name, value in options.items())
        wanted, yours = (", ".join(f"{number:.6g}" for number in row[index]) for row in (right, given))
        raise Mistake(
            "wrong-value",
            f"With {case}, the weights (the third in units of 2⁻²⁶) and the scale after step {index + 1} should be {wanted}; "
            f"yours are {yours}.",
        )
