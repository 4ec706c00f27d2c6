"""Rates of matrix products by shape and format, each format alone, sizes around multiples of 8, and errors of long sums."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import mm_flop

from hpml_lab.core.experiment import Params, Row, column
from hpml_lab.core.timing.clock import PLACEBO, SAMPLES, captured, interleaved
from hpml_lab.core.timing.noise import SpeedUp, speed_up, speed_up_of
from hpml_lab.precision.experiments.gemm_tensor_cores import gemm
from hpml_lab.precision.lessons.sums import accumulate

CHECKED_ROWS = 64  # of each product; they show as much about rounding as all rows
BRIEF_SECONDS = 1e-3  # a format whose product takes less is never left out at the next size
LOAD_SECONDS = 0.3  # how long a GPU multiplies before its clock is read


@dataclass
class ProductRate(Row):
    """One matrix product of one shape in one format."""

    number_format: str = column("format")
    m: int = column("M")
    n: int = column("N")
    k: int = column("K")
    time_ms: float = column("time", "ms")
    tflops: float = column("rate", "TFLOP/s")
    intensity: float = column("intensity", "FLOP/byte")
    error_ratio: float = column("error / bound")
    kernel: str = column("kernel")
    gain: float | None = column("over fp32", "times", default=None)
    interval: str | None = column("90 % interval", default=None)
    verdict: str | None = column("verdict", default=None)
    counted_flop: float = 0.0  # by torch's own counter
    wrong_ratio: float = 0.0  # error / bound of the better of two wrong products
    in_l2: bool | None = column("fits in the L2 cache", default=None)
    best_share: float | None = column("share of the best here", default=None)
    sheet_share: float | None = column("share of the data sheet", default=None)

    @property
    def is_square(self) -> bool:
        return self.m == self.n == self.k


@dataclass
class HighestRate(Row):
    """The highest rate of one format: its best shape again, but alone, so that no other format takes power from it."""

    number_format: str = column("format")
    shape: str = column("M × N × K")
    tflops: float = column("rate", "TFLOP/s")
    sheet: float | None = column("data sheet", "TFLOP/s", default=None)
    clock_mhz: int | None = column("clock under load", "MHz", default=None)
    per_cycle: float | None = column("FLOP per clock cycle", default=None)


@dataclass
class NeighborSize(Row):
    """A square product of a size between 8k and 8k + 8."""

    number_format: str = column("format")
    start: int = column("from")
    n: int = column("M = N = K")
    time_ms: float = column("shortest time", "ms")

    @property
    def is_multiple(self) -> bool:
        return self.n % 8 == 0


@dataclass
class NeighborChannels(Row):
    """A 3 × 3 convolution with as many channels in as out, between 8k and 8k + 8."""

    number_format: str = column("format")
    channels: int = column("channels, in and out")
    time_ms: float = column("shortest time", "ms")


@dataclass
class SumError(Row):
    """Sums of K positive fp16 products, with the sum kept in one format."""

    sum_format: str = column("sum kept in")
    k: int = column("K")
    error: float = column("largest relative error")


def timed_product(mode: gemm.GemmMode, a: torch.Tensor, b: torch.Tensor) -> Callable[[], object]:
    """One product as work to be timed: on a GPU a CUDA graph, which keeps the kernel of this mode's settings."""
    if not a.is_cuda:
        return lambda: gemm.product(mode, a, b)
    with gemm.matmul_settings(mode):
        return captured(lambda: gemm.product(mode, a, b), a.device)


def timed_in_turns(works: dict[str, Callable[[], object]], base: str, device: torch.device, samples: int = SAMPLES):
    """The times of products in turns, with `base` as the placebo; on a GPU between two events in its stream."""
    return interleaved(works, samples=samples, placebo=base, gpu=device if device.type == "cuda" else None)


def error_ratios(mode: gemm.GemmMode, a: torch.Tensor, b: torch.Tensor, computed: torch.Tensor) -> tuple[float, float]:
    """The largest error in the first rows of `computed`, divided by what the format explains: at most 1 if correct. And the
    same of a product of zeros or of one with its columns in another order, whichever is less: above 1 if the bound is of use.
    """
    first = a[:CHECKED_ROWS]
    right, bound = first.double() @ b.double(), gemm.error_bound(mode, first, b)
    products = computed[:CHECKED_ROWS].double(), torch.zeros_like(right), right.roll(1, dims=1)
    ratio, *wrong = (((product - right).abs() / bound).max().item() for product in products)
    return ratio, min(wrong)


