"""quantize-affine: a scale, a zero point, and the integers of a tensor."""

import sys
from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.core.judge.declared import tensor
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.same import numbers, same
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


def _part(k: int) -> Callable:
    return lambda answer: lambda *given: _three(answer, given)[k]


SCALES = Rubric(
    right,
    """
width / (2**bits - 1)
    symmetric :: torch.maximum(-l, h) / quant_max :: $SYMMETRIC
    off-by-one :: width / 2**bits :: $FEWER
    off-by-one :: width / (2**bits - 2) :: $FEWER
    not-a-power :: width / (2 * (2 ^ (bits - 1)) - 1) :: $XOR
    not-a-power :: width / ((2 ^ bits) - 1) :: $XOR
    inverted :: (2**bits - 1) / width :: That is the number of steps in a range of 1. The scale is the length of one step.
h - l
    symmetric :: 2 * torch.maximum(-l, h) :: $SYMMETRIC
low.clamp(max=0), high.clamp(min=0)
    zero-outside :: low.clamp(max=0), high :: You extend the range at its lower end only. Where high < 0, 0 lies outside, too.
""",
    wrap=_part(1),
    SYMMETRIC="The range goes from low to high. As wide on both sides of 0, it would be the symmetric scheme.",
    FEWER="2^bits integers have one step fewer between them: how many steps lead from quant_min to quant_max?",
    XOR="In Python 2 ^ bits is the exclusive or of two integers; the power is 2**bits.",
)
ZEROS = Rubric(
    right,
    """
zero_point = quant_min - torch.round(l / scale)
    from-the-middle :: zero_point = -torch.round((l + h) / 2 / scale) :: $MIDDLE
    from-the-middle :: zero_point = -torch.round((l + h) / 2 / scale).clamp(-quant_max, -quant_min) :: $MIDDLE
    truncated :: zero_point = (quant_min - l / scale).trunc() :: $NEAREST
torch.round(l / scale)
    truncated :: torch.trunc(l / scale) :: $NEAREST
    truncated :: torch.floor(l / scale) :: $NEAREST
    truncated :: torch.ceil(l / scale) :: $NEAREST
""",
    wrap=_part(2),
    MIDDLE="Your zero point lets the middle of the range become 0. The middle of the integers is −½: begin at low, not there.",
    NEAREST="The zero point is rounded to the nearest integer; yours is cut off.",
)
INTEGERS = Rubric(
    right,
    """
x * (1 / scale)
    divides :: x / scale :: $WHICH
    divides :: x.double() / scale.double() :: $WHICH
torch.round(v)
    halves-up :: torch.floor(v + 0.5) :: You round all halves up. torch.round takes the even neighbor: otherwise halves would be
        moved up on average.
torch.round(v) + zero_point
    zero-point-before-rounding :: torch.round(v + zero_point) :: Round before the zero point is added. If it is odd, halves
        would otherwise go to the other neighbor.
q.clamp(quant_min, quant_max)
    clamped-before-the-zero-point :: (q - zero_point).clamp(quant_min, quant_max) + zero_point :: The zero point, added after
        the clamp, would lead out of the range again: clamp last.
""",
    wrap=_part(0),
    WHICH="x · (1 / scale) in float32 and x / scale sometimes round differently. Multiply by the reciprocal, as torch does.",
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
        rubric.expect(answer, cases, but=("mixed", "dtype"), explain=lambda *_, k=index: _explain(answer, k))
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
        if index != 0 or q.shape != wanted[0].shape or same(q, wanted[0]):
            continue
        if not q.is_floating_point() and torch.iinfo(q.dtype).max < high:
            hint = f"For {case} the integers go from {low} to {high}; your q is {str(q.dtype)[6:]}, which cannot hold them."
            raise Mistake("dtype-too-short", hint)
        if (found := (q < low) | (q > high)).any():
            hint = f"For {case} your q goes from {q.min():.6g} to {q.max():.6g}; the integers go from {low} to {high}."
            raise Mistake("not-clamped", hint)
        found = q != wanted[0]
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
    new = answer(*given)
    if new[0].shape != given[0].shape and any(getattr(part, "shape", None) == given[0].shape for part in new):
        raise Mistake("other-order", "Return q first, then the scale, then the zero point.")
    scale, zero_point = (part.reshape(()) if isinstance(part, Tensor) and part.numel() == 1 else part for part in new[1:])
    return new[0], scale, zero_point
