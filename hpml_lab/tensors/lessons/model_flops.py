"""FLOPs of a training step by formula, and the share of a processor's peak that the step reaches: MFU and HFU.

A multiply-add is 2 FLOPs. Only products count, as torch's FlopCounterMode does; biases, norms, ReLU and softmax are left out.

    linear      2 · rows · inputs · outputs
    convolution 2 · images · (height · width of the result) · channels out · (channels in / groups) · kernel²
    attention   4 · batch · heads · queries · keys · width            QKᵀ, and the weights times V

A backward pass takes each product twice: for the gradient of its input and for that of its weight. So a step takes 3 forward
passes; the first layer's input is data, whose gradient nobody needs. Recomputation (checkpointing) adds up to one more forward
pass, which the hardware computes and the model does not need:

    MFU = model FLOPs / (seconds · peak)          HFU = FLOPs computed / (seconds · peak)     Chowdhery et al., PaLM (2022)

where the peak is that of all devices together, for the number format of the products, and is best measured.
"""

from hpml_lab.core.system.errors import LabError


def linear_flops(rows: int, inputs: int, outputs: int) -> int:
    """(rows, inputs) @ (inputs, outputs); of a (B, N, inputs) tensor there are B · N rows."""
    return 2 * rows * inputs * outputs


def convolution_flops(images: int, pixels: int, inputs: int, outputs: int, kernel: int, groups: int = 1) -> int:
    """`pixels` of each of the result's `outputs` channels; padding counts as if it were multiplied."""
    return 2 * images * pixels * outputs * (inputs // groups) * kernel**2


def attention_flops(batch: int, heads: int, queries: int, keys: int, width: int) -> int:
    """All queries · keys scores of each head, as if none were masked; `width` is that of one head."""
    return 4 * batch * heads * queries * keys * width


def training_flops(forward: int, first: int = 0, recomputed: int = 0) -> int:
    """Forward and backward pass, without the gradient of the input of the first layer, whose forward pass takes `first`."""
    return 3 * forward - first + recomputed


def fused_attention_backward(forward: int) -> int:
    """A fused kernel keeps no scores: its backward pass computes them again, 5 products for the forward pass's 2."""
    return forward * 5 // 2


def share_of_peak(flops: float, seconds: float, peak: float, devices: int = 1) -> float:
    """What a step of so many FLOPs, on all devices together, reaches of their peaks, each in FLOP/s: 1 is all of it.

    Raises LabError where seconds, peak or devices are not positive.
    """
    if not (seconds > 0 and peak > 0 and devices > 0):
        raise LabError(
            f"{seconds} s on {devices} devices with {peak} FLOP/s give no share.",
            "Measure the step between two synchronizations, and the peak by core.ceiling.",
        )
    return flops / (seconds * peak * devices)
