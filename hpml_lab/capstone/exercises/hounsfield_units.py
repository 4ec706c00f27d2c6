"""hounsfield-units: HU in float32 from the values that a scanner stores, with padding, and one slope or one for each slice."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from hpml_lab.core.judge.declared import array
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import numbers, same

Values = np.ndarray


def right(stored: Values, slope: Any, intercept: Any, padding: Any = None) -> Values:
    x, a, b = stored.astype(float), by_slice(slope, stored), by_slice(intercept, stored)
    hu = a * x + b
    hu = hu if padding is None else np.where(stored == padding, -1000.0, hu)
    return hu.astype(np.float32)


def by_slice(value: Any, stored: Values) -> Values:
    """One number, or one for each slice, against (slices, rows, columns)."""
    value = np.asarray(value, dtype=float)
    return value[:, None, None] if value.ndim else value


def by_row(value: Any, stored: Values) -> Values:
    value = np.asarray(value, dtype=float)
    return np.broadcast_to(value[:, None] if value.ndim else value, stored.shape)


def in_16_bits(x: Values, slope: Values, intercept: Values, product: type, total: type) -> Values:
    """Fractions are cut off, and what does not fit begins again at the other end."""
    found = (np.trunc(slope).astype(np.int64) * x.astype(np.int64)).astype(product).astype(np.int64)
    return (found + np.trunc(intercept).astype(np.int64)).astype(total).astype(float)


_PADDING = "Padding marks what was never measured. It is a stored value: compare before slope and intercept are applied."
RUBRIC = Rubric(
    right,
    """
a * x + b
    no-slope :: x + b :: The stored values are multiplied by the slope: HU = slope · stored + intercept.
    no-intercept :: a * x :: The intercept is missing: HU = slope · stored + intercept.
    nothing-applied :: x + 0 * a :: These are the stored values, not Hounsfield units.
    intercept-times-slope :: a * (x + b) :: You add the intercept first, so that the slope multiplies it too: HU = slope ·
        stored + intercept.
    intercept-subtracted :: a * x - b :: You subtract the intercept; it is added, and is negative itself.
    divided-by-the-slope :: x / a + b :: You divide by the slope. That would give stored values from HU.
    inverse :: (x - b) / a :: This is the way back, from HU to stored values.
    overflow :: in_16_bits(x, a, b, np.int16, np.int16) :: You compute in int16. $WRAP
    overflow :: in_16_bits(x, a, b, np.uint16, np.uint16) :: You compute in uint16, which has no negative numbers. $WRAP
    overflow :: in_16_bits(x, a, b, stored.dtype, stored.dtype) :: You compute in the 16 bits of the stored values. $WRAP
    overflow :: in_16_bits(x, a, 0, np.int16, np.int16) + b :: Your product is int16. $WRAP
    slope-cut-to-an-integer :: np.trunc(a) * x + np.trunc(b) :: You cut slope or intercept to whole numbers: a slope may be 0.5.
    slope-cut-to-an-integer :: np.trunc(a) * x + b :: You cut the slope to a whole number: a slope may be 0.5.
    swapped :: b * x + a :: You multiply by the intercept and add the slope.
    slope-assumed :: x - 1024 + 0 * a :: You assume slope 1 and intercept −1024. Most scanners write them, but the header says
        which.
stored.astype(float)
    overflow :: stored.astype(np.int16).astype(float) :: You convert to int16: stored values without a sign, above 32767, become
        negative. || $WRAP
    overflow :: stored.astype(np.uint16).astype(float) :: You convert to uint16: negative stored values become large. $WRAP
by_slice(slope, stored), by_slice(intercept, stored)
    first-slice-for-all :: *(np.ravel(v)[0].astype(float) for v in (slope, intercept)) :: You use the first slice's numbers for
        all. || $EACH
    mean-for-all :: np.mean(slope), np.mean(intercept) :: You use the mean over the slices for all. $EACH
    wrong-axis :: *(np.broadcast_to(v, stored.shape) for v in (slope, intercept)) :: NumPy lines up the last axis first: yours
        differ from column to column. $EACH
    wrong-axis :: by_row(slope, stored), by_row(intercept, stored) :: Your slopes and intercepts differ from row to row. $EACH
