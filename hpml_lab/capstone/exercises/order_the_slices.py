"""order-the-slices: the slices of a CT series in the order of their positions along the normal, each position once."""

import contextlib
import copy
import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from hpml_lab.capstone.exercises import slice_series as ways
from hpml_lab.capstone.exercises.slice_series import SAME, Headers, along, cases
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import MORE, Judged, Rubric
from hpml_lab.core.judge.same import numbers


def right(headers: Headers) -> Any:
    keys = along(headers)
    kept = ways.first_of_each(headers)
    found = sorted(kept, key=lambda i: keys[i])
    return found


def main_axis(headers: Headers) -> tuple[int, float]:
    """The axis that is nearest to the normal, and the normal along it."""
    normal = np.cross(headers[0]["orientation"][:3], headers[0]["orientation"][3:])
    axis = int(np.abs(normal).argmax())
    return axis, float(normal[axis])


def numbers_in(name: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", name)]


def place(header: dict, first: int = 0, last: int = 6) -> float:
    """The position projected on a part of the orientation."""
    return float(np.dot(header["position"], header["orientation"][first:last]))


_KEYS = """
along(headers)
    by-name :: [h["name"] for h in headers] :: The files' names may be identifiers or come from a copy; the order is in the
        positions.
    by-name :: [numbers_in(h["name"]) for h in headers] :: You order by the number in the files' names; names may have been
        counted in any order.
    by-number :: [h["number"] for h in headers] :: You order by instance number: it says in which order slices were made or
        stored, from either end.
    by-z :: [h["position"][2] for h in headers] :: You order by z. That is right for an axial series alone. $NORMAL
    by-x :: [h["position"][0] for h in headers] :: You order by x. That is right for a sagittal series alone. $NORMAL
    by-y :: [h["position"][1] for h in headers] :: You order by y. That is right for a coronal series alone. $NORMAL
    by-z :: [-h["position"][2] for h in headers] :: You order by −z, which fits one kind of series. $NORMAL
    by-the-main-axis :: [h["position"][main_axis(headers)[0]] for h in headers] :: You take x, y or z, whichever is nearest to
        the normal: without its sign, and wrong for oblique series. $NORMAL
    by-the-main-axis :: [np.sign(main_axis(headers)[1]) * h["position"][main_axis(headers)[0]] for h in headers] :: You take x,
        y or z, whichever is nearest to the normal. In an oblique series that is not enough: project. $NORMAL
    by-position :: [tuple(h["position"]) for h in headers] :: You compare positions as triples: x decides, then y. $NORMAL
    by-position :: [tuple(h["position"])[::-1] for h in headers] :: You compare positions as triples: z decides, then y. $NORMAL
    by-distance :: [float(np.linalg.norm(h["position"])) for h in headers] :: A distance from the origin has no sign: slices on
        both sides of it are mixed. Project on the normal.
    by-distance :: [float(np.linalg.norm(np.subtract(h["position"], headers[0]["position"]))) for h in headers] :: The first
        slice of the list need not be at an end, and a distance has no sign. Project on the normal.
    size-of-the-projection :: [abs(position) for position in along(headers)] :: $SIZE
    along-the-rows :: [place(h, last=3) for h in headers] :: You project on the direction of the rows, in which slices do not
        differ. $NORMAL
    along-the-columns :: [place(h, first=3) for h in headers] :: You project on the direction of the columns, in which slices do
        not differ. $NORMAL
    orientation-in-turns :: along([{**h, "orientation": h["orientation"][::2] + h["orientation"][1::2]} for h in headers]) ::
        You take every other number of the orientation. The first three are the row's direction, the last three the column's.
    ordered-as-text :: [f"{position:.2f}" for position in along(headers)] :: You order texts: as texts, '10' is before '9', and
        '-2' after '-1'. Order numbers.
    not-ordered :: list(range(len(headers))) :: You keep the order of the list, which is any.
    sum-of-the-position :: [sum(h["position"]) for h in headers] :: The sum of x, y and z is the position along a diagonal of
        the room. $NORMAL
"""
_HINTS = dict(
    NORMAL="Slices are stacked along the normal of their plane: the cross product of the row's and the column's direction.",
    REPEATED="Two slices closer than 0.01 mm are the same slice twice, which a volume must not hold.",
    SIZE="You order by the projection's size: keep its sign, positions may be negative.",
)
RUBRIC = Rubric(
    right,
    _KEYS
    + """
ways.first_of_each(headers)
    duplicates-kept :: range(len(headers)) :: Two slices closer than 0.01 mm are the same slice twice, which a volume must not
        hold: keep one.
    last-duplicate :: ways.last_of_each(headers) :: Of a repeated slice the first in the list is kept; you keep the last.
    duplicates-dropped :: ways.none_of_repeated(headers) :: Of a repeated slice you keep none, which leaves a gap; keep the
        first in the list.
    duplicates-to-the-last-digit :: ways.first_of_rounded(headers, 9) :: Positions are written with a few decimals: a repeated
        slice may differ in the third. Compare with 0.01 mm.
    duplicates-by-rounding :: ways.first_of_rounded(headers, 2) :: Rounding divides the line into boxes, and two positions 0.004
        mm apart may fall into two of them.
    slices-lost :: ways.first_of_rounded(headers, 1) :: You round positions to 0.1 mm, and lose slices of a scanner that has
        finer ones. Rounding is no comparison.
    slices-lost :: ways.first_of_rounded(headers, 0) :: You round positions to whole millimeters, and lose slices that are half
        a millimeter apart.
    by-number-once :: ways.first_of_each_key([h["number"] for h in headers]) :: You keep one slice a number. Numbers may repeat
        in a series, and a repeated slice may have another number.
    by-z-once :: ways.first_of_each_key([h["position"][2] for h in headers]) :: You keep one slice a z. In a sagittal or coronal
        series all slices have the same.
    nearest-duplicate :: ways.first_in_order(headers, along(headers)) :: Of a repeated slice you keep the one that is lower;
        keep the one that is first in the list.
    nearest-duplicate :: ways.highest_of_each(headers) :: Of a repeated slice you keep the one that is higher; keep the one that
        is first in the list.
return found
    reversed :: return found[::-1] :: The normal is row × column, in this order, and positions along it grow.
    ranks :: return [found.index(i) for i in range(len(headers)) if i in found] :: You return each slice's place in the order;
        return which slice is at each place: the inverse permutation.
    indices-of-the-kept :: return [sorted(found).index(i) for i in found] :: You return indices into the list of those that you
        kept; return indices into the list that you were given.
    counted-from-1 :: return [i + 1 for i in found] :: Indices count from 0 in Python.
""",
    **_HINTS,
)


@exercise("order-the-slices", notebook="19_capstone", takes="headers", returns={int})
def judge_order_the_slices(answer: Callable) -> None:
    """Indices of the headers, by position along the normal, of a repeated slice the first alone."""
    series = cases()
    for given in series.values():
        handed = copy.deepcopy(given)
        with contextlib.suppress(Exception):  # what it is, the rubric says
            answer(*handed)
        if [header["name"] for header in handed[0]] != [header["name"] for header in given[0]]:
            hint = "Your function changes the list that it is given. Leave it as it is: the indices count in that list."
            raise Mistake("inputs-changed", hint)

    RUBRIC.expect(answer, series, explain=_explain)


_PLACES = {
    "a slice twice": "other-duplicate",
    "a slice twice, in numbers that round differently": "other-duplicate",
    "a slice twice in a sagittal series": "other-duplicate",
    "a tilted gantry": "not-the-normal",
    "an oblique series, shifted in its plane": "not-the-normal",
    "another oblique series, shifted in its plane": "not-the-normal",
    "a sagittal series": "not-the-normal",
    "a coronal series": "not-the-normal",
    "an axial series upside down": "not-the-normal",
    "slices 0.5 mm apart": "slices-lost",
    "slices 0.02 mm apart, far from 0": "slices-lost",
    "slices on both sides of 0": "size-of-the-projection",
}
_ALONE = {  # what is wrong alone, and the hint
    "other-duplicate": ("Only series with a repeated slice are wrong.", _HINTS["REPEATED"] + " Keep the first in the list."),
    "not-the-normal": ("Axial series are right, others are not.", _HINTS["NORMAL"]),
    "slices-lost": ("", "Slices may be half a millimeter apart, or less; only those closer than 0.01 mm are the same."),
    "size-of-the-projection": ("", _HINTS["SIZE"]),
}


def _explain(_: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that the wrong cases point to, or that says what of an order the answer lacks."""
    wrong, orders = [], []
    for case, (headers,), got, wanted in judged:
        values = numbers(got)
        if values is None or set(values.tolist()) - set(range(len(headers))):
            return
        values = values.tolist()
        orders.append((values, wanted))
        wrong += [case] if values != wanted else []
    # What it says of the slices that are to be kept, and whether others are among them.
    kept = [([i for i in values if i in wanted], wanted) for values, wanted in orders]
    more = MORE if any(len(values) > len(wanted) for values, wanted in orders) else ""
    if all(values == wanted for values, wanted in kept):
        raise Mistake("duplicates-kept", _HINTS["REPEATED"] + " You keep both.")
    whole = [(values, wanted) for values, wanted in orders if len(values) == len(wanted) > 1]
    for name, changed in (("reversed", lambda order: order[::-1]), ("ranks", _ranks)):
        if len(whole) > len(orders) / 2 and all(values == changed(wanted) for values, wanted in whole):
            hint = next(hint for known, _, hint in RUBRIC.single() if known == name)
            raise Mistake(name, f"{hint} {more}".strip())
    if wrong and all(case in _PLACES for case in wrong):
        alone, hint = _ALONE[_PLACES[wrong[0]]]
        only = len({_PLACES[case] for case in wrong}) == 1
        raise Mistake(_PLACES[wrong[0]], f"{alone} {hint}".strip() if only else f"{hint} {MORE}")
    for (case, (headers,), *_), (values, _) in zip(judged, orders, strict=True):
        places = [along(headers)[i] for i in values]
        if any(a > b + SAME for a, b in itertools.pairwise(places)):
            shown = ", ".join(f"{place:.4g}" for place in places)
            raise Mistake("not-in-order", f"For {case} your slices are at {shown} mm along the normal: these do not grow.")


def _ranks(order: list[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__) if sorted(order) == list(range(len(order))) else order
