"""Matrix products by number format: how to compute one, which kernel runs, and how large its error may be."""

import functools
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from hpml_lab.core.system.device import Device
from hpml_lab.core.timing.counting import kernels


@dataclass(frozen=True)
class GemmMode:
    """A way to multiply matrices: `stored` is the dtype of the factors, `out` that of the product, and the u's are the unit
    roundoffs.

    u_in    of a factor as the unit reads it, beyond that of its dtype (tf32 cuts off the last 13 bits of fp32)
    u_sum   of the running sum; tensor cores truncate instead of rounding, which is twice as much
    joined  how many products at least are added between two roundings of the running sum
    u_out   of the stored product
    """

    name: str
    stored: torch.dtype
    out: torch.dtype
    u_in: float = 0.0
    u_sum: float = 2.0**-23
    joined: int = 1
    u_out: float = 2.0**-24


FP32 = GemmMode("fp32", torch.float32, torch.float32)
TF32 = GemmMode("tf32", torch.float32, torch.float32, u_in=2.0**-10)
FP16 = GemmMode("fp16", torch.float16, torch.float16, u_out=2.0**-11)
BF16 = GemmMode("bf16", torch.bfloat16, torch.bfloat16, u_out=2.0**-8)
# Hopper's instruction for fp8 adds 32 products to a sum of which it keeps 14 bits, 13 of them behind the point: DeepSeek-V3
# Technical Report (2024), 3.3.2 and 3.5.2. cuBLAS then adds such sums in fp32 from time to time, which the bound does not use.
# Another GPU's instruction may keep more or fewer: so this bound is measured, and those of the fp32 sums above are exact.
FP8 = GemmMode("fp8 e4m3", torch.float8_e4m3fn, torch.bfloat16, u_sum=2.0**-13, joined=32, u_out=2.0**-8)
UNITS = {"tf32": TF32, "bf16": BF16, "fp8": FP8}  # by the name that Device.can knows: not every device has units for them
LARGEST = 8.0  # of a partial sum, in units of the root of the sum of squares: see error_bound


def modes(device: Device) -> tuple[list[GemmMode], list[str]]:
    """The modes to measure on `device`, fp32 first, and a sentence on the formats that it cannot multiply, if there are any."""
    lacking = [mode for name, mode in UNITS.items() if not device.can(name)]
    where = "GPU" if device.is_cuda else "processor"
    able = [mode for mode in (FP32, TF32, FP16, BF16, FP8) if mode not in lacking]
    names = ", ".join(mode.name for mode in lacking)
    return able, [f"this {where} has no units for {names} that torch reports"] if lacking else []


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


def normal_factors(m: int, n: int, k: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """A (m, k) and the transpose (n, k) of B, standard normal in fp32: the same numbers on every device."""
    generator = torch.Generator().manual_seed(m + n + k)
    a, transposed = (torch.randn(shape, generator=generator).to(device) for shape in ((m, k), (n, k)))
    return a, transposed


def stored(mode: GemmMode, a: torch.Tensor, transposed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A (m, k) and B (k, n) rounded to the mode's dtype, B in row-major order, except that fp8 requires column-major order."""
    a, b = a.to(mode.stored), transposed.to(mode.stored).t()
    return a, (b if mode is FP8 else b.contiguous())


@functools.cache
def _unit_scale(device: torch.device) -> torch.Tensor:
    return torch.ones((), device=device)  # cached, because filling it would be a kernel of its own


def product(mode: GemmMode, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A · B with the settings of the caller, see matmul_settings. fp8 needs a low-level call of torch, which takes a scale for
    each factor, column-major B, and multiples of 16."""
    if mode is FP8:
        one = _unit_scale(a.device)
        return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=mode.out, use_fast_accum=False)
    return a @ b


def flops(m: int, n: int, k: int) -> float:
    """2·M·N·K: K multiplications and K additions for each of the M·N results."""
    return 2.0 * m * n * k


def error_bound(mode: GemmMode, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The largest error of each element of the product (float64) that the format explains, for random factors of either sign.

    Let q = √(Σ a² b²) over the K products of an element. As their signs are random and independent, a partial sum in any fixed
    order exceeds 8 q with a probability below 4·exp(-8²/2) = 5e-14 (Hoeffding and Lévy; there are some 1e6 elements). So each
    of the K / joined roundings of the sum adds at most u_sum · 8 q, cutting off the factors at most (2·u_in + u_in²) · 8 q, and
    the result is rounded once:

        |Ĉ - C| ≤ (1 + u_out) (2·u_in + u_in² + ⌈K / joined⌉·u_sum) · 8 q + u_out |C|

    The bound of the worst case has |A||B| instead of q, which is about √K times as large, and would overlook larger mistakes.
    Sources: N. Higham and T. Mary, Sharper probabilistic backward error analysis (2020); M. Fasi, N. Higham, M. Mikaitis and
    S. Pranesh, Numerical behavior of NVIDIA tensor cores (2021).
    """
    a, b = a.double(), b.double()
    relative = 2 * mode.u_in + mode.u_in**2 + math.ceil(a.shape[1] / mode.joined) * mode.u_sum
    return (1 + mode.u_out) * relative * LARGEST * (a.square() @ b.square()).sqrt() + mode.u_out * (a @ b).abs()


# --- which kernel ran ----------------------------------------------------------------------------------------------------


UNSEEN = "not seen: the profiler reports no GPU kernels here"


def kernel_name(work: Callable[[], object], device: torch.device) -> str:
    """The kernel that takes most of the time of `work()`: from the profiler on a GPU, as reported by oneDNN or MKL on a CPU, or
    else the operator's name."""
    if device.type == "cuda":
        return next((kernel.name for kernel in kernels(work, device)), UNSEEN)
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
