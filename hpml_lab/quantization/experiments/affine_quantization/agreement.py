"""The arithmetic of affine.py next to what torch, torchao and the int8 engines compute: how many values differ?"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.warned import collect_warnings
from hpml_lab.quantization.lessons.affine import affine_parameters, fake_quantize, quantize, value_range
from hpml_lab.quantization.tools.torchao_parts import torchao

Tensor = torch.Tensor
ONE_LINE = "x + (fake_quantize(x) - x).detach()"
EXACT_ENGINES = ("fbgemm", "x86", "onednn")  # they add the bias in float; qnnpack rounds it to an integer first


@dataclass
class EqualityCheck(Row):
    """One computation of ours next to another's."""

    ours: str = column("computed here")
    theirs: str = column("compared with")
    values: int = column("values")
    differ: int = column("differ")
    largest: float | None = column("largest difference", "", None)


def compared(ours: str, theirs: str, got: list[Tensor], right: list[Tensor]) -> EqualityCheck:
    """How many numbers of two lists of tensors differ, and by how much at most."""
    pairs = [(a.detach().cpu().double(), b.detach().cpu().double()) for a, b in zip(got, right, strict=True)]
    assert all(a.shape == b.shape for a, b in pairs)
    values, differ = sum(a.numel() for a, _ in pairs), sum(int((a != b).sum()) for a, b in pairs)
    largest = max((a - b).abs().max().item() for a, b in pairs)
    return EqualityCheck(ours, theirs, values, differ, largest or None)


