"""straight-through: fake quantization whose gradient passes through the rounding, but not through the clamp."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistakes import combined
from hpml_lab.quantization.lessons.affine import dequantize, quantize
from hpml_lab.quantization.lessons.affine import fake_quantize as packaged

Tensor = torch.Tensor


# ---- the values ------------------------------------------------------------------------------------------------------


def _values(x: Tensor, scale: float, zero: int, low: int, high: int) -> Tensor:
    return dequantize(quantize(x, scale, zero, low, high), scale, zero)


def _value_rule(
    product: Callable = lambda x, s: x * (1 / s),
    rounding: Callable = torch.round,
    clamp: Callable = lambda q, low, high: q.clamp(low, high),
    back: Callable = lambda q, s, z: (q - z) * s,
):
    """The values of fake quantization, of parts that can be replaced."""
    return lambda x, s, z, low, high: back(clamp(rounding(product(x, s)) + z, low, high), s, z)


_VALUES = (
    {"unchanged": (lambda x, *_: x, "Your values are those of x. Only the gradient acts as if nothing had been rounded.")}
    | combined(
        _value_rule,
        {
            "back": {
                "returns-integers": (lambda q, s, z: q, "Those are the integers. Return the floats that they stand for."),
                "zero-point-kept": (
                    lambda q, s, z: q * s,
                    "On the way back, the zero point is subtracted before the scale multiplies.",
                ),
                "not-scaled-back": (lambda q, s, z: q - z, "On the way back, the scale multiplies."),
            },
            "clamp": {
                "not-clamped": (
                    lambda q, low, high: q,
                    "Values outside the range should become those of quant_min or quant_max.",
                ),
                "clamped-at-one-end": (lambda q, low, high: q.clamp(max=high), "You clamp at quant_max only."),
                "clamped-at-one-end, low": (lambda q, low, high: q.clamp(min=low), "You clamp at quant_min only."),
                "always-8-bits": (
                    lambda q, low, high: q.clamp(-128, 127),
                    "Clamp to quant_min and quant_max, whatever they are.",
                ),
            },
            "rounding": {
                "not-rounded": (lambda v: v, "Your values are clamped but not rounded."),
                "truncates": (torch.trunc, "You cut the fraction off; take the nearest integer."),
                "truncates, down": (torch.floor, "You round down; take the nearest integer."),
                "halves-up": (lambda v: torch.floor(v + 0.5), "Halves go to the even integer, as torch.round has them."),
            },
            "product": {"multiplies": (lambda x, s: x * s, "How many steps of the length `scale` is x from 0? Divide.")},
        },
    )
    | {
        "zero-point-before-rounding": (
            lambda x, s, z, low, high: (torch.round(x * (1 / s) + z).clamp(low, high) - z) * s,
            "Add the zero point after the rounding: with an odd one, halves go to the other neighbor.",
        ),
        "no-zero-point": (
            lambda x, s, z, low, high: torch.round(x * (1 / s)).clamp(low, high) * s,
            "Your values know no zero point, so they are clamped at the wrong ends.",
        ),
    }
)


# ---- the gradient ----------------------------------------------------------------------------------------------------


def _integers(x: Tensor, s: float, z: int) -> Tensor:
    return torch.round(x * (1 / s)) + z


def _within(x: Tensor, s: float, z: int, low: int, high: int) -> Tensor:
    q = _integers(x, s, z)
    return (low <= q) & (q <= high)


def _strictly(x: Tensor, s: float, z: int, low: int, high: int) -> Tensor:
    q = _integers(x, s, z)
    return (low < q) & (q < high)


def _gradient_rule(clip: Callable = _within, factor: Callable = lambda s: 1.0, upstream: Callable = lambda g: g):
    """(x, scale, zero point, quant_min, quant_max, g) -> gradient of x, of parts that can be replaced."""
    return lambda x, s, z, low, high, g: upstream(g) * clip(x, s, z, low, high) * factor(s)


_BOTH = "Your gradient is stopped at one end only: a value beyond either end was clamped."
_GRADIENTS = combined(
    _gradient_rule,
    {
        "clip": {
            "no-clip": (
                lambda x, *_: torch.ones_like(x),
                "Your gradient passes everywhere, also where x was clamped. There a small change of x changes nothing: 0.",
            ),
            "inverted-clip": (
                lambda *given: ~_within(*given),
                "Your gradient passes where x was clamped and is 0 where it was rounded: the other way around.",
            ),
            "ends-left-out": (
                _strictly,
                "Values that are rounded to quant_min or quant_max were not clamped: their gradient passes too.",
            ),
            "ends-left-out, the lower": (
                lambda x, s, z, low, high: (low < (q := _integers(x, s, z))) & (q <= high),
                "Values that are rounded to quant_min were not clamped: their gradient passes too.",
            ),
            "ends-left-out, the upper": (
                lambda x, s, z, low, high: (low <= (q := _integers(x, s, z))) & (q < high),
                "Values that are rounded to quant_max were not clamped: their gradient passes too.",
            ),
            "one-sided-clip": (lambda x, s, z, low, high: _integers(x, s, z) <= high, _BOTH),
            "one-sided-clip, low": (lambda x, s, z, low, high: _integers(x, s, z) >= low, _BOTH),
            "clip-before-rounding": (
                lambda x, s, z, low, high: ((low - z) * s <= x) & (x <= (high - z) * s),
                "Less than half a step beyond the last level, x is still rounded to it and not clamped: compare the integers.",
            ),
            "clip-before-rounding, at the ends too": (
                lambda x, s, z, low, high: ((low - z) * s < x) & (x < (high - z) * s),
                "Less than half a step beyond the last level, x is still rounded to it and not clamped: compare the integers.",
            ),
            "clip-before-rounding, half a step wider": (
                lambda x, s, z, low, high: (low - z - 0.5 <= x / s) & (x / s <= high - z + 0.5),
                "Half a step beyond the last level, the even integer decides whether x is clamped: compare the integers.",
            ),
            "zero-point-before-rounding": (
                lambda x, s, z, low, high: (low <= (q := torch.round(x / s + z))) & (q <= high),
                "Where you decide what was clamped, add the zero point after the rounding, as in the values.",
            ),
            "clip-without-zero-point": (
                lambda x, s, z, low, high: _within(x, s, 0, low, high),
                "You compare the integers without their zero point.",
            ),
            "clip-without-scale": (
                lambda x, s, z, low, high: (low <= x) & (x <= high),
                "You compare x itself with quant_min and quant_max, which are integers. Compare its integer.",
            ),
            "clip-at-one": (
                lambda x, *_: x.abs() <= 1,
                "You stop the gradient beyond -1 and 1, as for binary weights. The ends are quant_min and quant_max.",
            ),
        },
        "factor": {
            "gradient-of-round": (
                lambda s: 0.0,
                "That is the true derivative of round: 0. Nothing would be learned; pass it on as 1.",
            ),
            "scaled": (
                lambda s: s,
                "Your gradient is multiplied by the scale. Quantize and dequantize cancel: 1 / scale · scale.",
            ),
            "scaled, inverted": (
                lambda s: 1 / s,
                "Your gradient is divided by the scale. The way back multiplies by it again.",
            ),
            "wrong-sign": (lambda s: -1.0, "Your gradient has the wrong sign."),
        },
        "upstream": {
            "upstream-ignored": (
                torch.ones_like,
                "Your gradient does not depend on the one that arrives. `backward` multiplies that by its own factor.",
            ),
            "upstream-sign": (torch.sign, "You pass on the sign of the gradient only."),
        },
    },
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


@exercise("straight-through", notebook="16_quantization")
def judge_straight_through(answer: Callable) -> None:
    """The values of fake quantization; the gradient that arrives where x is rounded to one of the integers, 0 where clamped."""
    values = {f"the values of {case}": given[:-1] for case, given in _cases().items()}
    gradients = {f"the gradient of {case}": given for case, given in _cases().items()}
    expect_function(lambda x, *rest: _called(answer, x, *rest)[0].detach(), _values, values, mistakes=_VALUES)
    try:
        expect_function(
            lambda *given: _gradient(answer, *given), _gradient_rule(), gradients, mistakes=_GRADIENTS, errors=_ERRORS
        )
    except Mistake as mistake:
        if mistake.name == "wrong-value":
            _explain(answer, gradients)
        raise


_ERRORS = {
    "incorrect number of gradients": (
        "one-gradient-for-each-input",
        "`backward` returns one gradient for each argument of `forward` after ctx: None for what is no tensor to be trained.",
    )
}


def _explain(answer: Callable, cases: dict[str, tuple]) -> None:
    """Raise the Mistake that says where a gradient passes that should not, is stopped, or is another one."""
    for case, (x, s, z, low, high, g) in cases.items():
        own, within = _gradient(answer, x, s, z, low, high, g), _within(x, s, z, low, high)
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
                q, one = _integers(x, s, z)[places][0], own[places][0] + 0.0
                hint = f"For {case} look where round(x/s) + z is {q:g}, with integers from {low} to {high}: {words} {one:.6g}, "
                raise Mistake(name, f"{hint}and {g[places][0]:.6g} arrives ({int(places.sum())} such places).")


def _called(answer: Callable, x: Tensor, *rest) -> tuple[Tensor, Tensor]:
    """What the answer gives for an `x` that wants a gradient, and that `x`."""
    x = x.clone().requires_grad_()
    result = answer(x, *rest)
    if result is None:
        raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
    if not isinstance(result, Tensor):
        kind = type(result).__name__
        raise Mistake("not-a-tensor", f"Return one tensor; yours is a {kind}. Of an autograd.Function, call `.apply(...)`.")
    return result, x


def _gradient(answer: Callable, x: Tensor, *rest) -> Tensor:
    *parameters, g = rest
    result, leaf = _called(answer, x, *parameters)
    if not result.requires_grad:
        raise Mistake("no-gradient", "The values are right, but no gradient leads back to x: it was cut off on the way.")
    if _is_borrowed(result):
        raise Mistake("borrowed", "That is a function that has the gradient already. Write the estimator yourself.")
    (gradient,) = torch.autograd.grad(result, leaf, g, allow_unused=True)
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
