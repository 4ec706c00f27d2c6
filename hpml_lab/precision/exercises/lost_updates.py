"""Whether weight + update is the weight again in a 16-bit format, for weights and updates around the limit."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.precision.lessons.formats import BF16, FP16, FP32, Format, is_lost
from hpml_lab.precision.tools.autocast import DtypeRecorder

Rule = Callable[[Format, float, float], bool]
# (format, weight, update): half the spacing and the numbers next to it, from even and odd weights; small and large weights.
CASES: list[tuple[Format, float, float]] = [
    (form, weight, form.spacing(weight) * part)
    for form in (FP16, BF16)
    for weight in (1.0, 1 + form.eps, 2 - 2 * form.eps, 96.0, 2.0**-9, 2.0**-12 * (1 + form.eps))
    for part in (2.0**-6, 0.5 - form.eps / 4, 0.5, 0.5 + form.eps / 2, 0.9375, 1.0, 1.5)
    if form.spacing(weight) * part in form.values()  # so that adding in the format gives the same answer
] + [(FP16, 2.0**-20, 2.0**-24), (FP16, 3 * 2.0**-24, 2.0**-24)]
# Below fp16's normal numbers, not below bf16's; math.log(2.0**-29) / math.log(2) rounds to less than -29.
CASES += [(BF16, 2.0**-29, 2.0**-power) for power in (35, 36, 37, 38)]


def right(form: Format, weight: float, update: float) -> bool:
    return bool(is_lost(torch.tensor([weight]).double(), torch.tensor([update]).double(), form))


def is_tie(form: Format, weight: float, update: float) -> bool:
    return update == form.spacing(weight) / 2


def below(limit: Callable[[Format, float], float]) -> list[Rule]:
    """The updates below a limit are lost, and so are those at it, or not."""
    return [lambda f, w, u: u < limit(f, w), lambda f, w, u: u <= limit(f, w)]


def with_gap(gap: Callable[[Format, float], float]) -> list[Rule]:
    """The right rule and the two that treat all ties alike, with another distance to the next number."""
    even: Rule = lambda f, w, u: u < gap(f, w) / 2 or u == gap(f, w) / 2 and w / gap(f, w) % 2 == 0  # noqa: E731
    return [even, *below(lambda f, w: gap(f, w) / 2)]


def of_format(fixed: Format) -> Rule:
    return lambda f, w, u: right(fixed, w, u)


MISTAKES: dict[str, tuple[list[Rule], str]] = {
    "always-the-same": (
        [lambda f, w, u: True, lambda f, w, u: False],
        "Your answer is the same for every weight and update, the smallest and the largest.",
    ),
    "upside-down": ([lambda f, w, u: not right(f, w, u)], "True means lost: your answers are the other way round."),
    "tie-always-kept": ([lambda f, w, u: u < f.spacing(w) / 2], "Exactly halfway rounds to the even neighbor: 1 stays 1."),
    "tie-always-lost": ([lambda f, w, u: u <= f.spacing(w) / 2], "Exactly halfway rounds to the even one: odd weights change."),
    "tie-odd-and-even-swapped": (
        [lambda f, w, u: right(f, w, u) != is_tie(f, w, u)],
        "Exactly halfway, an even weight stays and an odd one changes: yours do the opposite.",
    ),
    "eps-not-spacing": (below(lambda f, w: f.eps / 2), "eps is the spacing only at 1. It doubles at each power of two."),
    "eps-and-half-forgotten": (below(lambda f, w: f.eps), "eps is the spacing only at 1, and half of it is enough."),
    "half-forgotten": (below(lambda f, w: f.spacing(w)), "Half the spacing is enough: rounding goes to the nearest number."),
    "quarter": (below(lambda f, w: f.spacing(w) / 4), "A quarter of the spacing is the limit in your answer; it is half."),
    "tiny-not-spacing": (
        [rule for part in (1, 2) for rule in below(lambda f, w, part=part: f.smallest_normal / part)],
        "finfo.tiny is the smallest normal number, not a spacing.",
    ),
    "relative-to-the-weight": (
        [rule for part in (1, 2) for rule in below(lambda f, w, part=part: f.eps * w / part)],
        "The spacing is constant from one power of two to the next; yours grows with the weight.",
    ),
    "power-not-rounded-down": (
        [
            rule
            for power in (math.ceil, round)
            for rule in with_gap(lambda f, w, power=power: f.eps * 2.0 ** power(math.log2(max(w, f.smallest_normal))))
        ],
        "Between two powers of two the smaller one decides the spacing: round log2 down.",
    ),
    "log-not-exact": (
        with_gap(lambda f, w: f.eps * 2.0 ** math.floor(math.log(max(w, f.smallest_normal)) / math.log(2))),
        "A quotient of two logarithms may lie just below a whole number, which floor takes one down: take math.log2.",
    ),
    "spacing-below": (
        with_gap(lambda f, w: f.spacing(w) / (2 if math.frexp(w)[0] == 0.5 else 1)),
        "You took the distance to the number below. The update is positive, and just below a power of two numbers are closer.",
    ),
    "smallest-normal-of-fp16": (
        with_gap(lambda f, w: f.eps * 2.0 ** math.floor(math.log2(max(w, FP16.smallest_normal)))),
        "Below 2⁻¹⁴ the spacing of fp16 stays the same, but not that of bf16: take smallest_normal from torch.finfo(dtype).",
    ),
    "spacing-never-below-tiny": (
        with_gap(lambda f, w: max(f.spacing(w), f.smallest_normal)),
        "smallest_normal limits the weight, not the spacing: for weights below it the spacing is smallest_normal times eps.",
    ),
    "dtype-ignored": (
        [of_format(form) for form in (FP16, BF16, FP32)],
        "Your answers are those of one format, whatever dtype is: take eps and smallest_normal from torch.finfo(dtype).",
    ),
}


def answers(rule: Rule) -> list[bool]:
    return [bool(rule(*case)) for case in CASES]


def is_truth_value(value: Any) -> bool:
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.dtype in (torch.bool, np.dtype(bool)) and math.prod(value.shape) == 1
    return isinstance(value, bool | np.bool_) or (isinstance(value, int | np.integer) and value in (0, 1))


@exercise("lost-updates", notebook="12_precision")
def judge_lost_updates(answer: Callable[[float, float, torch.dtype], Any]) -> None:
    """Whether weight + update is the weight again in a 16-bit format, for weights and updates around the limit."""
    with DtypeRecorder() as recorder:
        given = [answer(weight, update, form.dtype) for form, weight, update in CASES]
    if any(value is None for value in given):
        raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
    if not all(map(is_truth_value, given)):
        raise Mistake("not-a-truth-value", "Return True or False.")
    given, wanted = [bool(value) for value in given], answers(right)
    if given == wanted:
        if any(name in ("add", "add_") and dtype.itemsize == 2 for name, dtype in recorder.seen):
            hint = "All answers are right, but torch found them by adding in the format. Compute them from the spacing."
            raise Mistake("added-in-the-format", hint)
        return
    for name, (rules, hint) in MISTAKES.items():
        if any(given == answers(rule) for rule in rules):
            raise Mistake(name, hint)
    wrong = [case for case, got, lost in zip(CASES, given, wanted, strict=True) if got != lost]
    form, weight, update = wrong[0]
    result = "lost" if right(*wrong[0]) else "not lost"
    if all(is_tie(*case) for case in wrong):
        hint = (
            f"Only ties are wrong: {weight!r} + {update:g} in {form.name} is exactly halfway and {result}. Is the weight even?"
        )
        raise Mistake("tie-by-another-number", hint)
    raise Mistake("wrong-value", f"{weight!r} + {update:g} in {form.name} is {result}; your answer is the opposite.")
