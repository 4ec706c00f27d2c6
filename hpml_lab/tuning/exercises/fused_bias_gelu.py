"""A kernel in Triton, part 1: y = GELU(x + bias), with every number of x read once and of y written once."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.tuning.tools.kernel_judge import expect_kernel
from hpml_lab.tuning.tools.written_kernels import bias_gelu

if TYPE_CHECKING:
    import triton.language as tl  # the launch gives it to the kernel


def bias_gelu_kernel(x_start, bias_start, y_start, n, columns, BLOCK: "tl.constexpr"):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    x = tl.load(x_start + index, mask=inside)
    bias = tl.load(bias_start + index % columns, mask=inside)
    z = x + bias
    y = 0.5 * z * (1.0 + tl.erf(z / 1.4142135623730951))
    tl.store(y_start + index, y, mask=inside)


def case(rows: int, columns: int, block: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    generator = torch.Generator().manual_seed(rows)
    return 2 * torch.randn(rows, columns, generator=generator), torch.randn(columns, generator=generator), block


CASES = {f"{r} rows of {c} and BLOCK = {b}": case(r, c, b) for r, c, b in ((4, 8, 16), (3, 5, 8), (1, 1, 4), (2, 100, 64))}
RUBRIC = Rubric(
    bias_gelu_kernel,
    """
index % columns
    bias-of-the-row :: index // columns :: index // columns is the row. A bias belongs to a column.
    column-of-the-lane :: tl.arange(0, BLOCK) % columns :: The column follows from the place in x. The number of the lane is
        that of the place only in program 0.
0.5 * z * (1.0 + tl.erf(z / 1.4142135623730951))
    x-for-z :: 0.5 * x * (1.0 + tl.erf(z / 1.4142135623730951)) :: The factor in front is x + bias, too.
    bias-afterwards :: 0.5 * x * (1.0 + tl.erf(x / 1.4142135623730951)) + bias :: The bias is added before GELU.
    other-formula :: z * tl.sigmoid(1.702 * z) :: $APPROXIMATE
    other-formula :: z * tl.sigmoid(1.5957691216057308 * (z + 0.044715 * z * z * z)) :: $APPROXIMATE
""",
    wrap=lambda kernel: lambda *given: bias_gelu(kernel, *given),
    APPROXIMATE="This approximates GELU to three digits. Write the exact one, with tl.erf.",
)


@exercise("fused-bias-gelu", notebook="11_tuning", takes="x_start, bias_start, y_start, n, columns, BLOCK", returns=None)
def judge_fused_bias_gelu(answer: Callable[..., None]) -> None:
    """A kernel in Triton: y = GELU(x + bias), in blocks of any power of two."""
    expect_kernel(bias_gelu, answer, RUBRIC, CASES)
