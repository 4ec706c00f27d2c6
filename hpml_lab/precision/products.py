"""Rates of matrix products by shape and format, sizes around multiples of 8, and errors of long sums."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch.utils.flop_counter import mm_flop

from hpml_lab.core.experiment import Params
from hpml_lab.core.findings import column
from hpml_lab.core.timing import interleaved
from hpml_lab.precision import gemm

CHECKED_ROWS = 64  # of each product; they show as much about rounding as all rows
BRIEF_SECONDS = 1e-3  # a format whose product takes less is never left out at the next size


@dataclass
class ProductRate:
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
    counted_flop: float = 0.0  # by torch's own counter
    best_share: float | None = column("share of the best here", default=None)
    sheet_share: float | None = column("share of the data sheet", default=None)

    @property
    def is_square(self) -> bool:
        return self.m == self.n == self.k


@dataclass
class NeighborSize:
    """A square product of a size between 8k and 8k + 8."""

    number_format: str = column("format")
    start: int = column("from")
    n: int = column("M = N = K")
    time_ms: float = column("shortest time", "ms")

    @property
    def is_multiple(self) -> bool:
        return self.n % 8 == 0


@dataclass
class SumError:
    """Sums of K positive fp16 products, with the sum kept in one format."""

    sum_format: str = column("sum kept in")
    k: int = column("K")
    error: float = column("largest relative error")


def multiply(mode: gemm.GemmMode, a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    """One product as work to be timed. Only tf32 changes a setting; the other modes use the settings of the caller."""
    if mode is not gemm.TF32:
        return lambda: gemm.product(mode, a, b)

    def work() -> torch.Tensor:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        out = a @ b
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        return out

    return work


def error_ratio(mode: gemm.GemmMode, a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest error in the first rows of the product, divided by what the format allows: at most 1 if correct."""
    got = multiply(mode, a, b)()[:CHECKED_ROWS].double()
    first = a[:CHECKED_ROWS]
    return ((got - first.double() @ b.double()).abs() / gemm.error_bound(mode, first, b)).max().item()


def product_rates(params: Params, modes: list[gemm.GemmMode]) -> tuple[list[ProductRate], list[str]]:
    """One row for each shape and format, interleaved; and the names of the formats that have no fast product here."""
    device = params.device.torch
    sizes = [*params.sizes, *(params.gpu_sizes if params.device.is_cuda else ())]
    n = sizes[-1]
    shapes = [*((size, size, size) for size in sizes), (n // 2, n // 2, 4 * n), (2 * n, 2 * n, n // 4)]
    rows, slow = [], []
    for m, n, k in shapes:
        operands = {mode: gemm.factors(mode, m, n, k, device) for mode in modes if mode.name not in slow}
        works = {mode.name: multiply(mode, a, b) for mode, (a, b) in operands.items()}
        times = interleaved(works, samples=5)
        for mode, (a, b) in operands.items():
            seconds = times[mode.name].seconds
            rows.append(
                ProductRate(
                    number_format=mode.name,
                    m=m,
                    n=n,
                    k=k,
                    time_ms=seconds * 1e3,
                    tflops=gemm.flops(m, n, k) / seconds / 1e12,
                    intensity=gemm.flops(m, n, k) / (a.nbytes + b.nbytes + m * n * mode.out.itemsize),
                    error_ratio=error_ratio(mode, a, b),
                    kernel=gemm.kernel_name(works[mode.name], device),
                    counted_flop=mm_flop(a.shape, b.shape),
                )
            )
            # A processor without fp16 arithmetic converts each number, so larger products would take minutes.
            if device.type == "cpu" and seconds > max(4 * times["fp32"].seconds, BRIEF_SECONDS):
                slow.append(mode.name)
    return rows, slow


def sizes_around_multiples(params: Params, mode: gemm.GemmMode) -> list[NeighborSize]:
    """Products of n from 8k to 8k + 8, interleaved, for each of `params.starts`.

    The shortest of five times, because other work on the machine can only make them longer, and the effect is small.
    """
    rows = []
    for start in params.starts:
        sizes = range(start, start + 9)
        works = {str(n): multiply(mode, *gemm.factors(mode, n, n, n, params.device.torch)) for n in sizes}
        times = interleaved(works, samples=5)
        rows += [NeighborSize(mode.name, start, n, min(times[str(n)].samples) * 1e3) for n in sizes]
    return rows


def gain_of_multiples(rows: list[NeighborSize]) -> float:
    """How many times faster a FLOP is in products of multiples of 8 than between them (medians)."""
    cost = {row.n: row.time_ms / gemm.flops(row.n, row.n, row.n) for row in rows}
    between = median(cost[row.n] for row in rows if not row.is_multiple)
    return between / median(cost[row.n] for row in rows if row.is_multiple)


def sum_errors(lengths: tuple[int, ...]) -> list[SumError]:
    """The error of sums of fp16 products, kept in three formats."""
    a, b = torch.rand(2, 64, max(lengths), generator=torch.Generator().manual_seed(0)).half()
    right = {k: (a[:, :k].double() * b[:, :k].double()).sum(1) for k in lengths}
    rows = []
    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16), ("fp32", torch.float32)):
        sums = gemm.accumulate(a, b, dtype, lengths)
        rows += [SumError(name, k, ((sums[k] - right[k]).abs() / right[k]).max().item()) for k in lengths]
    return rows


def within_fp32_bound(rows: list[SumError]) -> bool:
    """Whether all sums have at most the error of K additions rounded to fp32."""
    return all(row.error <= row.k * 2.0**-24 / (1 - row.k * 2.0**-24) for row in rows)
