"""What gemm-tensor-cores measures of the products of `gemm.py`: rates by shape, multiples of 8, the error of their sums."""

from statistics import median
from typing import Any

import torch
from torch.utils.flop_counter import mm_flop

from hpml_lab.core.experiment import Size
from hpml_lab.core.timing import interleaved
from hpml_lab.precision import gemm

CHECKED_ROWS = 64  # of each product; they tell as much about rounding as all rows
BRIEF = 1e-3  # seconds: a product that takes less is never left out at the next size


def multiply(mode: gemm.Mode, a: torch.Tensor, b: torch.Tensor):
    """The work to be timed: one product; only tf32 needs the switch, the rest stands as set outside."""
    if mode is not gemm.TF32:
        return lambda: gemm.product(mode, a, b)

    def work():
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        out = a @ b
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        return out

    return work


def within_bound(mode: gemm.Mode, a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest error of the first rows of the product over what the format allows; at most 1 where all is well."""
    got = multiply(mode, a, b)()[:CHECKED_ROWS].double()
    some = a[:CHECKED_ROWS]
    return ((got - some.double() @ b.double()).abs() / gemm.error_bound(mode, some, b)).max().item()


def sweep(size: Size, modes: list[gemm.Mode]) -> tuple[list[dict[str, Any]], list[str]]:
    """One row for each shape and format, timed in turns; and the names of formats that have no fast product here."""
    device = size.device.torch
    edges = [*size.sizes, *(size.gpu_sizes if size.device.is_cuda else ())]
    n = edges[-1]
    shapes = [*((edge, edge, edge) for edge in edges), (n // 2, n // 2, 4 * n), (2 * n, 2 * n, n // 4)]
    rows, slow = [], []
    for m, n, k in shapes:
        works = {}
        for mode in modes:
            if mode.name not in slow:
                a, b = gemm.factors(mode, m, n, k, device)
                works[mode.name] = (mode, a, b, multiply(mode, a, b))
        times = interleaved({name: work for name, (*_, work) in works.items()}, samples=5)
        for name, (mode, a, b, work) in works.items():
            seconds = times[name].seconds
            rows.append(
                {
                    "format": name,
                    "M": m,
                    "N": n,
                    "K": k,
                    "ms": seconds * 1e3,
                    "TFLOP/s": gemm.flops(m, n, k) / seconds / 1e12,
                    "FLOP/byte": gemm.flops(m, n, k) / (a.nbytes + b.nbytes + m * n * mode.out.itemsize),
                    "error / bound": within_bound(mode, a, b),
                    "kernel": gemm.kernel_name(work, device),
                    "FLOP": mm_flop(a.shape, b.shape),
                }
            )
            # A processor without fp16 arithmetic converts each number; larger products would take minutes.
            if device.type == "cpu" and seconds > max(4 * times["fp32"].seconds, BRIEF):
                slow.append(name)
    return rows, slow


def beside_multiples(size: Size, mode: gemm.Mode) -> list[dict[str, Any]]:
    """Milliseconds of products of n from 8k to 8k + 8, timed in turns, for each start of the size.

    The shortest of five times, because whatever else runs on the machine only makes them longer, and the effect is small.
    """
    groups = []
    for start in size.starts:
        works = {str(n): multiply(mode, *gemm.factors(mode, n, n, n, size.device.torch)) for n in range(start, start + 9)}
        times = interleaved(works, samples=5)
        groups.append({"format": mode.name, "products": [{"n": int(n), "ms": min(t.samples) * 1e3} for n, t in times.items()]})
    return groups


def eights_gain(group: dict[str, Any]) -> float:
    """How many times faster a FLOP is in products of multiples of 8 than beside them (medians)."""
    cost = [(one["n"] % 8 == 0, one["ms"] / gemm.flops(*[one["n"]] * 3)) for one in group["products"]]
    return median(c for eight, c in cost if not eight) / median(c for eight, c in cost if eight)


def summed_errors(lengths: tuple[int, ...]) -> tuple[dict[str, list[dict[str, float]]], bool, bool]:
    """The error of sums of fp16 products kept in three formats; whether the fp32 sums keep to the bound, and the others."""
    a, b = torch.rand(2, 64, max(lengths), generator=torch.Generator().manual_seed(0)).half()
    right = {k: (a[:, :k].double() * b[:, :k].double()).sum(1) for k in lengths}
    curves, kept = {}, {}
    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16), ("fp32", torch.float32)):
        sums = gemm.accumulate(a, b, dtype, lengths)
        worst = {k: ((sums[k] - right[k]).abs() / right[k]).max().item() for k in lengths}
        curves[f"{name} sum"] = [{"K": k, "error": worst[k]} for k in lengths]
        kept[name] = all(worst[k] <= k * 2.0**-24 / (1 - k * 2.0**-24) for k in lengths)
    return curves, kept["fp32"], kept["fp16"] or kept["bf16"]
