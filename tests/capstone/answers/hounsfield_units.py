"""Answers to `hounsfield-units`: HU in float32 from stored values."""

import numpy as np
import torch


def solution(stored, slope, intercept, padding=None):
    slope = np.asarray(slope, dtype=np.float32)
    intercept = np.asarray(intercept, dtype=np.float32)
    hu = stored.astype(np.float32) * slope.reshape(-1, 1, 1) + intercept.reshape(-1, 1, 1)
    if padding is not None:
        hu[stored == padding] = -1000
    return hu


def each(value):
    return np.asarray(value, dtype=np.float32).reshape(-1, 1, 1)


def with_parts(value=lambda s, a, b: s.astype(np.float32) * a + b, after=None, end=lambda hu: hu.astype(np.float32)):
    """The solution with one part replaced."""

    def answer(stored, slope, intercept, padding=None):
        hu = value(stored, each(slope), each(intercept)) + np.zeros(stored.shape, np.float32)
        if padding is not None:
            hu = np.where(stored == padding, -1000, hu) if after is None else after(hu, stored, padding)
        return end(hu)

    return answer


def plain(stored, slope, intercept, padding=None):
    hu = stored * slope + intercept
    if padding is not None:
        hu[stored == padding] = -1000
    return hu


def plain_float(stored, slope, intercept, padding=None):
    hu = stored.astype(np.float32) * slope + intercept
    if padding is not None:
        hu[stored == padding] = -1000
    return hu.astype(np.float32)


def first_int16(stored, slope, intercept, padding=None):
    return solution(stored.astype(np.int16), slope, intercept, padding)


def in_int16(stored, slope, intercept, padding=None):
    hu = stored.astype(np.int16)
    hu = (hu * np.asarray(slope).astype(np.int16).reshape(-1, 1, 1)).astype(np.int16)
    hu = hu + np.asarray(intercept).astype(np.int16).reshape(-1, 1, 1)
    hu = hu.astype(np.float32)
    if padding is not None:
        hu[stored == padding] = -1000
    return hu


def as_kaggle_did(stored, slope, intercept, padding=None):
    """The kernel that everybody copied: int16 in and out, and −2000 is padding whatever the header says."""
    image = stored.astype(np.int16)
    image[image == -2000] = 0
    for k in range(len(image)):
        a, b = (np.ravel(value)[k] if np.ndim(value) else value for value in (slope, intercept))
        if a != 1:
            image[k] = (a * image[k].astype(np.float64)).astype(np.int16)
        image[k] = (image[k].astype(int) + int(b)).astype(np.int16)
    return image.astype(np.float32)


def truthy_padding(stored, slope, intercept, padding=None):
    hu = stored.astype(np.float32) * each(slope) + each(intercept)
    if padding:
        hu[stored == padding] = -1000
    return hu


def truthy_padding_or(stored, slope, intercept, padding=None):
    return solution(stored, slope, intercept, padding or None)


def no_padding(stored, slope, intercept, padding=None):
    return solution(stored, slope, intercept)


def padding_after(stored, slope, intercept, padding=None):
    hu = solution(stored, slope, intercept)
    hu[hu == padding] = -1000
    return hu


def padding_before(stored, slope, intercept, padding=None):
    stored = stored.astype(np.float32)
    if padding is not None:
        stored[stored == padding] = -1000
    return solution(stored, slope, intercept)


def padding_before_in_place(stored, slope, intercept, padding=None):
    mask = stored == padding
    if padding is not None:
        stored[mask] = 0
    hu = solution(stored, slope, intercept)
    hu[mask] = -1000
    return hu


def first_slices(stored, slope, intercept, padding=None):
    return solution(stored, np.ravel(slope)[0], np.ravel(intercept)[0], padding)


def mean_slices(stored, slope, intercept, padding=None):
    return solution(stored, np.mean(slope), np.mean(intercept), padding)


def last_axis(stored, slope, intercept, padding=None):
    return plain_float(stored, np.asarray(slope), np.asarray(intercept), padding)


def rows_axis(stored, slope, intercept, padding=None):
    slope, intercept = (np.asarray(v, float)[:, None] if np.ndim(v) else v for v in (slope, intercept))
    return plain_float(stored, slope, intercept, padding)


def in_place(stored, slope, intercept, padding=None):
    hu = stored.copy()
    hu *= each(slope)
    hu += each(intercept)
    return solution(stored, slope, intercept, padding)


def scalars_only(stored, slope, intercept, padding=None):
    return solution(stored, float(slope), float(intercept), padding)


def keeps_float64(stored, slope, intercept, padding=None):
    return solution(stored, slope, intercept, padding).astype(np.float64)


def as_integers(stored, slope, intercept, padding=None):
    return solution(stored, slope, intercept, padding).astype(np.int32)


def as_list(stored, slope, intercept, padding=None):
    return solution(stored, slope, intercept, padding).tolist()


def forgets_to_return(stored, slope, intercept, padding=None):
    solution(stored, slope, intercept, padding)


def indexes_numbers(stored, slope, intercept, padding=None):
    hu = np.stack([slope[k] * one.astype(float) + intercept[k] for k, one in enumerate(stored)]).astype(np.float32)
    hu[stored == padding] = -1000
    return hu


def padding_as_0(stored, slope, intercept, padding=None):
    return solution(stored if padding is None else np.where(stored == padding, 0, stored), slope, intercept)


def in_the_stored_type(stored, slope, intercept, padding=None):
    slope = np.reshape(slope, (-1, 1, 1)).astype(stored.dtype)
    intercept = np.reshape(intercept, (-1, 1, 1)).astype(np.int16).astype(stored.dtype)
    hu = (slope * stored + intercept).astype(np.float32)
    if padding is not None:
        hu[stored == padding] = -1000
    return hu


