"""GELU as one kernel in Triton: x is read once, the result is written once, everything in between stays in registers.

    GELU(x) = x · 0.5 · (1 + erf(x / √2))

Importing this module raises LabError if Triton is not installed.
"""

import torch
from torch import Tensor

from hpml_lab.core.system.errors import LabError
from hpml_lab.tuning.tools.triton_kernel import TritonKernel, require_triton

require_triton()
import triton.language as tl  # noqa: E402

BLOCK = 1024  # elements per program


@TritonKernel
def gelu_kernel(x_start, y_start, n, BLOCK: tl.constexpr):
    """Program i handles the elements i·BLOCK to (i + 1)·BLOCK − 1: read x, compute, write y."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n  # the last block may extend past the end
    x = tl.load(x_start + index, mask=inside)
    y = x * 0.5 * (1.0 + tl.erf(x / 1.4142135623730951))
    tl.store(y_start + index, y, mask=inside)


def triton_gelu(x: Tensor) -> Tensor:
    """GELU(x) in one kernel. x is a contiguous float32 tensor of any shape, else LabError is raised. It has no gradient."""
    if x.dtype != torch.float32 or not x.is_contiguous():
        raise LabError(f"the kernel takes contiguous float32, not {x.dtype} at {x.stride()}.", "Use x.float().contiguous().")
    y = torch.empty_like(x)
    if x.numel():
        with torch.cuda.device_of(x):  # Triton launches on the current GPU
            gelu_kernel.on(x.device)[(-(-x.numel() // BLOCK),)](x, y, x.numel(), BLOCK=BLOCK, enable_fp_fusion=False)
    return y
