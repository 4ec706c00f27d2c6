"""Affine quantization: floats as small integers, with a scale and a zero point.

    scale, zero_point, quant_min, quant_max = affine_parameters(*value_range(x), bits=8)
    q = quantize(x, scale, zero_point, quant_min, quant_max)
    dequantize(q, scale, zero_point)  # x, rounded to one of 256 values
    fake_quantize(x, scale, zero_point, quant_min, quant_max)  # the same floats, with a gradient

Names, argument order and rounding are those of torch.fake_quantize_per_tensor_affine; with `axis`, each slice along it (each
output channel of a weight, for example) has a scale and a zero point of its own, as in torch.fake_quantize_per_channel_affine.
"""

import torch

from hpml_lab.core.system.errors import LabError

Tensor = torch.Tensor
LEAST_SCALE = torch.finfo(torch.float32).eps  # torch's observers take no smaller one: 1 / scale has to stay finite
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32)


def value_range(x: Tensor, axis: int | None = None) -> tuple[Tensor, Tensor]:
    """The least and the largest value of `x`, or of each slice along `axis`: what torch's MinMaxObserver records."""
    x = x.detach()
    if x.numel() == 0:
        raise LabError("The tensor is empty, so it has no range.", "Quantize a tensor that has elements.")
    if axis is not None:
        x = x.movedim(_valid_axis(x, axis), 0).flatten(1)
        return x.amin(1), x.amax(1)
    return x.amin(), x.amax()


def affine_parameters(
    low: Tensor | float, high: Tensor | float, bits: int = 8, symmetric: bool = False, signed: bool = True
) -> tuple[Tensor, Tensor, int, int]:
    """(scale, zero_point, quant_min, quant_max) for values from `low` to `high`; vectors give one scale for each channel.

    quant_min, quant_max = -2^(bits-1), 2^(bits-1) - 1, or 0, 2^bits - 1 if not signed
    low, high            = min(low, 0), max(high, 0), so that 0 has an integer of its own
    affine:     scale = (high - low) / (quant_max - quant_min),  zero_point = quant_min - round(low / scale)
    symmetric:  scale = max(-low, high) / ((quant_max - quant_min) / 2),  zero_point = the middle: 0, or 2^(bits-1)
    """
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 16:
        raise LabError(f"{bits!r} is not a valid number of bits.", "Take an integer from 1 to 16.")
    low, high = (torch.as_tensor(value, dtype=torch.float32).detach() for value in (low, high))
    if low.shape != high.shape:
        shapes = f"{tuple(low.shape)} and {tuple(high.shape)}"
        raise LabError(f"low and high have different shapes, {shapes}.", "Give one range for each channel.")
    _expect_finite(torch.stack([low, high]), "The range")
    if (low > high).any():
        first = (low > high).flatten().nonzero()[0].item()
        ends = f"{low.flatten()[first]:g} to {high.flatten()[first]:g}"
        raise LabError(f"The range from {ends} is empty.", "low is the least value, high the largest.")
    quant_min, quant_max = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    low, high = low.clamp(max=0), high.clamp(min=0)
    steps = float(quant_max - quant_min)
    scale = torch.maximum(-low, high) / (steps / 2) if symmetric else (high - low) / steps
    if (scale == 0).any():
        raise LabError(
            "All values are 0, so the scale would be 0.",
            f"Nothing needs rounding there: leave them as they are, or give a range such as 0 to {1 / 128} "
            f"(torch's observers take the scale {LEAST_SCALE:.2g}).",
        )
    _expect_finite(scale, "The scale")
    scale = scale.clamp(min=LEAST_SCALE)
    if symmetric:
        return scale, torch.full_like(scale, quant_min + 2 ** (bits - 1), dtype=torch.int32), quant_min, quant_max
    zero_point = quant_min - torch.round(low / scale).to(torch.int32)
    return scale, zero_point.clamp(quant_min, quant_max), quant_min, quant_max


