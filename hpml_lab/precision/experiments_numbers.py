"""The experiments of notebook 11 on numbers: how fast products of each format are, and what 16 bits can hold."""

import math

import torch

from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.precision import gemm
from hpml_lab.precision.figures_numbers import draw_fp16_vs_bf16, draw_gemm_tensor_cores
from hpml_lab.precision.formats import BF16, E4M3, FORMATS, FP16, Format, from_bits, is_lost, round_stochastically
from hpml_lab.precision.products import beside_multiples, eights_gain, summed_errors, sweep
from hpml_lab.precision.updates import WAYS, train

NOTEBOOK = "11_precision"
SLACK = 1 + 2.0**-7  # the gradient and lr times the gradient are rounded, too


# ---- gemm-tensor-cores --------------------------------------------------------------------------------------------------


@experiment(
    "gemm-tensor-cores",
    lecture="L1",
    notebook=NOTEBOOK,
    draw=draw_gemm_tensor_cores,
    quick=dict(sizes=(128, 256, 512), gpu_sizes=(4096,), starts=(1000,), lengths=(16, 64, 256, 1024, 4096)),
    full=dict(
        sizes=(512, 1024, 2048, 4096), gpu_sizes=(8192,), starts=(1000, 4088), lengths=(4, 16, 64, 256, 1024, 4096, 16384)
    ),
    lecture_says={"16-bit over fp32, times faster at most": "up to 8 (fp16 factors, fp32 sums; V100)"},
    uses=("cuda",),
)
def gemm_tensor_cores(size: Size) -> Result:
    """Matrix products by number format: rate, kernel, error, and multiples of 8."""
    device = size.device.torch
    modes, lacks = gemm.modes(device)
    gpu = torch.cuda.get_device_name(device) if size.device.is_cuda else ""
    peaks = gemm.sheet_peaks(gpu)
    with gemm.switched(gemm.FP32):
        rows, slow = sweep(size, modes)
        quickest = [mode for mode in modes if mode.stored.itemsize == 2 and mode.name not in slow]
        groups = beside_multiples(size, quickest[-1] if quickest else gemm.FP32)
    best = {mode.name: max(row["TFLOP/s"] for row in rows if row["format"] == mode.name) for mode in modes}
    for row in rows:
        row["of the best here"] = row["TFLOP/s"] / best[row["format"]]
        row["of the data sheet"] = row["TFLOP/s"] / peaks[row["format"]] if row["format"] in peaks else None
        row["kernel"] = row.pop("kernel")  # last, because it is long

    curves, fp32_keeps, others_keep = summed_errors(size.lengths)
    ones = torch.ones(1, 4096, dtype=torch.float16)
    stops = {d: gemm.accumulate(ones, ones, d, (4096,))[4096].item() for d in (torch.float16, torch.bfloat16, torch.float32)}
    halves = torch.linspace(1, 2, 1025)[:-1].half()
    square = {(row["format"], row["N"]): row for row in rows if row["M"] == row["N"] == row["K"]}
    short_modes = [mode.name for mode in modes if mode.stored.itemsize == 2]
    ratios = {
        (name, n): one["TFLOP/s"] / square["fp32", n]["TFLOP/s"] for (name, n), one in square.items() if name in short_modes
    }
    top = quickest[-1].name if quickest else "fp32"
    short, long = (min((r for r in rows if r["format"] == top), key=lambda r: s * r["K"] / r["M"]) for s in (1, -1))
    other_kernel = {row["kernel"] for row in rows if row["format"] == top} - {
        row["kernel"] for row in rows if row["format"] == "fp32"
    }
    gains = [eights_gain(group) for group in groups]
    claims = [
        Claim(
            "every product is as near to float64's as its format allows, element by element",
            all(row["error / bound"] <= 1 for row in rows),
            f"at most {max(row['error / bound'] for row in rows):.2f} of the bound",
        ),
        Claim(
            "torch's own FLOP counter has 2MNK for each shape",
            all(row.pop("FLOP") == gemm.flops(row["M"], row["N"], row["K"]) for row in rows),
            f"{len(rows)} products",
        ),
        Claim(
            "the product of any two fp16 significands is exact in fp32",
            torch.equal((halves.float()[:, None] * halves.float()).double(), halves.double()[:, None] * halves.double()),
            f"{len(halves)} × {len(halves)} products",
        ),
        Claim(
            "added one by one, 4096 ones give 4096 in an fp32 sum, 2048 in an fp16 sum and 256 in a bf16 sum",
            list(stops.values()) == [2048.0, 256.0, 4096.0],
        ),
        Claim(
            "fp16 products summed in fp32 keep to the bound of fp32 sums, summed in 16 bits they break it",
            fp32_keeps and not others_keep,
            ", ".join(f"{name}: {curve[-1]['error']:.1e}" for name, curve in curves.items()) + f" at K = {size.lengths[-1]}",
        ),
        Claim(
            "16-bit factors are multiplied at least twice as fast as fp32's at the largest size",
            any(ratio >= 2 for (_, n), ratio in ratios.items() if n == max(n for _, n in square)),
            ", ".join(f"{name} {n}: {ratio:.2g}×" for (name, n), ratio in ratios.items()),
            exact=False,
        ),
        Claim(
            "multiples of 8 are at least 1.1 times faster than the sizes between them",
            all(gain >= 1.1 for gain in gains),
            ", ".join(f"from {start}: {gain:.2f}×" for start, gain in zip(size.starts, gains, strict=True)),
            exact=False,
        ),
        Claim(
            "of shapes with as many FLOP, long K is faster than short K",
            long["ms"] < short["ms"],
            f"K = {long['K']}: {long['ms']:.3g} ms, K = {short['K']}: {short['ms']:.3g} ms ({top})",
            exact=False,
        ),
        Claim("16-bit factors run another kernel than fp32's", bool(other_kernel), ", ".join(other_kernel)[:120], exact=False),
    ]
    quantities = {f"best {name}, TFLOP/s": rate for name, rate in best.items()}
    quantities |= {f"data sheet {name}, TFLOP/s": peak for name, peak in peaks.items() if name in best}
    if ratios:
        quantities["16-bit over fp32, times faster at most"] = max(ratios.values())
    quantities["multiples of 8 over the sizes between, times faster"] = gains[-1]
    notes = [f"Not measured here: {sentence}." for sentence in lacks]
    if slow:
        notes.append(f"This processor has no fast {' and '.join(slow)} product: larger sizes were left out.")
    if not size.device.is_cuda:
        notes.append(
            "No CUDA GPU here: no tensor cores and no data-sheet peak; run `hpml-lab run gemm-tensor-cores --size full` on a "
            "machine with one."
        )
    elif not peaks:
        notes.append(f"The table of data-sheet peaks (hpml_lab/precision/gemm.py) does not know the {gpu}.")
    return Result(rows, claims, quantities, notes, {"sides": groups, "errors": curves, "peaks": peaks})


