"""Stand-ins for a tensor in an update rule: many tensors at once, and one whose learning rate autograd follows.

Both answer to the operations that the rules use, so the same statements serve a tensor, a list and a hypergradient.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

# Numbers in a tensor, as measured on one core:
LARGE = 1 << 18  # above it a tensor is cut into views of this size, so that θ, gradient and state stay in the cache
SMALL = 1 << 15  # below it the call of an operation costs more than its work, so small tensors share one call


class TensorList:
    """Tensors that calculate as one: each operation is one call of torch._foreach_… over all of them."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self.tensors = list(tensors)

    def __getattr__(self, name: str) -> Any:
        operation = getattr(torch, f"_foreach_{name}")
        numbers_shared = name in ("add", "add_", "div", "div_", "mul", "mul_")

        def method(self, *operands: Any, **options: Any) -> "TensorList":
            operands = [one.tensors if isinstance(one, TensorList) else one for one in operands]
            if numbers_shared:
                operands = map(self._shared, operands)
            result = operation(self.tensors, *operands, **options)
            return self if name.endswith("_") else TensorList(result)

        setattr(TensorList, name, method)  # looked up once; from then on it is a method as any other
        return getattr(self, name)

    def _shared(self, operand: Any) -> Any:
        """A number as one tensor for the whole list. torch makes one anew for each tensor: 3 µs, a small tensor's work 1."""
        first = self.tensors[0]
        is_number = isinstance(operand, int | float) and not first.is_cuda
        return first.new_full((), operand) if is_number and first.dtype in (torch.float32, torch.float64) else operand


class Followed:
    """A tensor that autograd follows: what changes it in place makes a new one here, and a factor may require a gradient.

    Backward needs the tensors of every step as they were, and torch's `alpha` and `value` are plain numbers.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        operation = getattr(torch, name.removesuffix("_"))

        def call(*operands: Any) -> "Followed":
            result = operation(self.tensor, *(one.tensor if isinstance(one, Followed) else one for one in operands))
            if not name.endswith("_"):
                return Followed(result)
            self.tensor = result
            return self

        return call

    def add_(self, other: Any, alpha: Any = 1) -> "Followed":
        self.tensor = self.tensor + alpha * getattr(other, "tensor", other)
        return self

    def add(self, other: Any, alpha: Any = 1) -> "Followed":
        return Followed(self.tensor).add_(other, alpha)

    def addcmul_(self, a: "Followed", b: "Followed", value: Any = 1) -> "Followed":
        self.tensor = self.tensor + value * a.tensor * b.tensor
        return self

    def addcmul(self, a: "Followed", b: "Followed", value: Any = 1) -> "Followed":
        return Followed(self.tensor).addcmul_(a, b, value)

    def addcdiv_(self, a: "Followed", b: "Followed", value: Any = 1) -> "Followed":
        self.tensor = self.tensor + value * a.tensor / b.tensor
        return self


class ComplexStep:
    """A complex parameter that takes its step in pairs of real numbers."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def add_(self, other: Tensor, alpha: Any = 1) -> None:
        self.tensor.add_(torch.view_as_complex(other), alpha=alpha)


def pairs(value: Tensor) -> Tensor:
    """A complex tensor seen as pairs of real numbers; a real one as it is."""
    return torch.view_as_real(value) if value.is_complex() else value


def largest_(a: Any, b: Any) -> Any:
    """a = max(a, b), elementwise and in place. Gives a."""
    return torch.maximum(a, b, out=a) if isinstance(a, Tensor) else a.maximum_(b)


def of_type(tensor: Any, value: Any) -> Any:
    """A number that is a tensor in the dtype of `tensor`, as torch.optim takes it there; anything else as it is."""
    return value.to(tensor.dtype) if isinstance(value, Tensor) and isinstance(tensor, Tensor) else value


def like(theta: Tensor, value: Tensor) -> Tensor:
    """Pairs of real numbers as the complex tensor that they are where θ is complex; anything else as it is."""
    return torch.view_as_complex(value) if theta.is_complex() and not value.is_complex() else value


Row = tuple[Tensor, ...]


def pieces(rows: list[Row]) -> Iterator[tuple]:
    """Rows of tensors that belong together (θ, gradient, state …) as columns for a rule, so that it runs fast.

    On a CPU a large tensor is cut into views, which pass through the cache once a step instead of once an operation, and
    small tensors are gathered into lists. A GPU gets all in lists: there every call costs a launch.
    """
    gathered = []
    for row in rows:
        theta = row[0]
        if theta.is_cuda or theta.numel() < SMALL:
            gathered.append(row)
        elif theta.numel() > LARGE and all(one.is_contiguous() for one in row):
            yield from zip(*(one.view(-1).split(LARGE) for one in row), strict=True)
        else:
            yield row
    if gathered:
        yield tuple(map(TensorList, zip(*gathered, strict=True)))
