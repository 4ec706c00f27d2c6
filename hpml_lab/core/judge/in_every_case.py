"""What all results of a wrong answer have in common: a factor, a sign, a size of an argument, a rounding, an argument ignored.

Only what is the same in every case is said, and the numbers alone tell it.
"""

import copy
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from hpml_lab.core.judge.asked import names_taken, value_or_error
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.same import numbers, same
from hpml_lab.core.judge.variations import mixed

# What a check can say of any answer that is wrong. What an exercise knows of its own numbers goes first.
OF_ANY = ("another-unit", "opposite-sign", "same-factor-off", "off-by-a-size", "all-rounded", "argument-ignored")
UNITS = {  # what an answer in another unit is multiplied by
    100.0: "percent for a fraction",
    0.01: "a fraction for percent",
    1e3: "ms for s",
    1e6: "µs for s",
    1e9: "ns for s",
    1e-3: "kB for bytes",
    1e-6: "MB for bytes",
    1e-9: "GB for bytes",
    2.0**-10: "KiB for bytes",
    2.0**-20: "MiB for bytes",
    2.0**-30: "GiB for bytes",
    8.0: "bits for bytes",
    0.125: "bytes for bits",
    1 / math.log(2): "log2 for ln",
    1 / math.log(10): "log10 for ln",
}


def expect_no_factor(
    got: Mapping[str, Any], wanted: Mapping[str, Any], cases: Mapping[str, tuple[Any, ...]], tolerance: float
) -> None:
    """Raise Mistake where all numbers of an answer are the right ones times a factor, or rounded."""
    pairs = {case: (numbers(got[case]), numbers(value)) for case, value in wanted.items()}
    if any(own is None or goal is None or own.shape != goal.shape for own, goal in pairs.values()):
        return
    given, right = ([pair[i].to(torch.float64).reshape(-1) for pair in pairs.values()] for i in (0, 1))
    own, goal = torch.cat(given), torch.cat(right)
    if len(goal[goal.isfinite()].unique()) < 2:  # one number can be a multiple of another by chance
        return

    def is_right_times(factors: list[float]) -> bool:
        multiples = torch.cat([factor * part for factor, part in zip(factors, right, strict=True)])
        return torch.allclose(own, multiples, rtol=tolerance, atol=0.0, equal_nan=True)

    for factor, example in UNITS.items():
        if is_right_times([factor] * len(right)):
            raise Mistake(
                "another-unit", f"In every case yours is {factor:.4g} times the right answer: a unit, such as {example}?"
            )
    whole = (own @ goal / (goal @ goal)).item()
    if math.isfinite(whole) and whole and abs(whole - 1) > 1e-4 and is_right_times([whole] * len(right)):
        if abs(whole + 1) < tolerance:
            raise Mistake("opposite-sign", "In every case yours is the right answer with the opposite sign.")
        raise Mistake("same-factor-off", f"In every case yours is {whole:.4g} times the right answer.")
    for (name, axis), sizes in _sizes(cases).items():
        for power, said in ((1, "as many times the right answer as"), (-1, "the right answer divided by how many")):
            if len(set(sizes)) > 1 and all(sizes) and is_right_times([size**power for size in sizes]):
                hint = f"In every case yours is {said} `{name}` has {'items' if axis is None else f'places along axis {axis}'}."
                raise Mistake("off-by-a-size", f"{hint} A sum and a mean differ by that.")
    for digits in range(1, 7):
        short = goal.round(decimals=digits)
        if torch.allclose(own, short, rtol=1e-7, atol=1e-12, equal_nan=True) and not same(goal, short, 1e-7):
            raise Mistake(
                "all-rounded", f"In every case yours is the right answer rounded to {digits} places: do not round it."
            )


def _sizes(cases: Mapping[str, tuple[Any, ...]]) -> dict[tuple[str, int | None], list[int]]:
    """{(argument, axis): its size in each case}; without an axis for lists."""
    found: dict[tuple[str, int | None], list[int]] = {}
    for arguments in cases.values():
        for name, value in zip(names_taken(), arguments, strict=False):
            shape = getattr(value, "shape", None)
            if shape is not None:
                sizes: list[tuple[int | None, int]] = list(enumerate(shape))
            else:
                sizes = [(None, len(value))] if isinstance(value, list | tuple) else []
            for axis, size in sizes:
                found.setdefault((name, axis), []).append(size)
    return {key: sizes for key, sizes in found.items() if len(sizes) == len(cases)}


def expect_no_argument_ignored(
    answer: Callable[..., Any],
    right: Callable[..., Any],
    cases: Mapping[str, tuple[Any, ...]],
    but: Collection[str],
    tolerance: float,
) -> None:
    """Raise Mistake if one argument changes nothing in what a wrong answer returns, though it should each time."""
    names = names_taken()
    if not names:
        return
    seen: dict[int, list[bool]] = {}
    for case, position, given in mixed(cases, names, but):
        results = [[value_or_error(f, copy.deepcopy(one)) for one in (cases[case], given)] for f in (right, answer)]
        if any(isinstance(result, Exception) for pair in results for result in pair):
            continue
        (wanted, other), (own, own_other) = results
        if not same(other, wanted, tolerance):
            seen.setdefault(position, []).append(same(own_other, own, 1e-12))
    for position, stays in seen.items():
        if len(stays) > 1 and all(stays):
            hint = f"Where only `{names[position]}` was another, yours stayed the same each time, and the right answer did not."
            raise Mistake("argument-ignored", hint)
