"""FP8, MXFP4 and NVFP4: rounding by hand and by torch, error by range, a product in FP8, and which layers can be rounded."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean

import torch
from torch import Tensor

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.data import load
from hpml_lab.precision.lessons.formats import E2M1, E4M3, E5M2
from hpml_lab.precision.lessons.low_precision import Blocks, every_code, mxfp4, nearest_power_of_two, nvfp4
from hpml_lab.precision.lessons.rounded_layers import FLOAT32, LAYERS, ROUNDINGS, accuracies, train_layers

SHOWN = 64.0  # σ: the size of outliers in the table
SIZES = dict(data="digits", batch=64, rate=0.1, outliers=tuple(4.0**power for power in range(11)))
QUICK = SIZES | dict(rows=128, seeds=8, steps=100)
FULL = SIZES | dict(rows=4096, seeds=32, steps=1000)
RANDOM = 100_000
PRODUCT = (64, 64, 512)  # m, n, k
ALL, INNER = "all", "all but first and last"
NUMBER_COLORS = style.BLUE, style.ORANGE, style.PURPLE, style.GREEN


def int8(x: Tensor) -> Tensor:
    scale = x.abs().max() / 127
    return (x / scale).round() * scale


WAYS: dict[str, Callable[[Tensor], Tensor]] = {  # the numbers that stand for those of a matrix
    "int8, one scale": int8,
    "e4m3, one scale": ROUNDINGS["FP8"].weights,
    "MXFP4": ROUNDINGS["MXFP4"].weights,
    "NVFP4": ROUNDINGS["NVFP4"].weights,
}
BITS = dict(zip(WAYS, (8, 8, 4 + 8 / 32, 4 + 8 / 16), strict=True))


@dataclass
class CastRow(Row):
    """A format by hand, and as torch decodes and rounds it."""

    number_format: str = column("format")
    codes: int = column("codes")
    points: int = column("midpoints, neighbors, random numbers")
    different: int = column("different from torch")


@dataclass
class StorageError(Row):
    """Normal numbers stored in one way: their error without outliers, and that of the others with some."""

    way: str = column("stored as")
    bits: float = column("bits per number")
    error: float = column("error", "%")
    error_with: float = column(f"error of the others, if 1 in 1,000 is {SHOWN:g} σ", "%")
    zeros: int = column("zeros, if 1 of 1,024 is 2²⁰ times the rest")


@dataclass
class LayerRow(Row):
    """A network of four layers, some of which multiply rounded numbers."""

    products: str = column("factors in")
    where: str = column("layers")
    accuracy: float = column("test accuracy, mean of the seeds", "%")
    lowest: float = column("lowest", "%")
    highest: float = column("highest", "%")


# ---- rounding --------------------------------------------------------------------------------------------------------------


def cast_row(
    name: str, dtype: torch.dtype, codes: Tensor, by_hand: Callable[[Tensor], Tensor], span: int, least: float = 0
) -> CastRow:
    """Compare codes and rounding with torch's.

    codes    the value of each code, by hand
    by_hand  rounds float32 numbers; where it gives infinity, torch gives what it makes of 10⁹: infinity, the largest, or NaN
    span     random numbers are from about 2^-span to 2^span
    least    midpoints and their neighbors below this are left out
    """
    finite, generator = codes[codes.isfinite()].unique().float(), torch.Generator().manual_seed(0)
    beyond = finite[-1:] * 1.5, finite[-1:] * 1.5 - finite[-2:-1] / 2
    midpoints = torch.cat([(finite[1:] + finite[:-1]) / 2, *beyond])
    near = torch.cat([midpoints, *(torch.nextafter(midpoints, torch.tensor(end)) for end in (-torch.inf, torch.inf))])
    near = near[near.abs() >= least]
    random = torch.randn(RANDOM, generator=generator) * torch.randint(-span, span, (RANDOM,), generator=generator).exp2()
    x = torch.cat([finite, near, -near, torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan]), random])
    rounded, over = by_hand(x), torch.tensor(1e9).to(dtype).double()
    ours = torch.cat([codes, torch.where(rounded.isinf(), rounded.sign() * over, rounded)])
    torchs = torch.cat([torch.arange(256, dtype=torch.uint8).view(dtype).double(), x.to(dtype).double()])
    different = (ours != torchs) & ~(ours.isnan() & torchs.isnan())
    return CastRow(name, len(codes), len(x), int(different.sum()))


def cast_rows() -> list[CastRow]:
    rows = [cast_row(f.name, f.dtype, every_code(f), lambda x, f=f: f.round(x.double()), span=20) for f in (E4M3, E5M2)]
    powers = torch.tensor([2.0**power for power in range(-127, 128)] + [torch.nan], dtype=torch.float64)
    e8m0 = cast_row("e8m0", torch.float8_e8m0fnu, powers, lambda x: nearest_power_of_two(x).double(), span=110, least=2.0**-126)
    return [*rows, e8m0]


# ---- errors ----------------------------------------------------------------------------------------------------------------


def relative(error: Tensor, x: Tensor) -> float:
    return (100 * error.norm() / x.norm()).item()


def errors_of_the_others(x: Tensor, is_outlier: Tensor, size: float) -> dict[str, float]:
    """Relative error, in %, of the numbers that are no outliers, if the outliers are `size` large."""
    given = torch.where(is_outlier, size, x)
    return {name: relative((stored(given) - x)[~is_outlier], x[~is_outlier]) for name, stored in WAYS.items()}


def share_of_largest(x: Tensor, blocks: Blocks) -> float:
    """The largest error of a number over the largest number of its block."""
    size = blocks.numbers.shape[-1]
    error, largest = (part.abs().unflatten(-1, (-1, size)).amax(-1) for part in (blocks.dequantized() - x, x))
    return (error / largest).max().item()


def zeros_with_an_outlier() -> dict[str, int]:
    """Of one number of 2²⁰ and 1,023 from 0.5 to 1: how many become 0."""
    x = torch.linspace(0.5, 1, 1024, dtype=torch.float64)[None]
    x[0, 0] = 2.0**20
    return {name: int((stored(x) == 0).sum()) for name, stored in WAYS.items()}


def product_error(device: torch.device) -> tuple[float, float]:
    """torch._scaled_mm of two e4m3 matrices: its largest error over its bound, and how far it is from the product of the
    numbers before rounding, in %.

    On a CPU the sum has k roundings of 2⁻²⁴ each. Hopper's instruction adds 32 products and keeps 13 bits behind the point.
    The result is rounded to bfloat16. Raises what torch raises where it has no such product.
    """
    (m, n, k), generator = PRODUCT, torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, k, generator=generator).to(device) for rows in (m, n))
    one, a8, b8 = torch.ones((), device=device), a.to(E4M3.dtype), b.to(E4M3.dtype)
    found = torch._scaled_mm(a8, b8.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16).double()
    a, b, a8, b8 = (part.double() for part in (a, b, a8, b8))
    exact, unit = a8 @ b8.mT, k * 2.0**-24 if device.type == "cpu" else k / 32 * 2.0**-13
    bound = (1 + 2.0**-8) * unit * (a8.abs() @ b8.abs().mT) + 2.0**-8 * exact.abs()
    return ((found - exact).abs() / bound).max().item(), relative(found - a @ b.mT, a @ b.mT)


def layer_runs(params: Params) -> dict[tuple[str, str], list[float]]:
    """The accuracy of each seed's network, by the factors and by the layers in which they are rounded."""
    data, found = load(params.data, params.device.torch), {}
    options = dict(seeds=range(params.seeds), steps=params.steps, batch=params.batch, rate=params.rate)
    for name, rounding in {"float32": FLOAT32, **ROUNDINGS}.items():
        for where in (ALL,) if name in ("float32", "FP8") else (ALL, INNER):
            used = [rounding if where == ALL or 0 < index < LAYERS - 1 else FLOAT32 for index in range(LAYERS)]
            found[name, where] = accuracies(train_layers(data, used, **options), data, used)
    return found


