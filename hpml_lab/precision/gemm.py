"""Matrix products by number format: how to compute one, which kernel runs, and how large its error may be."""

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
class GemmMode:
    """A way to multiply matrices: `stored` is the dtype of the factors, `out` that of the product, and the u's are the unit
    roundoffs.

    u_in   of a factor as the unit reads it, beyond that of its dtype (tf32 cuts off the last 13 bits of fp32)
    u_sum  of one addition; tensor cores truncate instead of rounding, which is twice as much
    u_out  of the stored product
    """

    name: str
    stored: torch.dtype
    out: torch.dtype
    u_in: float = 0.0
    u_sum: float = 2.0**-23
    u_out: float = 2.0**-24


FP32 = GemmMode("fp32", torch.float32, torch.float32)
TF32 = GemmMode("tf32", torch.float32, torch.float32, u_in=2.0**-10)
FP16 = GemmMode("fp16", torch.float16, torch.float16, u_out=2.0**-11)
BF16 = GemmMode("bf16", torch.bfloat16, torch.bfloat16, u_out=2.0**-8)
# Hopper adds fp8 products with about 14 bits; the bound allows for one bit less.
FP8 = GemmMode("fp8 e4m3", torch.float8_e4m3fn, torch.bfloat16, u_sum=2.0**-13, u_out=2.0**-8)


def modes(device: torch.device) -> tuple[list[GemmMode], list[str]]:
    """The modes to measure on `device`, fp32 first, and one sentence for each format that it cannot multiply."""
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
def matmul_settings(mode: GemmMode) -> Iterator[None]:
    """Multiply fp32 as `mode` says, and add 16-bit products in fp32, within a `with` block.

    Since torch 2.9 the setting is `torch.backends.cuda.matmul.fp32_precision`. The older set_float32_matmul_precision and
    allow_tf32 change the same setting; after mixing both APIs, reading the older one raises an error.
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


def factors(mode: GemmMode, m: int, n: int, k: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Random A (m, k) and B (k, n), standard normal and rounded to the mode's dtype. fp8 requires B in column-major order."""
    generator = torch.Generator().manual_seed(m + n + k)
    a, b = (torch.randn(shape, generator=generator).to(device, mode.stored) for shape in ((m, k), (n, k)))
    return a, (b.t() if mode is FP8 else b.t().contiguous())


@functools.cache
def _unit_scale(device: torch.device) -> torch.Tensor:
    return torch.ones((), device=device)  # cached, because filling it would be a kernel of its own


def product(mode: GemmMode, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A · B. fp8 needs a low-level call of torch, which takes a scale for each factor."""
    if mode is FP8:
        return torch._scaled_mm(a, b, scale_a=_unit_scale(a.device), scale_b=_unit_scale(a.device), out_dtype=mode.out)
    return a @ b


def flops(m: int, n: int, k: int) -> float:
    """2·M·N·K: K multiplications and K additions for each of the M·N results."""
    return 2.0 * m * n * k


def error_bound(mode: GemmMode, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The largest possible error of each element of the product (float64).

    Each factor is truncated by u_in, K roundings of u_sum accumulate, and the result is rounded once by u_out:
    |Ĉ - C| ≤ (1 + u_out)(2·u_in + u_in² + K·u_sum·(1 + u_in)²) |A||B| / (1 - K·u_sum) + u_out |C|
    """
    a, b = a.double(), b.double()
    k = a.shape[1]
    accumulated = k * mode.u_sum * (1 + mode.u_in) ** 2 + 2 * mode.u_in + mode.u_in**2
    return (1 + mode.u_out) * accumulated / (1 - k * mode.u_sum) * (a.abs() @ b.abs()) + mode.u_out * (a @ b).abs()


def accumulate(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, every: tuple[int, ...]) -> dict[int, torch.Tensor]:
    """Add the products a[:, k]·b[:, k] one after the other, rounding the sum to `dtype` each time: {K: sums (rows,)}.

    The products are computed in fp32, where the product of two fp16 or bf16 numbers is exact.
    """
    products = (a.float() * b.float()).t().contiguous()
    total, seen = torch.zeros(a.shape[0], dtype=dtype, device=a.device), {}
    for k, column in enumerate(products, start=1):
        total = (total.float() + column).to(dtype)
        if k in every:
            seen[k] = total.double()
    return seen


# --- which kernel ran ----------------------------------------------------------------------------------------------------


def kernel_name(work: Callable[[], object], device: torch.device) -> str:
    """The kernel that takes most of the time of `work()`: from the profiler on a GPU, as reported by oneDNN or MKL on a CPU, or
    else the operator's name."""
    if device.type == "cuda":
        return kernels(work, device)[0].name
    libraries = (torch.backends.mkldnn, torch.backends.mkl)
    if all(library.is_available() for library in libraries):
        with torch.backends.mkldnn.verbose(1), torch.backends.mkl.verbose(1):
            written = _standard_output(work)
        if found := re.findall(r"primitive,exec,cpu,matmul,([^,]+),|MKL_VERBOSE ([SD]GEMM)\w*\(", written):
            return "oneDNN " + found[-1][0] if found[-1][0] else "MKL " + found[-1][1]
    return kernels(work, device)[0].name


def _standard_output(work: Callable[[], object]) -> str:
    """What `work()` writes to the process's standard output, also from C, where the libraries report."""
    sys.stdout.flush()
    with tempfile.TemporaryFile() as file:
        original = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            work()
        finally:
            os.dup2(original, 1)
            os.close(original)
        file.seek(0)
        return file.read().decode(errors="replace")
