"""straight-through: fake quantization whose gradient passes through the rounding, but not through the clamp."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.declared import tensor
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.quantization.lessons.affine import fake_quantize as packaged

Tensor = torch.Tensor


class Passed(torch.autograd.Function):
    """Values, and what to make of the gradient that arrives."""

    @staticmethod
    def forward(ctx, x: Tensor, values: Tensor, gradient: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.gradient = gradient
        return values.clone()

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple[Tensor, None, None]:
        return ctx.gradient(g), None, None


def right(x: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int) -> Tensor:
    v = x.detach() * (1 / scale)
    q = torch.round(v) + zero_point
    kept = q.clamp(quant_min, quant_max)
    values = (kept - zero_point) * scale
    within = (quant_min <= q) & (q <= quant_max)
    return Passed.apply(x, values, lambda g: g * within)


def _called(answer: Callable, x: Tensor, *rest) -> tuple[Tensor, Tensor]:
    """What the answer gives for an `x` that wants a gradient, and that `x`."""
    x = x.clone().requires_grad_()
    return answer(x, *rest), x


def _values_of(answer: Callable) -> Callable:
    return lambda x, *rest: _called(answer, x, *rest)[0].detach()


def _gradient_of(answer: Callable) -> Callable:
    return lambda *given: _gradient(answer, *given)


VALUES = Rubric(
    right,
    """
(kept - zero_point) * scale
    no-zero-point :: torch.round(v).clamp(quant_min, quant_max) * scale :: Your values know no zero point, so they are clamped
        at the wrong ends.
""",
    wrap=_values_of,
)
GRADIENTS = Rubric(
    right,
    """
(quant_min <= q) & (q <= quant_max)
    no-clip :: torch.ones_like(x) :: The gradient does not pass where x was clamped. There a small change of x changes nothing:
        0.
    ends-left-out :: (quant_min < q) & (q < quant_max) :: Values that are rounded to quant_min or quant_max were not clamped:
        their gradient passes too.
    clip-before-rounding :: ((quant_min - zero_point) * scale <= x) & (x <= (quant_max - zero_point) * scale) :: $BEFORE
    clip-before-rounding :: ((quant_min - zero_point) * scale < x) & (x < (quant_max - zero_point) * scale) :: $BEFORE
    clip-without-zero-point :: (quant_min <= torch.round(v)) & (torch.round(v) <= quant_max) :: You compare the integers without
        their zero point.
lambda g: g * within
    gradient-of-round :: lambda g: 0 * g :: The true derivative of round is 0. Nothing would be learned; pass it on as 1.
    scaled :: lambda g: g * within / scale :: Your gradient is divided by the scale. The way back multiplies by it again.
    upstream-ignored :: lambda g: torch.ones_like(g) * within :: Your gradient does not depend on the one that arrives.
        `backward` multiplies that by its own factor.
error
    one-gradient-for-each-input :: incorrect number of gradients :: `backward` returns one gradient for each argument of
        `forward` after ctx: None for what is no tensor to be trained.
