"""order-the-slices: the slices of a CT series in the order of their positions along the normal, each position once."""

import copy
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from hpml_lab.core.exercises import Mistake, exercise, expect_function
from hpml_lab.core.mistakes import MORE, combined
from hpml_lab.core.same import numbers

Headers = list[dict[str, Any]]
SAME = 0.01  # mm


def _along(headers: Headers) -> list[float]:
    """Positions along row × column."""
    (a, b, c), (d, e, f) = headers[0]["orientation"][:3], headers[0]["orientation"][3:]
    normal = (b * f - c * e, c * d - a * f, a * e - b * d)
    return [sum(p * n for p, n in zip(header["position"], normal, strict=True)) for header in headers]


def _by_axis(axis: int, sign: int = 1) -> Callable[[Headers], list[float]]:
    return lambda headers: [sign * header["position"][axis] for header in headers]


def _number_in(name: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", name)]


def _first_of_each(headers: Headers, keys: list[Any]) -> list[int]:
    along = _along(headers)
    return [i for i in range(len(along)) if all(abs(along[i] - other) >= SAME for other in along[:i])]


def _last_of_each(headers: Headers, keys: list[Any]) -> list[int]:
    count = len(headers)
    return [count - 1 - i for i in _first_of_each(headers[::-1], keys)][::-1]


def _none_of_repeated(headers: Headers, keys: list[Any]) -> list[int]:
    along = _along(headers)
    return [i for i in range(len(along)) if sum(abs(along[i] - other) < SAME for other in along) == 1]


def _first_of_equal(headers: Headers, keys: list[Any]) -> list[int]:
    along = _along(headers)
    return [i for i, position in enumerate(along) if position not in along[:i]]


def _first_of_whole_mm(headers: Headers, keys: list[Any]) -> list[int]:
    rounded = [round(position) for position in _along(headers)]
    return [i for i, position in enumerate(rounded) if position not in rounded[:i]]


def _first_of_each_number(headers: Headers, keys: list[Any]) -> list[int]:
    found = [header["number"] for header in headers]
    return [i for i, number in enumerate(found) if number not in found[:i]]


def _first_of_each_height(headers: Headers, keys: list[Any]) -> list[int]:
    found = [header["position"][2] for header in headers]
    return [i for i in range(len(found)) if all(abs(found[i] - other) >= SAME for other in found[:i])]


def _lowest_of_each(headers: Headers, keys: list[Any]) -> list[int]:
    along, kept = _along(headers), []
    for i in sorted(range(len(along)), key=along.__getitem__):
        if not kept or along[i] - along[kept[-1]] >= SAME:
            kept.append(i)
    return sorted(kept)


def _build(
    keys: Callable[[Headers], list[Any]] = _along,
    kept: Callable[[Headers, list[Any]], list[int]] = _first_of_each,
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
MISTAKES = combined(
    _build,
    {
        "keys": {
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
                lambda headers: [abs(position) for position in _along(headers)],
                "You order by the projection's size: keep its sign, positions may be negative.",
            ),
            "along-the-rows": (
                lambda headers: [float(np.dot(h["position"], h["orientation"][:3])) for h in headers],
                f"You project on the direction of the rows, in which slices do not differ. {_NORMAL}",
            ),
            "along-the-columns": (
                lambda headers: [float(np.dot(h["position"], h["orientation"][3:])) for h in headers],
                f"You project on the direction of the columns, in which slices do not differ. {_NORMAL}",
            ),
            "not-ordered": (lambda headers: list(range(len(headers))), "You keep the order of the list, which is any."),
            "sum-of-the-position": (
                lambda headers: [sum(header["position"]) for header in headers],
                f"The sum of x, y and z is the position along a diagonal of the room. {_NORMAL}",
            ),
        },
        "order": {
            "reversed": (
                lambda found: found[::-1],
                "Your order is the reverse: the normal is row × column, in this order, and positions along it grow.",
            )
        },
        "kept": {
            "duplicates-kept": (lambda headers, keys: list(range(len(headers))), f"{_REPEATED} You keep both."),
            "last-duplicate": (_last_of_each, "Of a repeated slice the first in the list is kept; you keep the last."),
            "duplicates-dropped": (
                _none_of_repeated,
                "Of a repeated slice you keep none, which leaves a gap; keep the first in the list.",
            ),
            "duplicates-to-the-last-digit": (
                _first_of_equal,
                "Positions are written with a few decimals: a repeated slice may differ in the third. Compare with 0.01 mm.",
            ),
            "slices-lost": (
                _first_of_whole_mm,
                "You round positions to whole millimeters, and lose slices that are half a millimeter apart.",
            ),
            "by-number-once": (
                _first_of_each_number,
                "You keep one slice a number. Numbers may repeat in a series, and a repeated slice may have another number.",
            ),
            "by-z-once": (
                _first_of_each_height,
                "You keep one slice a z. In a sagittal or coronal series all slices have the same.",
            ),
            "nearest-duplicate": (
                _lowest_of_each,
                "Of a repeated slice you keep the one that is lower; keep the one that is first in the list.",
            ),
        },
        "end": {
            "ranks": (
                lambda found, headers: [found.index(i) for i in range(len(headers)) if i in found],
                "You return each slice's place in the order; return which slice is at each place: the inverse permutation.",
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
                lambda found, headers: [_along(headers)[i] for i in found],
                "You return the positions; return the indices of the slices in the list.",
            ),
            "counted-from-1": (lambda found, headers: [i + 1 for i in found], "Indices count from 0 in Python."),
        },
    },
)

AXIAL, SAGITTAL = [1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, -1]
CORONAL, TILTED = [1, 0, 0, 0, 0, -1], [1, 0, 0, 0, 0.8, -0.6]
OBLIQUE = [0.6, 0.8, 0, 0, 0, -1]


def _series(
    orientation: list[float],
    steps: list[float],
    origin: tuple[float, float, float] = (-150.0, -120.0, -37.5),
    names: Callable[[int], str] = lambda k: f"1.2.{(k * 7919) % 1009}.dcm",
    number: Callable[[int], int] = lambda k: k + 1,
    shift: Callable[[int], tuple[float, float]] = lambda k: (0.0, 0.0),
) -> tuple[Headers]:
    """Headers in any order; `steps` are positions along the normal, `shift` mm along rows and columns."""
    rows, columns = np.reshape(orientation, (2, 3)).astype(float)
    normal = np.cross(rows, columns)
    headers = []
    for k, step in enumerate(steps):
        across, down = shift(k)
        position = np.array(origin) + step * normal + across * rows + down * columns
        found = {
            "name": names(k),
            "number": number(k),
            "position": position.round(4).tolist(),
            "orientation": list(orientation),
        }
        headers.append(found)
    random.Random(7).shuffle(headers)
    return (headers,)


def _even(count: int, gap: float = 2.5) -> list[float]:
    return [k * gap for k in range(count)]


def _cases() -> dict[str, tuple[Headers]]:
    repeated = _even(7) + [5.004, 10.0, 0.003]
    merged = _series(AXIAL, _even(12), number=lambda k: k % 6 + 1)
    return {
        "an axial series, named by identifiers": _series(AXIAL, _even(9), number=lambda k: 9 - k),
        "files named 1 to 12": _series(AXIAL, _even(12), names=lambda k: f"slice{12 - k}.dcm", number=lambda k: 12 - k),
        "numbers that begin again": merged,
        "a sagittal series": _series(SAGITTAL, _even(8), number=lambda k: 8 - k),
        "a coronal series": _series(CORONAL, _even(8), origin=(-150.0, -9.0, 80.0)),
        "an axial series upside down": _series([1, 0, 0, 0, -1, 0], _even(8)),
        "a tilted gantry": _series(TILTED, _even(8), shift=lambda k: (0.0, -6.0 * k)),
        "an oblique series, shifted in its plane": _series(OBLIQUE, _even(7), shift=lambda k: (9.0 * (k % 3), 5.0 * (-k % 4))),
        "a slice twice": _series(AXIAL, repeated, names=lambda k: f"{(k * 3) % 10}.dcm"),
        "a slice twice in a sagittal series": _series(SAGITTAL, repeated, names=lambda k: f"{(k * 7 + 3) % 10}.dcm"),
        "slices 0.5 mm apart": _series(AXIAL, _even(9, 0.5), origin=(0.0, 0.0, -2.2)),
        "slices on both sides of 0": _series(AXIAL, _even(9), origin=(0.0, 0.0, -11.0), number=lambda k: 40 + k),
        "one slice": _series(AXIAL, [3.0]),
    }


@exercise("order-the-slices", notebook="16_capstone")
def judge_order_the_slices(answer: Callable) -> None:
    """Indices of the headers, by position along the normal, of a repeated slice the first alone."""
    cases = _cases()

    def plain(headers: Headers) -> Any:
        found = answer(headers)
        return found if numbers(found) is None else [int(i) if float(i).is_integer() else i for i in np.ravel(found).tolist()]

    try:
        expect_function(plain if callable(answer) else answer, right, cases, mistakes=MISTAKES)
    except Mistake as mistake:
        if mistake.name in ("wrong-value", "wrong-shape", "wrong-type"):
            _explain(answer, cases)
        raise


_PLACES = {
    "a slice twice": "other-duplicate",
    "a slice twice in a sagittal series": "other-duplicate",
    "a tilted gantry": "not-the-normal",
    "an oblique series, shifted in its plane": "not-the-normal",
    "a sagittal series": "not-the-normal",
    "a coronal series": "not-the-normal",
    "an axial series upside down": "not-the-normal",
    "slices 0.5 mm apart": "slices-lost",
    "slices on both sides of 0": "size-of-the-projection",
}
_HINTS = {
    "other-duplicate": f"Only series with a repeated slice are wrong. {_REPEATED} Keep the first in the list.",
    "not-the-normal": f"Axial series are right, others are not. {_NORMAL}",
    "slices-lost": "Slices may be half a millimeter apart; only those closer than 0.01 mm are the same.",
    "size-of-the-projection": MISTAKES["size-of-the-projection"][1],
}


def _explain(answer: Callable, cases: dict[str, tuple[Headers]]) -> None:
    """Raise the Mistake that the wrong cases point to, or that says what of an order the answer lacks."""
    wrong, orders = [], []
    for case, given in cases.items():
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
    for name, changed in (("reversed", lambda order: order[::-1]), ("ranks", _ranks)):
        if all(values == changed(wanted) for values, wanted in orders if len(values) == len(wanted)):
            raise Mistake(name, f"{MISTAKES[name][1]} {more}".strip())
    if wrong and all(case in _PLACES for case in wrong):
        raise Mistake(_PLACES[wrong[0]], _HINTS[_PLACES[wrong[0]]])


def _ranks(order: list[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__) if sorted(order) == list(range(len(order))) else order
