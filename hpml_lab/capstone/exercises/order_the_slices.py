"""order-the-slices: the slices of a CT series in the order of their positions along the normal, each position once."""

import copy
import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from hpml_lab.capstone.exercises import slice_series as ways
from hpml_lab.capstone.exercises.slice_series import SAME, Headers, along, cases
from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistakes import MORE, combined
from hpml_lab.core.judge.same import numbers


def _by_axis(axis: int, sign: int = 1) -> Callable[[Headers], list[float]]:
    return lambda headers: [sign * header["position"][axis] for header in headers]


def _main(headers: Headers) -> tuple[int, float]:
    """The axis that is nearest to the normal, and the normal along it."""
    normal = np.cross(headers[0]["orientation"][:3], headers[0]["orientation"][3:])
    axis = int(np.abs(normal).argmax())
    return axis, float(normal[axis])


def _on_main_axis(headers: Headers, sign: float) -> list[float]:
    return [sign * header["position"][_main(headers)[0]] for header in headers]


def _number_in(name: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", name)]


def _build(
    keys: Callable[[Headers], list[Any]] = along,
    kept: Callable[[Headers, list[Any]], list[int]] = ways.first_of_each,
    order: Callable[[list[int]], list[int]] = lambda found: found,
    end: Callable[[list[int], Headers], Any] = lambda found, headers: found,
) -> Callable[[Headers], Any]:
    def order_slices(headers: Headers) -> Any:
        values = keys(headers)
        return end(order(sorted(kept(headers, values), key=lambda i: values[i])), headers)

    return order_slices


right = _build()
_NORMAL = "Slices are stacked along the normal of their plane: the cross product of the row's and the column's direction."
_REPEATED = "Two slices closer than 0.01 mm are the same slice twice, which a volume must not hold."
KEYS: dict[str, tuple[Callable[[Headers], list[Any]], str]] = {
    "by-name": (
        lambda headers: [header["name"] for header in headers],
        "You order by the files' names. They may be identifiers or come from a copy; the order is in the positions.",
    ),
    "by-name, with its numbers": (
        lambda headers: [_number_in(header["name"]) for header in headers],
        "You order by the number in the files' names; names may have been counted in any order.",
    ),
    "by-number": (
        lambda headers: [header["number"] for header in headers],
        "You order by instance number: it says in which order slices were made or stored, from either end.",
    ),
    "by-z": (_by_axis(2), f"You order by z. That is right for an axial series alone. {_NORMAL}"),
    "by-x": (_by_axis(0), f"You order by x. That is right for a sagittal series alone. {_NORMAL}"),
    "by-y": (_by_axis(1), f"You order by y. That is right for a coronal series alone. {_NORMAL}"),
    "by-z, downward": (_by_axis(2, -1), f"You order by −z, which fits one kind of series. {_NORMAL}"),
    "by-the-main-axis": (
        lambda headers: _on_main_axis(headers, 1),
        f"You take x, y or z, whichever is nearest to the normal: without its sign, and wrong for oblique series. {_NORMAL}",
    ),
    "by-the-main-axis, with its sign": (
        lambda headers: _on_main_axis(headers, np.sign(_main(headers)[1])),
        f"You take x, y or z, whichever is nearest to the normal. In an oblique series that is not enough: project. {_NORMAL}",
    ),
    "by-position": (
        lambda headers: [tuple(header["position"]) for header in headers],
        f"You compare positions as triples: x decides, then y. {_NORMAL}",
    ),
    "by-position, z first": (
        lambda headers: [tuple(header["position"])[::-1] for header in headers],
        f"You compare positions as triples: z decides, then y. {_NORMAL}",
    ),
    "by-distance": (
        lambda headers: [float(np.linalg.norm(header["position"])) for header in headers],
        "A distance from the origin has no sign: slices on both sides of it are mixed. Project on the normal.",
    ),
    "by-distance, to the first": (
        lambda headers: [float(np.linalg.norm(np.subtract(h["position"], headers[0]["position"]))) for h in headers],
        "The first slice of the list need not be at an end, and a distance has no sign. Project on the normal.",
    ),
    "size-of-the-projection": (
        lambda headers: [abs(position) for position in along(headers)],
        "You order by the projection's size: keep its sign, positions may be negative.",
    ),
    "along-the-rows": (
        lambda headers: [float(np.dot(h["position"], h["orientation"][:3])) for h in headers],
        f"You project on the direction of the rows, in which slices do not differ. {_NORMAL}",
    ),
    "orientation-in-turns": (
        lambda headers: along([{**h, "orientation": h["orientation"][::2] + h["orientation"][1::2]} for h in headers]),
        "You take every other number of the orientation. The first three are the row's direction, the last three the column's.",
    ),
    "along-the-columns": (
        lambda headers: [float(np.dot(h["position"], h["orientation"][3:])) for h in headers],
        f"You project on the direction of the columns, in which slices do not differ. {_NORMAL}",
    ),
    "ordered-as-text": (
        lambda headers: [f"{position:.2f}" for position in along(headers)],
        "You order texts: as texts, '10' is before '9', and '-2' after '-1'. Order numbers.",
    ),
    "not-ordered": (lambda headers: list(range(len(headers))), "You keep the order of the list, which is any."),
    "sum-of-the-position": (
        lambda headers: [sum(header["position"]) for header in headers],
        f"The sum of x, y and z is the position along a diagonal of the room. {_NORMAL}",
    ),
}
MISTAKES = combined(
    _build,
    {
        "keys": KEYS,
        "order": {
            "reversed": (
                lambda found: found[::-1],
                "Your order is the reverse: the normal is row × column, in this order, and positions along it grow.",
            )
        },
        "kept": {
            "duplicates-kept": (lambda headers, keys: list(range(len(headers))), f"{_REPEATED} You keep both."),
            "last-duplicate": (ways.last_of_each, "Of a repeated slice the first in the list is kept; you keep the last."),
            "duplicates-dropped": (
                ways.none_of_repeated,
                "Of a repeated slice you keep none, which leaves a gap; keep the first in the list.",
            ),
            "duplicates-to-the-last-digit": (
                ways.first_of_equal,
                "Positions are written with a few decimals: a repeated slice may differ in the third. Compare with 0.01 mm.",
            ),
            "duplicates-by-rounding": (
                ways.first_of_rounded(2),
                "Rounding divides the line into boxes, and two positions 0.004 mm apart may fall into two of them.",
            ),
            "slices-lost, to a tenth": (
                ways.first_of_rounded(1),
                "You round positions to 0.1 mm, and lose slices of a scanner that has finer ones. Rounding is no comparison.",
            ),
            "slices-lost": (
                ways.first_of_rounded(0),
                "You round positions to whole millimeters, and lose slices that are half a millimeter apart.",
            ),
            "by-number-once": (
                ways.first_of_each_number,
                "You keep one slice a number. Numbers may repeat in a series, and a repeated slice may have another number.",
            ),
            "by-z-once": (
                ways.first_of_each_height,
                "You keep one slice a z. In a sagittal or coronal series all slices have the same.",
            ),
            "nearest-duplicate": (
                ways.lowest_of_each,
                "Of a repeated slice you keep the one that is lower; keep the one that is first in the list.",
            ),
            "nearest-duplicate, the higher": (
                ways.highest_of_each,
                "Of a repeated slice you keep the one that is higher; keep the one that is first in the list.",
            ),
        },
        "end": {
            "ranks": (
                lambda found, headers: [found.index(i) for i in range(len(headers)) if i in found],
                "You return each slice's place in the order; return which slice is at each place: the inverse permutation.",
            ),
            "indices-of-the-kept": (
                lambda found, headers: [sorted(found).index(i) for i in found],
                "You return indices into the list of those that you kept; return indices into the list that you were given.",
            ),
            "names": (
                lambda found, headers: [headers[i]["name"] for i in found],
                "You return names; return indices into the list, which any reader can use.",
            ),
            "headers": (
                lambda found, headers: [headers[i] for i in found],
                "You return the headers; return their indices in the list.",
            ),
            "positions": (
                lambda found, headers: [along(headers)[i] for i in found],
                "You return the positions; return the indices of the slices in the list.",
            ),
            "counted-from-1": (lambda found, headers: [i + 1 for i in found], "Indices count from 0 in Python."),
        },
    },
)
for _name, (_keys, _hint) in KEYS.items():
    MISTAKES[f"{_name}, repeated by it"] = (_build(keys=_keys, kept=ways.first_of_each_key), _hint)
    MISTAKES[f"{_name}, the first by it"] = (_build(keys=_keys, kept=ways.first_in_order), _hint)
    MISTAKES[f"{_name}, the lowest by it"] = (_build(keys=_keys, kept=ways.lowest_of_each_key), _hint)


@exercise("order-the-slices", notebook="19_capstone")
def judge_order_the_slices(answer: Callable) -> None:
    """Indices of the headers, by position along the normal, of a repeated slice the first alone."""
    series = cases()
    for case, given in series.items():
        _expect_a_list(answer, case, given)

    def plain(headers: Headers) -> Any:
        found = answer(headers)
        return found if numbers(found) is None else [int(i) if float(i).is_integer() else i for i in np.ravel(found).tolist()]

    try:
        expect_function(plain, right, series, mistakes=MISTAKES)
    except Mistake as mistake:
        if mistake.name in ("wrong-value", "wrong-shape", "wrong-type"):
            _explain(answer, series)
        raise


def _expect_a_list(answer: Callable, case: str, given: tuple[Headers]) -> None:
    """Raise Mistake for a result without an order or a length, and for a list of headers that comes back in another order."""
    handed = copy.deepcopy(given)
    try:
        found = answer(*handed)
    except Exception:  # what it is, expect_function says
        return
    if isinstance(found, set | frozenset):
        raise Mistake("no-order", f"For {case} you return a set, which has no order; return a list.")
    if isinstance(found, dict) or found is not None and not hasattr(found, "__getitem__"):
        raise Mistake("not-a-list", f"For {case} you return a {type(found).__name__}; return a list of indices.")
    if [header["name"] for header in handed[0]] != [header["name"] for header in given[0]]:
        hint = "Your function changes the list that it is given. Leave it as it is: the indices count in that list."
        raise Mistake("inputs-changed", hint)


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
    "slices 0.04 mm apart, far from 0": "slices-lost",
    "slices on both sides of 0": "size-of-the-projection",
}
_HINTS = {  # what is wrong alone, and the hint
    "other-duplicate": ("Only series with a repeated slice are wrong.", f"{_REPEATED} Keep the first in the list."),
    "not-the-normal": ("Axial series are right, others are not.", _NORMAL),
    "slices-lost": ("", "Slices may be half a millimeter apart, or less; only those closer than 0.01 mm are the same."),
    "size-of-the-projection": ("", MISTAKES["size-of-the-projection"][1]),
}


