"""Stand-ins for a tensor in an update rule: many tensors at once, and a tensor whose learning rate autograd tracks.

Both support the operations that the rules use, so the same statements work for a tensor, a list and a hypergradient.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

# Elements in a tensor, measured on one core:
LARGE = 1 << 18  # larger tensors are cut into views of this size, so that θ, gradient and state stay in the cache
SMALL = 1 << 15  # for smaller tensors the call of an operation costs more than its work, so they share one call


class TensorList:
    """Tensors updated together: an operation is one call of torch._foreach_… over all of them, where there is one."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self.tensors = list(tensors)

    def __getattr__(self, name: str) -> Any:
        operation = getattr(torch, f"_foreach_{name}", None) or partial(_one_by_one, name)
        numbers_shared = name in ("add", "add_", "div", "div_", "mul", "mul_")

        def method(self, *operands: Any, **options: Any) -> "TensorList":
            operands = [operand.tensors if isinstance(operand, TensorList) else operand for operand in operands]
            if numbers_shared:
                operands = map(self._shared, operands)
            result = operation(self.tensors, *operands, **options)
            return self if name.endswith("_") else TensorList(result)

        setattr(TensorList, name, method)  # looked up once; from then on an ordinary method
        return getattr(self, name)

    def _shared(self, operand: Any) -> Any:
        """A number as one tensor for the whole list. torch makes one per tensor: 3 µs each; a small tensor's work takes 1."""
        first = self.tensors[0]
        is_number = isinstance(operand, int | float) and not first.is_cuda
        return first.new_full((), operand) if is_number and first.dtype in (torch.float32, torch.float64) else operand


def _one_by_one(name: str, tensors: list[Tensor], *operands: Any) -> list[Tensor]:
    columns = [operand if isinstance(operand, list) else [operand] * len(tensors) for operand in operands]
    return [getattr(tensor, name)(*row) for tensor, *row in zip(tensors, *columns, strict=True)]


class Tracked:
    """A tensor that autograd tracks: in-place operations create a new tensor, and factors may require a gradient.

    The backward pass needs the unchanged tensors of every step, and torch's `alpha` and `value` accept plain numbers only.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        operation = getattr(torch, name.removesuffix("_"))

        def call(*operands: Any) -> "Tracked":
            result = operation(self.tensor, *(item.tensor if isinstance(item, Tracked) else item for item in operands))
            if not name.endswith("_"):
                return Tracked(result)
            self.tensor = result
            return self

        return call

    def add_(self, other: Any, alpha: Any = 1) -> "Tracked":
        other = getattr(other, "tensor", other)
        plain = not isinstance(alpha, Tensor)  # torch rounds such a sum once, on some processors
        self.tensor = torch.add(self.tensor, other, alpha=alpha) if plain else self.tensor + alpha * other
        return self

    def add(self, other: Any, alpha: Any = 1) -> "Tracked":
        return Tracked(self.tensor).add_(other, alpha)

    def copy_(self, other: Any) -> "Tracked":
        self.tensor = getattr(other, "tensor", other).clone()  # its own: the gradient may be set to 0 in place
        return self

    def addcmul_(self, a: "Tracked", b: "Tracked", value: Any = 1) -> "Tracked":
        if isinstance(value, Tensor):
            self.tensor = self.tensor + value * a.tensor * b.tensor
        else:
            self.tensor = torch.addcmul(self.tensor, a.tensor, b.tensor, value=value)
        return self

    def addcmul(self, a: "Tracked", b: "Tracked", value: Any = 1) -> "Tracked":
        return Tracked(self.tensor).addcmul_(a, b, value)

    def addcdiv_(self, a: "Tracked", b: "Tracked", value: Any = 1) -> "Tracked":
        if isinstance(value, Tensor):
            self.tensor = self.tensor + value * a.tensor / b.tensor
        else:
            self.tensor = torch.addcdiv(self.tensor, a.tensor, b.tensor, value=value)
        return self


class ComplexStep:
    """A complex parameter whose step is given as pairs of real numbers."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def add_(self, other: Tensor, alpha: Any = 1) -> None:
        self.tensor.add_(torch.view_as_complex(other), alpha=alpha)


def pairs(value: Any) -> Any:
    """A complex tensor viewed as pairs of real numbers; a real tensor, and one that is tracked, unchanged."""
    return torch.view_as_real(value) if isinstance(value, Tensor) and value.is_complex() else value


def largest_(a: Any, b: Any) -> Any:
    """a = max(a, b), elementwise and in place. Returns a."""
    return torch.maximum(a, b, out=a) if isinstance(a, Tensor) else a.maximum_(b)


def of_type(tensor: Any, value: Any) -> Any:
    """A number given as a tensor, cast to the dtype of `tensor` as in torch.optim; anything else unchanged."""
    return value.to(tensor.dtype) if isinstance(value, Tensor) and isinstance(tensor, Tensor) else value


def like(theta: Tensor, value: Tensor) -> Tensor:
    """Pairs of real numbers as a complex tensor if θ is complex; anything else unchanged."""
    return torch.view_as_complex(value) if theta.is_complex() and value.ndim > theta.ndim else value


def at_least_float32(tensor: Tensor) -> torch.dtype:
    """The dtype of a number computed from the whole tensor: float64 for float64, else float32."""
    return torch.promote_types(tensor.dtype.to_real(), torch.float32)


TensorRow = tuple[Tensor, ...]  # θ, gradient and state of one parameter


def chunks(rows: list[TensorRow]) -> Iterator[tuple]:
    """Rows of tensors that belong together (θ, gradient, state …) as columns for a rule, grouped so that it runs fast.

    On a CPU a large tensor is cut into views, which are read into the cache once per step instead of once per operation, and
    small tensors are gathered into lists. On a GPU all go into lists, because every call costs a kernel launch.
    """
    gathered = []
    for row in rows:
        theta = row[0]
        if theta.is_cuda or theta.numel() < SMALL:
            gathered.append(row)
        elif theta.numel() > LARGE and all(tensor.is_contiguous() for tensor in row):
            yield from zip(*(tensor.view(-1).split(LARGE) for tensor in row), strict=True)
        else:
            yield row
    if gathered:
        yield tuple(map(TensorList, zip(*gathered, strict=True)))