# ---- the experiment --------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: every positive number of a format. Middle: the error of normal numbers by the size of the outliers among them. With
    one scale for all, it grows; with blocks, only an outlier's neighbors are lost, until the scales themselves underflow.
    Right: test accuracy of a network of four layers that multiply rounded numbers, a point for each seed and a line at the
    mean; the shade spans the seeds of float32."""
    figure = style.new_figure(11.5, 4)
    lines, sweep, runs = figure.subplots(1, 3, width_ratios=(1, 1, 1.1))
    numbers, points = result.arrays["numbers"], result.arrays["accuracies"]
    for height, (values, color) in enumerate(zip(numbers.values(), NUMBER_COLORS, strict=True)):
        lines.plot(values, [height] * len(values), "|", color=color, markersize=20, markeredgewidth=0.8)
    lines.set_xscale("log", base=2)
    lines.set_yticks(range(len(numbers)), list(numbers))
    lines.set(xlabel="number", ylabel="format", title="all positive numbers", ylim=(len(numbers) - 0.5, -0.5))
    for (name, values), color, marker in zip(result.arrays["errors"].items(), style.CYCLE, style.MARKERS, strict=False):
        sweep.plot(result.arrays["outliers"], values, color=color, marker=marker, markersize=5, label=name)
    sweep.set(xscale="log", yscale="log", xlabel="size of 1 in 1,000 numbers, in σ", ylabel="error of the others, %")
    sweep.set(title="error with outliers", ylim=(0.15, 150))
    sweep.legend(fontsize=8, loc="lower right")
    base = points[f"float32, {ALL}"]
    runs.axvspan(min(base), max(base), color=style.GREY, alpha=0.2, linewidth=0)
    for height, values in enumerate(points.values()):
        runs.plot(values, [height] * len(values), "o", color=style.BLUE, markersize=4, alpha=0.6)
        runs.plot(mean(values), height, "|", color=style.ORANGE, markersize=18, markeredgewidth=2)
    runs.set_yticks(range(len(points)), [f"{name} layers".replace(", all", "\nall") for name in points], fontsize=8)
    runs.set(xlabel="test accuracy, %", ylabel="factors in", title="layers", ylim=(len(points) - 0.5, -0.5))
    return figure


@experiment(
    "low-precision-formats", lecture="L1 L2", notebook="12_precision", draw=draw, quick=QUICK, full=FULL, uses=("cuda",)
)
def low_precision_formats(params: Params) -> Result:
    """FP8, MXFP4 and NVFP4: rounding by hand, the error with outliers, a product in FP8, and which layers can be rounded."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(params.rows, 1024, generator=generator, dtype=torch.float64)
    is_outlier = torch.rand(x.shape, generator=generator) < 1e-3
    sweep = [errors_of_the_others(x, is_outlier, size) for size in params.outliers]
    zeros, casts, runs = zeros_with_an_outlier(), cast_rows(), layer_runs(params)
    shown = sweep[params.outliers.index(SHOWN)]
    errors = [StorageError(name, BITS[name], relative(WAYS[name](x) - x, x), shown[name], zeros[name]) for name in WAYS]
    rows = {key: LayerRow(*key, mean(found), min(found), max(found)) for key, found in runs.items()}
    tables = Table("Normal numbers", errors), Table("By hand and by torch", casts), Table("Four layers", list(rows.values()))
    result = Result(list(tables))
    result.notes.append("torch does not round to e2m1. To e8m0 it rounds by another rule below 2⁻¹²⁶, which is left out here.")
    for row in errors:
        result.key_figure(f"error of the others, {row.way}", row.error_with, unit="%")
    for (name, where), row in rows.items():
        result.key_figure(f"test accuracy, {name} in {where}", row.accuracy, unit="%")
    formats = {"int8": torch.arange(1.0, 128), "e4m3": E4M3.values(), "e5m2": E5M2.values(), "e2m1": E2M1.values()}
    result.arrays = {
        "numbers": {name: values.tolist() for name, values in formats.items()},
        "outliers": list(params.outliers),
        "errors": {name: [found[name] for found in sweep] for name in WAYS},
        "accuracies": {f"{name}, {where}": found for (name, where), found in runs.items()},
    }
    mx, nv = mxfp4(x), nvfp4(x)
    shares = share_of_largest(x, mx), share_of_largest(x, nv)
    result.claim(
        "e4m3, e5m2 and e8m0 by hand are torch's: all codes, and the rounding of all midpoints, of the float32 numbers next to "
        "them, and of 100,000 random ones",
        not any(row.different for row in casts),
        f"{sum(row.codes + row.points for row in casts):,} comparisons",
    )
    result.claim(
        "A number takes 4.25 bits in MXFP4 and is off by at most a quarter of its block's largest, which is clamped; in NVFP4 "
        "4.5 bits, and it is off by at most 18 % where the block's scale is a normal number of e4m3",
        (mx.bits, nv.bits) == (4.25, 4.5) and shares[0] <= 0.25 and shares[1] <= 0.18,
        f"{shares[0]:.3f} and {shares[1]:.3f}",
    )
    result.claim(
        "With one number 2²⁰ times as large, all others become 0 in int8 and e4m3 with one scale, and in NVFP4, whose scales "
        "underflow; in MXFP4 only the 31 of its block",
        list(zeros.values()) == [1023, 1023, 31, 1023],
        ", ".join(f"{name}: {count:,}" for name, count in zeros.items()),
    )
    add_product(result, params.device.torch)
    base, fp8, nv4, mx4, inner = (
        rows[key] for key in (("float32", ALL), ("FP8", ALL), ("NVFP4", ALL), ("MXFP4", ALL), ("MXFP4", INNER))
    )
    seeds = f"float32's seeds {base.lowest:.2f} to {base.highest:.2f} %"
    result.measured(
        "With FP8 in all layers, and with NVFP4, the mean accuracy is among those of float32's seeds",
        all(base.lowest <= row.accuracy <= base.highest for row in (fp8, nv4)),
        f"{fp8.accuracy:.2f} and {nv4.accuracy:.2f} %, {seeds}",
        depends_on="the seeds",
    )
    result.measured(
        "With MXFP4 it is below them; float32 in the first and last layers wins back at least a quarter of the loss",
        mx4.accuracy < base.lowest and inner.accuracy - mx4.accuracy >= (base.accuracy - mx4.accuracy) / 4,
        f"{mx4.accuracy:.2f} %, then {inner.accuracy:.2f} % of {base.accuracy:.2f} %",
        depends_on="the seeds",
    )
    return result


def add_product(result: Result, device: torch.device) -> None:
    try:
        share, lost = product_error(device)
    except (RuntimeError, NotImplementedError, AttributeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0][:100]
        result.notes.append(f"No product in FP8 on this {device.type}: {reason}. A GPU has one from compute capability 8.9 on.")
        return
    text = (
        "torch._scaled_mm of e4m3 numbers is their product in float64, within the roundings of a float32 sum and of its result"
    )
    result.measured(text, share <= 1, f"{share:.2g} of the bound; {lost:.1f} % from the product before rounding to e4m3")
