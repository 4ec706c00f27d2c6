"""hounsfield-units: HU in float32 from the values that a scanner stores, with padding, and one slope or one for each slice."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hpml_lab.core.judge.declared import array
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same

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


def in_16_bits(x: Values, slope: Values, intercept: Values, product: type, total: type) -> Values:
    """Fractions are cut off, and what does not fit begins again at the other end."""
    found = (np.trunc(slope).astype(np.int64) * x.astype(np.int64)).astype(product).astype(np.int64)
    return (found + np.trunc(intercept).astype(np.int64)).astype(total).astype(float)


_PADDING = "Padding marks what was never measured. It is a stored value: compare before slope and intercept are applied."
RUBRIC = Rubric(
    right,
    """
a * x + b
    intercept-times-slope :: a * (x + b) :: You add the intercept first, so that the slope multiplies it too: HU = slope ·
        stored + intercept.
    overflow :: in_16_bits(x, a, b, np.int16, np.int16) :: You compute in int16. $WRAP
    overflow :: in_16_bits(x, a, b, stored.dtype, stored.dtype) :: You compute in the 16 bits of the stored values. $WRAP
stored.astype(float)
    overflow :: stored.astype(np.int16).astype(float) :: You convert to int16: stored values without a sign, above 32767, become
        negative. || $WRAP
by_slice(slope, stored), by_slice(intercept, stored)
    wrong-axis :: *(np.broadcast_to(v, stored.shape) for v in (slope, intercept)) :: NumPy lines up the last axis first: yours
        differ from column to column. $EACH
padding is None
    padding-0-ignored :: not padding :: Padding may be 0, and `if padding` is false for 0 as for None. Ask `padding is not
        None`.
stored == padding
    padding-compared-with-hu :: hu == padding :: You compare HU with the padding. || $PADDING
    padding-and-below :: stored <= padding :: You replace smaller stored values, too; only those equal to the padding were not
        measured.
-1000.0
    padding-before-the-slope :: -1000 * a + b :: You set padding to −1000 among the stored values; slope and intercept then
        change it.
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
    per-slice-not-lined-up :: only 0-dimensional arrays :: $SHAPES
    per-slice-not-lined-up :: only length-1 arrays :: $SHAPES
    per-slice-not-lined-up :: float() argument must be :: $SHAPES
    per-slice-not-lined-up :: int() argument must be :: $SHAPES
    numbers-indexed :: not subscriptable :: $NUMBERS
    numbers-indexed :: has no len() :: $NUMBERS
    numbers-indexed :: not iterable :: $NUMBERS
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
    "padding where slope is 1 and intercept 0": (_with(_stored(-900, 3000), -2000), 1, 0, -2000),
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


def _explain(_: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake of limits that nobody asked for, or say which voxels are wrong where only padding is."""
    if any(row.got.shape != row.wanted.shape for row in judged):
        return
    low, high = min(row.got.min() for row in judged), max(row.got.max() for row in judged)
    if all(same(row.got, row.wanted.clip(low, high), 1e-5) for row in judged):
        raise Mistake("clipped", f"Your HU end at {low:g} and at {high:g}, and are right in between. Do not clip them.")
    wrong = [row for row in judged if not same(row.got, row.wanted, 1e-5)]
    if not all(row.case.startswith("padding") for row in wrong):
        return
    case, (stored, *_, padding), hu, wanted = wrong[0]
    at = stored == padding
    if same(hu[at], wanted[at]):
        i = tuple(np.argwhere(~np.isclose(hu, wanted, rtol=1e-5) & ~at)[0])
        text = f"the stored value {stored[i]} is not the padding, and becomes {wanted[i]:g} HU; yours is {hu[i]:g}."
        raise Mistake("padding-and-others", f"For {case} padding is right. But at {list(map(int, i))} {text}")
    if same(hu[~at], wanted[~at], 1e-5):
        text = f"all is right but the padding: yours becomes {hu[at][0]:g} HU. Air is −1000."
        raise Mistake("other-padding", f"For {case} {text}")
    raise Mistake("padding", f"For {case} yours are wrong where the stored value is the padding, and elsewhere. {_PADDING}")
