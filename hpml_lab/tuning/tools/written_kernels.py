"""Launches the kernels that the reader writes, checked in the interpreter or timed on a GPU."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from hpml_lab.core.judge.exercises import Verdict, attempted, check
from hpml_lab.core.system.device import choose_device
from hpml_lab.core.timing.clock import copy_bandwidth, interleaved
from hpml_lab.tuning.tools.kernel_judge import launch, result_of

Kernel = Callable[..., None]


def bias_gelu(kernel: Kernel, x: Tensor, bias: Tensor, block: int = 1024) -> Tensor:
    """GELU(x + bias): one program for each `block` elements of x, whose rows are as long as bias."""
    y = result_of(*x.shape, x.device)
    launch(kernel, -(-x.numel() // block), x, bias, y, x.numel(), len(bias), BLOCK=block)
    return y


def row_softmax(kernel: Kernel, x: Tensor, gap: int = 0) -> Tensor:
    """The softmax of each row of x, in float32: one program a row, whose block is the next power of two.

    gap  elements between two rows of the result
    """
    rows, columns = x.shape
    y = result_of(rows, columns, x.device, gap)
    launch(kernel, rows, x, y, x.stride(0), y.stride(0), columns, BLOCK=1 << (columns - 1).bit_length())
    return y


def attention_rows(kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, block: int = 16) -> Tensor:
    """softmax(q kᵀ / √d) v in float32, for q (n, d), k and v (m, d): one program for each `block` rows of q."""
    queries, width = q.shape
    q, k, v = (each.contiguous() for each in (q, k, v))
    y = result_of(queries, width, q.device)
    launch(kernel, -(-queries // block), q, k, v, y, queries, len(k), WIDTH=width, BLOCK=block)
    return y


def kernel_speed(name: str, kernel: Kernel) -> Verdict:
    """How close the kernel that the reader wrote for the exercise `name` comes to a copy of x, and torch's own operators."""
    device = choose_device()
    if not attempted(kernel) or not device.is_cuda:
        why = "no CUDA GPU here, and the interpreter's time says nothing about speed" if attempted(kernel) else "no kernel yet"
        return Verdict(name, "not yet", f"There is nothing to time: {why}.")
    if not (verdict := check(name, kernel)):
        return verdict
    x, bias = torch.randn(8192, 4096, device=device.torch), torch.randn(4096, device=device.torch)
    ours, torchs = {
        "fused-bias-gelu": (partial(bias_gelu, kernel, x, bias), lambda: F.gelu(x + bias)),
        "softmax-kernel": (partial(row_softmax, kernel, x), partial(torch.softmax, x, -1)),
    }[name]
    times = interleaved({"yours": ours, "torch's": torchs}, gpu=device.torch)
    limit = 2 * x.nbytes / copy_bandwidth(device.torch).gb_per_s / 1e9
    shares = ", ".join(f"{whose} {limit / time.seconds:.0%}" for whose, time in times.items())
    return Verdict(name, "right", f"Of the speed of a large copy reach {shares}.")