def rows_with_any_padding(stored, slope, intercept, padding=None):
    hu = solution(stored, slope, intercept)
    if padding is not None:
        hu[(stored == padding).any(-1)] = -1000
    return hu


def air_but_for_the_padding(stored, slope, intercept, padding=None):
    hu = solution(stored, slope, intercept)
    return hu if padding is None else np.where(stored != padding, np.float32(-1000), hu)


WRONG = [
    ("padding-and-others", rows_with_any_padding),
    ("padding-inverted", air_but_for_the_padding),
    ("padding-before-the-slope", padding_as_0),
    ("overflow", in_the_stored_type),
    ("clipped", lambda *given: solution(*given).clip(-1000, 3000)),
    ("no-slope", with_parts(lambda s, a, b: s.astype(np.float32) + b)),
    ("no-intercept", with_parts(lambda s, a, b: s.astype(np.float32) * a)),
    ("nothing-applied", with_parts(lambda s, a, b: s.astype(np.float32))),
    ("intercept-times-slope", with_parts(lambda s, a, b: (s.astype(np.float32) + b) * a)),
    ("intercept-subtracted", with_parts(lambda s, a, b: s.astype(np.float32) * a - b)),
    ("divided-by-the-slope", with_parts(lambda s, a, b: s.astype(np.float32) / a + b)),
    ("inverse", with_parts(lambda s, a, b: (s.astype(np.float32) - b) / a)),
    ("slope-assumed", with_parts(lambda s, a, b: s.astype(np.float32) - 1024)),
    ("slope-cut-to-an-integer", with_parts(lambda s, a, b: s.astype(np.int64) * a.astype(int) + b.astype(int))),
    ("raises-for-16-bits", plain),
    ("wrong-axis", plain_float),
    ("wrong-axis", last_axis),
    ("wrong-axis", rows_axis),
    ("per-slice-not-lined-up", scalars_only),
    ("raises-in-place", in_place),
    ("overflow", first_int16),
    ("overflow", in_int16),
    ("wrong-value", as_kaggle_did),
    (
        "overflow",
        with_parts(lambda s, a, b: (s.astype(np.uint16) * a.astype(np.uint16) + b.astype(np.int32)).astype(np.uint16)),
    ),
    ("padding-ignored", no_padding),
    ("padding-0-ignored", truthy_padding),
    ("padding-0-ignored", truthy_padding_or),
    ("padding-compared-with-hu", padding_after),
    ("padding-before-the-slope", padding_before),
    ("inputs-changed", padding_before_in_place),
    ("padding-0-hu", with_parts(after=lambda hu, s, p: np.where(s == p, 0, hu))),
    ("padding-nan", with_parts(after=lambda hu, s, p: np.where(s == p, np.nan, hu))),
    ("padding-1024", with_parts(after=lambda hu, s, p: np.where(s == p, -1024, hu))),
    ("padding-lowest", with_parts(after=lambda hu, s, p: np.where(s == p, hu.min(), hu))),
    ("padding-and-below", with_parts(after=lambda hu, s, p: np.where(s <= p, -1000, hu))),
    ("other-padding", with_parts(after=lambda hu, s, p: np.where(s == p, -2000, hu))),
    ("first-slice-for-all", first_slices),
    ("mean-for-all", mean_slices),
    ("clipped", with_parts(end=lambda hu: hu.clip(-1024, 3071).astype(np.float32))),
    ("clipped", with_parts(end=lambda hu: hu.clip(-1000).astype(np.float32))),
    ("float16", with_parts(end=lambda hu: hu.astype(np.float16))),
    ("rounded", with_parts(end=lambda hu: hu.round().astype(np.float32))),
    ("rounded", as_integers),
    ("flat", with_parts(end=lambda hu: hu.ravel())),
    ("normalized", with_parts(end=lambda hu: (hu + 1000) / 1400)),
    ("not-float32", keeps_float64),
    ("not-float32", as_list),
    ("returns-nothing", forgets_to_return),
    ("swapped", lambda stored, slope, intercept, padding=None: solution(stored, intercept, slope, padding)),
    ("slope-cut-to-an-integer", lambda stored, slope, *rest: solution(stored, np.asarray(slope).astype(int), *rest)),
    ("padding-without-padding", lambda stored, slope, b, padding=None: solution(stored, slope, b, padding or 0)),
    ("rounded", with_parts(end=lambda hu: hu.astype(np.int64).astype(np.int16))),
    ("numbers-indexed", indexes_numbers),
]


def by_torch(stored, slope, intercept, padding=None):
    values = torch.from_numpy(stored.astype(np.int32))
    a, b = (torch.as_tensor(value, dtype=torch.float32).reshape(-1, 1, 1) for value in (slope, intercept))
    hu = torch.addcmul(b, values, a)
    return hu if padding is None else hu.masked_fill(values == padding, -1000.0)


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


ALSO_RIGHT = [by_torch, by_slices, by_where, by_transposing, by_einsum, by_a_table, by_multiply]


def slope_of_the_first_call(stored, slope, *more, kept={}):  # noqa: B006
    return solution(stored, kept.setdefault(np.size(slope), slope), *more)


WRONG += [
    ("remembers-calls", slope_of_the_first_call),
    ("wrong-value", lambda stored, slope, *more: solution(stored, np.asarray(slope, np.float16).astype(float), *more)),
    ("wrong-value", lambda *given: solution(*given).round(1)),
    ("padding", lambda s, a, b, padding=None: solution(s, a, b, None if padding is None else s[0, 0, 0])),
]
