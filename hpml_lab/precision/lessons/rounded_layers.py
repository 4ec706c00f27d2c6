"""A small network in which some layers multiply numbers of 8 or of 4 bits, trained from several seeds together.

    y = r(x) · r(W)ᵀ + b                      the forward pass
    ∂x = r(∂y) · r(W),  ∂W = r(∂y)ᵀ · r(x)    the backward pass; the derivative of the rounding r counts as 1

Rounded numbers are kept in float32 and multiplied there. The weights stay in float32: what is rounded is a copy, as with
master weights, and so do biases, activations and the loss. NVFP4's float32 scale is one for the matrices of all seeds.

Sources: Micikevicius et al., FP8 Formats for Deep Learning (2022): e4m3 for the forward pass, e5m2 for gradients. NVIDIA,
Pretraining Large Language Models with NVFP4 (2025): some layers are kept in more bits, above all the last ones.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hpml_lab.data.dataset import DataSet
from hpml_lab.precision.lessons.formats import E4M3, E5M2, Format
from hpml_lab.precision.lessons.low_precision import Blocks, mxfp4, nvfp4, saturated

SIZES = (64, 64, 64, 64, 10)  # an image of 8 × 8, three hidden layers, ten classes
LAYERS = len(SIZES) - 1
MOMENTUM = 0.9
Rounding = Callable[[Tensor], Tensor]


def one_scale(form: Format) -> Rounding:
    """Rounding with one scale for each matrix (…, n, k): max|x| becomes the format's largest number."""

    def rounded(x: Tensor) -> Tensor:
        scale = x.abs().amax((-2, -1), keepdim=True).clamp(min=1e-30) / form.largest
        return saturated(x / scale, form).to(x.dtype) * scale

    return rounded


def in_blocks(blocks_of: Callable[[Tensor], Blocks]) -> Rounding:
    """Rounding with a scale for each block of a row."""
    return lambda x: blocks_of(x).dequantized().to(x.dtype)


def as_it_is(x: Tensor) -> Tensor:
    return x


class LayerRounding(NamedTuple):
    """How the factors of a layer's products are rounded."""

    inputs: Rounding
    weights: Rounding
    gradients: Rounding


FLOAT32 = LayerRounding(as_it_is, as_it_is, as_it_is)
ROUNDINGS = {
    "FP8": LayerRounding(one_scale(E4M3), one_scale(E4M3), one_scale(E5M2)),
    "NVFP4": LayerRounding(in_blocks(nvfp4), in_blocks(nvfp4), as_it_is),
    "MXFP4": LayerRounding(in_blocks(mxfp4), in_blocks(mxfp4), as_it_is),
}


class RoundedProduct(torch.autograd.Function):
    """x (…, n, k) and W (…, m, k) → r(x) · r(W)ᵀ, and the backward pass with the same rounded factors."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, rounding: LayerRounding) -> Tensor:
        x, weight = rounding.inputs(x), rounding.weights(weight)
        ctx.save_for_backward(x, weight)
        ctx.rounding = rounding
        return x @ weight.mT

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        gradient = ctx.rounding.gradients(gradient)
        return gradient @ weight, gradient.mT @ x, None


def initial_layers(seed: int) -> list[Tensor]:
    """Weights and biases of each layer in turn: W normal with the variance 2 / inputs (He et al. 2015), b = 0."""
    generator = torch.Generator().manual_seed(seed)
    pairs = zip(SIZES, SIZES[1:], strict=False)
    layers = [(torch.randn(m, k, generator=generator) * (2 / k) ** 0.5, torch.zeros(1, m)) for k, m in pairs]
    return [parameter for layer in layers for parameter in layer]


def logits_of(parameters: Sequence[Tensor], x: Tensor, roundings: Sequence[LayerRounding]) -> Tensor:
    """x (seeds, batch, 64) → logits (seeds, batch, 10), with a rounding for each layer."""
    for index, rounding in enumerate(roundings):
        weight, bias = parameters[2 * index : 2 * index + 2]
        x = RoundedProduct.apply(x if index == 0 else x.relu(), weight, rounding) + bias
    return x


def train_layers(
    data: DataSet, roundings: Sequence[LayerRounding], seeds: Sequence[int], steps: int, batch: int, rate: float
) -> list[Tensor]:
    """Train from each seed, by SGD with momentum whose rate falls to 0. Returns the parameters, (seeds, …) each."""
    device = data.train_x.device
    parameters = [torch.stack(same).to(device).requires_grad_() for same in zip(*map(initial_layers, seeds), strict=True)]
    optimizer = torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    for _ in range(steps):
        chosen = torch.stack([torch.randint(len(data.train_x), (batch,), generator=each) for each in generators]).to(device)
        logits = logits_of(parameters, data.train_x.flatten(1)[chosen], roundings)
        optimizer.zero_grad()
        (F.cross_entropy(logits.flatten(0, 1), data.train_y[chosen].flatten()) * len(seeds)).backward()
        optimizer.step()
        schedule.step()
    return parameters


@torch.no_grad()
def accuracies(parameters: Sequence[Tensor], data: DataSet, roundings: Sequence[LayerRounding]) -> list[float]:
    """The share of the test images that each seed's network gets right, in %."""
    logits = logits_of(parameters, data.test_x.flatten(1).expand(len(parameters[0]), -1, -1), roundings)
    return (100 * (logits.argmax(2) == data.test_y).double().mean(1)).tolist()