@dataclass
class Products:
    """The products of all shapes: rows, speed-ups over fp32 by format and shape, and the formats left out as slow."""

    rows: list[ProductRate]
    speed_ups: dict[tuple[str, int, int, int], SpeedUp]
    slow: list[str]


def products(params: Params, modes: list[gemm.GemmMode]) -> Products:
    """Multiply matrices of each shape in each format, in turns."""
    device = params.device.torch
    found = Products([], {}, [])
    for shape in shapes(params):
        m, n, k = shape
        a, transposed = gemm.normal_factors(m, n, k, device)
        operands = {mode: gemm.stored(mode, a, transposed) for mode in modes if mode.name not in found.slow}
        times = timed_in_turns({mode.name: timed_product(mode, *given) for mode, given in operands.items()}, "fp32", device)
        for mode, given in operands.items():
            seconds = times[mode.name].seconds
            gain = speed_up(times, "fp32", mode.name) if mode is not gemm.FP32 else None
            with gemm.matmul_settings(mode):
                ratio, wrong = error_ratios(mode, *given, gemm.product(mode, *given))
                kernel = gemm.kernel_name(lambda mode=mode, given=given: gemm.product(mode, *given), device)
            moved = sum(factor.nbytes for factor in given) + m * n * mode.out.itemsize
            if gain:
                found.speed_ups[mode.name, *shape] = gain
            found.rows.append(
                ProductRate(
                    number_format=mode.name,
                    m=m,
                    n=n,
                    k=k,
                    time_ms=seconds * 1e3,
                    tflops=gemm.flops(m, n, k) / seconds / 1e12,
                    intensity=gemm.flops(m, n, k) / moved,
                    error_ratio=ratio,
                    kernel=kernel,
                    counted_flop=mm_flop((m, k), (k, n)),
                    wrong_ratio=wrong,
                    in_l2=moved <= l2_bytes(device) if params.device.is_cuda else None,
                    **(gain.columns if gain else {}),
                )
            )
            # A processor without fp16 arithmetic converts each number, so larger products would take minutes.
            if device.type == "cpu" and seconds > max(4 * times["fp32"].seconds, BRIEF_SECONDS):
                found.slow.append(mode.name)
    return found


def l2_bytes(device: torch.device) -> int:
    """The size of a GPU's L2 cache."""
    return torch.cuda.get_device_properties(device).L2_cache_size


def highest_rates(params: Params, modes: list[gemm.GemmMode], rates: list[ProductRate], sheet: dict) -> list[HighestRate]:
    """Time the best shape of each format once more, each for itself; on a GPU read the clock while it multiplies.

    sheet  TFLOP/s of the data sheet by format, as far as they are known
    """
    device, rows = params.device.torch, []
    for mode in modes:
        best = max((row for row in rates if row.number_format == mode.name), key=lambda row: row.tflops)
        shape = best.m, best.n, best.k
        work = timed_product(mode, *gemm.stored(mode, *gemm.normal_factors(*shape, device)))
        times = interleaved({mode.name: work}, samples=3, gpu=device if params.device.is_cuda else None)
        seconds = min(times[mode.name].samples)  # what is slower was held up
        clock = clock_under(work, seconds, device) if params.device.is_cuda else None
        flops = gemm.flops(*shape)
        rate, cycle = flops / seconds / 1e12, flops / seconds / (clock * 1e6) if clock else None
        rows.append(HighestRate(mode.name, " × ".join(map(str, shape)), rate, sheet.get(mode.name), clock, cycle))
    return rows


def clock_under(work: Callable[[], object], seconds: float, device: torch.device) -> int | None:
    """The clock of a GPU's multiprocessors in MHz while it is busy with `work()`, which takes `seconds`; None where NVML does
    not say."""
    for _ in range(max(1, round(LOAD_SECONDS / seconds))):
        work()  # only launched: the GPU still works when the clock is read
    try:
        return torch.cuda.clock_rate(device)
    except Exception:  # NVML is missing, or does not tell it of this GPU or of a slice of one: each has its own errors
        return None
    finally:
        torch.cuda.synchronize(device)


def shapes(params: Params) -> list[tuple[int, int, int]]:
    """(M, N, K): the squares, then the two shapes of `long_and_short`."""
    sizes = params.gpu_sizes if params.device.is_cuda else params.sizes
    return [*((size, size, size) for size in sizes), *long_and_short(sizes[-1])]


def gpu_bytes(params: Params) -> int:
    """The memory of a GPU that `products` takes at its peak: factors and captured products of all formats for one of the last
    shapes, and its longer factor in float64, are about a hundred bytes for each element of the largest square."""
    return 100 * params.gpu_sizes[-1] ** 2


