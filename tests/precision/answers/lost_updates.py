"""Answers to `lost-updates`: half the spacing at the weight, ties to the even neighbor."""

import math

import torch
from edited_source import wrong_answers


def solution(weight, update, dtype):
    import math

    info = torch.finfo(dtype)
    power = math.floor(math.log2(max(weight, info.smallest_normal)))
    spacing = info.eps * 2.0**power
    odd = (weight / spacing) % 2 == 1
    return update < spacing / 2 if odd else update <= spacing / 2


def spacing(weight, dtype):
    info = torch.finfo(dtype)
    return info.eps * 2.0 ** math.floor(math.log2(max(weight, info.smallest_normal)))


def added(weight, update, dtype):
    weight, update = torch.tensor(weight, dtype=dtype), torch.tensor(update, dtype=dtype)
    return bool(weight + update == weight)


def added_in_place(weight, update, dtype):
    before = torch.tensor(weight, dtype=dtype)
    after = before.clone()
    after += update
    return torch.equal(before, after)


def double_spacing(weight, update, dtype):
    return update < math.ulp(weight) / 2


def spacing_below(weight, update, dtype):
    below = torch.nextafter(torch.tensor(weight, dtype=dtype), torch.zeros((), dtype=dtype)).item()
    half = (weight - below) / 2
    return update < half or update == half and (weight / (2 * half)) % 2 == 0


def about_half(weight, update, dtype):
    half = spacing(weight, dtype) / 2
    return update <= half * 1.001 if weight / spacing(weight, dtype) % 2 == 0 else update < half


LOG = "math.floor(math.log2(max(weight, info.smallest_normal)))"
ODD = "(weight / spacing) % 2 == 1"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("wrong-value", ("math.floor", "int")),
            ("wrong-value", (LOG, LOG.replace("))", ")) + 0.01"))),
            ("tie-by-another-number", (ODD, "int(weight) % 2 == 1")),
            ("tie-by-another-number", (ODD, "(weight / spacing) % 4 != 0")),
        ],
    ),
    ("eps-not-spacing", lambda weight, update, dtype: update <= torch.finfo(dtype).eps / 2),
    ("half-forgotten", lambda weight, update, dtype: update <= spacing(weight, dtype)),
    ("relative-to-the-weight", lambda weight, update, dtype: update <= torch.finfo(dtype).eps * weight / 2),
    ("upside-down", lambda weight, update, dtype: torch.tensor(weight, dtype=dtype) + update != weight),
    ("argument-ignored", lambda weight, update, dtype: weight == 1.0),
    ("wrong-value", lambda weight, update, dtype: weight == 1 and update <= 2**-11),
    ("added-in-the-format", added),
    ("added-in-the-format", added_in_place),
    ("always-the-same", double_spacing),
    ("spacing-below", spacing_below),
    ("wrong-value", about_half),
]


def in_fractions(weight, update, dtype):
    from fractions import Fraction

    gap = Fraction(spacing(weight, dtype))
    steps = Fraction(weight) / gap
    return Fraction(update) < gap / 2 or (Fraction(update) == gap / 2 and steps % 2 == 0)


def by_pythons_rounding(weight, update, dtype):
    gap = spacing(weight, dtype)
    return round((weight + update) / gap) == round(weight / gap)


def by_the_next_number(weight, update, dtype):
    here = torch.tensor(weight, dtype=dtype)
    gap = torch.nextafter(here, torch.tensor(math.inf, dtype=dtype)).double() - here.double()
    even = here.view(torch.int16) % 2 == 0
    return (update < gap / 2) | ((update == gap / 2) & even)


def in_numpy(weight, update, dtype):
    import numpy as np

    info = torch.finfo(dtype)
    gap = np.float64(info.eps) * np.exp2(np.floor(np.log2(np.maximum(weight, info.smallest_normal))))
    return np.logical_or(update < gap / 2, np.logical_and(update == gap / 2, np.mod(weight / gap, 2) == 0))


def unclamped(weight, update, dtype):
    _, power = math.frexp(weight)
    half = math.ldexp(torch.finfo(dtype).eps, power - 2)
    return update < half or (update == half and (weight / half / 2).is_integer() and int(weight / half / 2) % 2 == 0)


def distance_to_both(weight, update, dtype):
    gap = spacing(weight, dtype)
    below, above = update, gap - update
    return below < above if below != above else (weight // gap) % 2 == 0


ALSO_RIGHT = [
    in_fractions,
    by_pythons_rounding,
    by_the_next_number,
    in_numpy,
    unclamped,
    distance_to_both,
    # at the sum: the update at which that has a larger spacing is not lost in either case
    lambda weight, update, dtype: (
        update < spacing(weight + update, dtype) / 2
        or (update == spacing(weight + update, dtype) / 2 and weight / spacing(weight + update, dtype) % 2 == 0)
    ),
]
