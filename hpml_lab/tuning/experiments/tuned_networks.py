"""The networks, batches and optimizer that the experiments share."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


def deep_mlp(layers: int, width: int) -> nn.Sequential:
    """`layers` small linear layers, each followed by ReLU: many cheap operators, so the fixed cost of an operator shows."""
    return nn.Sequential(*(layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())))


def resnet(bias: bool = False) -> nn.Module:
    """torchvision's ResNet-18 for 10 classes. With `bias`, each of its 20 convolutions gets a bias before its batch norm.

    The biases are drawn last and are not zero, so both forms have the same weights after the same seed.
    """
    from torchvision.models import resnet18

    net = resnet18(weights=None, num_classes=10)
    if bias:
        for layer in net.modules():
            if isinstance(layer, nn.Conv2d):
                layer.bias = nn.Parameter(torch.randn(layer.out_channels))
    return net


def images_and_classes(batch: int, side: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images (batch, 3, side, side) and their classes, 0 to 9."""
    return torch.randn(batch, 3, side, side, device=device), torch.randint(10, (batch,), device=device)


def loop_sgd(net: nn.Module, **options: float) -> torch.optim.SGD:
    """SGD that updates one parameter after the other, so that the cost of each parameter can be counted."""
    return torch.optim.SGD(net.parameters(), lr=0.01, foreach=False, **options)


def gradient_bytes(net: nn.Module) -> int:
    """Bytes of the gradients that the parameters hold now."""
    return sum(parameter.grad.nbytes for parameter in net.parameters() if parameter.grad is not None)


def output_and_gradients(function: Callable[..., Tensor], inputs: tuple[Tensor, ...], upstream: Tensor) -> tuple[Tensor, ...]:
    """The output of `function(*inputs)` and the gradients of all inputs."""
    y = function(*inputs)
    return (y.detach(), *torch.autograd.grad(y, inputs, upstream))


def largest_difference(ours: Iterable[Tensor], right: Iterable[Tensor]) -> float:
    """Of several tensors, each relative to its largest number."""
    return max(((a.double() - b).abs().max() / b.abs().max()).item() for a, b in zip(ours, right, strict=True))
