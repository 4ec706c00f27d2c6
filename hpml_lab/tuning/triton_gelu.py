"""GELU as one kernel in Triton: x is read once, the result is written once, everything between stays in registers.

    GELU(x) = x · 0.5 · (1 + erf(x / 1.41421))

Importing this module needs Triton: without it, `import` raises LabError.
"""

import torch
from torch import Tensor

from hpml_lab.core.errors import LabError
from hpml_lab.tuning.compiled import Kernel, require_triton

require_triton()
import triton.language as tl  # noqa: E402

BLOCK = 1024  # elements a program


@Kernel
def gelu_kernel(x_first, y_first, n, BLOCK: tl.constexpr):
    """Program number i takes the elements from i·BLOCK on: read x, compute, write y."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n  # the last block may stand out over the end
    x = tl.load(x_first + at, mask=inside)
    y = x * 0.5 * (1.0 + tl.erf(x / 1.4142135623730951))
    tl.store(y_first + at, y, mask=inside)


def triton_gelu(x: Tensor) -> Tensor:
    """GELU(x) in one kernel; x is a contiguous float32 tensor of any shape (else LabError). No gradient flows through it."""
    if x.dtype != torch.float32 or not x.is_contiguous():
        raise LabError(f"the kernel takes contiguous float32, not {x.dtype}.", "Use x.float().contiguous().")
    y = torch.empty_like(x)
    if x.numel():
        gelu_kernel.on(x.device)[(-(-x.numel() // BLOCK),)](x, y, x.numel(), BLOCK=BLOCK, enable_fp_fusion=False)
    return y