# ---- fp16-vs-bf16 -------------------------------------------------------------------------------------------------------

# A sum, or with 0 a conversion, and what must come of it: (format, start, added, result).
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


def rounded_sum(form: Format, start: float, added: float) -> float:
    """start + added in the format, as torch computes it; with start 0 only the conversion."""
    added = torch.tensor(added, dtype=form.dtype)
    return (torch.tensor(start, dtype=form.dtype) + added if start else added).item()


def around(form: Format) -> torch.Tensor:
    """All numbers of the format, all midpoints between two of them, and the fp32 numbers just beside these (float64)."""
    values = form.values()
    midpoints = ((values[1:] + values[:-1]) / 2).float()
    beside = [torch.nextafter(midpoints, torch.tensor(end)).double() for end in (0.0, 1e38)]
    return torch.cat([values, -values, midpoints.double(), -midpoints.double(), *beside])


def lost_as_told(form: Format) -> tuple[bool, int]:
    """Whether the rule tells, for each of WEIGHTS and for each number of the format as its update, if torch loses it."""
    updates = torch.cat([form.values(), -form.values()])
    told = []
    for weight in WEIGHTS:
        w = torch.full_like(updates, weight)
        same = w.to(form.dtype) + updates.to(form.dtype) == w.to(form.dtype)
        told.append(torch.equal(same, is_lost(w, updates, form)))
    return all(told), len(updates) * len(WEIGHTS)


def whole_numbers(form: Format) -> bool:
    """Whether all integers up to 2^(fraction + 1) are numbers of the format, and the next one is not."""
    n = 2 ** (form.fraction + 1)
    integers = torch.arange(n + 2, dtype=torch.float64)
    return (integers.to(form.dtype).double() == integers).tolist() == [True] * (n + 1) + [False]


def finfo_agrees(form: Format) -> bool:
    """Whether torch.finfo gives the range and the spacing that the bits do."""
    told = torch.finfo(form.dtype)
    return (told.max, told.smallest_normal, told.eps) == (form.largest, form.smallest_normal, form.eps)


def spacing_curve(form: Format) -> dict[str, list[float]]:
    """The spacing of the format at each power of two from its smallest number to its largest."""
    low, high = (math.frexp(one)[1] - 1 for one in (form.smallest_subnormal, form.largest))
    magnitudes = [2.0**power for power in range(low, high + 1)]
    return {"magnitude": magnitudes, "spacing": [form.spacing(one) for one in magnitudes]}