def quantize(
    x: Tensor, scale: Tensor | float, zero_point: Tensor | int, quant_min: int, quant_max: int, axis: int | None = None
) -> Tensor:
    """q = clamp(round(x · (1 / scale)) + zero_point, quant_min, quant_max), in the narrowest integer type that holds both ends.

    Three details make the integers equal to torch's. 1 / scale is rounded to float32 and then multiplied: a product is faster
    than a quotient, and differs from it in the last bit of a few values, some of which then round the other way. Halves are
    rounded to the even integer. The zero point is added after the rounding, since adding an odd one before would turn those
    halves around.
    """
    q = rounded(x, *_for_each_slice(x, scale, zero_point, axis)).clamp(quant_min, quant_max)
    fits = (kind for kind in INTEGERS if torch.iinfo(kind).min <= quant_min <= quant_max <= torch.iinfo(kind).max)
    return q.to(next(fits))


def dequantize(q: Tensor, scale: Tensor | float, zero_point: Tensor | int, axis: int | None = None) -> Tensor:
    """x = (q - zero_point) · scale in float32."""
    scale, zero_point = _for_each_slice(q, scale, zero_point, axis)
    return (q.to(torch.float32) - zero_point) * scale


def fake_quantize(
    x: Tensor, scale: Tensor | float, zero_point: Tensor | int, quant_min: int, quant_max: int, axis: int | None = None
) -> Tensor:
    """dequantize(quantize(x)) in the type of `x`, for training.

    The derivative of round is 0 wherever it exists, so nothing would be learned through it. The straight-through estimator
    takes 1 instead where x is within the range, and 0 where it was clamped.
    """
    return FakeQuantize.apply(x, *_for_each_slice(x, scale, zero_point, axis), quant_min, quant_max)


class FakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int) -> Tensor:
        q = rounded(x, scale, zero_point)
        ctx.save_for_backward((quant_min <= q) & (q <= quant_max))
        return ((q.clamp(quant_min, quant_max) - zero_point) * scale).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        (within,) = ctx.saved_tensors
        return gradient * within, None, None, None, None


def rounded(x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """round(x · (1 / scale)) + zero_point: integers, as floats, before the clamp."""
    if not x.is_floating_point():
        raise LabError(f"A tensor of {x.dtype} cannot be quantized.", "Quantize floats, such as x.float().")
    _expect_finite(x, "The tensor")  # as an integer, NaN and infinity would be some large negative number
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return torch.round(x * (1 / scale)) + zero_point


def _for_each_slice(x: Tensor, scale: Tensor | float, zero_point: Tensor | int, axis: int | None) -> tuple[Tensor, Tensor]:
    """Scale and zero point as tensors that broadcast along `axis` of `x`."""
    scale = torch.as_tensor(scale, dtype=torch.float32, device=x.device)
    zero_point = torch.as_tensor(zero_point, device=x.device)
    if not (scale > 0).all():
        raise LabError("A scale is 0, negative or NaN.", "Take the scale from affine_parameters.")
    shape, count = [], 1
    if axis is not None:
        axis = _valid_axis(x, axis)
        shape, count = [1] * x.ndim, x.shape[axis]
        shape[axis] = count
    if scale.numel() != count or zero_point.numel() != count:
        where = "without axis" if axis is None else f"for axis {axis} of a tensor of shape {tuple(x.shape)}"
        raise LabError(
            f"There are {scale.numel()} scales and {zero_point.numel()} zero points; {where} there has to be {count} of each.",
            "Take both from value_range(x, axis) and affine_parameters, and give the same axis here.",
        )
    return scale.reshape(shape), zero_point.reshape(shape)


def _valid_axis(x: Tensor, axis: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise LabError(f"A tensor of shape {tuple(x.shape)} has no axis {axis}.", f"Take an axis below {x.ndim}.")
    return axis % x.ndim


def _expect_finite(values: Tensor, what: str) -> None:
    if not values.isfinite().all():
        raise LabError(
            f"{what} contains NaN or infinity, for which there is no integer.",
            "Find where it came from, or replace it, for example by torch.nan_to_num.",
        )
