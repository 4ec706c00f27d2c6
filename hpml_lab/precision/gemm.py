"""Matrix products by number format: what to call, which kernel it runs, how far it may be off, and what a GPU promises."""

import functools
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from hpml_lab.core.counting import kernels


@dataclass(frozen=True)
class Mode:
    """A way to multiply: `stored` is the dtype of the factors, `out` the product's; the u's are the sizes of its roundings.

    u_in   one factor as the unit reads it, besides what storing it cost (tf32 cuts fp32's last 13 bits)
    u_sum  one addition; tensor cores cut instead of rounding, which is twice as much
    u_out  the product as it is stored
    """

    name: str
    stored: torch.dtype
    out: torch.dtype
    u_in: float = 0.0
    u_sum: float = 2.0**-23
    u_out: float = 2.0**-24


FP32 = Mode("fp32", torch.float32, torch.float32)
TF32 = Mode("tf32", torch.float32, torch.float32, u_in=2.0**-10)
FP16 = Mode("fp16", torch.float16, torch.float16, u_out=2.0**-11)
BF16 = Mode("bf16", torch.bfloat16, torch.bfloat16, u_out=2.0**-8)
# Hopper adds fp8 products with about 14 bits; the bound allows for one less.
FP8 = Mode("fp8 e4m3", torch.float8_e4m3fn, torch.bfloat16, u_sum=2.0**-13, u_out=2.0**-8)


def modes(device: torch.device) -> tuple[list[Mode], list[str]]:
    """What is worth multiplying on `device`, fp32 first, and one sentence for each format that it has no unit for."""
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        wanted = ((TF32, (8, 0)), (FP16, (5, 3)), (BF16, (8, 0)), (FP8, (8, 9)))
        lacks = [f"{mode.name} needs compute capability {a}.{b}" for mode, (a, b) in wanted if capability < (a, b)]
        return [FP32, *(mode for mode, least in wanted if capability >= least)], lacks
    lacks = ["tf32 and fp8 have no matrix units on a CPU"]
    if not getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)():
        return [FP32, FP16], ["bf16 has no instructions on this processor that torch reports", *lacks]
    return [FP32, FP16, BF16], lacks


