"""Answers to `lost-updates`: half the spacing at the weight, ties to the even neighbor."""

import math

import torch


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


WRONG = [
    ("eps-not-spacing", lambda weight, update, dtype: update < torch.finfo(dtype).eps / 2),
    ("eps-and-half-forgotten", lambda weight, update, dtype: update < torch.finfo(dtype).eps),
    ("half-forgotten", lambda weight, update, dtype: update < spacing(weight, dtype)),
    ("tie-always-kept", lambda weight, update, dtype: update < spacing(weight, dtype) / 2),
    ("tie-always-lost", lambda weight, update, dtype: update <= spacing(weight, dtype) / 2),
    ("tiny-not-spacing", lambda weight, update, dtype: update < torch.finfo(dtype).tiny),
    ("relative-to-the-weight", lambda weight, update, dtype: update < weight * torch.finfo(dtype).eps / 2),
    ("upside-down", lambda weight, update, dtype: torch.tensor(weight, dtype=dtype) + update != weight),
    ("always-the-same", lambda weight, update, dtype: False),
    ("not-a-truth-value", lambda weight, update, dtype: (torch.tensor(weight, dtype=dtype) + update).item()),
    ("returns-nothing", lambda weight, update, dtype: None),
]


# ---- more wrong answers, and right ones that compute in another way --------------------------------------------------------


def by_tie(odd_is_lost):
    def lost(weight, update, dtype):
        half = spacing(weight, dtype) / 2
        odd = (weight / spacing(weight, dtype)) % 2 == 1
        return update <= half if odd == odd_is_lost else update < half

    return lost


def with_power(power):
    def lost(weight, update, dtype):
        gap = torch.finfo(dtype).eps * 2.0 ** power(max(weight, torch.finfo(dtype).smallest_normal))
        return update < gap / 2 or update == gap / 2 and (weight / gap) % 2 == 0

    return lost


def of_one_format(fixed):
    return lambda weight, update, dtype: solution(weight, update, fixed)


def added(weight, update, dtype):
    weight, update = torch.tensor(weight, dtype=dtype), torch.tensor(update, dtype=dtype)
    return bool(weight + update == weight)


def added_in_place(weight, update, dtype):
    before = torch.tensor(weight, dtype=dtype)
    after = before.clone()
    after += update
    return torch.equal(before, after)


def tie_by_the_last_digit(weight, update, dtype):
    half = spacing(weight, dtype) / 2
    return update < half or update == half and int(weight) % 2 == 0


def double_spacing(weight, update, dtype):
    return update < math.ulp(weight) / 2


def spacing_below(weight, update, dtype):
    below = torch.nextafter(torch.tensor(weight, dtype=dtype), torch.zeros((), dtype=dtype)).item()
    half = (weight - below) / 2
    return update < half or update == half and (weight / (2 * half)) % 2 == 0


WRONG += [
    ("tie-odd-and-even-swapped", by_tie(odd_is_lost=True)),
    ("power-not-rounded-down", with_power(lambda weight: math.ceil(math.log2(weight)))),
    ("power-not-rounded-down", with_power(lambda weight: round(math.log2(weight)))),
    ("dtype-ignored", of_one_format(torch.float16)),
    ("dtype-ignored", of_one_format(torch.bfloat16)),
    ("always-the-same", of_one_format(torch.float32)),
    ("added-in-the-format", added),
    ("added-in-the-format", added_in_place),
    ("tie-by-another-number", tie_by_the_last_digit),
    ("relative-to-the-weight", lambda weight, update, dtype: update <= torch.finfo(dtype).eps * weight / 2),
    ("relative-to-the-weight", lambda weight, update, dtype: update / weight < torch.finfo(dtype).eps),
    ("eps-not-spacing", lambda weight, update, dtype: update <= torch.finfo(dtype).eps / 2),
    ("half-forgotten", lambda weight, update, dtype: update <= spacing(weight, dtype)),
    ("quarter", lambda weight, update, dtype: update < spacing(weight, dtype) / 4),
    ("always-the-same", double_spacing),
    ("spacing-below", spacing_below),
    ("upside-down", lambda weight, update, dtype: not solution(weight, update, dtype)),
    ("not-a-truth-value", lambda weight, update, dtype: "lost" if solution(weight, update, dtype) else "kept"),
    ("always-the-same", lambda weight, update, dtype: True),
    ("wrong-value", lambda weight, update, dtype: weight == 1.0),
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


ALSO_RIGHT = [in_fractions, by_pythons_rounding, by_the_next_number, in_numpy, unclamped, distance_to_both]


def fp16s_smallest_normal(weight, update, dtype):
    gap = 2.0 ** math.floor(math.log2(max(weight, 2.0**-14))) * torch.finfo(dtype).eps
    return update < gap / 2 or (update == gap / 2 and weight / gap % 2 == 0)


WRONG += [("smallest-normal-of-fp16", fp16s_smallest_normal)]
ALSO_RIGHT += [lambda *case: int(solution(*case))]


def about_half(weight, update, dtype):
    half = spacing(weight, dtype) / 2
    return update <= half * 1.001 if weight / spacing(weight, dtype) % 2 == 0 else update < half


WRONG += [
    ("log-not-exact", with_power(lambda weight: math.floor(math.log(weight) / math.log(2)))),
    ("wrong-value", with_power(lambda weight: int(math.log2(weight)))),
    ("wrong-value", about_half),
    ("wrong-value", lambda weight, update, dtype: weight == 1 and update <= 2**-11),
]
ALSO_RIGHT += [
    # at the sum: the update at which that has a larger spacing is not lost in either case
    lambda weight, update, dtype: (
        update < spacing(weight + update, dtype) / 2
        or (update == spacing(weight + update, dtype) / 2 and weight / spacing(weight + update, dtype) % 2 == 0)
    )
]

WRONG += [
    ("wrong-value", with_power(lambda weight: math.floor(math.log2(weight) + 0.01))),
    ("tie-by-another-number", lambda weight, update, dtype: lost_ties_of(weight, update, dtype, 4)),
]


def lost_ties_of(weight, update, dtype, multiple):
    half = spacing(weight, dtype) / 2
    return update < half or update == half and weight / spacing(weight, dtype) % multiple == 0


def spacing_at_least_tiny(weight, update, dtype):
    gap = max(spacing(weight, dtype), torch.finfo(dtype).smallest_normal)
    return update < gap / 2 or update == gap / 2 and weight / gap % 2 == 0


WRONG += [("spacing-never-below-tiny", spacing_at_least_tiny)]
