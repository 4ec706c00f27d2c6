"""What happens to small gradients in fp16: rounding as an operation, histograms of magnitudes, and what becomes zero.

fp16 has 11 significant bits between 2^-14 and 65504. Below 2^-14 its (subnormal) numbers are 2^-24 apart, and a magnitude of at
most 2^-25 becomes zero.
"""

import torch

LOSS_FACTOR = 2e-5  # of the loss: it moves the gradients of a small network to where fp16 underflows
EDGES = range(-60, 17)  # of the histograms, as powers of two


class _Rounded(torch.autograd.Function):
    """Round the value in the forward pass and its gradient in the backward pass."""

    @staticmethod
    def forward(context, x: torch.Tensor) -> torch.Tensor:
        return x.half().float()

    @staticmethod
    def backward(context, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.half().float()


def rounded(x: torch.Tensor) -> torch.Tensor:
    """x rounded to fp16 and stored in float32. Its gradient is rounded in the same way.

    An operation in float32 on such numbers, followed by `rounded`, computes what a tensor core does: the product of two fp16
    numbers is exact in float32 (11 + 11 ≤ 24 bits), the sum is kept in float32, and the result is rounded once.
    """
    return _Rounded.apply(x)


def histogram(values: torch.Tensor) -> list[float]:
    """Share of all `values` whose magnitude is in [2^k, 2^(k+1)), for each k of EDGES. Zeros are in no bin."""
    magnitudes = values.detach().flatten().double().abs()
    _, power = torch.frexp(magnitudes[(magnitudes > 0) & magnitudes.isfinite()])  # m = f · 2^power, 0.5 ≤ f < 1
    bins = (power.long() - 1 - EDGES[0]).clamp(0, len(EDGES) - 1)
    return (torch.bincount(bins, minlength=len(EDGES)) / max(1, magnitudes.numel())).tolist()


def vanished_share(exact: torch.Tensor, rounded: torch.Tensor) -> float:
    """Share of the nonzero elements of `exact` that are zero in `rounded`."""
    return ((exact != 0) & (rounded == 0)).sum().item() / (exact != 0).sum().item()
