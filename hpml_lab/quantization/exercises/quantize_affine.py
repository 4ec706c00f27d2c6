"""quantize-affine: a scale, a zero point, and the integers of a tensor."""

import sys
from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.same import numbers, same, shown
from hpml_lab.quantization.exercises.affine_mistakes import (
    INTEGERS,
    SCALES,
    ZEROS,
    Given,
    Tensor,
    ends_of,
    inside,
    right_integers,
    right_scale,
    right_zero,
)
from hpml_lab.quantization.lessons import affine


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
        "8 bits from 0.5 to 6, a range without 0": _given(3, 0.5, 6.0, 8, 4.0, 20),
        "5 bits from -4 to -1, a range without 0": _given(4, -4.0, -1.0, 5, 3.0, 20),
        "8 bits from -0.0001 to 0.0002": _given(5, -1e-4, 2e-4, 8, 1e-4, 20),
        "4 bits from -7.5 to 7.5, both ends halfway between two integers": _given(4, -7.5, 7.5, 4, 7.0, 20),
        "values halfway between two integers": (halves, *ends, 8),
        "decimals, with a scale of 0.1": (decimals, torch.tensor(-10.5), torch.tensor(15.0), 8),
    }


@exercise("quantize-affine", notebook="16_quantization")
def judge_quantize_affine(answer: Callable) -> None:
    """(q, scale, zero_point) for signed integers, in torch's arithmetic; low and high are tensors with one number."""
    stages = (
        ("scale", 1, right_scale, SCALES),
        ("zero point", 2, right_zero, ZEROS),
        ("integers", 0, right_integers, INTEGERS),
    )
    for name, index, right, mistakes in stages:  # a wrong scale makes the rest wrong too: explain that first
        cases = {f"{name} of {case}": given for case, given in _cases().items()}
        try:
            expect_function(lambda *given, k=index: _three(answer, given)[k], right, cases, mistakes=mistakes)
        except Mistake as mistake:
            if mistake.name in ("wrong-value", "wrong-type", "wrong-shape"):
                _explain(answer, index)
            raise
    if _is_borrowed(answer, _cases()["2 bits from -1 to 1.3"]):
        raise Mistake("borrowed", "The numbers are right, but another function found them. Write the arithmetic yourself.")


def _explain(answer: Callable, index: int) -> None:
    """Raise the Mistake that says which property is missing, where no known mistake gives the number."""
    for case, given in _cases().items():
        q, scale, zero_point = (numbers(part) for part in _three(answer, given))
        wanted = right_integers(*given), right_scale(*given), right_zero(*given)
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
            if not low <= zero_point <= high:
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
        if not (found & (inside(*given) == given[0])).any():
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
        if event == "call" and (frame.f_code.co_filename == affine.__file__ or "/ao/quantization/" in frame.f_code.co_filename):
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
