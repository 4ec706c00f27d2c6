"""Cross-layer equalization: the same function, with channels whose weights have similar ranges in both layers.

Between two layers stand only functions with f(s·x) = s·f(x) for s > 0: relu, max and average pooling, dropout, flatten. So
channel i of the first layer may be multiplied by any s > 0 (its weights and its bias), if the weights that read this channel
in the second layer are divided by s:

    W₂ f(W₁ x + b₁) = (W₂ S⁻¹) f(S (W₁ x + b₁)),     S diagonal

Powers of two change nothing but exponents: the outputs are bitwise identical. Other factors change the last digits.

With r₁, r₂ the largest |weight| of channel i in each layer, s = √(r₂ / r₁) makes both √(r₁ r₂).
Source: M. Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, ICCV 2019, section 4.1.
"""

from collections.abc import Sequence

import torch
from torch import nn

from hpml_lab.core.system.errors import LabError

ROUNDS = 50


def columns(first: nn.Module, second: nn.Module) -> torch.Tensor:
    """The second layer's weights, seen as (outputs, channels of the first, inputs that hold one channel, …).

    A Linear layer behind a flattened convolution reads a channel with several columns: those of its pixels.
    """
    for layer in (first, second):
        if not isinstance(layer, nn.Linear | nn.Conv2d) or getattr(layer, "groups", 1) != 1:
            raise LabError(f"{layer} cannot be equalized here.", "Use Linear and Conv2d layers, without groups.")
    channels, inputs = len(first.weight), second.weight.shape[1]
    behind = isinstance(first, nn.Conv2d) and isinstance(second, nn.Linear)
    if inputs != channels and not (behind and inputs % channels == 0):
        raise LabError(
            f"A layer with {channels} outputs is not followed by one with {inputs} inputs.",
            "Name two layers that follow each other.",
        )
    return second.weight.unflatten(1, (channels, -1))


def ranges(first: nn.Module, second: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """(r₁, r₂): the largest |weight| of each channel between two layers, in the first and in the second."""
    return first.weight.detach().flatten(1).abs().amax(1), columns(first, second).detach().abs().transpose(0, 1).flatten(
        1
    ).amax(1)


@torch.no_grad()
def scale_channels(first: nn.Module, second: nn.Module, factors: torch.Tensor) -> None:
    """Multiply the channels between two layers by `factors`, and divide the weights that read them, in place."""
    read = columns(first, second)
    factors = torch.as_tensor(factors, dtype=first.weight.dtype, device=first.weight.device)
    if factors.shape != (len(first.weight),) or not (factors.isfinite() & (factors > 0)).all():
        raise LabError(
            "Channels are scaled by positive, finite factors, one for each channel.",
            f"Here are {len(first.weight)} channels and {tuple(factors.shape)} factors.",
        )
    first.weight.mul_(factors.view(-1, *[1] * (first.weight.ndim - 1)))
    if first.bias is not None:
        first.bias.mul_(factors)
    read.div_(factors.view(1, -1, *[1] * (read.ndim - 2)))


def equalizing_factors(first: nn.Module, second: nn.Module, powers_of_two: bool = False) -> torch.Tensor:
    """√(r₂ / r₁) for each channel, or the nearest power of two; 1 for a channel without weights in one of the layers."""
    r1, r2 = ranges(first, second)
    factors = torch.where((r1 > 0) & (r2 > 0), (r2 / r1).sqrt(), torch.ones_like(r1))
    return torch.exp2(factors.log2().round()) if powers_of_two else factors


def equalize_layers(layers: Sequence[nn.Module], powers_of_two: bool = False) -> None:
    """Equalize each pair of successive layers in place, again and again until no factor differs from 1 by more than 1 %."""
    if len(layers) < 2:
        raise LabError("Equalization needs at least two layers.", "List the layers in the order in which data passes them.")
    for _ in range(ROUNDS):
        changed = False
        for first, second in zip(layers, layers[1:], strict=False):
            factors = equalizing_factors(first, second, powers_of_two)
            scale_channels(first, second, factors)
            changed |= bool((factors.log().abs() > 0.01).any())
        if not changed:
            return
