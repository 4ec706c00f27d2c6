"""The cube y = x³ as custom autograd functions: one with the right backward, three with a known mistake in it."""

import torch
from torch.autograd import Function


class Cube(Function):
    """y = x³ with the right backward: 3x² times the gradient g = ∂L/∂y that arrives."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


class WrongFactor(Cube):
    """A wrong backward: 2x² instead of 3x²."""

    @staticmethod
    def backward(ctx, g: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x**2 * g


class WrongWhereNegative(Cube):
    """A wrong backward: 3x|x|, which is right for x ≥ 0 only."""

    @staticmethod
    def backward(ctx, g: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x * x.abs() * g


class CutBackward(Cube):
    """A right first derivative, but `detach` hides from autograd that it depends on x: second derivatives are wrong."""

    @staticmethod
    def backward(ctx, g: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x.detach() ** 2 * g