def seeded(*shape: int, seed: int = 0) -> Tensor:
    """Normal values, the same on every machine with the same torch."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def narrowed(x: Tensor, bits: int, symmetric: bool, axis: int | None = None) -> tuple[Tensor, Tensor, int, int]:
    """Parameters for the middle half of the range of `x`, so that some values are clamped."""
    low, high = value_range(x, axis)
    return affine_parameters(low / 2, high / 2, bits, symmetric)


def value_and_gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """function(x), and the gradient of x for a gradient of the result that differs from value to value."""
    x = x.clone().requires_grad_()
    result = function(x)
    result.backward(x.detach().flip(-1))
    return result.detach(), x.grad


def one_line(x: Tensor, *parameters) -> Tensor:
    """The straight-through estimator that fits on one line; it passes the gradient everywhere."""
    return x + (fake_quantize(x, *parameters) - x).detach()


# ---- torch -----------------------------------------------------------------------------------------------------------


def compare_fake(x: Tensor) -> Iterator[EqualityCheck]:
    """Values and gradients of fake quantization, for 8, 4 and 2 bits and both schemes."""
    parts, settings = x.reshape(6, -1), [(bits, symmetric) for bits in (8, 4, 2) for symmetric in (False, True)]
    pairs = []
    for part, setting in zip(parts, settings, strict=True):
        p = narrowed(part, *setting)
        ours = value_and_gradient(lambda v, p=p: fake_quantize(v, *p), part)
        pairs.append((ours, value_and_gradient(lambda v, p=p: torch.fake_quantize_per_tensor_affine(v, *p), part)))
    for k, what in enumerate(("values", "gradients")):
        got, right = ([pair[side][k] for pair in pairs] for side in (0, 1))
        yield compared(f"fake_quantize, {what}", "torch.fake_quantize_per_tensor_affine", got, right)
    rows = parts.reshape(6, 50, -1)
    pairs = []
    for part, setting in zip(rows, settings, strict=True):
        scale, zero, *ends = narrowed(part, *setting, axis=0)
        ours = value_and_gradient(lambda v, p=(scale, zero, *ends): fake_quantize(v, *p, axis=0), part)
        per_channel = (scale, zero, 0, *ends)  # torch has the axis before the two ends
        right = value_and_gradient(lambda v, p=per_channel: torch.fake_quantize_per_channel_affine(v, *p), part)
        pairs.append((ours, right))
    for k, what in enumerate(("values", "gradients")):
        got, right = ([pair[side][k] for pair in pairs] for side in (0, 1))
        yield compared(f"fake_quantize per channel, {what}", "torch.fake_quantize_per_channel_affine", got, right)


def compare_integers(x: Tensor) -> EqualityCheck:
    """The integers themselves, signed and unsigned."""
    got, right = [], []
    for part, dtype in zip(x.cpu().reshape(2, -1), (torch.qint8, torch.quint8), strict=True):
        low, high = value_range(part)
        p = affine_parameters(low / 2, high / 2, signed=dtype is torch.qint8)
        got.append(quantize(part, *p))
        with collect_warnings():  # the quantized dtypes are deprecated from torch 2.15 on
            right.append(torch.quantize_per_tensor(part, p[0].item(), p[1].item(), dtype).int_repr())
    return compared("quantize", "torch.quantize_per_tensor", got, right)


def compare_observers(x: Tensor) -> EqualityCheck:
    """Scales and zero points, for both schemes, signed and unsigned, per tensor and per channel."""
    with collect_warnings():
        from torch.ao.quantization.observer import MinMaxObserver, PerChannelMinMaxObserver
    got, right = [], []
    tensors = [
        row * factor + shift for row in x.cpu().reshape(20, 50, -1) for factor, shift in ((1, 0), (0.01, 0.02), (9, -30))
    ]
    for number, tensor in enumerate(tensors):
        dtype, symmetric = (torch.qint8, torch.quint8)[number % 2], bool(number // 2 % 2)
        for axis, observer in ((None, MinMaxObserver), (0, PerChannelMinMaxObserver)):
            scheme = f"per_{'tensor' if axis is None else 'channel'}_{'symmetric' if symmetric else 'affine'}"
            with collect_warnings():
                observed = observer(dtype=dtype, qscheme=getattr(torch, scheme))
                observed(tensor)
                right += [found.flatten() for found in observed.calculate_qparams()]
            found = affine_parameters(*value_range(tensor, axis), symmetric=symmetric, signed=dtype is torch.qint8)
            got += [value.flatten() for value in found[:2]]
    return compared("value_range, affine_parameters", "MinMaxObserver, PerChannelMinMaxObserver", got, right)


def compare_products(size: int = 256) -> Iterator[EqualityCheck]:
    """Sums of products of int8: in int32, in torch's fast kernel, and in float32 while the sums stay below 2^24."""
    a, b = (
        torch.randint(-128, 128, (size, size), dtype=torch.int8, generator=torch.Generator().manual_seed(k)) for k in (0, 1)
    )
    exact = a.int() @ b.int()
    yield compared("A.int() @ B.int()", "torch._int_mm(A, B)", [exact], [torch._int_mm(a, b)])
    yield compared("A.int() @ B.int()", f"A.float() @ B.float(), {size} terms", [exact], [a.float() @ b.float()])
    terms = 2**11 + 1  # (-128)² · 2,048 = 2^25, and the last product is 1: from 2^24 on, float32 has only even numbers
    row = torch.full((1, terms), -128, dtype=torch.int8)
    row[0, -1] = 1
    yield compared(
        "A.int() @ B.int()", f"A.float() @ B.float(), {terms:,} terms", [row.int() @ row.int().T], [row.float() @ row.float().T]
    )


# ---- whole layers in int8 --------------------------------------------------------------------------------------------


def symmetric_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """int8 for each row with a scale of its own, and the scales as a column: the scheme of torchao's dynamic Linear."""
    scale, zero, *ends = affine_parameters(*value_range(x, 0), symmetric=True)
    return quantize(x, scale, zero, *ends, axis=0), scale[:, None]


