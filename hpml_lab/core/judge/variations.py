"""The cases of an exercise, multiplied: the same with other strides, in another dtype, with other values, at other scales.

Faults of layout, type and memory can be in any answer, so no judge has cases of its own for them. A variant counts where the
right answer has a finite value for it; an exercise whose text leaves one out says so (`but=("dtype",)`).
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from hpml_lab.core.judge.same import same

OTHER = {torch.float32: torch.float64, torch.float64: torch.float32}
SMALLER, LARGER = 12 / 16, 13 / 16  # keep signs, orders and what lies between 0 and 1
SCALE = 2.0**12  # exact: only exponents change
QUARTER_PLACE = 2.0**-25  # relative: a quarter of float32's last place, or a half


class Variation(NamedTuple):
    """A kind of variant: the mistake that it shows, what makes it of an argument, and what to say."""

    mistake: str
    changed: Callable[[Any], Any]
    text: str


def _mapped(value: Any, change: Callable[[Any], Any], inside: bool = False) -> Any:
    """`change` of the tensors and arrays in an argument, and of the fractions in its lists; a single number is an option."""
    if type(value) in (list, tuple):
        return type(value)(_mapped(item, change, True) for item in value)
    if type(value) is dict:
        return {key: _mapped(item, change, True) for key, item in value.items()}
    if type(value) is torch.Tensor and value.layout == torch.strided and value.is_leaf:
        made = change(value)
        return made if made.is_leaf else made.detach().requires_grad_()
    if type(value) is np.ndarray and value.dtype.kind in "biuf":
        return change(value)
    return change(value) if inside and type(value) is float else value


def _with_a_gradient(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.requires_grad:
        value = value.detach().clone().requires_grad_()
        value.grad = torch.ones_like(value)
    return value


def strided(value: Any) -> Any:
    """The same numbers, each at twice the distance, and the last two dimensions exchanged in memory."""
    if isinstance(value, float) or value.ndim == 0:
        return value
    if isinstance(value, np.ndarray):
        return np.repeat(value.T, 2, axis=0)[::2].T
    turned = value.transpose(-1, -2) if value.ndim > 1 else value
    turned = turned.repeat_interleave(2, -1)[..., ::2]
    return turned.transpose(-1, -2) if value.ndim > 1 else turned


def refuses_a_view(result: Any) -> bool:
    """True for torch's own error of a `.view` of numbers that lie apart: no mistake of an update rule.

    torch's `parameters_to_vector` raises it, too.
    """
    return isinstance(result, RuntimeError) and "view size is not compatible" in str(result)


def _other_precision(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(OTHER.get(value.dtype, value.dtype))
    if isinstance(value, np.ndarray) and value.dtype in (np.float32, np.float64):
        return value.astype(np.float64 if value.dtype == np.float32 else np.float32)
    return value


def _in_float64(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    return value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value


def _more_digits(value: Any) -> Any:
    """The numbers in float64, and none of them one that float32 can hold.

    Each changes by a share of its own, by its bits: a common factor is lost where no scale matters. Equal ones stay equal.
    """
    value = _in_float64(value)
    if isinstance(value, float) or value.dtype not in (torch.float64, np.float64):
        return value
    is_tensor = isinstance(value, torch.Tensor)
    share = (abs(value.detach()).view(torch.int64) % 97).double() if is_tensor else abs(value).view(np.int64) % 97
    return value * (1 + QUARTER_PLACE * (0.5 + share / 194))


def _through_float32(value: Any) -> Any:
    return _in_float64(_other_precision(_in_float64(value)))


def _times(factor: float) -> Callable[[Any], Any]:
    def scaled(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value * factor if value.is_floating_point() else value
        if isinstance(value, np.ndarray):
            return value * value.dtype.type(factor) if value.dtype.kind == "f" else value
        return value * factor

    return scaled


def _bent(value: Any) -> Any:
    """Every number times 12/16 to 13/16, the more the larger it is: what does not depend on a scale changes, too."""
    if isinstance(value, float):
        return value * LARGER
    if value.dtype.kind != "f" if isinstance(value, np.ndarray) else not value.is_floating_point():
        return value
    size = abs(value)
    largest = size.max() if math.prod(value.shape) else 0
    if not 0 < largest < math.inf:
        return _times(LARGER)(value)
    share = SMALLER + (LARGER - SMALLER) * (size / largest)
    return value * share if isinstance(value, torch.Tensor) else (value * share).astype(value.dtype)


VARIATIONS: Mapping[str, Variation] = {
    "grad": Variation(
        "needs-no-gradient-before",
        _with_a_gradient,
        "Right where no tensor has a gradient yet, and not where `.grad` holds one from an earlier backward pass.",
    ),
    "layout": Variation(
        "one-layout",
        strided,
        "Right where tensors are contiguous, and not where the same numbers lie apart, as in a transpose or in x[::2].",
    ),
    "dtype": Variation(
        "one-dtype", _other_precision, "Right in one precision, and not in the other: float32 and float64 are both possible."
    ),
    "values": Variation("one-example", _bent, "Right for the values of the examples, and not for others of the same shape."),
    "large": Variation("one-scale", _times(SCALE), "Right for numbers of the examples' size, and not for much larger ones."),
    "small": Variation(
        "one-scale", _times(1 / SCALE), "Right for numbers of the examples' size, and not for far smaller ones."
    ),
}


MIXED = Variation(
    "one-example", None, "Right for the arguments of the examples together, and not for one of them beside the others'."
)
# Asked only where the result was seen to be that of an example.
KEPT = "Yours is what an example's own arguments give: is a number of theirs in it, or a result from an earlier call?"
MOST_MIXED = 40  # of all cases together


def mixed(
    cases: Mapping[str, tuple[Any, ...]], names: Sequence[str], but: Collection[str]
) -> Iterator[tuple[str, int, tuple[Any, ...]]]:
    """Cases with one argument of another case, a number, a text or a tensor: what is kept by the others alone shows here.

    Yields the case, the position of the argument, and all arguments.
    """
    if "mixed" in but:
        return
    made, known = 0, list(cases.values())
    for case, arguments in cases.items():
        for position, value in enumerate(arguments):
            if position < len(names) and names[position] in but:
                continue
            others = [other[position] for other in known if position < len(other)]
            other = next((other for other in others if _can_stand_for(other, value)), None)
            if other is not None and made < MOST_MIXED:
                made += 1
                yield case, position, (*arguments[:position], other, *arguments[position + 1 :])


def _can_stand_for(other: Any, value: Any) -> bool:
    """True for another value of the same kind: a number, a text, or a tensor of the same shape and dtype."""
    if isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor):
        return (other.shape, other.dtype, other.requires_grad) == (value.shape, value.dtype, value.requires_grad) and not same(
            other, value
        )
    return isinstance(value, bool | int | float | str) and type(other) is type(value) and other != value


ZERO = Variation(
    "not-at-zero",
    None,
    "Right for the numbers of the examples, and not where one of them is exactly 0: is it divided by, or taken for none?",
)


def with_a_zero(arguments: tuple[Any, ...], names: Sequence[str], but: Collection[str]) -> Iterator[tuple[Any, ...]]:
    """For each argument with fractions that are not 0: all arguments, the smallest of its fractions replaced by 0."""
    for position, value in enumerate(arguments):
        if "zero" in but or (position < len(names) and names[position] in but):
            continue
        made = _smallest_of_list_to_zero(value) if type(value) in (list, tuple) else _mapped(value, _smallest_to_zero)
        if not same(made, value):
            yield (*arguments[:position], made, *arguments[position + 1 :])


def _smallest_to_zero(value: Any) -> Any:
    if isinstance(value, float) or math.prod(value.shape) < 2:
        return value
    made = value.detach().clone() if isinstance(value, torch.Tensor) else value.copy()
    if made.is_floating_point() if isinstance(made, torch.Tensor) else made.dtype.kind == "f":
        made[np.unravel_index(int(abs(made).argmin()), made.shape)] = 0.0
    return made.requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else made


def _smallest_of_list_to_zero(value: Any) -> Any:
    if len(value) < 2 or not all(type(item) is float for item in value):
        return _mapped(value, _smallest_to_zero)
    smallest = min(value, key=abs)
    return type(value)(0.0 if item is smallest else item for item in value)


def variants(
    arguments: tuple[Any, ...], names: Sequence[str], but: Collection[str]
) -> Iterator[tuple[Variation, tuple[Any, ...]]]:
    """Each variant of a case that differs from it.

    names  of the arguments
    but    variants that there are not, and arguments whose values stay as they are
    """
    fixed = [name in but for name in names] + [False] * len(arguments)
    for name, variant in VARIATIONS.items():
        if name in but:
            continue
        touched = False

        def change(value: Any, variant: Variation = variant) -> Any:
            nonlocal touched
            made = variant.changed(value)
            touched = touched or made is not value
            return made

        stays = name in ("values", "large", "small")
        made = tuple(value if stays and kept else _mapped(value, change) for value, kept in zip(arguments, fixed, strict=False))
        if touched:
            yield variant, made


def with_more_digits(arguments: tuple[Any, ...], names: Sequence[str], but: Collection[str]) -> tuple[Any, ...]:
    """The arguments in float64, with digits that float32 has not; those that `but` names stay as they are."""
    kept = [name in but for name in names] + [False] * len(arguments)
    changes = (_in_float64 if stays else _more_digits for stays in kept)
    return tuple(map(_mapped, arguments, changes))


def with_few_digits(arguments: tuple[Any, ...], position: int) -> tuple[Any, ...]:
    """The same arguments, the numbers of one of them rounded to those that float32 can hold."""
    return (*arguments[:position], _mapped(arguments[position], _through_float32), *arguments[position + 1 :])
