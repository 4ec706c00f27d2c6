"""Answers to `quantize-affine`: (q, scale, zero_point) of a tensor in signed integers."""

from typing import NamedTuple

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


def counted_from_the_upper_end(x, low, high, bits):
    low, high = torch.minimum(low, torch.zeros(())), torch.maximum(high, torch.zeros(()))
    top = 2 ** (bits - 1) - 1
    scale = (high - low) / float(2**bits - 1)
    zero = top - torch.round(high / scale)
    return torch.clip(torch.round(x * scale.reciprocal()) + zero, -top - 1, top).int(), scale, zero.int()


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


class Quantized(NamedTuple):
    q: torch.Tensor
    scale: torch.Tensor
    zero_point: torch.Tensor


def with_names(x, low, high, bits):
    return Quantized(*solution(x, low, high, bits))


ALSO_RIGHT = [with_pythons_numbers, clamped_before_with_shifted_ends, with_names]

SCALE = "scale = (high - low) / (2**bits - 1)"
ZERO = "zero_point = quant_min - torch.round(low / scale).int()"
ROUND = "q = torch.round(x * (1 / scale)) + zero_point"
CLAMP = "q.clamp(quant_min, quant_max).int()"
EXTEND = "low, high = low.clamp(max=0), high.clamp(min=0)"
ENDS = "quant_min, quant_max = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1"


def in_place(x, low, high, bits):
    q, scale, zero_point = solution(x, low, high, bits)
    x.copy_(q)
    return x, scale, zero_point


def by_the_package(x, low, high, bits):
    from hpml_lab import quantization

    scale, zero, *ends = quantization.affine_parameters(low, high, bits)
    return quantization.quantize(x, scale, zero, *ends), scale, zero


def nothing(x, low, high, bits):
    solution(x, low, high, bits)


WRONG = [
    *wrong_answers(
        solution,
        [
            (
                "symmetric",
                (SCALE, "scale = torch.maximum(low.abs(), high.abs()) / ((2**bits - 1) / 2)"),
                (ZERO, "zero_point = 0"),
            ),
            ("inverted", (SCALE, "scale = (2**bits - 1) / (high - low)"), ("low / scale", "low * scale")),
            (
                "not-a-power",
                (ENDS, "quant_min, quant_max = -(2 ^ (bits - 1)), (2 ^ (bits - 1)) - 1"),
                (SCALE, "scale = (high - low) / (quant_max - quant_min)"),
            ),
            ("steps-too-long", (SCALE, "scale = torch.exp2(((high - low) / (2**bits - 1)).log2().ceil())")),
            ("steps-too-long", (SCALE, "scale = ((high - low) / (2**bits - 1)).clamp(min=1e-5)")),
            ("other-order", ("scale, zero_point\n", "zero_point, scale\n")),
            ("steps-too-short", (SCALE, "scale = (high - low) / 2**bits"), (EXTEND, "")),
            ("raises", (SCALE, "scale = (high - low) / (2**bit - 1)")),
            ("rounded-differently", (ROUND, "q = torch.round(torch.round(4 * x * (1 / scale)) / 4) + zero_point")),
            ("not-integers", (ROUND, "q = torch.round(8 * x / scale) / 8 + zero_point"), (".int(), scale", ", scale")),
            ("clamped-wrongly", (CLAMP, "torch.where((q < quant_min) | (q > quant_max), zero_point, q)")),
            (
                "clamped-before-the-zero-point",
                (ROUND, "q = torch.round(x * (1 / scale)).clamp(quant_min, quant_max) + zero_point"),
                (CLAMP, "q"),
            ),
            ("other-order", ("return q.clamp(quant_min, quant_max).int(), scale, zero_point", "return scale, zero_point, q")),
            ("wrong-type", (", scale, zero_point\n", "\n")),
            ("wrong-type", ("return q.clamp(quant_min, quant_max).int(), ", "return ")),
        ],
    ),
    ("borrowed", by_torch_itself),
    ("borrowed", by_the_package),
    ("wrong-value", counted_from_the_upper_end),
    ("inputs-changed", in_place),
    ("returns-nothing", nothing),
]


def parameters_of_the_first_call(x, low, high, bits, kept={}):  # noqa: B006
    _, scale, zero_point = kept.setdefault(bits, solution(x, low, high, bits))
    q = torch.round(x * (1 / scale)) + zero_point
    return q.clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).int(), scale, zero_point


WRONG += [("remembers-calls", parameters_of_the_first_call)]


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


WINDOWS = {"solution": solution}
exec(
    compile(
        "def observed(*given):\n    return solution(*given)", r"C:\site-packages\torch\ao\quantization\observer.py", "exec"
    ),
    WINDOWS,
)
WRONG += []


WRONG += []  # right numbers in another kind than the exercise asks for
ALSO_RIGHT += [one_by_one, unsigned_then_shifted]