""",
    wrap=_gradient_of,
    BEFORE="Less than half a step beyond the last level, x is still rounded to it and not clamped: compare the integers.",
)


# ---- judging ---------------------------------------------------------------------------------------------------------


def _case(scale: float, zero: int, low: int, high: int, *shape: int) -> tuple:
    """Values inside, at the ends, just beyond them (still rounded to them) and far outside; and a gradient that arrives."""
    made = torch.Generator().manual_seed(low + 7 * high + zero)
    steps = (high - low) * torch.rand(20, generator=made) + low - zero
    ends = (
        torch.tensor(
            [low - 30.2, low - 3.2, low - 0.7, low - 0.3, low + 0.1, high - 0.1, high + 0.3, high + 0.7, high + 3, high + 41]
            + [low - 0.5, low + 0.5, high - 0.5, high + 0.5]  # of which the even integer decides
        )
        - zero
    )
    halves = torch.arange(-1, 1) + 0.5
    x = scale * torch.cat([steps, ends, halves])
    g = torch.randn(len(x), generator=made)
    return (*(v.reshape(shape or (-1,)) for v in (x,)), scale, zero, low, high, g.reshape(shape or (-1,)))


def _cases() -> dict[str, tuple]:
    return {
        "8 bits": _case(0.03125, 3, -128, 127),
        "unsigned 4 bits": _case(0.25, 5, 0, 15, 4, 9),
        "4 bits with a scale above 1": _case(2.0, -3, -8, 7),
        "2 bits": _case(0.5, 0, -2, 1, 2, 3, 6),
    }


@exercise("straight-through", notebook="16_quantization", takes="x, scale, zero_point, quant_min, quant_max", returns=tensor())
def judge_straight_through(answer: Callable) -> None:
    """The values of fake quantization; the gradient that arrives where x is rounded to one of the integers, 0 where clamped."""
    values = {f"the values of {case}": given[:-1] for case, given in _cases().items()}
    gradients = {f"the gradient of {case}": given for case, given in _cases().items()}
    VALUES.expect(answer, values)
    GRADIENTS.expect(answer, gradients, explain=lambda *_: _explain(answer, gradients))
    leaves = {case: (x.detach().clone().requires_grad_(), *rest) for case, (x, *rest) in values.items()}
    expect_function(answer, packaged, leaves)  # all results before the first backward pass
    beside = {f"{case}, and 3x beside it, as in a skip connection,": given for case, given in leaves.items()}
    expect_function(_also_as_it_is(answer), _also_as_it_is(packaged), beside)


def _also_as_it_is(function: Callable) -> Callable:
    """x is used once more, beside the fake quantization: that gradient is not cut."""
    return lambda x, *rest: function(x, *rest) + 3 * x


def _explain(answer: Callable, cases: dict[str, tuple]) -> None:
    """Raise the Mistake that says where a gradient passes that should not, is stopped, or is another one."""
    for case, (x, s, z, low, high, g) in cases.items():
        own, q = _gradient(answer, x, s, z, low, high, g), torch.round(x * (1 / s)) + z
        within = (low <= q) & (q <= high)
        for name, places, words in (
            ("passes-where-clamped", ~within & (own != 0), "x was clamped, so that 0 is right; yours is"),
            ("stopped-where-rounded", within & (own == 0) & (g != 0), "x was not clamped, so that all of it passes; yours is"),
            (
                "another-gradient",
                within & ~torch.isclose(own, g),
                "x was not clamped, so that the arriving one passes; yours is",
            ),
        ):
            if places.any():
                at, got = q[places][0], own[places][0] + 0.0
                hint = f"For {case} look where round(x/s) + z is {at:g}, with integers from {low} to {high}: {words} {got:.6g}"
                raise Mistake(name, f"{hint}, and {g[places][0]:.6g} arrives ({int(places.sum())} such places).")


def _gradient(answer: Callable, x: Tensor, *rest) -> Tensor:
    *parameters, g = rest
    result, leaf = _called(answer, x, *parameters)
    if _is_borrowed(result):
        raise Mistake("borrowed", "That is a function that has the gradient already. Write the estimator yourself.")
    gradient = torch.autograd.grad(result, leaf, g, allow_unused=True)[0] if result.requires_grad else None
    if gradient is None:
        raise Mistake("no-gradient", "The values are right, but no gradient leads back to x: it was cut off on the way.")
    return gradient


def _is_borrowed(result: Tensor) -> bool:
    """True if torch.fake_quantize_* or the package's own fake_quantize computed any part of it."""
    x = torch.zeros(1, requires_grad=True)
    ours = type(packaged(x, 1.0, 0, -1, 1).grad_fn)
    waiting, seen = [result.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, ours) or type(node).__name__.startswith("FakeQuantizePer"):
            return True
        waiting += [following for following, _ in node.next_functions]
    return False
