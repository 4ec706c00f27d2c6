"""Compares fp16 emulated in float32 (`recipes.rounded`) with torch's own fp16 on this CPU."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from hpml_lab.core.experiment import Row, column
from hpml_lab.precision.lessons.formats import FP16
from hpml_lab.precision.lessons.recipes import rounded

LAYERS: dict[str, tuple[Callable, tuple[int, ...], tuple[int, ...]]] = {  # {name: (layer, shape of x, shape of w)}
    "linear": (F.linear, (32, 72), (10, 72)),
    "conv2d": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), (4, 8, 8, 8), (16, 8, 3, 3)),
    "relu": (lambda x, w: (x * w).relu(), (32, 10), (32, 10)),
}


@dataclass
class EmulatedLayer(Row):
    """One layer, forward and backward, emulated and in torch's fp16."""

    layer: str = column("layer")
    inputs: str = column("inputs")
    difference: float = column("largest difference", "fp16 spacings")


def emulated_layers() -> list[EmulatedLayer]:
    """Compare linear layer, convolution and ReLU for two sets of inputs.

    Sums of multiples of 1/16 are exact in float32, so only the final rounding matters. With random numbers the order of a sum
    affects its last bits. Differences are in units of the fp16 spacing at the largest element of each tensor.
    """
    generator = torch.Generator().manual_seed(0)

    def sixteenths(*shape: int) -> torch.Tensor:
        return torch.randint(-16, 17, shape, generator=generator) / 16

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).half().float()

    rows = []
    for draw in (sixteenths, random):
        for name, (layer, x_shape, w_shape) in LAYERS.items():
            x, w = draw(*x_shape), draw(*w_shape)
            upstream = draw(*layer(x, w).shape)
            own = output_and_gradients(layer, x.half(), w.half(), upstream.half())
            emulated = output_and_gradients(lambda x, w, layer=layer: rounded(layer(rounded(x), rounded(w))), x, w, upstream)
            differences = [
                (a.float() - b).abs().max().item() / FP16.spacing(b.abs().max().item())
                for a, b in zip(own, emulated, strict=True)
            ]
            rows.append(EmulatedLayer(name, draw.__name__, max(differences)))
    return rows


def output_and_gradients(layer: Callable, x: torch.Tensor, w: torch.Tensor, upstream: torch.Tensor) -> list[torch.Tensor]:
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    out = layer(x, w)
    return [out.detach(), *torch.autograd.grad(out, (x, w), upstream)]
