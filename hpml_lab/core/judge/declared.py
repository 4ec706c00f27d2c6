"""What an exercise's answer gives back, declared once beside its judge, and asked of every call before any value is.

    @exercise("outer-sum", notebook="01_tensors", takes="a, b", returns=like("a"))

`returns` is one of these, or is built of them:

    like("a")            what the argument `a` is: a tensor or an array of its dtype, or a number
    tensor(torch.int64)  a tensor of this dtype; of any: `tensor()`, of whole numbers: `tensor(int)`, of that of the argument
                         `a`: `tensor("a")`
    array(np.float32)    an array of NumPy, in the same three forms
    int, float, bool     a number of Python, NumPy or torch that Python takes as an index, as a number, as a truth value
    str, dict            a text; a dictionary of whatever it likes
    Callable, Iterable, Sized   what Python's abstract classes of these names take
    [int], {str: float}  a list, or a tuple; a dictionary
    {int}                a list, a tuple, a set, an array or what else can be gone through
    (int, float)         a pair, as a tuple, a list or an array; three and more in the same way
    int | None           either of both
    None, object         whatever it likes: only what the call changes counts; only its own judge can look at it

`like`, `tensor` and `array` take `new=True`, where the text asks for memory of its own: no argument, and no view of one.
"""

import numbers
import operator
import types
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

_LIBRARY = {torch.Tensor: "a torch tensor", np.ndarray: "a NumPy array"}
_NAMED = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text",
    dict: "a dictionary",
    Callable: "a function",
    Iterable: "an object that is gone through, with __iter__",
    Sized: "an object that has a length, with __len__",
}
_WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
_COUNTS = {2: "a pair", 3: "three values", 4: "four values"}


@dataclass(frozen=True)
class Kind:
    """A tensor or an array, or what an argument is.

    argument  its name, where the result is what that argument is
    library   torch.Tensor or np.ndarray
    dtype     a dtype, the name of an argument that has it, or None: any
    new       whether its memory must be its own
    """

    argument: str | None = None
    library: type | None = None
    dtype: Any = None
    new: bool = False


def like(argument: str, *, new: bool = False) -> Kind:
    """What the argument of this name is."""
    return Kind(argument=argument, new=new)


def tensor(dtype: torch.dtype | str | None = None, *, new: bool = False) -> Kind:
    """A tensor of a dtype, of that of an argument (its name), or of any."""
    return Kind(library=torch.Tensor, dtype=dtype, new=new)


def array(dtype: Any = None, *, new: bool = False) -> Kind:
    """An array of NumPy of a dtype, of that of an argument (its name), or of any."""
    return Kind(library=np.ndarray, dtype=dtype, new=new)


def difference_in_kind(value: Any, wanted: Any, arguments: Mapping[str, Any], where: str = "") -> tuple[str, str] | None:
    """The mistake's name and a sentence, where a value is not of the declared kind; None where it is.

    arguments  {name: value} of the call, which `wanted` may name
    """
    if wanted is None or wanted is object:
        return None
    at = f"At {where} the" if where else "The"
    wrong = ("wrong-type", f"{at} result should be {in_words(wanted, arguments)}; yours is {_is(value)}.")
    if isinstance(wanted, types.UnionType):
        kinds = [kind for kind in wanted.__args__ if kind is not types.NoneType]
        if value is None and types.NoneType in wanted.__args__:
            return None
        return None if any(difference_in_kind(value, kind, arguments) is None for kind in kinds) else wrong
    if isinstance(wanted, Kind):
        return _array_difference(value, wanted, arguments, at)
    if isinstance(wanted, type):
        return None if _is_number(value, wanted) else wrong
    parts = _parts(value, wanted)
    if parts is None:
        return wrong
    found = (difference_in_kind(item, kind, arguments, f"{where}[{place!r}]") for place, item, kind in parts)
    return next(filter(None, found), None)


def _parts(value: Any, wanted: Any) -> list[tuple[Any, Any, Any]] | None:
    """(where, what is there, what should be there) for each part of a collection; None where the whole is another."""
    if isinstance(wanted, Mapping):
        [kind] = wanted.values()
        return [(key, item, kind) for key, item in value.items()] if isinstance(value, Mapping) else None
    is_array = isinstance(value, tuple(_LIBRARY)) and value.ndim > 0
    if isinstance(value, str) or not (isinstance(value, Sequence) or is_array and not isinstance(wanted, list)):
        return [] if isinstance(wanted, set) and isinstance(value, Iterable) and not isinstance(value, str) else None
    if isinstance(wanted, tuple) and len(value) != len(wanted):
        return None
    kinds = wanted if isinstance(wanted, tuple) else [*wanted] * len(value)
    return list(zip(range(len(kinds)), value, kinds, strict=True))


def has_kind(wanted: Any, of: Callable[[Kind], bool]) -> bool:
    """True where something that a declared kind holds is of a kind: one that is new, for example."""
    parts = wanted.values() if isinstance(wanted, Mapping) else wanted if isinstance(wanted, list | tuple | set) else ()
    return of(wanted) if isinstance(wanted, Kind) else any(has_kind(part, of) for part in parts)


def _is_number(value: Any, wanted: type) -> bool:
    """True for a number, a truth value or a text, as Python takes them, and for an object of any other class."""
    if wanted not in (int, float, bool):
        return isinstance(value, wanted)
    if getattr(value, "ndim", 0) or isinstance(value, str):
        return False
    if wanted is float:
        return isinstance(value, numbers.Real) or hasattr(value, "as_tuple") or isinstance(value, tuple(_LIBRARY))
    try:
        number = operator.index(value)
    except TypeError:
        return isinstance(value, np.bool_)
    return wanted is int or number in (0, 1)


