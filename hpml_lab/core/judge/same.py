"""Whether two answers have the same value, whatever types hold it, and where they first differ."""

from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from typing import Any

import numpy as np
import torch

LONG = 60  # characters: of longer values only the first difference is shown
NOTHING = object()  # stands for an element that one of the two lacks


def plain(value: Any) -> Any:
    """The Python value of a scalar of NumPy or torch; anything else as it is."""
    scalar = isinstance(value, np.generic) or (isinstance(value, np.ndarray | torch.Tensor) and value.ndim == 0)
    return value.item() if scalar else value


def numbers(value: Any) -> torch.Tensor | None:
    """A number, an array, a tensor or a (nested) list of numbers as a tensor on the CPU; None for anything else."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, np.ndarray | np.generic):
        return torch.from_numpy(np.array(value)) if value.dtype.kind in "biuf" else None
    if isinstance(value, bool | int) and abs(value) < 2**63:
        return torch.tensor(value)
    if isinstance(value, Real) or hasattr(value, "as_tuple"):  # a Fraction; a Decimal, which is no Real
        return torch.tensor(float(value), dtype=torch.float64)
    if not isinstance(value, list | tuple | range):
        return None
    parts = [numbers(item) for item in value]
    has_rows = any(isinstance(item, torch.Tensor | np.ndarray) and item.ndim for item in value)
    if has_rows or any(part is None for part in parts) or len({part.shape for part in parts}) > 1:
        return None  # a list of tensors is not one tensor
    if any(part.is_floating_point() for part in parts):
        parts = [part.to(torch.float64) for part in parts]
    elif any(part.dtype != torch.bool for part in parts):
        parts = [part.to(torch.int64) for part in parts]
    return torch.stack(parts) if parts else torch.empty(0)


def same(got: Any, right: Any, tolerance: float = 1e-6, largest: float = 0.0) -> bool:
    """True where `got` has the value of `right`, in types of Python, NumPy or torch; a list is as good as a tuple.

    tolerance  relative, for numbers with a fraction; near 0 it is relative to the largest number of the tensor, at most 1,
               and for numbers that float32 cannot hold a twentieth of that.
               Two integers are the same only if they are equal. The elements of a tuple are compared one by one.
    largest    the largest number of other results of the same function, so that what cancels almost may have rounding errors
    """
    if got is right:  # a function that is an argument of the answer, for example
        return True
    if isinstance(right, torch.nn.Module):
        alike = isinstance(got, torch.nn.Module) and repr(got) == repr(right) and got.training == right.training
        return alike and same(dict(got.state_dict()), dict(right.state_dict()), tolerance)
    if isinstance(right, Mapping):
        alike = isinstance(got, Mapping) and got.keys() == right.keys()
        return alike and all(same(got[key], value, tolerance) for key, value in right.items())
    wanted = None if isinstance(right, tuple) else numbers(right)
    if wanted is not None:
        given = numbers(got)
        return given is not None and given.shape == wanted.shape and bool(_close(given, wanted, tolerance, largest).all())
    if isinstance(right, tuple | list):
        items = _items(got)
        return items is not None and len(items) == len(right) and all(map(same, items, right, [tolerance] * len(right)))
    try:
        return bool(plain(got) == right)
    except (TypeError, ValueError, RuntimeError):  # two things that cannot be compared
        return False


def _close(given: torch.Tensor, wanted: torch.Tensor, tolerance: float, largest: float = 0.0) -> torch.Tensor:
    """For each element whether it is the same number, or the same truth value: 1 stands for True, 1.0 does not."""
    if wanted.dtype == torch.bool and given.is_floating_point():
        return torch.zeros_like(wanted)
    if not given.is_floating_point() and not wanted.is_floating_point():
        return given.to(torch.int64) == wanted.to(torch.int64)
    given, wanted = given.to(torch.float64), wanted.to(torch.float64)
    largest = max(largest, largest_of(wanted))
    slack = tolerance if (given == given.float()).all() else tolerance / 20  # of float32, or of float64, which rounds less
    near_zero = max(slack * min(largest or 1.0, 1.0), 1e-12)
    return torch.isclose(given, wanted, rtol=tolerance, atol=near_zero, equal_nan=True)


def largest_of(value: torch.Tensor) -> float:
    """The largest finite number of a tensor, by size; 0 if there is none."""
    value = value.int() if value.dtype == torch.bool else value  # truth values have no size in torch
    finite = value[value.isfinite()].abs()
    return finite.max().item() if finite.numel() else 0.0


def _items(value: Any) -> list | None:
    """The elements of a sequence, an array or a tensor; None for anything else."""
    if isinstance(value, list | tuple | range) or (isinstance(value, np.ndarray | torch.Tensor) and value.ndim):
        return list(value)
    return None


# ---- In words ------------------------------------------------------------------------------------------------------


def difference(got: Any, right: Any, tolerance: float = 1e-6, *, reveal: bool = True) -> str:
    """A clause such as `should be 3; yours is 4`: both values if they are short, otherwise the first place where they differ.

    reveal  False: the right value is not shown, only whether a number is too small or too large
    """
    places = [("", got, right)]
    if not reveal or max(len(shown(got)), len(shown(right))) > LONG:
        places = list(_differences(got, right, tolerance)) or places
    (where, own, wanted), more = places[0], len(places) - 1
    at = f" at {where}" if where else ""
    if not reveal:
        return f"is not {shown(own)}{at}{_too_small(own, wanted)}"
    if wanted is NOTHING:
        return f"should have nothing{at}; yours has {shown(own)} there"
    texts = shown(wanted), shown(own)
    if texts[0] == texts[1]:  # they differ in a later digit or in their type
        texts = f"{wanted!r} ({type(wanted).__name__})", f"{own!r} ({type(own).__name__})"
    others = f" ({more + 1} places differ)" if more else ""
    return f"should be {texts[0]}{at}; yours is {texts[1]}{' there' if where else ''}{others}"


def _too_small(own: Any, wanted: Any) -> str:
    a, b = numbers(own), numbers(wanted)
    if a is None or b is None or a.ndim or b.ndim or not a.isfinite():
        return ""
    return ": that is too small" if a < b else ": that is too large"


def _differences(got: Any, right: Any, tolerance: float, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(where, what is there, what should be there) for each place of two values that differ."""
    given, wanted = numbers(got), numbers(right)
    if given is not None and wanted is not None and given.shape == wanted.shape and given.ndim:
        for index in (~_close(given, wanted, tolerance)).nonzero().tolist():
            yield f"{where}{index}", given[tuple(index)].item(), wanted[tuple(index)].item()
        return
    if isinstance(got, Mapping) and isinstance(right, Mapping):
        pairs = [(key, got.get(key, NOTHING), right.get(key, NOTHING)) for key in {**right, **got}]
    else:
        own, other = _items(got), _items(right)
        if own is None or other is None or (given is not None and wanted is not None and given.ndim != wanted.ndim):
            yield where, got, right
            return
        count = max(len(own), len(other))
        padded = [[*items, *[NOTHING] * (count - len(items))] for items in (own, other)]
        pairs = list(zip(range(count), *padded, strict=True))
    for key, a, b in pairs:
        if a is NOTHING or b is NOTHING:
            yield f"{where}[{key!r}]", a, b
        elif not same(a, b, tolerance):
            yield from _differences(a, b, tolerance, f"{where}[{key!r}]")


def shown(value: Any) -> str:
    """A value as a message shows it: numbers with six digits, tensors as lists, at most 120 characters."""
    text = _text(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _text(value: Any) -> str:
    value = plain(value)
    if value is NOTHING:
        return "nothing"
    if isinstance(value, np.ndarray | torch.Tensor):
        value = value.tolist()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        items = ", ".join(map(_text, value)) + "," * (isinstance(value, tuple) and len(value) == 1)
        return f"[{items}]" if isinstance(value, list) else f"({items})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_text(item)}" for key, item in value.items()) + "}"
    return f"the function {value.__name__}" if isinstance(value, Callable) and hasattr(value, "__name__") else repr(value)