padding is None
    padding-ignored :: True :: $PADDING Its HU are −1000, air.
    padding-0-ignored :: not padding :: Padding may be 0, and `if padding` is false for 0 as for None. Ask `padding is not
        None`.
    padding-without-padding :: (padding := padding or 0) is None :: Where the padding is None there is none, and 0 is a stored
        value like any other.
stored == padding
    padding-compared-with-hu :: hu == padding :: You compare HU with the padding. || $PADDING
    padding-and-below :: stored <= padding :: You replace smaller stored values, too; only those equal to the padding were not
        measured.
    padding-inverted :: stored != padding :: You set to air what was measured, and keep the padding: the other way round.
-1000.0
    padding-0-hu :: 0.0 :: Padding becomes air, which is −1000 HU; 0 HU is water.
    padding-nan :: np.nan :: You set padding to NaN, which spoils every mean; air is −1000.
    padding-1024 :: -1024.0 :: You set padding to −1024 HU; air is −1000.
    padding-lowest :: hu.min() :: You set padding to the lowest HU of the volume; air is −1000.
    padding-before-the-slope :: -1000 * a + b :: You set padding to −1000 among the stored values; slope and intercept then
        change it.
    padding-before-the-slope :: b :: You set padding to 0 among the stored values, so that it becomes the intercept. It becomes
        −1000 HU.
hu.astype(np.float32)
    clipped :: hu.clip(-1024, 3071).astype(np.float32) :: Metal has more HU than a range of 12 bits, and nobody asked for a
        limit here.
    clipped :: hu.clip(-1000).astype(np.float32) :: You clip at −1000: noise in air goes below it.
    clipped :: hu.clip(-1024).astype(np.float32) :: You clip at −1024, which nobody asked for.
    float16 :: hu.clip(-65504, 65504).astype(np.float16) :: float16 holds whole numbers to 2048 only; above it your HU are
        rounded.
    rounded :: np.rint(hu).astype(np.float32) :: You round to whole HU; a slope of 0.5 gives halves.
    rounded :: hu.astype(np.int64).astype(np.int16) :: HU in int16 have no fractions, and above 32767 they begin again at the
        other end.
    rounded :: np.trunc(hu).astype(np.float32) :: You cut HU to whole numbers; a slope of 0.5 gives halves.
    flat :: hu.ravel().astype(np.float32) :: Keep the volume's shape: slices, rows, columns.
    normalized :: ((hu + 1000) / 1400).astype(np.float32) :: You scale the HU; that is a later stage. Return Hounsfield units.
whole answer
    overflow :: lambda stored, *rest: right(stored.astype(np.int16), *rest) :: You convert to int16: stored values without a
        sign, above 32767, become negative. || $WRAP
error
    raises-for-16-bits :: out of bounds for :: NumPy refuses a number that the array's type cannot hold: −1024 in uint16.
        Convert
        the stored values to float32 first.
    raises-in-place :: Cannot cast ufunc :: `*=` and `+=` keep the type of the stored values, which cannot hold fractions.
        Convert
        first.
    per-slice-not-lined-up :: could not be broadcast :: $SHAPES
    per-slice-not-lined-up :: can't multiply sequence :: Slope may be a list, which does not multiply. $EACH
    per-slice-not-lined-up :: only 0-dimensional arrays :: $SHAPES
    per-slice-not-lined-up :: only length-1 arrays :: $SHAPES
    per-slice-not-lined-up :: float() argument must be :: $SHAPES
    per-slice-not-lined-up :: int() argument must be :: $SHAPES
    numbers-indexed :: not subscriptable :: $NUMBERS
    numbers-indexed :: has no len() :: $NUMBERS
    numbers-indexed :: not iterable :: $NUMBERS
only in cases
    per-slice-not-lined-up :: for each slice :: $EACH
    overflow :: uint16 :: Only stored values without a sign are wrong. $WRAP
    overflow :: large int16 :: Only large stored values are wrong. $WRAP