def _array_difference(value: Any, wanted: Kind, arguments: Mapping[str, Any], at: str) -> tuple[str, str] | None:
    wanted, model = _resolved(wanted, arguments)
    should = f"{at} result should be {in_words(wanted, arguments)}"
    if wanted.library is None:
        return None if _is_number(value, type(model)) else ("wrong-type", f"{should}; yours is {_is(value)}.")
    if not isinstance(value, wanted.library):
        return "wrong-type", f"{should}; yours is {_is(value)}."
    if wanted.dtype is not None and not _has(value, wanted.dtype):
        return "wrong-dtype", f"{should}; yours has {_dtype(value.dtype)}."
    if wanted.new:
        named = ((name, one) for name, given in arguments.items() for one in tensors_in(given))
        if own := next((name for name, one in named if share_memory(value, one)), ""):
            return "not-new", f"{should}, with memory of its own; yours lies in that of `{own}`, which would change with it."
    return None


def _has(value: Any, dtype: Any) -> bool:
    if dtype is int:
        return value.dtype.kind in "iu" if isinstance(value, np.ndarray) else value.dtype in _WHOLE
    return value.dtype == dtype


def _resolved(wanted: Kind, arguments: Mapping[str, Any]) -> tuple[Kind, Any]:
    """The kind with library and dtype in place of an argument's name, and the argument that it is like."""
    if wanted.argument is not None:
        model = arguments[wanted.argument]
        [library] = [kind for kind in _LIBRARY if isinstance(model, kind)] or [None]
        return replace(wanted, library=library, dtype=getattr(model, "dtype", None), argument=None), model
    if isinstance(wanted.dtype, str):
        models = tensors_in(arguments[wanted.dtype])
        return replace(wanted, dtype=models[0].dtype if models else None), None
    return wanted, None


def in_words(wanted: Any, arguments: Mapping[str, Any]) -> str:
    """A declared kind as a message names it."""
    if isinstance(wanted, types.UnionType):
        return " or ".join("None" if kind is types.NoneType else in_words(kind, arguments) for kind in wanted.__args__)
    if isinstance(wanted, Kind):
        wanted, model = _resolved(wanted, arguments)
        if wanted.library is None:
            return in_words(type(model), arguments)
        return _LIBRARY[wanted.library] + (f" of {_dtype(wanted.dtype)}" if wanted.dtype is not None else "")
    if isinstance(wanted, tuple):
        count = _COUNTS.get(len(wanted), f"{len(wanted)} values")
        return f"{count} ({', '.join('…' if kind is object else in_words(kind, arguments) for kind in wanted)})"
    if isinstance(wanted, list | set):
        return f"a list, each item {in_words(next(iter(wanted)), arguments)}"
    if isinstance(wanted, Mapping):
        return f"a dictionary, each value {in_words(next(iter(wanted.values())), arguments)}"
    return "whatever you like" if wanted in (object, None) else _NAMED.get(wanted, f"a {wanted.__name__}")


def promise(wanted: Any) -> str:
    """A declared kind as the notebook's stub says it, "a tensor of the dtype of `a`"; "" without tensors and arrays.

    Three and more that are like arguments are said together: "tensors of the dtypes of `a`, `b`, `c`".
    """
    if isinstance(wanted, tuple) and len(wanted) > 2 and all(isinstance(kind, Kind) and kind.argument for kind in wanted):
        if len({kind.new for kind in wanted}) == 1:
            return f"{'new ' * wanted[0].new}tensors of the dtypes of {', '.join(f'`{kind.argument}`' for kind in wanted)}"
    if isinstance(wanted, list | tuple):
        parts = list(map(promise, wanted))
        if not any(parts):
            return ""
        parts = [part or ("…" if kind is object else in_words(kind, {})) for part, kind in zip(parts, wanted, strict=True)]
        return f"a list, each item {parts[0]}" if isinstance(wanted, list) else f"({', '.join(parts)})"
    if not isinstance(wanted, Kind):
        return ""
    named = wanted.argument or (wanted.dtype if isinstance(wanted.dtype, str) else "")
    kind = "a new" if wanted.new else "a"
    if named:
        return f"{kind} tensor of the dtype of `{named}`"
    library = "tensor" if wanted.library is torch.Tensor else "NumPy array"
    return f"{kind} {library}" + (f" of {_dtype(wanted.dtype)}" if wanted.dtype is not None else "")


def _is(value: Any) -> str:
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"{next(text for kind, text in _LIBRARY.items() if isinstance(value, kind))} of shape {tuple(value.shape)}"
    if isinstance(value, bool | int | float | str) or value is None:
        text = repr(value)
        return f"{text if len(text) <= 60 else text[:57] + '...'}"
    return f"a {type(value).__name__}" + (", which is not called yet" if callable(value) else "")


def _dtype(dtype: Any) -> str:
    if dtype is int:
        return "whole numbers"
    return str(np.dtype(dtype) if isinstance(dtype, type) else dtype).removeprefix("torch.")


# ---- Memory --------------------------------------------------------------------------------------------------------


def tensors_in(value: Any) -> list[Any]:
    """The tensors and arrays in a value, also those in lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [inner for item in value for inner in tensors_in(item)] if isinstance(value, list | tuple) else []


def share_memory(one: Any, other: Any) -> bool:
    """True if two tensors or arrays lie in the same memory."""
    (low, high), (other_low, other_high) = _bytes_of(one), _bytes_of(other)
    return low < other_high and other_low < high


def _bytes_of(value: Any) -> tuple[int, int]:
    """First byte of the memory that holds a tensor or an array, and the first behind it."""
    if isinstance(value, np.ndarray):
        return np.lib.array_utils.byte_bounds(value) if value.size else (0, 0)
    if value.layout != torch.strided or value.device.type == "meta":
        return 0, 0
    storage = value.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