def dynamic_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A Linear in int8 whose input is quantized row by row when it arrives: sum of integers · scale_x · scale_w + bias.

    The order is that of torchao; scale_x · scale_w multiplied first would differ in the last bit.
    """
    (qx, sx), (qw, sw) = symmetric_rows(x), symmetric_rows(weight)
    return ((qx.int() @ qw.int().T).float() * sx) * sw.T + bias


def compare_torchao() -> EqualityCheck | None:
    """The same Linear by torchao; None if it is not installed."""
    try:
        quantization = torchao()
    except LabError:
        return None
    # True, the default, would change inductor's settings for the whole process.
    config = quantization.Int8DynamicActivationInt8WeightConfig(set_inductor_config=False)
    got, right = [], []
    for wide, high, batch in ((64, 32, 8), (256, 128, 64), (1000, 100, 17)):
        layer = nn.Sequential(nn.Linear(wide, high))
        layer[0].weight.data, layer[0].bias.data = seeded(high, wide, seed=wide), seeded(high, seed=high)
        x, weight, bias = seeded(batch, wide, seed=batch), layer[0].weight.detach(), layer[0].bias.detach()
        with collect_warnings(), torch.no_grad():
            quantization.quantize_(layer, config)
            right.append(layer(x))
        got.append(dynamic_linear(x, weight, bias))
    return compared("sum · scale_x · scale_w + bias", "torchao's dynamic int8 Linear", got, right)


def static_linear(x: Tensor, weight: Tensor, bias: Tensor, low: float, high: float) -> tuple[Tensor, ...]:
    """A Linear from unsigned to unsigned 8 bits, with fixed ranges; returns the integers that come out and what it was given.

    q_out = clamp(round((sum · (scale_x · scale_w) + bias) / scale_out) + zero_out), where the sum is that of
    (q_x - zero_x) · q_w.
    """
    sx, zx, *x_ends = affine_parameters(*value_range(x), signed=False)
    sw, zw, *w_ends = affine_parameters(*value_range(weight), symmetric=True)
    so, zo, *ends = affine_parameters(low, high, signed=False)
    sums = (quantize(x, sx, zx, *x_ends).int() - zx) @ quantize(weight, sw, zw, *w_ends).int().T
    return quantize(sums.float() * (sx * sw) + bias, so, zo, *ends), (sx, zx), (sw, zw), (so, zo)


def compare_engines() -> Iterator[EqualityCheck]:
    """The static quantized Linear of the engines of this torch that add the bias in float."""
    x, weight, bias = seeded(64, 256).relu(), seeded(128, 256, seed=1), seeded(128, seed=2)
    float_out = nn.functional.linear(x, weight, bias)
    ours, *parameters = static_linear(x, weight, bias, *(end.item() for end in value_range(float_out)))
    (sx, zx), (sw, zw), (so, zo) = ((scale.item(), zero.item()) for scale, zero in parameters)
    before = torch.backends.quantized.engine
    for engine in sorted(set(EXACT_ENGINES) & set(torch.backends.quantized.supported_engines)):
        try:
            torch.backends.quantized.engine = engine
            with collect_warnings():
                packed = torch.ops.quantized.linear_prepack(torch.quantize_per_tensor(weight, sw, zw, torch.qint8), bias)
                given = torch.quantize_per_tensor(x, sx, zx, torch.quint8)
                theirs = torch.ops.quantized.linear(given, packed, so, zo).int_repr()
        finally:
            torch.backends.quantized.engine = before
        yield compared("round((sum · scale + bias) / scale_out) + zero_out", f"quantized.linear of {engine}", [ours], [theirs])


# ---- other ways to round ---------------------------------------------------------------------------------------------


def compare_other_roundings(x: Tensor) -> Iterator[EqualityCheck]:
    """Dividing by the scale, and adding the zero point before rounding, over twenty odd zero points and scales."""
    got, divided, added = [], [], []
    for k, part in enumerate(x.reshape(20, -1)):
        scale, zero, *ends = affine_parameters(-3 - k / 10, 3.3)
        zero = zero | 1
        got.append(quantize(part, scale, zero, *ends))
        divided.append((torch.round(part / scale) + zero).clamp(*ends))
        added.append(torch.round(part * (1 / scale) + zero).clamp(*ends))
    yield compared("quantize", "round(x / scale) + zero", got, divided)
    yield compared("quantize", "round(x · (1 / scale) + zero)", got, added)


def compare_one_line(x: Tensor) -> Iterator[EqualityCheck]:
    """The one-line estimator: values where nothing is clamped, then values and gradients where most are."""
    wide, narrow = affine_parameters(*value_range(x)), affine_parameters(-0.02, 0.02)
    yield compared("fake_quantize, values", f"{ONE_LINE}, none clamped", [fake_quantize(x, *wide)], [one_line(x, *wide)])
    ours, theirs = (value_and_gradient(lambda v, f=f: f(v, *narrow), x) for f in (fake_quantize, one_line))
    for k, what in enumerate(("values", "gradients")):
        yield compared(f"fake_quantize, {what}", f"{ONE_LINE}, most clamped", [ours[k]], [theirs[k]])
