"""One step of dynamic loss scaling, compared with torch.amp.GradScaler over known gradients."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.same import same
from hpml_lab.precision.exercises.recording_scaler import RecordingOptimizer

NAN, TINY = math.nan, 2.0**-26
START = torch.tensor([1.0, -1.0, 0.0])  # the third weight only has gradients of 2^-26: added to 1, such a step would be lost
# The true gradients step by step. With a scale of 2^16, those of 2 and more overflow fp16; without a scale, 2^-26 is zero.
PAIRS = [(0.5, TINY), (0.25, 0.1), (2.0, 0.1), (0.5, 0.1), (-0.3, TINY), (0.5, 0.2), (0.1, 0.1), (0.2, 0.1)]
PAIRS += [(NAN, 0.1), (0.5, 0.1), (0.5, 0.3), (0.1, 0.1), (0.1, 0.2), (0.2, -8.0), (0.1, 0.1)]
GRADIENTS = [(*pair, TINY) for pair in PAIRS]
DEFAULTS = {"lr": 0.1, "growth": 2.0, "backoff": 0.5, "interval": 3}
OTHERS = {"lr": 0.05, "growth": 4.0, "backoff": 0.25, "interval": 2}
FAST = {"lr": 0.1, "growth": 16.0, "backoff": 2.0**-8, "interval": 1}
# (options, first scale, gradients): the third case begins with a NaN, so that the scale falls below 1; in the last one it rises
# to 2^32 and falls to 2^-24.
CASES = (
    (DEFAULTS, 2.0**16, GRADIENTS),
    (OTHERS, 2.0**16, GRADIENTS),
    (DEFAULTS, 1.0, GRADIENTS[8:] + GRADIENTS[:8]),
    (FAST, 2.0**16, [(TINY, TINY, TINY)] * 4 + [(NAN, TINY, TINY)] * 7),
)
MOST_CALLS = 100  # of gradient_of in one step: some gradients are NaN with every scale
Row = tuple[list[float], int]
# Parts of the errors of torch and NumPy where a tensor of several elements is taken for one number.
ONE_ELEMENT = ("one element tensors", "more than one value", "more than one element", "only length-1", "only 0-dimensional")


def row_of(given: Any) -> Row:
    """What a step returned as numbers: the weights, the third in units of its gradient, and the scale; and the count."""
    if given is None:
        raise Mistake("returns-nothing", "Your function returns None: end it with `return weight, scale, good`.")
    if not (isinstance(given, tuple | list) and len(given) == 3):
        raise Mistake("not-three-values", "Return three values: the weight, the scale and the count of good steps.")
    try:
        weight, scale, good = torch.as_tensor(given[0]), float(given[1]), int(given[2])
    except (TypeError, ValueError, RuntimeError):
        sizes = [getattr(value, "shape", ()) for value in given]
        if START.shape in sizes[1:]:
            raise Mistake(
                "values-in-another-order", "The weight is not your first value. Return weight, scale, good."
            ) from None
        raise Mistake("not-numbers", "The scale and the count of good steps that you return are one number each.") from None
    if weight.shape != START.shape:
        raise Mistake("wrong-shape", f"The weight has shape {tuple(START.shape)}; yours has {tuple(weight.shape)}.")
    *large, tiny = weight.tolist()
    return [*large, tiny / TINY, scale], good


def trace_of_torch(options: dict[str, Any], start: float, gradients: list[tuple[float, ...]]) -> list[Row]:
    """Weights, scale and count after each step with torch's GradScaler."""
    scaler = torch.amp.GradScaler(
        "cpu",
        init_scale=start,
        growth_factor=options["growth"],
        backoff_factor=options["backoff"],
        growth_interval=options["interval"],
    )
    weight = START.clone().requires_grad_()
    optimizer, trace = RecordingOptimizer([weight], options["lr"]), []
    for gradient in gradients:
        scale = scaler.scale(torch.ones(()))
        weight.grad = (scale * torch.tensor(gradient)).half().float()
        scaler.step(optimizer)
        scaler.update()
        trace.append(row_of((weight.detach(), scaler.get_scale(), scaler._get_growth_tracker())))
    return trace


def trace_of(step: Callable, options: dict[str, Any], start: float, gradients: list[tuple[float, ...]]) -> list[Row]:
    """Weights, scale and count after each step with a student's function."""
    weight, scale, good, trace = START, start, 0, []
    for gradient in gradients:
        calls = 0

        def gradient_of(scale: float, gradient: tuple[float, ...] = gradient) -> torch.Tensor:
            nonlocal calls
            calls += 1
            if calls > MOST_CALLS:
                raise Mistake(
                    "tries-again", "A step asks for its gradient repeatedly. Skip the step: the next one tries again."
                )
            return (float(scale) * torch.tensor(gradient)).half().float()

        try:
            given = step(weight.clone(), scale, good, gradient_of, **options)
        except (RuntimeError, ValueError, TypeError) as error:
            if any(text in str(error) for text in ONE_ELEMENT):
                raise Mistake(
                    "for-one-number-only",
                    f"The gradient is a tensor with several elements ({type(error).__name__}: {error}). One that is not"
                    " finite is enough to leave all weights unchanged.",
                ) from error
            raise
        trace.append(row_of(given))
        weight, scale, good = torch.as_tensor(given[0]), float(given[1]), int(given[2])
    return trace


