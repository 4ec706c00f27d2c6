"""Channels taken out of LeNet by hand: a net with channels of zeros becomes a smaller net, the same function of the image.

    zero_channels(net, {"conv1": weakest(net.conv1, 0.5)})   # in place: weights and biases
    small = without_zero_channels(net)

What a channel of zeros gives to the next layer is relu(0) = 0, also after pooling. So the channel can go, together with the
weights of the next layer that multiply it: input channels of a convolution, and after `flatten` 25 columns of fc1.
"""

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from hpml_lab.core.system.errors import LabError
from hpml_lab.quantization import LeNet

WEIGHT_BITS, IMAGE_BITS = 6, 4  # after the binary point, in the net without rounding


def weakest(layer: nn.Conv2d, share: float) -> Tensor:
    """The indices of the share of output channels whose weights have the smallest L2 norm; rounded, as torch.nn.utils.prune."""
    if not 0 <= share < 1:
        raise LabError(
            f"{share} is not a valid share of channels.", "Give a number from 0 to below 1; a layer needs a channel."
        )
    return layer.weight.detach().flatten(1).norm(dim=1).argsort(stable=True)[: round(share * layer.out_channels)]


@torch.no_grad()
def zero_channels(net: LeNet, channels: Mapping[str, Tensor | Sequence[int]], biases: bool = True) -> LeNet:
    """Set output channels of the convolutions to 0, in place: {"conv1": indices, …}. Returns the net.

    biases  False: as torch.nn.utils.prune.ln_structured on the weight does it; such a channel still gives relu(bias)
    """
    for name, indices in channels.items():
        layer, indices = _convolution(net, name), _numbers(indices)
        if indices.numel() and not 0 <= indices.min() <= indices.max() < layer.out_channels:
            raise LabError(f"{name} has the channels 0 to {layer.out_channels - 1}.", f"Not all of {indices.tolist()} exist.")
        layer.weight[indices] = 0
        if biases:
            layer.bias[indices] = 0
    return net


def without_zero_channels(net: LeNet) -> LeNet:
    """A smaller copy without the channels whose weights and bias are all 0. LabError if that leaves a layer none.

    A channel with weights of 0 and another bias stays: it adds relu(bias) to whatever the next layer sees.
    """
    first, second = (_alive(_convolution(net, name), name) for name in ("conv1", "conv2"))
    pixels = net.fc1.in_features // net.conv2.out_channels  # of one channel, after both poolings
    small = copy.deepcopy(net)
    small.conv1 = _part(net.conv1, first, torch.ones(net.conv1.in_channels, dtype=torch.bool))
    small.conv2 = _part(net.conv2, second, first)
    small.fc1 = _part(net.fc1, torch.ones(net.fc1.out_features, dtype=torch.bool), second.repeat_interleave(pixels))
    return small


def _convolution(net: nn.Module, name: str) -> nn.Conv2d:
    layer = getattr(net, name, None)
    if not isinstance(layer, nn.Conv2d) or layer.bias is None or layer.groups != 1:
        raise LabError(f"{name!r} is not a plain convolution with a bias.", 'A LeNet has "conv1" and "conv2".')
    return layer


def _numbers(channels: Tensor | Sequence[int]) -> Tensor:
    """Indices of channels, also from a mask, which is True for each of them."""
    channels = torch.as_tensor(channels)
    return channels.nonzero().flatten() if channels.dtype == torch.bool else channels.to(torch.int64)


def _alive(layer: nn.Conv2d, name: str) -> Tensor:
    alive = ((layer.weight != 0).flatten(1).any(1) | (layer.bias != 0)).cpu()
    if not alive.any():
        raise LabError(f"every channel of {name} is 0, so nothing reaches the next layer.", "Keep at least one channel.")
    return alive


def _part(layer: nn.Module, outputs: Tensor, inputs: Tensor) -> nn.Module:
    """The same layer with some of its outputs, computed from some of its inputs."""
    made = copy.deepcopy(layer)
    device = layer.weight.device
    made.weight = nn.Parameter(layer.weight.detach()[outputs.to(device)][:, inputs.to(device)].contiguous())
    made.bias = nn.Parameter(layer.bias.detach()[outputs.to(device)])
    if isinstance(layer, nn.Conv2d):
        made.out_channels, made.in_channels = made.weight.shape[:2]
    else:
        made.out_features, made.in_features = made.weight.shape
    return made


# ---- a net that does not round ---------------------------------------------------------------------------------------


def on_a_grid(values: Tensor, bits: int) -> Tensor:
    """In float64, rounded to multiples of 2⁻ᵇⁱᵗˢ."""
    return (values.double() * 2**bits).round() / 2**bits


@torch.no_grad()
def without_rounding(net: nn.Module) -> nn.Module:
    """A copy on the CPU that computes without any rounding, so that no order of the sums changes its output.

    Weights are multiples of 2⁻⁶ in float64. For images that are multiples of 2⁻⁴, the sums of the five layers are multiples of
    2⁻¹⁰, 2⁻¹⁶, … 2⁻³⁴, and float64 holds those exactly up to 2¹⁹ = 524,288, far more than a trained LeNet reaches.
    """
    made = copy.deepcopy(net).cpu().double()
    for parameter in made.parameters():
        parameter.copy_(on_a_grid(parameter, WEIGHT_BITS))
    return made
