"""What `quantize-affine` asks for, and the known mistakes in its scale, its zero point and its integers."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.mistakes import combined

Tensor = torch.Tensor
Given = tuple[Tensor, Tensor, Tensor, int]  # (x, low, high, bits)


def _extended(x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    return low.clamp(max=0), high.clamp(min=0)


def ends_of(bits: int) -> tuple[int, int]:
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


# ---- the scale -------------------------------------------------------------------------------------------------------


def _scale_rule(ends: Callable = _extended, width: Callable = lambda low, high: high - low, steps: Callable | None = None):
    """(x, low, high, bits) -> scale, of parts that can be replaced."""
    steps = steps or (lambda bits: 2**bits - 1)
    return lambda x, low, high, bits: width(*ends(x, low, high)) / steps(bits)


right_scale = _scale_rule()
_ONE_FEWER = "2^bits integers have one step fewer between them: how many steps lead from quant_min to quant_max?"
_XOR = "In Python 2 ^ bits is the exclusive or of two integers; the power is 2**bits."
SCALES = (
    {
        "symmetric, by quant_max": (
            lambda x, low, high, bits: torch.maximum(-low, high) / ends_of(bits)[1],
            "Your range is as wide on both sides of 0: the symmetric scheme. Here it goes from low to high.",
        )
    }
    | combined(
        _scale_rule,
        {
            "steps": {
                "off-by-one": (lambda bits: 2**bits, _ONE_FEWER),
                "off-by-one, two": (lambda bits: 2**bits - 2, _ONE_FEWER),
                "half-the-integers": (
                    lambda bits: 2 ** (bits - 1) - 1,
                    "You divide by quant_max; the steps go down to quant_min.",
                ),
                "half-the-integers, with one": (lambda bits: 2 ** (bits - 1), "You divide by half of the integers only."),
                "always-8-bits": (lambda bits: 255, "Your scale does not depend on `bits`."),
                "not-a-power": (lambda bits: 2 * (2 ^ (bits - 1)) - 1, _XOR),
                "not-a-power, at once": (lambda bits: (2 ^ bits) - 1, _XOR),
                "bits-as-steps": (lambda bits: bits, "bits is the number of bits: how many integers can they tell apart?"),
            },
            "width": {
                "symmetric": (
                    lambda low, high: 2 * torch.maximum(-low, high),
                    "Your range is as wide on both sides of 0: the symmetric scheme. Here it goes from low to high.",
                ),
                "one-end-only": (lambda low, high: high, "Your range begins at 0; it begins at low."),
                "one-end-only, low": (lambda low, high: -low, "Your range ends at 0; it ends at high."),
            },
            "ends": {
                "zero-outside": (
                    lambda x, low, high: (low, high),
                    "If low > 0 or high < 0, first extend the range to 0: otherwise 0 has no integer.",
                ),
                "zero-outside, above": (
                    lambda x, low, high: (low.clamp(max=0), high),
                    "You extend the range at its lower end only. Where high < 0, 0 lies outside as well.",
                ),
                "zero-outside, below": (
                    lambda x, low, high: (low, high.clamp(min=0)),
                    "You extend the range at its upper end only. Where low > 0, 0 lies outside as well.",
                ),
                "range-of-x": (
                    lambda x, low, high: _extended(x, x.min(), x.max()),
                    "You take the range of x itself. Use low and high: what lies outside them is clamped.",
                ),
                "range-of-x, as it is": (
                    lambda x, low, high: (x.min(), x.max()),
                    "You take the range of x itself. Use low and high: what lies outside them is clamped.",
                ),
            },
        },
    )
    | {
        "inverted": (
            lambda *given: 1 / right_scale(*given),
            "That is the number of steps in a range of 1. The scale is the length of one step.",
        )
    }
)


# ---- the zero point --------------------------------------------------------------------------------------------------


def _zero_rule(start: Callable = lambda bits: ends_of(bits)[0], rounding: Callable = torch.round, end: Callable = _extended):
    """(x, low, high, bits) -> zero point, of parts that can be replaced."""
    return lambda x, low, high, bits: start(bits) - rounding(end(x, low, high)[0] / right_scale(x, low, high, bits))


right_zero = _zero_rule()


def _middle(x, low, high, bits):
    """The zero point with which the integer 0 stands for the middle of the range."""
    return -torch.round(sum(_extended(x, low, high)) / 2 / right_scale(x, low, high, bits))


_MIDDLE = "Your zero point lets the middle of the range become 0. The middle of the integers is −½: begin at low, not there."
_NEAREST = "The zero point is rounded to the nearest integer; yours is cut off."
ZEROS = (
    {
        "from-the-other-end": (
            lambda x, low, high, bits: ends_of(bits)[1] - torch.round(high.clamp(min=0) / right_scale(x, low, high, bits)),
            "Where both ends lie halfway between two integers, your zero point is another one: torch's is quant_min - "
            "round(low / scale), and rounds halves to the even neighbor. Do you begin at high, or round in another way?",
        )
    }
    | combined(
        _zero_rule,
        {
            "start": {
                "no-quant-min": (
                    lambda bits: 0,
                    "low should become quant_min, which is negative; with your zero point low becomes 0. Integers that are "
                    "shifted afterwards need a zero point that is shifted, too.",
                ),
                "from-quant-max": (lambda bits: ends_of(bits)[1], "Your zero point lets low become quant_max."),
                "always-8-bits": (lambda bits: -128, "Your zero point does not depend on `bits`."),
            },
            "rounding": {
                "not-an-integer": (lambda value: value, "0 has to be an integer exactly: round the zero point."),
                "truncated": (torch.trunc, _NEAREST),
                "truncated, down": (torch.floor, _NEAREST),
                "truncated, up": (torch.ceil, _NEAREST),
                "sign-flipped": (
                    lambda value: -torch.round(value),
                    "The sign: low / scale is negative, so subtracting it goes up.",
                ),
            },
            "end": {
                "zero-outside": (
                    lambda x, low, high: (low, high),
                    "Your scale knows the range that was extended to 0, your zero point does not.",
                ),
                "wrong-end": (lambda x, low, high: _extended(x, low, high)[::-1], "quant_min belongs to low, not to high."),
            },
        },
    )
    | {
        "from-the-middle": (_middle, _MIDDLE),
        "from-the-middle, clamped": (lambda *given: _middle(*given).clamp(*ends_of(given[-1])), _MIDDLE),
        "symmetric": (
            lambda *given: 0,
            "Without a zero point that is the symmetric scheme: half of a lopsided range is wasted.",
        ),
        "truncated, in the end": (
            lambda x, low, high, bits: _zero_rule(rounding=lambda v: v)(x, low, high, bits).trunc(),
            _NEAREST,
        ),
        "low-itself": (
            lambda *given: _extended(*given[:3])[0],
            "The zero point is an integer, not a float: the integer that 0 becomes.",
        ),
        "low-itself, without the sign": (
            lambda *given: -_extended(*given[:3])[0],
            "The zero point is an integer, not a float: the integer that 0 becomes.",
        ),
    }
)


# ---- the integers ----------------------------------------------------------------------------------------------------


def _wrapped(q: Tensor, bits: int) -> Tensor:
    """What is left of the integers in 8 bits."""
    return (torch.remainder(q + 128, 256) - 128).clamp(*ends_of(bits))


def _integer_rule(
    product: Callable = lambda x, s: x * (1 / s),
    rounding: Callable = torch.round,
    shift: Callable = lambda v, z, rounding: rounding(v) + z,
    clamp: Callable = lambda q, z, bits: q.clamp(*ends_of(bits)),
):
    """(x, low, high, bits) -> integers, of parts that can be replaced."""

    def integers(*given) -> Tensor:
        x, s, z, bits = given[0], right_scale(*given), right_zero(*given), given[-1]
        return clamp(shift(product(x, s), z, rounding), z, bits)

    return integers


def inside(x: Tensor, low: Tensor, high: Tensor, bits: int) -> Tensor:
    return x.clamp(*_extended(x, low, high))


def _steps_from_low(x: Tensor, low: Tensor, high: Tensor, bits: int) -> Tensor:
    return torch.round((x - low.clamp(max=0)) * (1 / right_scale(x, low, high, bits)))


right_integers = _integer_rule()
_WHICH = "x · (1 / scale) in float32 and x / scale sometimes round differently. Multiply by the reciprocal, as torch does."
_ENDS = "Clamp to quant_min and quant_max: -2^(bits-1) and 2^(bits-1) - 1."
INTEGERS = combined(
    _integer_rule,
    {
        "product": {
            "divides": (lambda x, s: x / s, _WHICH),
            "divides, in double precision": (lambda x, s: x.double() / s.double(), _WHICH),
            "multiplies": (lambda x, s: x * s, "A step has the length `scale`: how many steps is x from 0?"),
        },
        "rounding": {
            "truncates": (torch.trunc, "You cut the fraction off; take the nearest integer."),
            "truncates, down": (torch.floor, "You round down; take the nearest integer."),
            "truncates, up": (torch.ceil, "You round up; take the nearest integer."),
            "halves-up": (
                lambda v: torch.floor(v + 0.5),
                "You round all halves up. torch.round takes the even neighbor: otherwise halves would be moved up on average.",
            ),
            "halves-away": (
                lambda v: v.sign() * torch.floor(v.abs() + 0.5),
                "You round halves away from 0. torch.round takes the even neighbor.",
            ),
            "not-rounded": (lambda v: v, "Those are not integers yet."),
        },
        "shift": {
            "zero-point-before-rounding": (
                lambda v, z, rounding: rounding(v + z),
                "You add the zero point before you round. If it is odd, halves then go to the other neighbor.",
            ),
            "zero-point-subtracted": (lambda v, z, rounding: rounding(v) - z, "The zero point is what 0 becomes: add it."),
            "no-zero-point": (lambda v, z, rounding: rounding(v), "0 should become the zero point; with you it stays 0."),
        },
        "clamp": {
            "clamped-before-the-zero-point": (
                lambda q, z, bits: (q - z).clamp(*ends_of(bits)) + z,
                "You clamp first and then add the zero point, which leads out of the range again.",
            ),
            "not-clamped": (lambda q, z, bits: q, "Values outside the range should become quant_min or quant_max."),
            "one-integer-unused": (lambda q, z, bits: q.clamp(-ends_of(bits)[1], ends_of(bits)[1]), _ENDS),
            "one-integer-unused, the largest": (lambda q, z, bits: q.clamp(ends_of(bits)[0], ends_of(bits)[1] - 1), _ENDS),
            "one-integer-too-many": (lambda q, z, bits: q.clamp(ends_of(bits)[0], -ends_of(bits)[0]), _ENDS),
            "unsigned-ends": (lambda q, z, bits: q.clamp(0, 2**bits - 1), f"You clamp to unsigned integers. {_ENDS}"),
            "always-8-bits": (lambda q, z, bits: q.clamp(-128, 127), "The ends of your clamp do not depend on `bits`."),
            "one-side-only": (lambda q, z, bits: q.clamp(max=ends_of(bits)[1]), "You clamp from above only."),
            "one-side-only, below": (lambda q, z, bits: q.clamp(min=ends_of(bits)[0]), "You clamp from below only."),
            "wraps-around": (
                lambda q, z, bits: _wrapped(q, bits),
                "You convert to 8 bits and then clamp. What did not fit has wrapped around by then: clamp first.",
            ),
            "wraps-around, not clamped": (
                lambda q, z, bits: torch.remainder(q + 128, 256) - 128,
                "What does not fit wraps around when you convert it to 8 bits: clamp first.",
            ),
        },
    },
) | {
    "counted-from-low": (
        lambda *given: (_steps_from_low(*given) + ends_of(given[-1])[0]).clamp(*ends_of(given[-1])),
        "You count the steps from low, which may lie between two integers: then 0 does not always become the zero point. Round "
        "x · (1 / scale) by itself, and add the zero point.",
    ),
    "clamped-before-rounding": (
        lambda *given: _integer_rule(clamp=lambda q, z, bits: q)(inside(*given), *given[1:]),
        "You clamp the floats to the range. Its ends may lie halfway between two integers and be rounded to one outside: clamp "
        "the integers.",
    ),
    "clamped-before-rounding, to low and high": (
        lambda *given: right_integers(given[0].clamp(*given[1:3]), *given[1:]),
        "You clamp x to low and high as they are given; the range was extended to 0. Clamp the integers instead.",
    ),
    "dequantized": (
        lambda *given: (right_integers(*given) - right_zero(*given)) * right_scale(*given),
        "You return floats that were rounded. Return the integers; the way back is `dequantize`.",
    ),
}
