"""Fake quantization of a whole net: each layer computes in float, with rounded weights and rounded inputs.

    rounded = with_fake_quantization(net, weight_bits=4, per_channel=True)   # a copy, whose layers only watch at first
    calibrate(rounded, images)                                       # post-training quantization (PTQ) ends here
    train(rounded, data, steps=100, lr=5e-4)                         # quantization-aware training (QAT) goes on

What a layer computes with is what an integer kernel would compute with, but the numbers stay float32. So gradients reach the
weights: rounding counts as the identity, and where a value was clipped the gradient is 0 (affine.py).
"""

import math

import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.net_copies import copy_of, require_own_weights
from hpml_lab.quantization.lessons.affine import affine_parameters, fake_quantize, value_range

KINDS = (nn.Linear, nn.Conv2d)
FOLLOWED = 0.01  # of the difference between a batch's range and the recorded one is added in each training step
LEAST_HIGH = 1e-12  # of a range, so that a channel of zeros has a scale as well


class FakeQuantized(nn.Module):
    """A Linear or Conv2d layer that computes with rounded weights and rounded inputs.

    Weights: symmetric, with one scale for the layer or one for each output channel, always from their present range.
    Inputs:  affine, with one scale from the recorded range low … high.

    While it observes it widens that range and computes without rounding; in training the range follows the batches slowly; in
    evaluation it is frozen.
    """

    def __init__(self, layer: nn.Module, weight_bits: int = 8, input_bits: int = 8, per_channel: bool = False) -> None:
        super().__init__()
        self.layer, self.weight_bits, self.input_bits, self.per_channel = layer, weight_bits, input_bits, per_channel
        self.observing = True
        self.register_buffer("low", torch.tensor(math.inf, device=layer.weight.device))
        self.register_buffer("high", torch.tensor(-math.inf, device=layer.weight.device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.observing:
            self._widen(x.detach())
            return self.layer(x)
        if self.training:
            self._follow(x.detach())
        return torch.func.functional_call(self.layer, {"weight": self.rounded_weight()}, self.rounded_input(x))

    def get_extra_state(self) -> torch.Tensor:
        """What state_dict has besides, so that a calibrated net is one again when it is loaded."""
        return torch.tensor(self.observing)

    def set_extra_state(self, state: torch.Tensor) -> None:
        self.observing = bool(state)

    def rounded_weight(self) -> torch.Tensor:
        """The weights as the layer computes with them: at most 2^bits different values for each scale."""
        axis = 0 if self.per_channel else None
        low, high = value_range(self.layer.weight, axis)
        grid = affine_parameters(low, high.clamp(min=LEAST_HIGH), bits=self.weight_bits, symmetric=True)
        return fake_quantize(self.layer.weight, *grid, axis=axis)

    def rounded_input(self, x: torch.Tensor) -> torch.Tensor:
        """The inputs as the layer computes with them; what is outside the recorded range is clipped."""
        if not self.low <= self.high:
            raise LabError("A layer has not seen any input, so its range is not known.", "Call calibrate(net, images) first.")
        grid = affine_parameters(self.low, self.high.clamp(min=LEAST_HIGH), bits=self.input_bits, signed=False)
        return fake_quantize(x, *grid)

    def _widen(self, x: torch.Tensor) -> None:
        low, high = self._range_of(x)
        self.low.copy_(torch.minimum(self.low, low))
        self.high.copy_(torch.maximum(self.high, high))

    def _follow(self, x: torch.Tensor) -> None:
        for recorded, found in zip((self.low, self.high), self._range_of(x), strict=True):
            recorded.lerp_(found, FOLLOWED)

    def _range_of(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        low, high = (found.to(self.low.dtype) for found in x.aminmax())  # under autocast inputs have 16 bits
        if not (low.isfinite() and high.isfinite()):
            raise LabError(
                "The inputs of a layer hold NaN or infinity, so they have no range.", "Check the images and the net."
            )
        return low, high

    def extra_repr(self) -> str:
        scales = "per channel" if self.per_channel else "per tensor"
        return f"weights {self.weight_bits} bits {scales}, inputs {self.input_bits} bits"


def with_fake_quantization(net: nn.Module, weight_bits: int = 8, input_bits: int = 8, per_channel: bool = False) -> nn.Module:
    """A copy of `net` in which each Linear and Conv2d is inside a FakeQuantized. It observes until it is calibrated."""
    for name, bits in (("weight_bits", weight_bits), ("input_bits", input_bits)):
        if isinstance(bits, bool) or not isinstance(bits, int) or not 2 <= bits <= 16:
            raise LabError(f"{name} is {bits!r}.", "Use a whole number from 2 to 16.")
    if any(isinstance(layer, nn.TransformerEncoderLayer) for layer in net.modules()):  # in evaluation it reads their weights
        raise LabError("A TransformerEncoderLayer does not call its layers in evaluation.", "Give a net of single layers.")
    layers = {path: layer for path, layer in net.named_modules() if _is_rounded(layer)}
    if not layers or any(isinstance(layer, FakeQuantized) for layer in net.modules()):
        problem = "already computes with fake quantization" if layers else "has no layer that can be quantized here"
        raise LabError(f"{type(net).__name__} {problem}.", "Give a float net with Linear or Conv2d layers.")
    require_own_weights(layers)
    net = copy_of(net)
    # A layer that is used twice stays one layer.
    wrapped = {
        layer: FakeQuantized(layer, weight_bits, input_bits, per_channel) for layer in net.modules() if _is_rounded(layer)
    }
    for parent in list(net.modules()):
        for name, layer in parent._modules.items():
            parent._modules[name] = wrapped.get(layer, layer)
    return wrapped.get(net, net)


def _is_rounded(layer: nn.Module) -> bool:
    """Whether a layer is one of KINDS, and not that inside of attention, whose weight attention reads itself."""
    return isinstance(layer, KINDS) and not isinstance(layer, NonDynamicallyQuantizableLinear)


@torch.no_grad()
def calibrate(net: nn.Module, x: torch.Tensor, batch: int = 1000) -> nn.Module:
    """Record the range of each layer's inputs over the samples `x`, in float, then freeze it and round from now on."""
    layers = [layer for layer in net.modules() if isinstance(layer, FakeQuantized)]
    if not layers or not len(x):
        what = "There are no images" if layers else "The net has no FakeQuantized layer"
        raise LabError(f"{what} to calibrate.", "Use calibrate(with_fake_quantization(net), images).")
    net.eval()
    for layer in layers:  # what it has seen before is forgotten
        layer.observing = True
        layer.low.fill_(math.inf)
        layer.high.fill_(-math.inf)
    for images in x.split(batch):
        net(images)
    for layer in layers:
        layer.observing = False
    return net
