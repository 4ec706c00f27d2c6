"""CT series for the exercise order-the-slices: headers in any order, some of a slice twice; and ways to keep one of the two."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np

Headers = list[dict[str, Any]]
SAME = 0.01  # mm

AXIAL, UPSIDE_DOWN = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0, -1.0, 0.0]
SLANTED = [0.36, 0.48, 0.8, -0.8, 0.6, 0.0]
SAGITTAL, CORONAL = [0.0, 1.0, 0.0, 0.0, 0.0, -1.0], [1.0, 0.0, 0.0, 0.0, 0.0, -1.0]
TILTED, OBLIQUE = [1.0, 0.0, 0.0, 0.0, 0.8, -0.6], [0.6, 0.8, 0.0, -0.48, 0.36, -0.8]


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
        position = (np.array(origin) + step * normal + across * rows + down * columns).round(4).tolist()
        headers.append({"name": names(k), "number": number(k), "position": position, "orientation": list(orientation)})
    random.Random(7).shuffle(headers)
    return (headers,)


def _even(count: int, gap: float = 2.5) -> list[float]:
    return [k * gap for k in range(count)]


def cases() -> dict[str, tuple[Headers]]:
    """{what is special: (headers,)}; the same each time."""
    repeated = _even(7) + [5.004, 10.0, 0.003]
    merged = _series(AXIAL, _even(12), number=lambda k: k % 6 + 1)
    return {
        "an axial series, named by identifiers": _series(AXIAL, _even(9), number=lambda k: 9 - k),
        "files named 1 to 12": _series(AXIAL, _even(12), names=lambda k: f"slice{12 - k}.dcm", number=lambda k: 12 - k),
        "numbers that begin again": merged,
        "a sagittal series": _series(SAGITTAL, _even(8), number=lambda k: 8 - k),
        "a coronal series": _series(CORONAL, _even(8), origin=(-150.0, -9.0, 80.0)),
        "an axial series upside down": _series(UPSIDE_DOWN, _even(8)),
        "a tilted gantry": _series(TILTED, _even(8), shift=lambda k: (0.0, -6.0 * k)),
        "an oblique series, shifted in its plane": _series(OBLIQUE, _even(7), shift=lambda k: (9.0 * (k % 3), 5.0 * (-k % 4))),
        "another oblique series, shifted in its plane": _series(
            SLANTED, _even(8), shift=lambda k: (100.0 * (k % 2), 70.0 * (-k % 3))
        ),
        "a slice twice": _series(AXIAL, repeated, names=lambda k: f"{(k * 3) % 10}.dcm"),
        "a slice twice in a sagittal series": _series(SAGITTAL, repeated, names=lambda k: f"{(k * 7 + 3) % 10}.dcm"),
        "a slice twice, in numbers that round differently": _series(
            AXIAL, [*_even(7), 2.496], origin=(-150.0, -120.0, -37.502), names=lambda k: f"{(k * 3) % 8}.dcm"
        ),
        "slices 0.02 mm apart, far from 0": _series(AXIAL, _even(9, 0.02), origin=(0.0, 0.0, -2000.0)),
        "slices 0.5 mm apart": _series(AXIAL, _even(9, 0.5), origin=(0.0, 0.0, -2.2)),
        "slices on both sides of 0": _series(AXIAL, _even(9), origin=(0.0, 0.0, -11.0), number=lambda k: 40 + k),
        "one slice": _series(AXIAL, [3.0]),
    }


# ---- Positions, and which slices of a list are kept: the right way and others ----


def along(headers: Headers) -> list[float]:
    """Positions along row × column."""
    (a, b, c), (d, e, f) = headers[0]["orientation"][:3], headers[0]["orientation"][3:]
    normal = (b * f - c * e, c * d - a * f, a * e - b * d)
    return [sum(p * n for p, n in zip(header["position"], normal, strict=True)) for header in headers]


def first_of_each(headers: Headers) -> list[int]:
    return first_of_each_key(along(headers))


def last_of_each(headers: Headers) -> list[int]:
    return [len(headers) - 1 - i for i in first_of_each(headers[::-1])][::-1]


def none_of_repeated(headers: Headers) -> list[int]:
    places = along(headers)
    return [i for i in range(len(places)) if sum(abs(places[i] - other) < SAME for other in places) == 1]


def first_of_rounded(headers: Headers, digits: int) -> list[int]:
    rounded = [round(position, digits) for position in along(headers)]
    return [i for i, position in enumerate(rounded) if position not in rounded[:i]]


def differ(a: Any, b: Any) -> bool:
    """Whether two keys, whatever they are, are those of different slices."""
    return abs(a - b) >= SAME if isinstance(a, float) else a != b


def first_of_each_key(keys: list[Any]) -> list[int]:
    return [i for i in range(len(keys)) if all(differ(keys[i], other) for other in keys[:i])]


def first_in_order(headers: Headers, keys: list[Any]) -> list[int]:
    """Of a repeated slice the one with the least key."""
    places, kept = along(headers), []
    for i in sorted(range(len(keys)), key=keys.__getitem__):
        kept += [i] if all(abs(places[i] - places[j]) >= SAME for j in kept) else []
    return sorted(kept)


def highest_of_each(headers: Headers) -> list[int]:
    """And of two that are equal the last, as when each is compared with the next of a sorted list."""
    found = first_in_order(headers[::-1], [-position for position in along(headers)[::-1]])
    return sorted(len(headers) - 1 - i for i in found)