@dataclass(frozen=True)
class ScalerRule:
    """The right step of dynamic loss scaling, one rule per field. A known mistake replaces one of them.

    asked         the scale that the gradient is computed with
    finite        whether the gradient allows a step
    steps_anyway  whether a step is taken even if it does not
    used          what of the gradient is used
    divisor       of the gradient, from the scale before and after the step
    fallen        the scale after an overflow, from scale and backoff
    grown         the scale after enough good steps, from scale and growth
    enough        whether there were enough good steps in a row, from their count and interval
    restarted_…   the count after the scale has grown, and after an overflow
    """

    asked: Callable[[float], float] = lambda scale: scale
    finite: Callable[[torch.Tensor], bool] = lambda grad: bool(grad.isfinite().all())
    steps_anyway: bool = False
    used: Callable[[torch.Tensor], torch.Tensor] = lambda grad: grad
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
            weight = weight - lr * self.used(grad) / self.divisor(scale, after)
        return weight, after, good


RIGHT = ScalerRule()


def scale_first(weight, scale, good, gradient_of, lr, growth, backoff, interval):
    """A step that changes the scale before it computes the gradient."""
    if good + 1 == interval:
        scale, good = scale * growth, -1
    return RIGHT.step(weight, scale, good, gradient_of, lr, growth, backoff, math.inf)


def divided_in_fp16(weight, scale, good, gradient_of, **options):
    rule = replace(RIGHT, divisor=lambda before, after: 1.0)
    return rule.step(weight, scale, good, lambda scale: gradient_of(scale).half() / scale, **options)


def swapped_options(*arguments, growth, backoff, **options):
    return RIGHT.step(*arguments, growth=backoff, backoff=growth, **options)


MISTAKES: dict[str, tuple[list[ScalerRule | Callable], str]] = {
    "loss-not-scaled": (
        [replace(RIGHT, asked=lambda scale: 1.0)],
        "The gradient was computed with scale 1. Ask for it with the scale, because 2⁻²⁶ is zero in fp16.",
    ),
    "nan-missed": (
        [replace(RIGHT, finite=lambda grad: not bool(grad.isinf().any()))],
        "A step was taken with a NaN in the gradient. An overflow shows as infinity or as NaN: inf - inf is NaN.",
    ),
    "inf-missed": (
        [replace(RIGHT, finite=lambda grad: not bool(grad.isnan().any()))],
        "A step was taken with an infinite gradient: you look for NaN only.",
    ),
    "one-finite-is-enough": (
        [replace(RIGHT, finite=lambda grad: bool(grad.isfinite().any()))],
        "A step was taken although an element was infinite. All elements must be finite, not only one.",
    ),
    "looks-at-one-element": (
        [replace(RIGHT, finite=lambda grad, index=index: bool(grad[index].isfinite())) for index in range(2)],
        "A step was taken although an element was infinite. Every element counts, whatever its place and its sign.",
    ),
    "skips-elements": (
        [replace(RIGHT, steps_anyway=True, used=lambda grad: torch.nan_to_num(grad, 0.0, 0.0, 0.0))],
        "After an overflow the finite elements still moved their weights. Leave all weights unchanged.",
    ),
    "steps-on-overflow": (
        [replace(RIGHT, steps_anyway=True)],
        "A step was taken with infinite gradients. Check them first, and leave the weights unchanged.",
    ),
    "scale-never-halved": (
        [replace(RIGHT, fallen=lambda scale, backoff: scale)],
        "The step was skipped, but the scale stayed: the next step overflows again.",
    ),
    "stops-scaling": (
        [replace(RIGHT, fallen=lambda scale, backoff: 1.0)],
        "After an overflow the scale fell to 1. Multiply it by backoff, once.",
    ),
    "grows-every-step": (
        [replace(RIGHT, enough=lambda good, interval: True)],
        "The scale grows after each good step. It should grow after `interval` good steps in a row.",
    ),
    "grows-late": (
        [replace(RIGHT, enough=lambda good, interval: good > interval)],
        "The scale grows one step too late: this step counts too, so add it before you compare with `interval`.",
    ),
    "count-starts-at-one": (
        [
            replace(RIGHT, restarted_after_growth=lambda good: 1, restarted_after_overflow=lambda good: 1),
            replace(RIGHT, restarted_after_growth=lambda good: 1),
            replace(RIGHT, restarted_after_overflow=lambda good: 1),
        ],
        "The count restarts at 1. No good step has followed yet: restart at 0.",
    ),
    "grows-right-after-backoff": (
        [
            replace(RIGHT, restarted_after_overflow=lambda good: good),
            replace(RIGHT, restarted_after_overflow=lambda good: good + 1),
        ],
        "Good steps from before an overflow still count: restart at 0 after an overflow.",
    ),
    "count-goes-on": (
        [replace(RIGHT, restarted_after_growth=lambda good: good)],
        "After the scale has grown once, it grows at every step: the count of good steps must restart at 0.",
    ),
    "never-grows": (
        [replace(RIGHT, grown=lambda scale, growth: scale)],
        "The scale never grows, so small gradients stay lost after the first overflow.",
    ),
    "scale-changed-first": ([scale_first], "The scale grows before the gradient of the same step. Change it last."),
    "unscaled-by-the-new-scale": (
        [replace(RIGHT, divisor=lambda before, after: after)],
        "The gradient was computed with the old scale but divided by the new one. Update the scale last.",
    ),
    "not-unscaled": (
        [replace(RIGHT, divisor=lambda before, after: 1.0)],
        "The weights move `scale` times too far: divide the gradient by the scale before the step.",
    ),
    "unscaled-in-fp16": ([divided_in_fp16], "Divided in fp16, small gradients become zero again: divide in fp32."),
    "unscaled-twice": (
        [replace(RIGHT, divisor=lambda before, after: before * before)],
        "The weights hardly move: the gradient is divided by the scale twice.",
    ),
    "uphill": ([replace(RIGHT, divisor=lambda before, after: -before)], "The weights move uphill: subtract the gradient."),
    "growth-and-backoff-swapped": (
        [swapped_options],
        "The scale grows after an overflow, where it should fall: are growth and backoff swapped, or do you divide by backoff?",
    ),
}


