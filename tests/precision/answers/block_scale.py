"""Answers to `block-scale`: a power of two or a number of e4m3 for each row, and the row in e2m1 times its scale."""

import torch
from edited_source import wrong_answers

from hpml_lab.precision.lessons import low_precision


def solution(x, form):
    largest = x.abs().amax(1, keepdim=True)
    if form == "MXFP4":
        scale = torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent - 3)
    else:
        scale = (largest / 6).to(torch.float8_e4m3fn).to(x.dtype)
    ratio = torch.where(scale == 0, 0, x / scale).abs().clamp(max=6).contiguous()
    codes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=x.dtype)
    middle = (codes[1:] + codes[:-1]) / 2
    down, up = torch.bucketize(ratio, middle), torch.bucketize(ratio, middle, right=True)
    code = torch.where(down % 2 == 0, down, up)
    return scale[:, 0], codes[code] * x.sign() * scale


# ---- unusual, and right ----------------------------------------------------------------------------------------------------


def by_the_package(x, form):
    scale = solution(x, form)[0]
    ratio = torch.nan_to_num(x / scale[:, None], 0.0, 0.0, 0.0)
    return scale, low_precision.saturated(ratio, low_precision.E2M1).to(x.dtype) * scale[:, None]


def row_by_row(x, form):
    scales, rows = [], []
    for row in x:
        scale, values = solution(row[None], form)
        scales.append(scale[0])
        rows.append(values[0])
    return torch.stack(scales), torch.stack(rows)


def by_a_reciprocal(x, form):
    scale = solution(x, form)[0][:, None]
    ratio = (x * (1 / scale)).nan_to_num(0.0).clamp(-6, 6).double()
    return scale[:, 0], low_precision.E2M1.round(ratio).to(x.dtype) * scale


ALSO_RIGHT = [by_the_package, row_by_row, by_a_reciprocal]

POWER = "torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent - 3)"
E4M3 = "(largest / 6).to(torch.float8_e4m3fn).to(x.dtype)"
WRONG = wrong_answers(
    solution,
    [
        ("exponent-rounded-up", ("exponent - 3)", "exponent - 2)")),
        ("scale-not-in-its-format", (POWER, "largest / 6"), (E4M3, "largest / 6")),
        ("scale-of-the-tensor", ("x.abs().amax(1, keepdim=True)", "x.abs().max() * torch.ones(len(x), 1, dtype=x.dtype)")),
        ("another-scale", ("largest / 6", "largest / 5")),
        ("another-scale", ("exponent - 3)", "exponent - 7)")),
        ("ties-to-zero", ("torch.where(down % 2 == 0, down, up)", "down")),
        ("ties-away-from-zero", ("torch.where(down % 2 == 0, down, up)", "up")),
        ("another-number", ("[0, 0.5, 1, 1.5, 2, 3, 4, 6]", "[0, 0.5, 1, 1.5, 2, 3, 4, 5]")),
        ("another-number", (".clamp(max=6)", ".clamp(max=4)")),
        ("not-multiplied-back", ("x.sign() * scale", "x.sign()")),
        ("wrong-type", ("return scale[:, 0], codes[code]", "return codes[code]")),
        (
            "wrong-dtype",
            ("(torch.float8_e4m3fn).to(x.dtype)", "(torch.float8_e4m3fn)"),
            ("x / scale", "x / scale.float()"),
            ("x.sign() * scale", "x.sign() * scale.float()"),
            ("scale == 0", "scale.float() == 0"),
        ),
    ],
)