@experiment(
    "fp16-vs-bf16",
    lecture="L1",
    notebook=NOTEBOOK,
    draw=draw_fp16_vs_bf16,
    quick=dict(weights=500, steps=1200, lr=0.01),
    full=dict(weights=10_000, steps=2000, lr=0.01),
)
def fp16_vs_bf16(size: Size) -> Result:
    """fp16 and bf16: range, rounding, and when an update is lost."""
    stored = [form for form in FORMATS if form.dtype]
    short = [form for form in stored if form.bits <= 16]
    rows = [
        {
            "format": form.name,
            "sign + exponent + fraction": f"1 + {form.exponent} + {form.fraction}",
            "largest": form.largest,
            "smallest normal": form.smallest_normal,
            "smallest": form.smallest_subnormal,
            "spacing at 1": form.eps,
            "spacing at 1000": form.spacing(1000.0) if form.largest > 1000 else None,
            "integers exact up to": 2 ** (form.fraction + 1),
        }
        for form in FORMATS
    ]
    sums = [(form.name, start, added, rounded_sum(form, start, added), right) for form, start, added, right in ROUNDINGS]
    told = [lost_as_told(form) for form in (FP16, BF16)]
    runs = {way.name: train(way, size.weights, size.steps, size.lr, size.device.torch) for way in WAYS}
    plain = [run for run in runs.values() if run.way.form in (FP16, BF16) and not run.way.master and not run.way.stochastic]
    small = torch.full((2**16,), 1 + 2.0**-10)
    drawn = round_stochastically(small, torch.Generator().manual_seed(0)).double()
    five_sigma = 5 * BF16.eps * math.sqrt(1 / 8 * 7 / 8 / len(small))  # goes up by eps with probability 1/8

    claims = [
        Claim(
            "every number of fp16, bf16 and both fp8 formats, worked out from its bits, is the one that torch reads",
            all(torch.equal(form.values(), from_bits(form)) for form in short),
            f"{sum(len(form.values()) for form in short)} positive numbers",
        ),
        Claim("torch.finfo tells the range and the spacing that follow from the bits", all(map(finfo_agrees, stored))),
        Claim(
            "rounding to the nearest, ties to even, is torch's conversion: at every number, every midpoint, and just beside",
            all(torch.equal(form.round(x), x.float().to(form.dtype).double()) for form in short for x in [around(form)]),
            f"{sum(len(around(form)) for form in short)} values",
        ),
        Claim(
            "2048 + 1 is 2048 in fp16, 256 + 1 is 256 in bf16, 1 + 0.0004 is 1 in both; 65504 + 16 is infinite in fp16",
            all(got == right for *_, got, right in sums),
            f"{len(sums)} sums and conversions",
        ),
        Claim("integers are exact up to 2048 in fp16 and up to 256 in bf16", whole_numbers(FP16) and whole_numbers(BF16)),
        Claim(
            "an update is lost if it does not reach half way to the next number, or just reaches it from an even one",
            all(right for right, _ in told),
            f"{sum(n for _, n in told)} sums foretold",
        ),
        Claim(
            "the descent lost as many updates as the rule foretold, step by step, in each format",
            all(run.lost == run.predicted for run in runs.values() if run.predicted is not None),
            ", ".join(f"{name}: {run.lost}" for name, run in runs.items() if run.predicted is not None),
        ),
        Claim(
            "with 16-bit weights alone every weight stands still in the end, at most spacing / (2 lr) from its target, to 1 %",
            all(run.stuck == size.weights and run.distance <= run.allowed * SLACK for run in plain),
            ", ".join(f"{run.way.name}: {run.distance:.3f} of {run.allowed:.3f}" for run in plain),
        ),
        Claim(
            "an fp32 master copy brings the loss below a thousandth of that without",
            all(runs[f"{run.way.name}, fp32 master"].losses[-1] < run.losses[-1] / 1000 for run in plain),
            ", ".join(f"{name}: {run.losses[-1]:.1e}" for name, run in runs.items()),
        ),
        Claim(
            "rounded at random, 1 + 2⁻¹⁰ is always 1 or the next bf16 number, and on average itself",
            set(drawn.tolist()) == {1.0, 1 + BF16.eps} and abs(drawn.mean().item() - small[0].item()) < five_sigma,
        ),
    ]
    quantities = {f"loss at the end, {name}": run.losses[-1] for name, run in runs.items()}
    quantities |= {f"updates lost, {name}, %": 100 * run.lost / size.weights / size.steps for name, run in runs.items()}
    beyond = torch.tensor(1000.0).to(E4M3.dtype).item()
    notes = [
        f"fp8 e4m3 has no infinity: here 1000 becomes {beyond:g} (NaN with torch 2.11, the largest number with torch 2.15).",
        "tf32 is not stored anywhere: its rows are worked out from its bits.",
    ]
    line = {form.name: [1 + k * form.eps for k in range(int(0.25 / form.eps) + 1)] for form in FORMATS[2:]}
    shown = range(0, size.steps, max(1, size.steps // 200))
    losses = {name: {"step": list(shown), "loss": [run.losses[step] for step in shown]} for name, run in runs.items()}
    spacing = {form.name: spacing_curve(form) for form in FORMATS}
    return Result(rows, claims, quantities, notes, {"sums": sums, "spacing": spacing, "line": line, "losses": losses})
