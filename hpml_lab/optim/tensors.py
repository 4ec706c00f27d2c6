"""Stand-ins for a tensor in an update rule: many tensors at once, and one whose learning rate autograd follows.

Both answer to the operations that the rules use, so the same statements serve a tensor, a list and a hypergradient.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

PIECE = 1 << 17  # numbers: θ, gradient, state and temporaries of a piece of this size stay in a core's cache


class TensorList:
    """Tensors that calculate as one: each operation is one call of torch._foreach_… over all of them."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self.tensors = list(tensors)

    def __getattr__(self, name: str) -> Any:
        operation = getattr(torch, f"_foreach_{name}")

        def call(*operands: Any, **options: Any) -> "TensorList":
            operands = [one.tensors if isinstance(one, TensorList) else one for one in operands]
            result = operation(self.tensors, *operands, **options)
            return self if name.endswith("_") else TensorList(result)

        return call

    def __truediv__(self, other: Any) -> "TensorList":
        return self.div(other)

    def __mul__(self, other: Any) -> "TensorList":
        return self.mul(other)


class Followed:
    """A parameter whose steps take a factor that requires a gradient, which torch's `alpha` and `value` cannot be."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def add_(self, other: Tensor, alpha: Any = 1) -> None:
        self.tensor.add_(other * alpha)

    def addcdiv_(self, a: Tensor, b: Tensor, value: Any = 1) -> None:
        self.tensor.addcdiv_(a * value, b)


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
    if isinstance(a, TensorList):
        return a.maximum_(b)
    if a.requires_grad or b.requires_grad:
        return a.copy_(torch.maximum(a.clone(), b))
    return torch.maximum(a, b, out=a)


Row = tuple[Tensor, ...]


def pieces(rows: list[Row], size: int = PIECE) -> Iterator[list[Row]]:
    """Cut rows of tensors that belong together (θ, gradient, state …) into batches of about `size` numbers.

    On a CPU large tensors become several views, and so pass through the cache once a step instead of once an operation.
    A GPU gets all at once: there every operation costs a launch.
    """
    if rows[0][0].is_cuda:
        yield rows
        return
    batch, held = [], 0
    for row in rows:
        for part in _cut(row, size):
            if held and held + part[0].numel() > size:
                yield batch
                batch, held = [], 0
            batch.append(part)
            held += part[0].numel()
    if batch:
        yield batch


def _cut(row: Row, size: int) -> Iterable[Row]:
    """A row as rows of at most `size` numbers, where its tensors lie in memory one number after the other."""
    if row[0].numel() <= size or not all(one.is_contiguous() for one in row):
        return [row]
    return zip(*(one.view(-1).split(size) for one in row), strict=True)