def _explain(answer: Callable, series: dict[str, tuple[Headers]]) -> None:
    """Raise the Mistake that the wrong cases point to, or that says what of an order the answer lacks."""
    wrong, orders = [], []
    for case, given in series.items():
        values, wanted = numbers(answer(*copy.deepcopy(given))), right(*given)
        if values is None or values.ndim != 1:
            return
        values = values.tolist()
        orders.append((values, wanted))
        if values == wanted:
            continue
        wrong.append(case)
        if any(value not in range(len(given[0])) for value in values):
            raise Mistake("not-indices", f"For {case} your result holds {values}: not all are indices into the list.")
        if len(set(values)) < len(values):
            raise Mistake("index-twice", f"For {case} an index is in your result more than once.")
    # What it says of the slices that are to be kept, and whether others are among them.
    kept = [([i for i in values if i in wanted], wanted) for values, wanted in orders]
    more = MORE if any(len(values) > len(wanted) for values, wanted in orders) else ""
    if all(values == wanted for values, wanted in kept):
        raise Mistake("duplicates-kept", MISTAKES["duplicates-kept"][1])
    whole = [(values, wanted) for values, wanted in orders if len(values) == len(wanted) > 1]
    for name, changed in (("reversed", lambda order: order[::-1]), ("ranks", _ranks)):
        if len(whole) > len(orders) / 2 and all(values == changed(wanted) for values, wanted in whole):
            raise Mistake(name, f"{MISTAKES[name][1]} {more}".strip())
    if wrong and all(case in _PLACES for case in wrong):
        alone, hint = _HINTS[_PLACES[wrong[0]]]
        only = len({_PLACES[case] for case in wrong}) == 1
        raise Mistake(_PLACES[wrong[0]], f"{alone} {hint}".strip() if only else f"{hint} {MORE}")
    for (case, (headers,)), (values, wanted) in zip(series.items(), orders, strict=True):
        places = [along(headers)[i] for i in values]
        if any(a > b + SAME for a, b in itertools.pairwise(places)):
            shown = ", ".join(f"{place:.4g}" for place in places)
            raise Mistake("not-in-order", f"For {case} your slices are at {shown} mm along the normal: these do not grow.")
        if len(values) < len(wanted):
            raise Mistake(
                "slices-lost", f"For {case} {len(wanted)} slices are at different positions; yours are {len(values)}."
            )


def _ranks(order: list[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__) if sorted(order) == list(range(len(order))) else order
