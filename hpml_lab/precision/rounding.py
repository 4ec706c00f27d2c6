"""Checks of the formats of `formats.py` against torch: values, rounding, sums, and the rule for lost updates."""

from dataclasses import dataclass

import torch

from hpml_lab.core.experiment.findings import Row, column
from hpml_lab.precision.formats import BF16, FP16, Format, is_lost

# A sum, or with start 0 a conversion, and its result: (format, start, added, result).
ROUNDINGS = (
    (FP16, 2048.0, 1.0, 2048.0),
    (FP16, 2050.0, 1.0, 2052.0),
    (FP16, 1.0, 0.0004, 1.0),
    (FP16, 65504.0, 15.0, 65504.0),
    (FP16, 65504.0, 16.0, float("inf")),
    (FP16, 0.0, 70000.0, float("inf")),
    (FP16, 0.0, 2.0**-25, 0.0),
    (FP16, 0.0, 1.1 * 2.0**-25, 2.0**-24),
    (BF16, 256.0, 1.0, 256.0),
    (BF16, 258.0, 1.0, 260.0),
    (BF16, 1.0, 0.0004, 1.0),
    (BF16, 0.0, 70000.0, 70144.0),
    (BF16, 0.0, 2.0**-25, 2.0**-25),
)
WEIGHTS = (1.0, 1.25, 1 - 2.0**-8, 2.0, 100.0, 0.01171875, 2.0**-13, 2.0**-14)  # numbers of fp16 and of bf16


@dataclass
class RoundedSum(Row):
    """start + added as torch computes it in a format; with start 0 only the conversion."""

    number_format: str = column("format")
    start: float = column("start")
    added: float = column("added")
    result: float = column("result")
    expected: float = column("expected")


def rounded_sums() -> list[RoundedSum]:
    """Compute ROUNDINGS with torch."""
    rows = []
    for form, start, added, expected in ROUNDINGS:
        converted = torch.tensor(added, dtype=form.dtype)
        result = (torch.tensor(start, dtype=form.dtype) + converted if start else converted).item()
        rows.append(RoundedSum(form.name, start, added, result, expected))
    return rows


def values_and_midpoints(form: Format) -> torch.Tensor:
    """All numbers of the format, all midpoints between two of them, and the fp32 numbers next to the midpoints (float64)."""
    values = form.values()
    midpoints = ((values[1:] + values[:-1]) / 2).float()
    neighbors = [torch.nextafter(midpoints, torch.tensor(end)).double() for end in (0.0, 1e38)]
    return torch.cat([values, -values, midpoints.double(), -midpoints.double(), *neighbors])


def predicts_lost_updates(form: Format) -> tuple[bool, int]:
    """Whether `is_lost` predicts, for each of WEIGHTS and each number of the format as its update, whether torch loses it;
    and the number of sums."""
    updates = torch.cat([form.values(), -form.values()])
    correct = []
    for weight in WEIGHTS:
        weights = torch.full_like(updates, weight)
        unchanged = weights.to(form.dtype) + updates.to(form.dtype) == weights.to(form.dtype)
        correct.append(torch.equal(unchanged, is_lost(weights, updates, form)))
    return all(correct), len(updates) * len(WEIGHTS)


def integers_are_exact(form: Format) -> bool:
    """Whether all integers up to 2^(fraction + 1) are numbers of the format, and the next one is not."""
    n = 2 ** (form.fraction + 1)
    integers = torch.arange(n + 2, dtype=torch.float64)
    return (integers.to(form.dtype).double() == integers).tolist() == [True] * (n + 1) + [False]


def finfo_agrees(form: Format) -> bool:
    """Whether torch.finfo gives the range and the spacing that follow from the bits."""
    info = torch.finfo(form.dtype)
    return (info.max, info.smallest_normal, info.eps) == (form.largest, form.smallest_normal, form.eps)
