"""Nets whose zeros `pruned-share` counts: with torch's masks, after prune.remove, dense, nested, and a single layer."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.utils import prune


def _filled(net: nn.Module) -> nn.Module:
    """The net with random weights and biases, none of them 0."""
    made = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=made) + 0.1)
            parameter.mul_(torch.randint(2, parameter.shape, generator=made) * 2 - 1)
    return net


def _small() -> nn.Sequential:
    return _filled(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 10), nn.Linear(10, 4)))


def _masked() -> nn.Module:
    net = _small()
    prune.l1_unstructured(net[0], "weight", 5)
    prune.l1_unstructured(net[3], "weight", 24)
    prune.l1_unstructured(net[4], "weight", 30)
    return net


def _removed() -> nn.Module:
    net = _masked()
    for layer in (net[0], net[3], net[4]):
        prune.remove(layer, "weight")
    return net


def _one_layer() -> nn.Module:
    """A mask in one layer, and one for its bias; another bias of zeros."""
    net = _small()
    prune.l1_unstructured(net[3], "weight", 0.5)
    prune.l1_unstructured(net[3], "bias", 4)
    nn.init.zeros_(net[4].bias)
    return net


def _half_removed() -> nn.Module:
    net = _masked()
    prune.remove(net[3], "weight")
    return net


def _stacked() -> nn.Module:
    net = _small()
    prune.l1_unstructured(net[3], "weight", 20)
    prune.ln_structured(net[3], "weight", 0.3, n=2, dim=0)
    return net


def _nested() -> nn.Module:
    """Layers inside layers, normalization, a layer without bias, and zeros that a mask keeps."""
    block = nn.Sequential(nn.Conv2d(2, 3, 2, bias=False), nn.BatchNorm2d(3), nn.ReLU())
    net = _filled(nn.Sequential(nn.Conv2d(1, 2, 3), block, nn.Flatten(), nn.ModuleDict({"head": nn.Linear(12, 5)})["head"]))
    with torch.no_grad():
        block[1].weight[0] = 0
        block[0].weight[0, 0] = 0
    prune.custom_from_mask(block[0], "weight", torch.tensor([True, True, False]).view(3, 1, 1, 1).expand(3, 2, 2, 2))
    return net


def _one_linear() -> nn.Module:
    layer = _filled(nn.Linear(6, 5))
    prune.random_unstructured(layer, "weight", 7)
    return layer


def _other_layers() -> nn.Module:
    """Layers of other kinds with a matrix, some of it 0."""
    layers = nn.Embedding(7, 4), nn.Conv1d(4, 3, 2), nn.ConvTranspose2d(2, 3, 2), nn.Bilinear(2, 3, 4), nn.Conv2d(1, 2, 2)
    net = _filled(nn.Sequential(*layers, nn.Linear(6, 3)))
    for layer in net:
        prune.random_unstructured(layer, "weight", 3)
    for layer in net[:4]:
        prune.remove(layer, "weight")
    return net


def _dense() -> nn.Module:
    """No weight is 0, but some are very small."""
    net = _small()
    with torch.no_grad():
        net[3].weight[:4] *= 1e-9
    return net


NETS: dict[str, Callable[[], nn.Module]] = {
    "a net with masks": _masked,
    "the same after prune.remove": _removed,
    "a net with a mask in one layer, and pruned biases": _one_layer,
    "a net whose masks are removed in one layer of three": _half_removed,
    "a layer that was pruned twice": _stacked,
    "blocks with normalization": _nested,
    "a single Linear layer": _one_linear,
    "a net with layers of other kinds": _other_layers,
    "a dense net": _dense,
}
