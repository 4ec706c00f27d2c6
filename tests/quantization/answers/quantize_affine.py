"""Answers to `quantize-affine`: (q, scale, zero_point) of a tensor in signed integers."""

import torch
from edited_source import wrong_answers


def solution(x, low, high, bits):
    low, high = low.clamp(max=0), high.clamp(min=0)
    quant_min, quant_max = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    scale = (high - low) / (2**bits - 1)
    zero_point = quant_min - torch.round(low / scale).int()
    q = torch.round(x * (1 / scale)) + zero_point
    return q.clamp(quant_min, quant_max).int(), scale, zero_point


def by_torch_itself(x, low, high, bits):
    low, high = low.clamp(max=0), high.clamp(min=0)
    ends = -(1 << bits - 1), (1 << bits - 1) - 1
    scale = (high - low) / (ends[1] - ends[0])
    zero = int(ends[0] - (low / scale).round())
    floats = torch.fake_quantize_per_tensor_affine(x, scale.item(), zero, *ends)
    return (floats / scale).round() + zero, scale, zero


def clamped_before_with_shifted_ends(x, low, high, bits):
    _, scale, zero = solution(x, low, high, bits)
    v = torch.round(x * (1 / scale)).clamp(-(2 ** (bits - 1)) - zero, 2 ** (bits - 1) - 1 - zero)
    return [(v + zero).long(), float(scale), int(zero)]


def one_by_one(x, low, high, bits):
    _, scale, zero = solution(x, low, high, bits)
    inverse, ends = 1 / scale, (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    q = [min(max(round((value * inverse).item()) + zero.item(), ends[0]), ends[1]) for value in x.flatten()]
    return torch.tensor(q).reshape(x.shape), scale.reshape(1), zero.reshape(1)


def unsigned_then_shifted(x, low, high, bits):
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = (high - low) / (2**bits - 1)
    zero = -torch.round(low / scale)
    q = (torch.round(x * (1 / scale)) + zero).clamp(0, 2**bits - 1)
    return q - 2 ** (bits - 1), scale, zero - 2 ** (bits - 1)


def with_pythons_numbers(x, low, high, bits):
    low, high = min(low.item(), 0.0), max(high.item(), 0.0)
    scale = (high - low) / (2**bits - 1)
    zero = -(2 ** (bits - 1)) - round(low / scale)
    return (x * (1 / scale)).round_().add_(zero).clamp_(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).short(), scale, zero


ALSO_RIGHT = [with_pythons_numbers, clamped_before_with_shifted_ends]

SCALE = "scale = (high - low) / (2**bits - 1)"
ZERO = "zero_point = quant_min - torch.round(low / scale).int()"
ROUND = "q = torch.round(x * (1 / scale)) + zero_point"
CLAMP = "q.clamp(quant_min, quant_max).int()"
EXTEND = "low, high = low.clamp(max=0), high.clamp(min=0)"


def by_the_package(x, low, high, bits):
    from hpml_lab import quantization

    scale, zero, *ends = quantization.affine_parameters(low, high, bits)
    return quantization.quantize(x, scale, zero, *ends), scale, zero


WRONG = [
    *wrong_answers(
        solution,
        [
            ("steps-too-long", (SCALE, "scale = torch.exp2(((high - low) / (2**bits - 1)).log2().ceil())")),
            ("other-order", ("scale, zero_point\n", "zero_point, scale\n")),
            ("steps-too-short", (SCALE, "scale = (high - low) / 2**bits"), (EXTEND, "")),
            ("not-an-integer", (ZERO, "zero_point = quant_min - low / scale")),
            ("zero-point-outside", (ZERO, "zero_point = -torch.round(low / scale).int()")),
            ("not-clamped", (CLAMP, "q.int()")),
            ("dtype-too-short", (CLAMP, f"{CLAMP.removesuffix('.int()')}.to(torch.int8)")),
            ("rounded-differently", (ROUND, "q = torch.round(torch.round(4 * x * (1 / scale)) / 4) + zero_point")),
            ("other-order", ("return q.clamp(quant_min, quant_max).int(), scale, zero_point", "return scale, zero_point, q")),
        ],
    ),
    ("borrowed", by_torch_itself),
    ("borrowed", by_the_package),
]


def with_a_closure(x, low, high, bits):
    quant_min, quant_max = -(1 << bits - 1), (1 << bits - 1) - 1

    def parameters():
        ends = torch.tensor([min(low.item(), 0.0), max(high.item(), 0.0)])
        scale = ends.diff()[0] / ((1 << bits) - 1)
        return scale, int(quant_min - torch.round(ends[0] / scale))

    scale, zero_point = parameters()
    return [torch.clip(x.mul(scale.reciprocal()).round() + zero_point, quant_min, quant_max).to(torch.int16), scale, zero_point]


ALSO_RIGHT += [with_a_closure]


def middle_becomes_0(clamped):
    def quantized(x, low, high, bits):
        q, scale, _ = solution(x, low, high, bits)
        zero_point = -torch.round((low.clamp(max=0) + high.clamp(min=0)) / 2 / scale)
        zero_point = zero_point.clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if clamped else zero_point
        return q, scale, zero_point.int()

    return quantized


WRONG += [("from-the-middle", middle_becomes_0(clamped)) for clamped in (False, True)]


ALSO_RIGHT += [one_by_one, unsigned_then_shifted]
