"""What happens to small gradients in fp16: histograms of magnitudes, and what becomes zero.

fp16 has 11 significant bits between 2^-14 and 65504. Below 2^-14 its (subnormal) numbers are 2^-24 apart, and a magnitude of at
most 2^-25 becomes zero.
"""

import torch

LOSS_FACTOR = 2e-5  # of the loss: it moves the gradients of a small network to where fp16 underflows
EDGES = range(-60, 17)  # of the histograms, as powers of two


def histogram(values: torch.Tensor) -> list[float]:
    """Share of all `values` whose magnitude is in [2^k, 2^(k+1)), for each k of EDGES. Zeros are in no bin."""
    magnitudes = values.detach().flatten().double().abs()
    _, power = torch.frexp(magnitudes[(magnitudes > 0) & magnitudes.isfinite()])  # m = f · 2^power, 0.5 ≤ f < 1
    bins = (power.long() - 1 - EDGES[0]).clamp(0, len(EDGES) - 1)
    return (torch.bincount(bins, minlength=len(EDGES)) / max(1, magnitudes.numel())).tolist()


def vanished_share(exact: torch.Tensor, rounded: torch.Tensor) -> float:
    """Share of the nonzero elements of `exact` that are zero in `rounded`."""
    return ((exact != 0) & (rounded == 0)).sum().item() / (exact != 0).sum().item()