def long_and_short(n: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Two shapes with as many FLOP as the square of n: one with a long K and one with a short K."""
    return (n // 2, n // 2, 4 * n), (2 * n, 2 * n, n // 4)


def gain_of_long_k(params: Params, mode: gemm.GemmMode) -> SpeedUp:
    """The speed-up of the product with the long K over the one with the short K, in turns.

    A GPU lowers its clock under such a load, and raises it again: single turns differ by a tenth, so it takes more of them.
    """
    device, n = params.device.torch, shapes(params)[-3][0]
    works = {
        name: timed_product(mode, *gemm.stored(mode, *gemm.normal_factors(*shape, device)))
        for name, shape in zip(("long", "short"), long_and_short(n), strict=True)
    }
    return speed_up(timed_in_turns(works, "short", device, 25 if params.device.is_cuda else SAMPLES), "short", "long")


def sizes_around_multiples(params: Params, mode: gemm.GemmMode, start: int) -> tuple[list[NeighborSize], SpeedUp]:
    """Products of n from `start`, a multiple of 8, to start + 8, in turns; and how many times faster a FLOP is in the multiples
    of 8 than between them."""
    device = params.device.torch
    works = {n: timed_product(mode, *gemm.stored(mode, *gemm.normal_factors(n, n, n, device))) for n in range(start, start + 9)}
    shortest, gain = _multiples_and_between(works, lambda n: gemm.flops(n, n, n), device)
    return [NeighborSize(mode.name, start, n, ms) for n, ms in shortest.items()], gain


def channels_around_multiples(params: Params, mode: gemm.GemmMode) -> tuple[list[NeighborChannels], SpeedUp]:
    """The same of 3 × 3 convolutions with c channels in and out, whose product has K = 9c and N = c."""
    device, (images, side, start) = params.device.torch, params.convolution

    def timed_convolution(channels: int) -> Callable[[], object]:
        generator = torch.Generator().manual_seed(channels)
        shapes = (images, channels, side, side), (channels, channels, 3, 3)
        made = (torch.randn(shape, generator=generator).to(device, mode.stored) for shape in shapes)
        x, weight = (tensor.to(memory_format=torch.channels_last) for tensor in made)
        convolve = partial(F.conv2d, x, weight, padding=1)
        return captured(convolve, device) if device.type == "cuda" else convolve

    works = {channels: timed_convolution(channels) for channels in range(start, start + 9)}
    pixels = images * side * side
    shortest, gain = _multiples_and_between(works, lambda channels: gemm.flops(pixels, channels, 9 * channels), device)
    return [NeighborChannels(mode.name, channels, ms) for channels, ms in shortest.items()], gain


def _multiples_and_between(
    works: dict[int, Callable[[], object]], flops: Callable[[int], float], device: torch.device
) -> tuple[dict[int, float], SpeedUp]:
    """{n: shortest time in ms} of works that take turns, and how many times faster a FLOP is in the multiples of 8.

    The shortest, because other work on the machine can only make them longer, and the effect is small.
    """
    first = str(next(iter(works)))
    times = timed_in_turns({str(n): work for n, work in works.items()}, first, device)

    def cost(multiple: bool) -> list[float]:
        """Median seconds of a FLOP over the sizes, turn by turn."""
        chosen = [n for n in works if (n % 8 == 0) == multiple]
        turns = zip(*(times[str(n)].samples for n in chosen), strict=True)
        return [median(seconds / flops(n) for n, seconds in zip(chosen, turn, strict=True)) for turn in turns]

    between = cost(multiple=False)
    drift = [again / once for again, once in zip(times[PLACEBO].samples, times[first].samples, strict=True)]
    again = [seconds * factor for seconds, factor in zip(between, drift, strict=True)]
    return {n: min(times[str(n)].samples) * 1e3 for n in works}, speed_up_of(between, cost(multiple=True), again)


def sum_errors(lengths: tuple[int, ...]) -> list[SumError]:
    """The error of sums of fp16 products, kept in three formats."""
    a, b = torch.rand(2, 64, max(lengths), generator=torch.Generator().manual_seed(0)).half()
    right = {k: (a[:, :k].double() * b[:, :k].double()).sum(1) for k in lengths}
    rows = []
    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16), ("fp32", torch.float32)):
        sums = accumulate(a, b, dtype, lengths)
        rows += [SumError(name, k, ((sums[k] - right[k]).abs() / right[k]).max().item()) for k in lengths]
    return rows


def within_fp32_bound(rows: list[SumError]) -> bool:
    """Whether all sums have at most the error of K additions rounded to fp32."""
    return all(row.error <= row.k * 2.0**-24 / (1 - row.k * 2.0**-24) for row in rows)
