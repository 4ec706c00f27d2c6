"""What zeros gain: the time of weight @ x with the weights in each format, and the sparsity from which a format is faster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.experiment.fits import is_out_of_memory
from hpml_lab.core.system.attempt import error_message_of
from hpml_lab.core.system.device import Device
from hpml_lab.core.timing.clock import interleaved
from hpml_lab.core.timing.counting import synchronize
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.pruning.lessons import sparse_layouts
from hpml_lab.pruning.lessons.sparse_layouts import FORMATS, SEARCHED, SEMI, SparseFormat, dense_bytes, most_kept, stored_bytes

DENSE = "dense"
NEVER = "at none of these"
CHECKED = 64  # columns of a product that are also computed in float64, which many GPUs are slow at


@dataclass
class FormatTime(Row):
    """One product, weight @ x, with the weights in one format at one sparsity."""

    matrix: str = column("weights")
    format: str = column("format")
    zeros: float = column("zeros", "%")
    kept: int  # elements
    kilobytes: float
    share: float = column("of the dense bytes", "%")
    time_ms: float = column("time", "ms")
    gain: float | None = column("speed-up", "", None)
    interval: str | None = column("90 % interval", "", None)
    verdict: str | None = column("verdict", "", None)
    error: float = 0.0  # the largest, as a share of the bound for float32 sums
    formula: int = 0  # bytes


@dataclass
class BreakEven(Row):
    """From which sparsity on a format is better than the dense matrix."""

    matrix: str = column("weights")
    format: str = column("format")
    faster: float | None = column("faster from, zeros", "%")
    interval: str = column("at the earliest to at the latest", "%")
    smaller: float = column("smaller from, zeros", "%")

    def faster_from(self) -> str:
        """The sparsity with its interval, or that there is none."""
        middle = NEVER if self.faster is None else f"{self.faster:.3g}"
        return NEVER if self.interval == NEVER else f"{middle} ({self.interval})"


@dataclass(frozen=True)
class PrunedProduct:
    """A matrix in a format at a sparsity, with the dense matrix that it stands for."""

    format: str
    zeros: float
    weight: Tensor
    matrix: Tensor


def products(
    weight: Tensor, sparsities: Sequence[float], x: Tensor, two_of_four: bool = False
) -> tuple[list[PrunedProduct], list[str]]:
    """The weights in each format at each sparsity, and for each format that cannot multiply here a note that says why.

    two_of_four  whether to try 2:4, too, with torch's algorithm and with the fastest one
    """
    chosen: dict[str, tuple[SparseFormat, Sequence[float]]] = {name: (found, sparsities) for name, found in FORMATS.items()}
    if two_of_four:
        chosen[SEMI] = sparse_layouts.SEMI_STRUCTURED, [0.5]
        chosen[SEARCHED] = replace(sparse_layouts.SEMI_STRUCTURED, store=partial(sparse_layouts.searched, x=x)), [0.5]
    found, notes, pruned = [], [], {}  # formats that keep the same elements share a copy
    for name, (kind, levels) in chosen.items():
        try:
            for sparsity in levels:
                if (kind.prune, sparsity) not in pruned:
                    pruned[kind.prune, sparsity] = kind.prune(weight, sparsity)
                kept = pruned[kind.prune, sparsity]
                product = PrunedProduct(name, 100 * sparsity, kept, kind.store(kept))
                product.matrix @ x
                synchronize(x.device)  # a GPU raises the error of a kernel later than its call
                found.append(product)
                if name == SEARCHED:
                    number = product.matrix.alg_id_cusparselt
                    notes.append(f"2:4, {description(weight)}: cuSPARSELt's search chose algorithm {number}; torch takes 0.")
        except Exception as error:  # of a library's kernel: which errors it raises depends on the machine
            if is_out_of_memory(error):  # says nothing about the format
                raise
            notes.append(f"{name}, {description(weight)}: its product does not run here ({error_message_of(error)}).")
    return found, notes


def description(weight: Tensor) -> str:
    """Such as "1,024 × 1,024, float32"."""
    rows, columns = weight.shape
    return f"{rows:,} × {columns:,}, {str(weight.dtype).removeprefix('torch.')}"


def rounding_error(product: PrunedProduct, x: Tensor) -> float:
    """The largest error of an element, divided by the most that rounding can do in any order of the sum.

    n terms, added in float32 and rounded to the result's dtype, differ from their exact sum by at most n·ε·Σ|w·x| + ε'·|sum|.
    """
    weight, wide, eps = product.weight.double(), x[:, :CHECKED].double(), torch.finfo(torch.float32).eps
    if product.format == sparse_layouts.ROWS:
        weight = sparse_layouts.without_zero_rows(weight)
    exact = weight @ wide
    bound = weight.shape[1] * eps * (weight.abs() @ wide.abs()) + torch.finfo(x.dtype).eps * exact.abs()
    error = ((product.matrix @ x)[:, :CHECKED].double() - exact).abs()
    return (error / bound.clamp(min=torch.finfo(torch.float64).tiny)).max().item()


def timed(
    n: int, columns: int, sparsities: Sequence[float], device: Device, dtype: torch.dtype, samples: int
) -> tuple[list[FormatTime], dict[tuple[str, float], SpeedUp], list[str]]:
    """A row for the dense product and for each format at each sparsity; their speed-ups; notes on what does not run here."""
    generator = torch.Generator().manual_seed(n)
    weight, x = (torch.randn(n, k, generator=generator).to(device.torch, dtype) for k in (n, columns))
    weight[weight == 0] = 1  # an element that is 0 by chance would be kept, and not counted
    found, notes = products(weight, sparsities, x, two_of_four=device.can("2:4") and dtype.itemsize == 2)

    def multiply(matrix: Tensor) -> Callable[[], Tensor]:
        return lambda: matrix @ x

    works = {DENSE: multiply(weight)} | {f"{p.format} {p.zeros}": multiply(p.matrix) for p in found}
    times = interleaved(works, samples=samples, placebo=DENSE, gpu=device.torch if device.is_cuda else None)
    rows, gains, dense = [], {}, dense_bytes(n, n, value=dtype.itemsize)
    for p in [PrunedProduct(DENSE, 0.0, weight, weight), *found]:
        kind = sparse_layouts.SEMI_STRUCTURED if p.format in (SEMI, SEARCHED) else FORMATS.get(p.format)
        kept = int(p.weight.count_nonzero()) if kind else n * n
        row = FormatTime(
            matrix=description(weight),
            format=p.format,
            zeros=p.zeros,
            kept=kept,
            kilobytes=stored_bytes(p.matrix) / 1e3,
            share=100 * stored_bytes(p.matrix) / dense,
            time_ms=times[p.format if kind is None else f"{p.format} {p.zeros}"].seconds * 1e3,
            error=rounding_error(p, x),
            formula=kind.bytes(n, n, kept, value=dtype.itemsize) if kind else dense,
        )
        if kind:
            gain = gains[p.format, p.zeros] = speed_up(times, DENSE, f"{p.format} {p.zeros}")
            row.gain, row.interval, row.verdict = gain.columns.values()
        rows.append(row)
    return rows, gains, notes


def crossing(zeros: Sequence[float], slowdowns: Sequence[float], level: float = 1.0) -> float | None:
    """The sparsity from which on a time stays below `level` times the dense one, or None if it is not below it at the last.

    Linear between two sparsities, because a format's time is nearly proportional to what it keeps; the first sparsity if the
    time is below the level at all of them.
    """
    crossed = zeros[0]
    for (before, high), (after, low) in zip(
        zip(zeros, slowdowns, strict=True), zip(zeros[1:], slowdowns[1:], strict=True), strict=False
    ):
        if high >= level > low:
            crossed = before + (after - before) * (high - level) / (high - low)
    return crossed if slowdowns[-1] < level else None


def break_even(matrix: str, n: int, value: int, gains: dict[tuple[str, float], SpeedUp]) -> list[BreakEven]:
    """Where each format's time crosses the dense one's, and where its bytes do.

    At the earliest: from where the interval of the time reaches into the noise around the dense time; at the latest: from where
    the whole interval is below the noise.
    """
    rows = []
    for name in (sparse_layouts.CSR, sparse_layouts.BSR, sparse_layouts.ROWS):
        found = [(zeros, gain.slowdown) for (kind, zeros), gain in gains.items() if kind == name]
        if not found:
            continue
        zeros, slowdowns = [z for z, _ in found], [s for _, s in found]
        noise = 1 + slowdowns[0].noise
        middle = crossing(zeros, [s.ratio for s in slowdowns])
        ends = (crossing(zeros, [s.low for s in slowdowns], noise), crossing(zeros, [s.high for s in slowdowns], 1 / noise))
        words = [NEVER if end is None else f"{'≤ ' * (end == zeros[0])}{end:.3g}" for end in ends]
        interval = NEVER if words == [NEVER, NEVER] else " to ".join(words)
        smaller = 100 * (1 - most_kept(FORMATS[name].bytes, n, n, value) / n**2)
        rows.append(BreakEven(matrix, name, middle, interval, smaller))
    return rows
