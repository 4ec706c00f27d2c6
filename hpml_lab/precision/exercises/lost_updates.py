"""Whether weight + update is the weight again in a 16-bit format, for weights and updates around the limit."""

import math
from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.precision.lessons.formats import BF16, FP16, Format
from hpml_lab.precision.tools.autocast import DtypeRecorder

Rule = Callable[[float, float, torch.dtype], Any]
# (format, weight, update): half the spacing and the numbers next to it, from even and odd weights; small and large weights.
POINTS: list[tuple[Format, float, float]] = [
    (form, weight, form.spacing(weight) * part)
    for form in (FP16, BF16)
    for weight in (1.0, 1 + form.eps, 2 - 2 * form.eps, 96.0, 2.0**-9, 2.0**-12 * (1 + form.eps))
    for part in (2.0**-6, 0.5 - form.eps / 4, 0.5, 0.5 + form.eps / 2, 0.9375, 1.0, 1.5)
    if form.spacing(weight) * part in form.values()  # so that adding in the format gives the same answer
] + [(FP16, 2.0**-20, 2.0**-24), (FP16, 3 * 2.0**-24, 2.0**-24)]
# Below fp16's normal numbers, not below bf16's; math.log(2.0**-29) / math.log(2) rounds to less than -29.
POINTS += [(BF16, 2.0**-29, 2.0**-power) for power in (35, 36, 37, 38)]


def right(weight: float, update: float, dtype: torch.dtype) -> bool:
    info = torch.finfo(dtype)
    normal = max(weight, info.smallest_normal)
    spacing = info.eps * 2.0 ** math.floor(math.log2(normal))
    limit = spacing / 2
    tie_is_lost = weight / spacing % 2 == 0
    return update < limit or update == limit and tie_is_lost


RUBRIC = Rubric(
    right,
    """
spacing / 2
    half-forgotten :: spacing :: Half the spacing is enough: rounding goes to the nearest number.
    quarter :: spacing / 4 :: A quarter of the spacing is the limit in your answer; it is half.
    eps-not-spacing :: info.eps / 2 :: eps is the spacing only at 1. It doubles at each power of two.
    eps-and-half-forgotten :: info.eps :: eps is the spacing only at 1, and half of it is enough.
    tiny-not-spacing :: info.tiny :: finfo.tiny is the smallest normal number, not a spacing.
    tiny-not-spacing :: info.tiny / 2 :: finfo.tiny is the smallest normal number, not a spacing.
    relative-to-the-weight :: info.eps * weight :: $GROWS
    relative-to-the-weight :: info.eps * weight / 2 :: $GROWS
weight / spacing % 2 == 0
    tie-always-kept :: False :: Exactly halfway rounds to the even neighbor: 1 stays 1.
    tie-always-lost :: True :: Exactly halfway rounds to the even one: odd weights change.
    tie-odd-and-even-swapped :: weight / spacing % 2 == 1 :: Exactly halfway, an even weight stays and an odd one changes: yours
        do the opposite.
info.eps * 2.0 ** math.floor(math.log2(normal))
    power-not-rounded-down :: info.eps * 2.0 ** math.ceil(math.log2(normal)) :: $DOWN
    power-not-rounded-down :: info.eps * 2.0 ** round(math.log2(normal)) :: $DOWN
    spacing-below :: info.eps * 2.0 ** (math.ceil(math.log2(normal)) - 1) :: You took the distance to the number below. The
        update is positive, and just below a power of two numbers are closer.
whole answer
    always-the-same :: lambda *given: True :: $SAME
    always-the-same :: lambda *given: False :: $SAME
    upside-down :: lambda *given: not right(*given) :: True means lost: your answers are the other way round.
    dtype-ignored :: lambda weight, update, dtype: right(weight, update, torch.float16) :: $FORMAT
    dtype-ignored :: lambda weight, update, dtype: right(weight, update, torch.bfloat16) :: $FORMAT
""",
    DOWN="Between two powers of two the smaller one decides the spacing: round log2 down.",
    GROWS="The spacing is constant from one power of two to the next; yours grows with the weight.",
    SAME="Your answer is the same for every weight and update, the smallest and the largest.",
    FORMAT="Your answers are those of one format, whatever dtype is: take eps and smallest_normal from torch.finfo(dtype).",
)


def in_words(form: Format, weight: float, update: float) -> str:
    halfway = f", {HALFWAY}," if update == form.spacing(weight) / 2 else ""
    return f"{weight!r} + {update:g} in {form.name}{halfway}"


HALFWAY = "exactly halfway"
CASES = {in_words(form, weight, update): (weight, update, form.dtype) for form, weight, update in POINTS}


@exercise("lost-updates", notebook="12_precision", takes="weight, update, dtype", returns=bool)
def judge_lost_updates(answer: Rule) -> None:
    RUBRIC.expect(answer, CASES, explain=_explain_ties)
    with DtypeRecorder() as recorder:
        for given in CASES.values():
            answer(*given)
    if any(name in ("add", "add_") and dtype.itemsize == 2 for name, dtype in recorder.seen):
        hint = "All answers are right, but torch found them by adding in the format. Compute them from the spacing."
        raise Mistake("added-in-the-format", hint)


def _explain_ties(_: Rule, judged: list[Judged]) -> None:
    wrong = [row for row in judged if row.got != row.wanted]
    if wrong and all(HALFWAY in row.case for row in wrong):
        result = "lost" if wrong[0].wanted else "not lost"
        raise Mistake("tie-by-another-number", f"Only ties are wrong: {wrong[0].case} is {result}. Is the weight even?")
