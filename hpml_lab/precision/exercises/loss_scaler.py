"""One step of dynamic loss scaling, as torch.amp.GradScaler takes it, over known gradients."""

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import torch

from hpml_lab.core.judge.asked import drawn, given_last
from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same

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
Case = tuple[dict[str, Any], float, list[tuple[float, ...]]]
MOST_CALLS = 100  # of gradient_of in one step: some gradients are NaN with every scale
Row = tuple[list[float], int]
# Parts of the errors of torch and NumPy where a tensor of several elements is taken for one number.
ONE_ELEMENT = ("one element tensors", "more than one value", "more than one element", "only length-1", "only 0-dimensional")


def drawn_case() -> Case:
    """A case of this check alone: other options, another first scale, the gradients in another order."""
    draw = drawn()
    growth, backoff = draw.choice((2.0, 4.0, 8.0)), draw.choice((0.5, 0.25, 0.125))
    options = {"lr": draw.choice((0.02, 0.1, 0.2)), "growth": growth, "backoff": backoff, "interval": draw.randint(2, 5)}
    return options, 2.0 ** draw.randint(8, 20), draw.sample(GRADIENTS, len(GRADIENTS))


def row_of(given: Any) -> Row:
    """What a step returned as numbers: the weights, the third in units of its gradient, and the scale; and the count."""
    weight, scale, good = given
    if weight.shape != START.shape:
        hint = f"The weight has shape {tuple(START.shape)}; yours has {tuple(weight.shape)}."
        raise Mistake("wrong-shape", hint, given_last(()))
    *large, tiny = weight.tolist()
    return [*large, tiny / TINY, float(scale)], int(good)


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
        weight, scale, good = given[0], float(given[1]), int(given[2])
    return trace


def scaled_step(weight, scale, good, gradient_of, lr, growth, backoff, interval):
    gradient, before = gradient_of(scale), scale
    if not gradient.isfinite().all():
        return weight, scale * backoff, 0
    good += 1
    if good >= interval:
        scale, good = scale * growth, 0
    return weight - lr * gradient / before, scale, good


def scale_first(weight, scale, good, gradient_of, lr, growth, backoff, interval):
    """A step that changes the scale before it computes the gradient."""
    if good + 1 == interval:
        scale, good = scale * growth, -1
    return scaled_step(weight, scale, good, gradient_of, lr, growth, backoff, math.inf)


def numbers_after(step: Callable) -> Callable[..., list[list[float]]]:
    """The weights and the scale after each step of a case."""
    return lambda *case: [values for values, _ in trace_of(step, *case)]


RUBRIC = Rubric(
    scaled_step,
    """
not gradient.isfinite().all()
    nan-missed :: gradient.isinf().any() :: No step is taken with a NaN in the gradient. An overflow shows as infinity or as
        NaN: inf - inf is NaN.
    infinity-missed :: gradient.isnan().any() :: No step is taken with an infinity in the gradient: you look for NaN only.
    only-where-none-is-finite :: not gradient.isfinite().any() :: One element that is not finite is enough to take no step:
        `all` of them are finite, not `any`.
return weight, scale * backoff, 0
    skips-elements :: return weight - lr * gradient.nan_to_num(0.0, 0.0, 0.0) / scale, scale * backoff, 0 :: After an overflow
        no element moves its weight, not even a finite one. Leave all weights unchanged.
    count-starts-at-one :: return weight, scale * backoff, 1 :: $ONE
    count-goes-on :: return weight, scale * backoff, good :: Only good steps in a row count: an overflow restarts the count.
scale, good = scale * growth, 0
    count-starts-at-one :: scale, good = scale * growth, 1 :: $ONE
gradient / before
    unscaled-by-the-new-scale :: gradient / scale :: The gradient was computed with the old scale, and is divided by the old
        one. Update the scale last.
whole answer
    scale-changed-first :: scale_first :: The scale grows before the gradient of the same step. Change it last.
""",
    wrap=numbers_after,
    ONE="Where the count restarts, no good step has followed yet: it restarts at 0, not at 1.",
)


def ignoring(names: tuple[str, ...]) -> Callable:
    """The right step with some options fixed to their defaults."""
    return lambda *arguments, **options: scaled_step(*arguments, **{**options, **{name: DEFAULTS[name] for name in names}})


def within(low: float, high: float) -> Callable:
    """The right step with a scale that is kept between two limits."""

    def step(*arguments, **options):
        weight, scale, good = scaled_step(*arguments, **options)
        return weight, min(max(scale, low), high), good

    return step


@exercise(
    "loss-scaler",
    notebook="12_precision",
    takes="weight, scale, good, gradient_of, lr, growth, backoff, interval",
    returns=(like("weight"), float, int),
    changes="weight",
)
def judge_loss_scaler(answer: Callable) -> None:
    """One step of dynamic loss scaling, as torch.amp.GradScaler takes it, over known gradients."""
    cases = (*CASES, drawn_case())
    for number, case in enumerate(cases, start=1):  # a mistake has to explain the cases up to the first that is wrong
        RUBRIC.expect(answer, {f"case {index}": cases[index] for index in range(number)}, but=("large",), explain=explain)
        traces = zip(trace_of(answer, *case), trace_of(scaled_step, *case), strict=True)
        for step, ((_, good), (_, right)) in enumerate(traces, start=1):
            if good != right:
                hint = f"Weights and scale are right, but after step {step} good should be {right}, not {good}."
                raise Mistake("count-wrong", f"{hint} It counts the good steps in a row since the scale last changed.")


def explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake of an answer that no row makes."""

    def explains(step: Callable) -> bool:
        return all(same(row.got, numbers_after(step)(*row.given)) for row in judged)

    scales = [values[-1] for row in judged for values in row.got]
    for low, high in ((0.0, max(scales)), (min(scales), math.inf), (min(scales), max(scales))):
        if explains(within(low, high)):
            limits = [f"never below {low:g}"] * (low > 0) + [f"never above {high:g}"] * (high < math.inf)
            hint = f"You limit the scale: it is {' and '.join(limits)}. GradScaler has no such limits."
            raise Mistake("scale-limited", hint)
    for number in range(1, len(DEFAULTS) + 1):
        for names in combinations(DEFAULTS, number):
            if explains(ignoring(names)):
                words = " and ".join(f"{name} is always {DEFAULTS[name]:g}" for name in names)
                raise Mistake("option-ignored", f"In your answer {words}. Use what your function is given.")
    row = next(row for row in judged if not same(row.got, row.wanted))
    step = next(i for i, (a, b) in enumerate(zip(row.got, row.wanted, strict=True)) if not same(a, b))
    words = ", ".join(f"{name} {value:g}" for name, value in row.given[0].items())
    options, start, gradients = row.given
    answer(options, start, gradients[: step + 1])  # once more, up to the step that shows it
    wanted, yours = (", ".join(f"{number:.6g}" for number in trace[step]) for trace in (row.wanted, row.got))
    raise Mistake(
        "wrong-value",
        f"With {words}, the weights (the third in units of 2⁻²⁶) and the scale after step {step + 1} should be {wanted}; "
        f"yours are {yours}.",
        given_last(()),
    )