def ignoring(names: tuple[str, ...]) -> Callable:
    """The right step with some options fixed to their defaults."""
    return lambda *arguments, **options: RIGHT.step(*arguments, **{**options, **{name: DEFAULTS[name] for name in names}})


def within(low: float, high: float) -> Callable:
    """The right step with a scale that is kept between two limits."""

    def step(*arguments, **options):
        weight, scale, good = RIGHT.step(*arguments, **options)
        return weight, min(max(scale, low), high), good

    return step


def explains(step: Callable, given: list[list[Row]]) -> bool:
    """Whether a step gives these weights and scales, in all cases up to the one that is wrong."""
    return all(same_numbers(rows, trace_of(step, *case)) for rows, case in zip(given, CASES, strict=False))


def raise_mistake(given: list[list[Row]], right: list[Row]) -> None:
    """Raise the Mistake that explains the traces of an answer, of which the last one is not `right`."""
    case, rows = CASES[len(given) - 1], given[-1]
    (values, good), (right_values, right_good) = rows[0], right[0]
    if (values[-1], good) == (right_good, right_values[-1]):
        raise Mistake("values-in-another-order", "Scale and count are swapped. Return weight, scale, good.")
    step = next(i for i, (a, b) in enumerate(zip(rows, right, strict=True)) if not same(a, b))
    if same_numbers(rows, right):
        hint = f"Weights and scale are right, but after step {step + 1} good should be {right[step][1]}, not {rows[step][1]}."
        raise Mistake("count-wrong", f"{hint} It counts the good steps in a row since the scale last changed.")
    for name, (rules, hint) in MISTAKES.items():
        if any(explains(rule.step if isinstance(rule, ScalerRule) else rule, given) for rule in rules):
            raise Mistake(name, hint)
    scales = [values[-1] for trace in given for values, _ in trace]
    for low, high in ((0.0, max(scales)), (min(scales), math.inf), (min(scales), max(scales))):
        if explains(within(low, high), given):
            limits = [f"never below {low:g}"] * (low > 0) + [f"never above {high:g}"] * (high < math.inf)
            hint = f"You limit the scale: it is {' and '.join(limits)}. GradScaler has no such limits."
            raise Mistake("scale-limited", hint)
    for number in range(1, len(DEFAULTS) + 1):
        for names in combinations(DEFAULTS, number):
            if explains(ignoring(names), given):
                words = " and ".join(f"{name} is always {DEFAULTS[name]:g}" for name in names)
                raise Mistake("option-ignored", f"In your answer {words}. Use what your function is given.")
    words = ", ".join(f"{name} {value:g}" for name, value in case[0].items())
    wanted, yours = (", ".join(f"{number:.6g}" for number in trace[step][0]) for trace in (right, rows))
    raise Mistake(
        "wrong-value",
        f"With {words}, the weights (the third in units of 2⁻²⁶) and the scale after step {step + 1} should be {wanted}; "
        f"yours are {yours}.",
    )


def same_numbers(a: list[Row], b: list[Row]) -> bool:
    return same([values for values, _ in a], [values for values, _ in b])


@exercise("loss-scaler", notebook="12_precision")
def judge_loss_scaler(answer: Callable) -> None:
    """One step of dynamic loss scaling, compared with torch.amp.GradScaler over known gradients."""
    given = []
    for case in CASES:
        given.append(trace_of(answer, *case))
        right = trace_of_torch(*case)
        if not same(given[-1], right):
            raise_mistake(given, right)
