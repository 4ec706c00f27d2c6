"""hounsfield-units: HU in float32 from the values that a scanner stores, with padding, and one slope or one for each slice."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistakes import combined
from hpml_lab.core.judge.same import numbers, same

Values = np.ndarray
AIR = -1000.0


def _each(value: Any, stored: Values) -> Values:
    """One number, or one for each slice, against (slices, rows, columns)."""
    value = np.asarray(value, dtype=np.float64)
    return value[:, None, None] if value.ndim else value


def _along_columns(value: Any, stored: Values) -> Values:
    return np.broadcast_to(np.asarray(value, dtype=np.float64), stored.shape)


def _along_rows(value: Any, stored: Values) -> Values:
    value = np.asarray(value, dtype=np.float64)
    return np.broadcast_to(value[:, None] if value.ndim else value, stored.shape)


def _linear(stored: Values, slope: Values, intercept: Values) -> Values:
    return slope * stored.astype(np.float64) + intercept


def _at_padding(hu: Values, stored: Values, padding: Any) -> Values:
    return hu if padding is None else np.where(stored == padding, AIR, hu)


def _padded_with(value: Callable[[Values], Any]) -> Callable[[Values, Values, Any], Values]:
    return lambda hu, stored, padding: hu if padding is None else np.where(stored == padding, value(hu), hu)


def _build(
    given: Callable[[Values], Values] = lambda stored: stored,
    each: Callable[[Any, Values], Values] = _each,
    value: Callable[[Values, Values, Values], Values] = _linear,
    padded: Callable[[Values, Values, Any], Values] = _at_padding,
    end: Callable[[Values], Any] = lambda hu: hu.astype(np.float32),
) -> Callable[..., Any]:
    def hounsfield(stored: Values, slope: Any, intercept: Any, padding: Any = None) -> Any:
        hu = value(given(stored), each(slope, stored), each(intercept, stored))
        return end(padded(hu, stored, padding))

    return hounsfield


def _wrapped(kind: type | None) -> Callable[[Values, Values, Values], Values]:
    """Arithmetic in 16 bits, of this type or that of the stored values, which begins again at the other end; fractions are
    cut off."""

    def value(stored: Values, slope: Values, intercept: Values) -> Values:
        dtype = kind or stored.dtype
        product = (np.trunc(slope).astype(np.int64) * stored.astype(np.int64)).astype(dtype).astype(np.int64)
        return (product + np.trunc(intercept).astype(np.int64)).astype(dtype).astype(np.float64)

    return value


def _through_float16(hu: Values) -> Values:
    with np.errstate(over="ignore"):
        return hu.astype(np.float16).astype(np.float32)


right = _build()
_PADDING = (
    "Padding marks pixels that were never measured. It is a stored value: compare before slope and intercept are applied."
)
_EACH = "Slope and intercept may be one number for each slice: shape (slices, 1, 1) lines them up with the volume."
_WRAP = "16 bits hold 65,536 values; what is larger begins again at the other end, without an error. Convert to floats first."
MISTAKES = combined(
    _build,
    {
        "value": {
            "no-slope": (lambda s, a, b: s.astype(float) + b, "The slope is missing: HU = slope · stored + intercept."),
            "no-intercept": (lambda s, a, b: a * s.astype(float), "The intercept is missing: HU = slope · stored + intercept."),
            "nothing-applied": (lambda s, a, b: s.astype(float) + 0 * a, "These are the stored values, not Hounsfield units."),
            "intercept-times-slope": (
                lambda s, a, b: a * (s.astype(float) + b),
                "You add the intercept first, so that the slope multiplies it too: HU = slope · stored + intercept.",
            ),
            "intercept-subtracted": (
                lambda s, a, b: a * s.astype(float) - b,
                "You subtract the intercept; it is added, and is negative itself.",
            ),
            "divided-by-the-slope": (
                lambda s, a, b: s.astype(float) / a + b,
                "You divide by the slope. That would give stored values from HU.",
            ),
            "inverse": (lambda s, a, b: (s.astype(float) - b) / a, "This is the way back, from HU to stored values."),
            "overflow": (_wrapped(np.int16), f"You compute in int16. {_WRAP}"),
            "overflow, unsigned": (_wrapped(np.uint16), f"You compute in uint16, which has no negative numbers. {_WRAP}"),
            "overflow, in the stored type": (_wrapped(None), f"You compute in the 16 bits of the stored values. {_WRAP}"),
            "overflow, of the product": (
                lambda s, a, b: (np.trunc(a).astype(np.int64) * s.astype(np.int64)).astype(np.int16) + b,
                f"Your product is int16. {_WRAP}",
            ),
            "slope-cut-to-an-integer": (
                lambda s, a, b: np.trunc(a) * s.astype(float) + np.trunc(b),
                "You cut slope or intercept to whole numbers: a slope may be 0.5.",
            ),
            "slope-cut-to-an-integer, the slope alone": (
                lambda s, a, b: np.trunc(a) * s.astype(float) + b,
                "You cut the slope to a whole number: a slope may be 0.5.",
            ),
            "swapped": (lambda s, a, b: b * s.astype(float) + a, "You multiply by the intercept and add the slope."),
            "slope-assumed": (
                lambda s, a, b: s.astype(float) - 1024 + 0 * a,
                "You assume slope 1 and intercept −1024. Most scanners write them, but the header says which.",
            ),
        },
        "given": {
            "overflow, of the stored values": (
                lambda stored: stored.astype(np.int16),
                f"You convert to int16: stored values without a sign, above 32767, become negative. {_WRAP}",
            ),
            "overflow, without a sign": (
                lambda stored: stored.astype(np.uint16),
                f"You convert to uint16: negative stored values become large. {_WRAP}",
            ),
        },
        "each": {
            "first-slice-for-all": (
                lambda value, stored: np.asarray(np.ravel(value)[0], dtype=np.float64),
                f"You use the first slice's numbers for all. {_EACH}",
            ),
            "mean-for-all": (
                lambda value, stored: np.asarray(np.mean(value), dtype=np.float64),
                f"You use the mean over the slices for all. {_EACH}",
            ),
            "wrong-axis": (_along_columns, f"NumPy lines up the last axis first: yours differ from column to column. {_EACH}"),
            "wrong-axis, rows": (_along_rows, f"Your slopes and intercepts differ from row to row. {_EACH}"),
        },
        "padded": {
            "padding-ignored": (lambda hu, stored, padding: hu, f"{_PADDING} Its HU are −1000, air."),
            "padding-0-ignored": (
                lambda hu, stored, padding: _at_padding(hu, stored, padding or None),
                "Padding may be 0, and `if padding` is false for 0 as for None. Ask `padding is not None`.",
            ),
            "padding-compared-with-hu": (
                lambda hu, stored, padding: hu if padding is None else np.where(hu == padding, AIR, hu),
                f"You compare HU with the padding. {_PADDING}",
            ),
            "padding-and-below": (
                lambda hu, stored, padding: hu if padding is None else np.where(stored <= padding, AIR, hu),
                "You replace smaller stored values, too; only those equal to the padding were not measured.",
            ),
            "padding-0-hu": (_padded_with(lambda hu: 0.0), "You set padding to 0 HU, which is water; air is −1000."),
            "padding-inverted": (
                lambda hu, stored, padding: hu if padding is None else np.where(stored == padding, hu, AIR),
                "You set to air what was measured, and keep the padding: the other way round.",
            ),
            "padding-without-padding": (
                lambda hu, stored, padding: _at_padding(hu, stored, padding or 0),
                "Where the padding is None there is none, and 0 is a stored value like any other.",
            ),
            "padding-nan": (_padded_with(lambda hu: np.nan), "You set padding to NaN, which spoils every mean; air is −1000."),
            "padding-1024": (_padded_with(lambda hu: -1024.0), "You set padding to −1024 HU; air is −1000."),
            "padding-lowest": (
                _padded_with(lambda hu: hu.min()),
                "You set padding to the lowest HU of the volume; air is −1000.",
            ),
            "padding-before-the-slope": (
                _padded_with(lambda hu: np.nan),
                "You set padding to −1000 among the stored values; slope and intercept then change it.",
            ),
        },
        "end": {
            "clipped": (
                lambda hu: hu.clip(-1024, 3071).astype(np.float32),
                "You clip to the range of 12 bits. Metal has more HU, and nobody asked for a limit here.",
            ),
            "clipped, below": (lambda hu: hu.clip(-1000).astype(np.float32), "You clip at −1000: noise in air goes below it."),
            "clipped, below at −1024": (
                lambda hu: hu.clip(-1024).astype(np.float32),
                "You clip at −1024, which nobody asked for.",
            ),
            "float16": (_through_float16, "float16 holds whole numbers to 2048 only; above it your HU are rounded."),
            "rounded": (lambda hu: np.rint(hu).astype(np.float32), "You round to whole HU; a slope of 0.5 gives halves."),
            "rounded, to int16": (
                lambda hu: hu.astype(np.int64).astype(np.int16),
                "HU in int16 have no fractions, and above 32767 they begin again at the other end.",
            ),
            "rounded, down": (
                lambda hu: np.trunc(hu).astype(np.float32),
                "You cut HU to whole numbers; a slope of 0.5 gives halves.",
            ),
            "flat": (lambda hu: hu.ravel().astype(np.float32), "Keep the volume's shape: slices, rows, columns."),
            "normalized": (
                lambda hu: ((hu + 1000) / 1400).astype(np.float32),
                "You scale the HU; that is a later stage. Return Hounsfield units.",
            ),
        },
    },
)


def _set_before(value: float) -> Callable[..., Values]:
    """A number at the padding among the stored values, which slope and intercept then change."""

    def hounsfield(stored: Values, slope: Any, intercept: Any, padding: Any = None) -> Values:
        changed = stored.astype(np.float64)
        if padding is not None:
            changed[stored == padding] = value
        return right(changed, slope, intercept)

    return hounsfield


def _int16_first(stored: Values, slope: Any, intercept: Any, padding: Any = None) -> Values:
    """The padding is not found either."""
    return right(stored.astype(np.int16), slope, intercept, padding)


MISTAKES["padding-before-the-slope"] = (_set_before(AIR), MISTAKES["padding-before-the-slope"][1])
MISTAKES["padding-before-the-slope, 0"] = (
    _set_before(0.0),
    "You set padding to 0 among the stored values, so that it becomes the intercept. It becomes −1000 HU.",
)
MISTAKES["overflow, before all"] = (_int16_first, MISTAKES["overflow, of the stored values"][1])


def _stored(low: int, high: int, dtype: type = np.int16, shape: tuple[int, int, int] = (3, 4, 5)) -> Values:
    found = np.linspace(low, high, int(np.prod(shape))).round().astype(dtype).reshape(shape)
    return np.ascontiguousarray(found[:, ::-1])


def _with(stored: Values, value: int) -> Values:
    stored = stored.copy()
    stored[:, 0, 1:3] = stored[0, -1, -1] = stored[1, 1, 2] = value
    return stored


_CASES = {
    "slope 1 and intercept -1024": (_stored(0, 2500), 1, -1024),
    "slope 0.5": (_stored(1, 3996), 0.5, -1000.5),
    "slope 0.7324": (_stored(2000, 4095), 0.7324, 24.25),
    "large int16 with slope 2": (_stored(15000, 32000), 2, -1024),
    "uint16 near 0": (_stored(0, 900, np.uint16), 1, -1024),
    "uint16 above 32767": (_stored(32000, 65535, np.uint16), 1.0, -33000.0),
    "negative int16": (_stored(-1500, 5000), 1.0, 0.0),
    "a slope for each slice": (_stored(0, 3000), [1.0, 0.5, 2.0], [-1024.0, -1000.0, -900.0]),
    "a slope for each slice, and as many columns": (
        _stored(0, 3000, shape=(4, 4, 4)),
        np.array([1, 2, 3, 0.5]),
        [0, -9, 5, -4],
    ),
    "an intercept for each slice": (_stored(0, 3000), 1.0, np.array([-1024.0, -1000.0, -24.0])),
    "padding -2000": (_with(_stored(-2100, 3000), -2000), 1, -24, -2000),
    "padding 0": (_with(_stored(1, 3000), 0), 2.0, -1024.0, 0),
    "padding 63536 in uint16": (_with(_stored(0, 3000, np.uint16), 63536), 1.0, -1024.0, 63536),
    "padding that is a value in HU, too": (_with(_stored(0, 3000, shape=(3, 7, 5)) // 250 * 250, 476), 1, -1024, 476),
    "padding and a slope for each slice": (_with(_stored(5, 3000), -5), [1.0, 0.5, 2.0], -1000.0, -5),
}


@exercise("hounsfield-units", notebook="19_capstone")
def judge_hounsfield_units(answer: Callable) -> None:
    """slope · stored + intercept in float32, and −1000 where stored is the padding."""
    try:
        expect_function(answer, right, _CASES, mistakes=MISTAKES, errors=_ERRORS, tolerance=1e-5)
    except Mistake as mistake:
        if mistake.name in ("wrong-value", "wrong-shape"):
            _explain(answer)
        raise
    for case, given in _CASES.items():
        dtype = str(getattr(answer(*copy.deepcopy(given)), "dtype", "in a list")).removeprefix("torch.")
        if dtype != "float32":
            hint = (
                f"For {case} the numbers are right, but {dtype}: an array of float32 is asked for, half the memory of float64."
            )
            raise Mistake("not-float32", hint)


_RANGE = (
    "raises-for-16-bits",
    "NumPy refuses a number that the array's type cannot hold: −1024 in uint16. Convert the stored values to float32 first.",
)
_CAST = ("raises-in-place", "`*=` and `+=` keep the type of the stored values, which cannot hold fractions. Convert first.")
_SHAPES = ("per-slice-not-lined-up", f"Shapes do not fit. {_EACH}")
_ERRORS = {
    "out of bounds for": _RANGE,
    "Cannot cast ufunc": _CAST,
    "could not be broadcast": _SHAPES,
    "can't multiply sequence": ("per-slice-not-lined-up", f"Slope may be a list, which does not multiply. {_EACH}"),
    "only 0-dimensional arrays": _SHAPES,
    "only length-1 arrays": _SHAPES,
    "float() argument must be": _SHAPES,
    "int() argument must be": _SHAPES,
}
_NUMBERS = "Slope and intercept may be one number for the whole series, which has no index and no length."
_ERRORS |= {text: ("numbers-indexed", _NUMBERS) for text in ("not subscriptable", "has no len()", "not iterable")}
_PLACES = {  # what is in a case's name: the Mistake that all wrong cases may have in common
    "padding": ("padding", f"Only the cases with padding are wrong. {_PADDING} It becomes −1000 HU, and nothing else does."),
    "for each slice": ("per-slice-not-lined-up", _EACH),
    "uint16": ("overflow", f"Only stored values without a sign are wrong. {_WRAP}"),
    "large int16": ("overflow", f"Only large stored values are wrong. {_WRAP}"),
}


def _explain(answer: Callable) -> None:
    """Raise the Mistake of limits that nobody asked for, or of the one kind of case that is wrong."""
    found = [(case, numbers(answer(*copy.deepcopy(given))), right(*given)) for case, given in _CASES.items()]
    if all(hu is not None and hu.numel() for _, hu, _ in found):
        low, high = min(hu.min().item() for _, hu, _ in found), max(hu.max().item() for _, hu, _ in found)
        if all(same(hu, wanted.clip(low, high), 1e-5) for _, hu, wanted in found):
            raise Mistake("clipped", f"Your HU end at {low:g} and at {high:g}, and are right in between. Do not clip them.")
    wrong = [case for case, hu, wanted in found if not same(hu, wanted, 1e-5)]
    if wrong and all(case.startswith("padding") for case in wrong):
        _explain_padding(*next(each for each in found if each[0] == wrong[0]))
    for text, hint in _PLACES.items():
        if wrong and all(text in case for case in wrong):
            raise Mistake(*hint)


def _explain_padding(case: str, hu: Any, wanted: Values) -> None:
    """Raise the Mistake that says which voxels are wrong: those that were not measured, or others."""
    stored, *_, padding = _CASES[case]
    if hu is None or hu.shape != wanted.shape:
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
