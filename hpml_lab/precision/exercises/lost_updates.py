"""Whether weight + update is the weight again in a 16-bit format, for weights and updates around the limit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hpml_lab.core.exercises import Mistake, exercise
from hpml_lab.precision.formats import BF16, FP16, Format, is_lost

# (format, weight, update): just below half the spacing, at it from even and odd weights, above it; small and large weights.
CASES: list[tuple[Format, float, float]] = [
    (form, weight, form.spacing(weight) * part)
    for form in (FP16, BF16)
    for weight in (1.0, 1 + form.eps, 1.875, 96.0, 2.0**-9, 2.0**-12 * (1 + form.eps))
    for part in (2.0**-6, 0.46875, 0.5, 0.53125, 0.9375, 1.0)
    if form.spacing(weight) * part in form.values()  # so that adding in the format gives the same answer
] + [(FP16, 2.0**-20, 2.0**-24), (FP16, 3 * 2.0**-24, 2.0**-24)]


def right(form: Format, weight: float, update: float) -> bool:
    return bool(is_lost(torch.tensor([weight]).double(), torch.tensor([update]).double(), form))


MISTAKES: dict[str, tuple[Callable[[Format, float, float], bool], str]] = {
    "eps-not-spacing": (lambda f, w, u: u < f.eps / 2, "eps is the spacing only at 1. It doubles at each power of two."),
    "eps-and-half-forgotten": (lambda f, w, u: u < f.eps, "eps is the spacing only at 1, and half of it is enough."),
    "half-forgotten": (lambda f, w, u: u < f.spacing(w), "Half the spacing is enough: rounding goes to the nearest number."),
    "tie-always-kept": (lambda f, w, u: u < f.spacing(w) / 2, "Exactly halfway rounds to the even neighbor: 1 stays 1."),
    "tie-always-lost": (lambda f, w, u: u <= f.spacing(w) / 2, "Exactly halfway rounds to the even one: odd weights change."),
    "tiny-not-spacing": (lambda f, w, u: u < f.smallest_normal, "finfo.tiny is the smallest normal number, not a spacing."),
    "relative-to-the-weight": (lambda f, w, u: u < f.eps * w / 2, "The spacing is constant from one power of two to the next."),
    "upside-down": (lambda f, w, u: not right(f, w, u), "True means lost: your answers are the other way round."),
}


def answers(rule: Callable[[Format, float, float], bool]) -> list[bool]:
    return [bool(rule(*case)) for case in CASES]


@exercise("lost-updates", notebook="11_precision")
def judge_lost_updates(answer: Callable[[float, float, torch.dtype], Any]) -> None:
    """Whether weight + update is the weight again in a 16-bit format, for weights and updates around the limit."""
    given = [answer(weight, update, form.dtype) for form, weight, update in CASES]
    if any(value is None for value in given):
        raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
    truth = (bool, np.bool_)
    if not all(isinstance(v, truth) or isinstance(v, torch.Tensor) and v.dtype == torch.bool for v in given):
        raise Mistake("not-a-truth-value", "Return True or False.")
    given, wanted = [bool(value) for value in given], answers(right)
    if given == wanted:
        return
    for name, (rule, hint) in MISTAKES.items():
        if given == answers(rule):
            raise Mistake(name, hint)
    (form, weight, update), lost = next((c, w) for c, g, w in zip(CASES, given, wanted, strict=True) if g != w)
    result = "lost" if lost else "not lost"
    raise Mistake("wrong-value", f"{weight:g} + {update:g} in {form.name} is {result}; your answer is the opposite.")