""",
    PADDING=_PADDING,
    EACH="Slope and intercept may be one number for each slice: shape (slices, 1, 1) lines them up with the volume.",
    WRAP="16 bits hold 65,536 values; what is larger begins again at the other end, without an error. Convert to floats first.",
    SHAPES="Shapes do not fit. Slope and intercept may be one number for each slice: shape (slices, 1, 1) lines them up.",
    NUMBERS="Slope and intercept may be one number for the whole series, which has no index and no length.",
)


def _stored(low: int, high: int, dtype: type = np.int16, shape: tuple[int, int, int] = (3, 4, 5)) -> Values:
    found = np.linspace(low, high, int(np.prod(shape))).round().astype(dtype).reshape(shape)
    return np.ascontiguousarray(found[:, ::-1])


def _with(stored: Values, value: int) -> Values:
    stored = stored.copy()
    stored[:, 0, 1:3] = stored[0, -1, -1] = stored[1, 1, 2] = value
    return stored


CASES = {
    "slope 1 and intercept -1024": (_stored(0, 2500), 1, -1024),
    "slope 0.5": (_stored(1, 3996), 0.5, -1000.5),
    "slope 0.7324": (_stored(2000, 4095), 0.7324, 24.25),
    "large int16 with slope 2": (_stored(15000, 32000), 2, -1024),
    "uint16 near 0": (_stored(0, 900, np.uint16), 1, -1024),
    "uint16 above 32767": (_stored(32000, 65535, np.uint16), 1.0, -33000.0),
    "negative int16": (_stored(-1500, 5000), 1.0, 0.0),
    "a slope for each slice": (_stored(0, 3000), [1.0, 0.5, 2.0], [-1024.0, -1000.0, -900.0]),
    "a slope for each slice, and as many columns": (_stored(0, 3000, shape=(4, 4, 4)), np.r_[1, 2, 3, 0.5], [0, -9, 5, -4]),
    "an intercept for each slice": (_stored(0, 3000), 1.0, np.array([-1024.0, -1000.0, -24.0])),
    "padding -2000": (_with(_stored(-2100, 3000), -2000), 1, -24, -2000),
    "padding 0": (_with(_stored(1, 3000), 0), 2.0, -1024.0, 0),
    "padding 63536 in uint16": (_with(_stored(0, 3000, np.uint16), 63536), 1.0, -1024.0, 63536),
    "padding that is a value in HU, too": (_with(_stored(0, 3000, shape=(3, 7, 5)) // 250 * 250, 476), 1, -1024, 476),
    "padding and a slope for each slice": (_with(_stored(5, 3000), -5), [1.0, 0.5, 2.0], -1000.0, -5),
}


@exercise("hounsfield-units", notebook="19_capstone", takes="stored, slope, intercept, padding", returns=array(np.float32))
def judge_hounsfield_units(answer: Callable) -> None:
    """slope · stored + intercept in float32, and −1000 where stored is the padding."""
    RUBRIC.expect(answer, CASES, tolerance=1e-5, explain=_explain)
    for case, given in CASES.items():
        dtype = str(getattr(answer(*copy.deepcopy(given)), "dtype", "in a list")).removeprefix("torch.")
        if dtype != "float32":
            hint = f"For {case} the numbers are right, but {dtype}: float32 is asked for, half the memory of float64."
            raise Mistake("not-float32", hint)


def _explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake of limits that nobody asked for, or say which voxels are wrong where only padding is."""
    found = [(row, numbers(row.got)) for row in judged]
    if all(hu is not None and hu.numel() for _, hu in found):
        low, high = min(hu.min().item() for _, hu in found), max(hu.max().item() for _, hu in found)
        if all(same(hu, row.wanted.clip(low, high), 1e-5) for row, hu in found):
            raise Mistake("clipped", f"Your HU end at {low:g} and at {high:g}, and are right in between. Do not clip them.")
    wrong = [(row, hu) for row, hu in found if not same(hu, row.wanted, 1e-5)]
    (case, (stored, *_, padding), _, wanted), hu = wrong[0]
    if not all(row.case.startswith("padding") for row, _ in wrong) or hu is None or hu.shape != wanted.shape:
        return
    hu, at = hu.numpy(), stored == padding
    if same(hu[at], wanted[at]):
        i = tuple(np.argwhere(~np.isclose(hu, wanted, rtol=1e-5) & ~at)[0])
        text = f"the stored value {stored[i]} is not the padding, and becomes {wanted[i]:g} HU; yours is {hu[i]:g}."
        raise Mistake("padding-and-others", f"For {case} padding is right. But at {list(map(int, i))} {text}")
    if same(hu[~at], wanted[~at], 1e-5):
        text = f"all is right but the padding: yours becomes {hu[at][0]:g} HU. Air is −1000."
        raise Mistake("other-padding", f"For {case} {text}")
    raise Mistake("padding", f"For {case} yours are wrong where the stored value is the padding, and elsewhere. {_PADDING}")
