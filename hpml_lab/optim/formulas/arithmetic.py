"""Arithmetic of the update rules, the same for a Python float, a tensor, an mpmath number and a layer of floats."""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

# A Python float, a tensor, or any other type with arithmetic.
Number = Any


class Floats(tuple):
    """The parameters of a layer as floats, with arithmetic parameter by parameter, rounded as that of single floats."""

    def __abs__(self) -> "Floats":
        return Floats(map(abs, self))


def _by_parameter(operate: Callable[[float, float], float]) -> Callable[[Floats, Number], Floats]:
    def operated(layer: Floats, other: Number) -> Floats:
        return Floats(map(operate, layer, other if isinstance(other, Floats) else [other] * len(layer)))

    return operated


for _sign in ("add", "sub", "mul", "truediv"):
    _operate = getattr(operator, _sign)
    setattr(Floats, f"__{_sign}__", _by_parameter(_operate))
    setattr(Floats, f"__r{_sign}__", _by_parameter(lambda a, b, operate=_operate: operate(b, a)))


def sqrt(x: Number) -> Number:
    """√x, of a float or of each element of a tensor or layer."""
    return math.sqrt(x) if isinstance(x, float) else Floats(map(math.sqrt, x)) if isinstance(x, Floats) else x**0.5


def largest(a: Number, b: Number) -> Number:
    """max(a, b), elementwise for tensors and layers."""
    if isinstance(a, torch.Tensor):
        return torch.maximum(a, torch.as_tensor(b))
    return _by_parameter(max)(a, b) if isinstance(a, Floats) else max(a, b)


def above(a: Number, b: Number, then: Number, otherwise: Number) -> Number:
    """`then` where a > b and `otherwise` elsewhere, for each element of a tensor or layer."""
    values = a, b, then, otherwise
    if (like := next((value for value in values[:2] if isinstance(value, torch.Tensor)), None)) is not None:
        a, b, then, otherwise = (torch.as_tensor(value, dtype=like.dtype, device=like.device) for value in values)
        return torch.where(a > b, then, otherwise)
    if layer := next((value for value in values[:2] if isinstance(value, Floats)), ()):
        columns = (value if isinstance(value, Floats) else [value] * len(layer) for value in values)
        return Floats(map(above, *columns))
    return then if a > b else otherwise


def norm(x: Number) -> Number:
    """‖x‖, the root of the sum of squares, over a layer or along a tensor's first axis; of a single number |x|."""
    if isinstance(x, Floats | torch.Tensor):
        return sqrt((x * x).sum(0) if isinstance(x, torch.Tensor) else sum(x * x))
    return abs(x)


def ratio(a: Number, b: Number) -> Number:
    """a / b of two norms, or 1 where one of them is 0: zeros have no scale that a step could keep."""
    if isinstance(a, torch.Tensor):
        both = (a > 0) & (b > 0)
        return torch.where(both, a, 1.0) / torch.where(both, b, 1.0)
    return a / b if a > 0 and b > 0 else a * 0 + 1
