"""quantize-affine: a scale, a zero point, and the integers of a tensor."""

import sys
from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.core.judge.declared import tensor
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.same import numbers, same, shown
from hpml_lab.quantization.lessons import affine

Tensor = torch.Tensor
Given = tuple[Tensor, Tensor, Tensor, int]  # (x, low, high, bits)


def ends_of(bits: int) -> tuple[int, int]:
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def right(x: Tensor, low: Tensor, high: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    quant_min, quant_max = ends_of(bits)
    l, h = low.clamp(max=0), high.clamp(min=0)  # noqa: E741
    width = h - l
    scale = width / (2**bits - 1)
    zero_point = quant_min - torch.round(l / scale)
    v = x * (1 / scale)
    q = torch.round(v) + zero_point
    q = q.clamp(quant_min, quant_max)
    return q, scale, zero_point


def clamped_floats(x: Tensor, low: Tensor, high: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """The ends of the range may lie halfway between two integers and be rounded to one outside."""
    _, scale, zero_point = right(x, low, high, bits)
    return torch.round(_inside(x, low, high) * (1 / scale)) + zero_point, scale, zero_point


def wrapped(q: Tensor) -> Tensor:
    """What is left of the integers in 8 bits."""
    return torch.remainder(q + 128, 256) - 128


def _inside(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return x.clamp(low.clamp(max=0), high.clamp(min=0))


def _part(k: int) -> Callable:
    return lambda answer: lambda *given: _three(answer, given)[k]


SCALES = Rubric(
    right,
    """
width / (2**bits - 1)
    symmetric :: torch.maximum(-l, h) / quant_max :: $SYMMETRIC
    off-by-one :: width / 2**bits :: $FEWER
    off-by-one :: width / (2**bits - 2) :: $FEWER
    half-the-integers :: width / quant_max :: You divide by quant_max; the steps go down to quant_min.
    half-the-integers :: width / 2 ** (bits - 1) :: You divide by half of the integers only.
    always-8-bits :: width / 255 :: Your scale does not depend on `bits`.
    not-a-power :: width / (2 * (2 ^ (bits - 1)) - 1) :: $XOR
    not-a-power :: width / ((2 ^ bits) - 1) :: $XOR
    bits-as-steps :: width / bits :: bits is the number of bits: how many integers can they tell apart?
    inverted :: (2**bits - 1) / width :: That is the number of steps in a range of 1. The scale is the length of one step.
h - l
    symmetric :: 2 * torch.maximum(-l, h) :: $SYMMETRIC
    one-end-only :: h :: Your range begins at 0; it begins at low.
    one-end-only :: -l :: Your range ends at 0; it ends at high.
low.clamp(max=0), high.clamp(min=0)
    zero-outside :: low, high :: If low > 0 or high < 0, first extend the range to 0: otherwise 0 has no integer.
    zero-outside :: low.clamp(max=0), high :: You extend the range at its lower end only. Where high < 0, 0 lies outside, too.
    zero-outside :: low, high.clamp(min=0) :: You extend the range at its upper end only. Where low > 0, 0 lies outside, too.
    range-of-x :: x.min().clamp(max=0), x.max().clamp(min=0) :: $X
    range-of-x :: x.min(), x.max() :: $X
""",
    wrap=_part(1),
    SYMMETRIC="The range goes from low to high. As wide on both sides of 0, it would be the symmetric scheme.",
    FEWER="2^bits integers have one step fewer between them: how many steps lead from quant_min to quant_max?",
    XOR="In Python 2 ^ bits is the exclusive or of two integers; the power is 2**bits.",
    X="You take the range of x itself. Use low and high: what lies outside them is clamped.",
)
ZEROS = Rubric(
    right,
    """
zero_point = quant_min - torch.round(l / scale)
    from-the-other-end :: zero_point = quant_max - torch.round(h / scale) :: Where both ends lie halfway between two integers, a
        zero point from high, or with another rounding, is another one: torch's is quant_min - round(low / scale), and rounds
        halves to the even neighbor.
    sign-flipped :: zero_point = quant_min + torch.round(l / scale) :: The sign: low / scale is negative, so subtracting it goes
        up.
    from-the-middle :: zero_point = -torch.round((l + h) / 2 / scale) :: $MIDDLE
    from-the-middle :: zero_point = -torch.round((l + h) / 2 / scale).clamp(-quant_max, -quant_min) :: $MIDDLE
    symmetric :: zero_point = 0 * scale :: Without a zero point that is the symmetric scheme: half of a lopsided range is lost.
    truncated :: zero_point = (quant_min - l / scale).trunc() :: $NEAREST
    low-itself :: zero_point = l :: $ITSELF
    low-itself :: zero_point = -l :: $ITSELF
zero_point = quant_min
    no-quant-min :: zero_point = 0 :: low becomes quant_min, which is negative, and not 0. Integers that are shifted afterwards
        need a zero point that is shifted, too.
    from-quant-max :: zero_point = quant_max :: Your zero point lets low become quant_max.
    always-8-bits :: zero_point = -128 :: Your zero point does not depend on `bits`.
torch.round(l / scale)
    not-an-integer :: l / scale :: 0 has to be an integer exactly: round the zero point.
    truncated :: torch.trunc(l / scale) :: $NEAREST
    truncated :: torch.floor(l / scale) :: $NEAREST
    truncated :: torch.ceil(l / scale) :: $NEAREST
    zero-outside :: torch.round(low / scale) :: Your scale knows the range that was extended to 0, your zero point does not.
    wrong-end :: torch.round(h / scale) :: quant_min belongs to low, not to high.
""",
    wrap=_part(2),
    MIDDLE="Your zero point lets the middle of the range become 0. The middle of the integers is −½: begin at low, not there.",
    NEAREST="The zero point is rounded to the nearest integer; yours is cut off.",
    ITSELF="The zero point is an integer, not a float: the integer that 0 becomes.",
)
INTEGERS = Rubric(
    right,
    """
x * (1 / scale)
    divides :: x / scale :: $WHICH
    divides :: x.double() / scale.double() :: $WHICH
    multiplies :: x * scale :: A step has the length `scale`: how many steps is x from 0?
torch.round(v)
    truncates :: torch.trunc(v) :: Take the nearest integer; to cut the fraction off is not to round.
    truncates :: torch.floor(v) :: You round down; take the nearest integer.
    truncates :: torch.ceil(v) :: You round up; take the nearest integer.
    halves-up :: torch.floor(v + 0.5) :: You round all halves up. torch.round takes the even neighbor: otherwise halves would be
        moved up on average.
torch.round(v) + zero_point
    zero-point-before-rounding :: torch.round(v + zero_point) :: Round before the zero point is added. If it is odd, halves
        would otherwise go to the other neighbor.
    zero-point-subtracted :: torch.round(v) - zero_point :: The zero point is what 0 becomes: add it.
    no-zero-point :: torch.round(v) :: 0 should become the zero point; with you it stays 0.
    counted-from-low :: torch.round((x - l) * (1 / scale)) + quant_min :: You count the steps from low, which may lie between
        two integers: then 0 does not always become the zero point. Round x · (1 / scale) by itself, and add the zero point.
q.clamp(quant_min, quant_max)
    clamped-before-the-zero-point :: (q - zero_point).clamp(quant_min, quant_max) + zero_point :: The zero point, added after
        the clamp, would lead out of the range again: clamp last.
    not-clamped :: q :: Values outside the range should become quant_min or quant_max.
    one-integer-unused :: q.clamp(-quant_max, quant_max) :: $ENDS
    one-integer-unused :: q.clamp(quant_min, quant_max - 1) :: $ENDS
    one-integer-too-many :: q.clamp(quant_min, -quant_min) :: $ENDS
    unsigned-ends :: q.clamp(0, 2**bits - 1) :: You clamp to unsigned integers. $ENDS
    always-8-bits :: q.clamp(-128, 127) :: The ends of your clamp do not depend on `bits`.
    one-side-only :: q.clamp(max=quant_max) :: You clamp from above only.
    one-side-only :: q.clamp(min=quant_min) :: You clamp from below only.
    wraps-around :: wrapped(q).clamp(quant_min, quant_max) :: You convert to 8 bits and then clamp. What did not fit has wrapped
        around by then: clamp first.
    wraps-around :: wrapped(q) :: What does not fit wraps around when you convert it to 8 bits: clamp first.
    dequantized :: (q.clamp(quant_min, quant_max) - zero_point) * scale :: You return floats that were rounded. Return the
        integers; the way back is `dequantize`.
whole answer
    clamped-before-rounding :: clamped_floats :: You clamp the floats to the range. Its ends may lie halfway between two
        integers and be rounded to one outside: clamp the integers.
    clamped-before-rounding :: lambda x, low, high, bits: right(x.clamp(low, high), low, high, bits) :: You clamp x to low and
        high as they are given; the range was extended to 0. Clamp the integers instead.
""",
    wrap=_part(0),
    WHICH="x · (1 / scale) in float32 and x / scale sometimes round differently. Multiply by the reciprocal, as torch does.",
    ENDS="Clamp to quant_min and quant_max: -2^(bits-1) and 2^(bits-1) - 1.",
)


def _given(seed: int, low: float, high: float, bits: int, wide: float, *shape: int) -> Given:
    x = wide * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return x, torch.tensor(low), torch.tensor(high), bits


def _cases() -> dict[str, Given]:
    ends = torch.tensor(-3.0625), torch.tensor(12.875)  # a scale of 1/16, and an odd zero point
    halves = (torch.arange(-90, 260, 7) + 0.5) / 16
    decimals = torch.tensor([1.55, 2.35, 4.95, 5.95, 8.15, -0.3, 2.0])  # the range's scale is 0.1
    return {
        "8 bits from -1 to 2.2": _given(0, -1.0, 2.2, 8, 1.5, 40),
        "4 bits from -2.7 to 0.6": _given(1, -2.7, 0.6, 4, 2.0, 5, 8),
        "2 bits from -1 to 1.3": _given(2, -1.0, 1.3, 2, 1.0, 12),
        "11 bits from -1 to 3": _given(6, -1.0, 3.0, 11, 2.0, 30),
        "8 bits from 0.5 to 6, a range without 0": _given(3, 0.5, 6.0, 8, 4.0, 20),
        "5 bits from -4 to -1, a range without 0": _given(4, -4.0, -1.0, 5, 3.0, 20),
        "8 bits from -0.0001 to 0.0002": _given(5, -1e-4, 2e-4, 8, 1e-4, 20),
        "4 bits from -7.5 to 7.5, both ends halfway between two integers": _given(4, -7.5, 7.5, 4, 7.0, 20),
        "values halfway between two integers": (halves, *ends, 8),
        "decimals, with a scale of 0.1": (decimals, torch.tensor(-10.5), torch.tensor(15.0), 8),
    }


@exercise("quantize-affine", notebook="16_quantization", takes="x, low, high, bits", returns=(tensor(), object, object))
def judge_quantize_affine(answer: Callable) -> None:
    """(q, scale, zero_point) for signed integers, in torch's arithmetic; low and high are tensors with one number."""
    stages = (("scale", 1, SCALES), ("zero point", 2, ZEROS), ("integers", 0, INTEGERS))
    for name, index, rubric in stages:  # a wrong scale makes the rest wrong too: explain that first
        cases = {f"{name} of {case}": given for case, given in _cases().items()}
        rubric.expect(answer, cases, but=("mixed",), explain=lambda *_, k=index: _explain(answer, k))
    if _is_borrowed(answer, _cases()["2 bits from -1 to 1.3"]):
        raise Mistake("borrowed", "The numbers are right, but another function found them. Write the arithmetic yourself.")


def _explain(answer: Callable, index: int) -> None:
    """Raise the Mistake that says which property is missing, where no known mistake gives the number."""
    for case, given in _cases().items():
        q, scale, zero_point = (numbers(part) for part in _three(answer, given))
        wanted = right(*given)
        if same(scale, wanted[2]) and same(zero_point, wanted[1]):
            raise Mistake("other-order", "Return q first, then the scale, then the zero point.")
        low, high = ends_of(given[-1])
        if index == 1 and scale is not None and scale.ndim == 0 and not same(scale, wanted[1]):
            steps = 2 ** given[-1] - 1
            hint = (
                f"For {case} {steps} of your steps are {steps * scale:.5g} long, and the range is {steps * wanted[1]:.5g} wide."
            )
            raise Mistake("steps-too-long" if scale > wanted[1] else "steps-too-short", hint)
        if index == 2 and zero_point is not None and zero_point.numel() == 1:
            if zero_point != zero_point.round():
                raise Mistake("not-an-integer", f"For {case} your zero point is {zero_point:.6g}: it has to be an integer.")
            if not low <= zero_point.item() <= high:  # an int8 would be compared with what is left of −1024 in 8 bits
                hint = f"For {case} your zero point is {zero_point:.6g}; the integers go from {low} to {high}."
                raise Mistake("zero-point-outside", hint)
        if index != 0 or q is None or q.shape != wanted[0].shape or same(q, wanted[0]):
            continue
        if (q != q.round()).any():
            raise Mistake("not-integers", f"For {case} the q that you return has fractions.")
        if (found := (q < low) | (q > high)).any():
            hint = f"For {case} your q goes from {q.min():.6g} to {q.max():.6g}; the integers go from {low} to {high}."
            raise Mistake("not-clamped", hint)
        found = q != wanted[0]
        if not (found & (_inside(*given[:3]) == given[0])).any():
            raise Mistake(
                "clamped-wrongly", f"For {case} only values outside the range are wrong: which integer do they become?"
            )
        if ((q - wanted[0]).abs() <= 1).all():
            v = (given[0] * (1 / scale))[found][0]
            hint = (
                f"For {case} {int(found.sum())} of {q.numel()} integers are one step off, the first where x · (1 / scale) is "
            )
            hint += f"{v:.7g} and the zero point {zero_point:g}: yours is {q[found][0]:g}. Round to the nearest, and then add."
            raise Mistake("rounded-differently", hint)


def _is_borrowed(answer: Callable, given: Given) -> bool:
    """True if a function for quantization of torch's or of the package's computes any part of the answer."""
    found = []

    def called(frame: Any, event: str, function: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and (path == affine.__file__ or "/ao/quantization/" in path.replace("\\", "/")):  # Windows has \\
            found.append(frame)
        elif event == "c_call" and "quantize" in getattr(function, "__name__", ""):
            found.append(function)

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        answer(*(part.clone() if isinstance(part, Tensor) else part for part in given))
    finally:
        sys.setprofile(before)
    return bool(found)


def _three(answer: Callable, given: Given) -> tuple[Any, Any, Any]:
    """What the answer returns, if that is integers, a scale and a zero point."""
    shape, new = tuple(given[0].shape), answer(*given)
    if new is None:
        raise Mistake("returns-nothing", "Your function returns None: return q, scale, zero_point.")
    if not isinstance(new, tuple | list) or len(new) != 3:
        raise Mistake("not-three", f"Return three things: q, scale, zero_point. Yours is {shown(new)}.")
    shapes = [None if (found := numbers(part)) is None else tuple(found.shape) for part in new]
    if shapes[0] != shape and shape in shapes:
        raise Mistake("other-order", "Return q first, then the scale, then the zero point.")
    scale, zero_point = (part.reshape(()) if isinstance(part, Tensor) and part.numel() == 1 else part for part in new[1:])
    return new[0], scale, zero_point
