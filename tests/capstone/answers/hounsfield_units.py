"""Answers to `hounsfield-units`: HU in float32 from stored values."""

import numpy as np
from edited_source import wrong_answers


def solution(stored, slope, intercept, padding=None):
    slope = np.asarray(slope, dtype=np.float32)
    intercept = np.asarray(intercept, dtype=np.float32)
    hu = stored.astype(np.float32) * slope.reshape(-1, 1, 1) + intercept.reshape(-1, 1, 1)
    if padding is not None:
        hu[stored == padding] = -1000
    return hu


def plain(stored, slope, intercept, padding=None):
    hu = stored * slope + intercept
    if padding is not None:
        hu[stored == padding] = -1000
    return hu


def indexes_numbers(stored, slope, intercept, padding=None):
    hu = np.stack([slope[k] * one.astype(float) + intercept[k] for k, one in enumerate(stored)]).astype(np.float32)
    hu[stored == padding] = -1000
    return hu


HU = "stored.astype(np.float32) * slope.reshape(-1, 1, 1) + intercept.reshape(-1, 1, 1)"


WRONG = [
    *wrong_answers(
        solution,
        [
            (
                "per-slice-not-lined-up",
                ("asarray(slope", "asarray(float(slope)"),
                ("asarray(intercept", "asarray(float(intercept)"),
            ),
            (
                "raises-in-place",
                (HU, "stored.copy()\n    hu *= slope.reshape(-1, 1, 1)\n    hu += intercept.reshape(-1, 1, 1)"),
            ),
            ("padding-and-others", ("stored == padding", "(stored == padding).any(-1)")),
            ("other-padding", ("-1000", "-2000")),
            ("clipped", ("return hu", "return hu.clip(-1000, 3000)")),
            ("wrong-shape", ("return hu", "return hu[0]")),
        ],
    ),
    *wrong_answers(
        plain,
        [
            ("wrong-axis", ("stored *", "stored.astype(np.float32) *"), ("return hu", "return hu.astype(np.float32)")),
            ("raises-for-16-bits", ("return hu", "return hu.astype(np.float32)")),
        ],
    ),
    ("numbers-indexed", indexes_numbers),
    ("padding", lambda s, a, b, padding=None: solution(s, a, b, None if padding is None else s[0, 0, 0])),
]


def each(value):
    return np.asarray(value, dtype=np.float32).reshape(-1, 1, 1)


def by_slices(stored, slope, intercept, padding=None):
    slopes, intercepts = (np.broadcast_to(value, len(stored)) for value in (slope, intercept))
    hu = np.empty(stored.shape, np.float32)
    for k, (a, b) in enumerate(zip(slopes, intercepts, strict=True)):
        hu[k] = stored[k] * float(a) + float(b)
        if padding is not None:
            hu[k][stored[k] == padding] = -1000
    return hu


def by_where(stored, slope, intercept, padding=None):
    a = slope if np.isscalar(slope) else np.array(slope)[:, np.newaxis, np.newaxis]
    b = intercept if np.isscalar(intercept) else np.array(intercept)[:, np.newaxis, np.newaxis]
    hu = a * stored.astype("float64") + b
    empty = np.zeros(stored.shape, bool) if padding is None else stored == padding
    return np.where(empty, -1000, hu).astype("float32")


def by_transposing(stored, slope, intercept, padding=None):
    """Slices last, where NumPy lines up by itself."""
    hu = (stored.astype(np.float32).transpose(1, 2, 0) * np.float32(slope) + np.float32(intercept)).transpose(2, 0, 1)
    return hu if padding is None else np.where(stored != padding, hu, np.float32(-1000))


def by_einsum(stored, slope, intercept, padding=None):
    slopes = np.broadcast_to(np.asarray(slope, np.float32), len(stored))
    hu = np.einsum("zyx,z->zyx", stored.astype(np.float32), slopes)
    hu += np.reshape(np.asarray(intercept, np.float32), (-1, 1, 1))
    np.copyto(hu, -1000, where=False if padding is None else stored == padding)
    return hu


def by_a_table(stored, slope, intercept, padding=None):
    """One look-up for each of the 65,536 stored values."""
    slopes, intercepts = (np.broadcast_to(value, len(stored)) for value in (slope, intercept))
    lowest, highest = int(stored.min()), int(stored.max())
    values = np.arange(lowest, highest + 1, dtype=np.float64)
    slices = []
    for one, a, b in zip(stored.astype(np.int64), slopes, intercepts, strict=True):
        table = (values * a + b).astype(np.float32)
        if padding is not None and lowest <= padding <= highest:
            table[padding - lowest] = -1000
        slices.append(table[one - lowest])
    return np.stack(slices)


def by_multiply(stored, slope, intercept, padding=None):
    hu = np.multiply(stored, each(slope), dtype=np.float32)
    np.add(hu, each(intercept), out=hu)
    if padding is None:
        return hu
    return np.ma.masked_array(hu, stored == padding).filled(-1000.0)


ALSO_RIGHT = [by_slices, by_where, by_transposing, by_einsum, by_a_table, by_multiply]


def nothing_to_do(stored, slope, intercept, padding=None):
    if np.all(np.asarray(slope) == 1) and np.all(np.asarray(intercept) == 0):
        return stored.astype(np.float32)
    return solution(stored, slope, intercept, padding)


WRONG += [("other-padding", nothing_to_do)]