@contextmanager
def switched(mode: Mode) -> Iterator[None]:
    """Multiply fp32 as `mode` says and add 16-bit products in fp32 within a `with` block; then all is as it was.

    `torch.backends.cuda.matmul.fp32_precision` is the switch from torch 2.9 on. The older set_float32_matmul_precision and
    allow_tf32 set the same thing; who mixes the two ways gets an error when reading the older one.
    """
    matmul = torch.backends.cuda.matmul
    names = ("fp32_precision", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
    before = [getattr(matmul, name) for name in names]
    for name, value in zip(names, ("tf32" if mode is TF32 else "ieee", False, False), strict=True):
        setattr(matmul, name, value)
    try:
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            setattr(matmul, name, value)


def factors(mode: Mode, m: int, n: int, k: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Random A (m, k) and B (k, n), standard normal and rounded to the mode's format; B of fp8 lies by columns, as it must."""
    generator = torch.Generator().manual_seed(m + n + k)
    a, b = (torch.randn(shape, generator=generator).to(device, mode.stored) for shape in ((m, k), (n, k)))
    return a, (b.t() if mode is FP8 else b.t().contiguous())


@functools.cache
def _one(device: torch.device) -> torch.Tensor:
    return torch.ones((), device=device)  # made once: filling it would be a kernel of its own


def product(mode: Mode, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A · B; fp8 goes through torch's own low-level call, which takes a scale for each factor."""
    if mode is FP8:
        return torch._scaled_mm(a, b, scale_a=_one(a.device), scale_b=_one(a.device), out_dtype=mode.out)
    return a @ b


def flops(m: int, n: int, k: int) -> float:
    """2·M·N·K: for each of the M·N results K products and K additions."""
    return 2.0 * m * n * k


def error_bound(mode: Mode, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """How far each element of the product may be off (float64).

    The factors are cut by u_in each, K roundings of u_sum pile up, the result is rounded once by u_out:
    |Ĉ - C| ≤ (1 + u_out)(2·u_in + u_in² + K·u_sum·(1 + u_in)²) |A||B| / (1 - K·u_sum) + u_out |C|
    """
    a, b = a.double(), b.double()
    k = a.shape[1]
    piled = k * mode.u_sum * (1 + mode.u_in) ** 2 + 2 * mode.u_in + mode.u_in**2
    return (1 + mode.u_out) * piled / (1 - k * mode.u_sum) * (a.abs() @ b.abs()) + mode.u_out * (a @ b).abs()


def accumulate(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, every: tuple[int, ...]) -> dict[int, torch.Tensor]:
    """Sum the products a[:, k]·b[:, k] one by one, rounding the sum to `dtype` each time: {K: the sums so far}, (rows,) each.

    The products are formed in fp32, where those of two fp16 or bf16 numbers are exact.
    """
    products = (a.float() * b.float()).t().contiguous()
    total, seen = torch.zeros(a.shape[0], dtype=dtype, device=a.device), {}
    for k, one in enumerate(products, start=1):
        total = (total.float() + one).to(dtype)
        if k in every:
            seen[k] = total.double()
    return seen


# --- which kernel ran ----------------------------------------------------------------------------------------------------


def kernel_name(work: Callable[[], object], device: torch.device) -> str:
    """The kernel that takes most of `work()`: from the profiler on a GPU; on a CPU as oneDNN or MKL report it, else the
    operator's name."""
    if device.type == "cuda":
        return kernels(work, device)[0].name
    libraries = (torch.backends.mkldnn, torch.backends.mkl)
    if all(one.is_available() for one in libraries):
        with torch.backends.mkldnn.verbose(1), torch.backends.mkl.verbose(1):
            told = _written(work)
        if found := re.findall(r"primitive,exec,cpu,matmul,([^,]+),|MKL_VERBOSE ([SD]GEMM)\w*\(", told):
            return "oneDNN " + found[-1][0] if found[-1][0] else "MKL " + found[-1][1]
    return next(one.name for one in kernels(work, device))


def _written(work: Callable[[], object]) -> str:
    """What `work()` writes to the process's standard output, from C too: the libraries know no other place."""
    sys.stdout.flush()
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            work()
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return file.read().decode(errors="replace")


# --- what the data sheets promise ----------------------------------------------------------------------------------------

# Dense peaks in TFLOP/s (no sparsity), with fp32 accumulation (P100: fp16 arithmetic), by a pattern of
# torch.cuda.get_device_name(). Sources: NVIDIA's data sheets of the P100, V100, T4, A100, L4, L40S, H100 and H200, which give
# the newer ones with sparsity (twice as much); for the GeForce cards the white papers of the GA102 and AD102 chips.
_SHEETS: dict[str, dict[str, float]] = {
    r"P100-SXM2": {"fp32": 10.6, "fp16": 21.2},
    r"P100-PCIE": {"fp32": 9.3, "fp16": 18.7},
    r"V100-SXM2": {"fp32": 15.7, "fp16": 125},
    r"V100-PCIE": {"fp32": 14, "fp16": 112},
    r"\bT4$": {"fp32": 8.1, "fp16": 65},
    r"\bA100\b": {"fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312},
    r"\bL4$": {"fp32": 30.3, "tf32": 60, "fp16": 121, "bf16": 121, "fp8 e4m3": 242.5},
    r"\bL40S$": {"fp32": 91.6, "tf32": 183, "fp16": 362, "bf16": 362, "fp8 e4m3": 733},
    r"\bH100 PCIe$": {"fp32": 51, "tf32": 378, "fp16": 756, "bf16": 756, "fp8 e4m3": 1513},
    r"\bH100 80GB HBM3$": {"fp32": 67, "tf32": 494.5, "fp16": 989.5, "bf16": 989.5, "fp8 e4m3": 1979},
    r"\bH200$": {"fp32": 67, "tf32": 494.5, "fp16": 989.5, "bf16": 989.5, "fp8 e4m3": 1979},
    r"RTX 3090$": {"fp32": 35.6, "tf32": 35.6, "fp16": 71, "bf16": 71},
    r"RTX 4090$": {"fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp8 e4m3": 330.3},
}


def sheet_peaks(gpu: str) -> dict[str, float]:
    """The data sheet's dense peaks in TFLOP/s by mode for the GPU called `gpu`; empty for one that is not in the table."""
    return next((peaks for pattern, peaks in _SHEETS.items() if re.search(pattern, gpu)), {})
