"""A kernel in Triton, part 2: the softmax of each row, one program a row, with rows that lie apart in memory."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.tuning.tools.kernel_judge import expect_kernel
from hpml_lab.tuning.tools.written_kernels import row_softmax

if TYPE_CHECKING:
    import triton.language as tl


def softmax_kernel(x_start, y_start, x_stride, y_stride, columns, BLOCK: "tl.constexpr"):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_start + row * x_stride + column, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_start + row * y_stride + column, e / tl.sum(e, 0), mask=inside)


def case(rows: int, columns: int, gap: int = 0, shift: float = 0.0, dtype: torch.dtype = torch.float32):
    """Scores with `gap` elements between two rows of x, and one less between two of y."""
    scores = 3 * torch.randn(rows, columns + gap, generator=torch.Generator().manual_seed(columns)) + shift
    return scores.to(dtype)[:, :columns], max(gap - 1, 0)


CASES = {
    "3 rows of 8": case(3, 8),
    "2 rows of 5 and 3 elements between them": case(2, 5, gap=3),
    "scores near 1000": case(2, 6, shift=1000.0),
    "scores near -1000": case(2, 6, shift=-1000.0),
    "1 row of 1": case(1, 1),
    "2 rows of 200 in float16": case(2, 200, dtype=torch.float16),
}
RUBRIC = Rubric(
    softmax_kernel,
    """
other=-float("inf")
    padding-counts :: other=0.0 :: $PADDING
tl.exp(x - tl.max(x, 0))
    no-maximum :: tl.exp(x) :: exp(1000) is infinite. Subtract the row's maximum first: the softmax stays the same.
only in cases
    half-precision :: float16 :: $HALF
""",
    wrap=lambda kernel: lambda *given: row_softmax(kernel, *given),
    PADDING="A lane beyond the row must change neither its maximum nor its sum: which score has the exponential 0?",
    HALF="A float16 keeps 11 bits of a number, and a sum of many loses more. Compute in float32: x.to(tl.float32).",
)


@exercise("softmax-kernel", notebook="11_tuning", takes="x_start, y_start, x_stride, y_stride, columns, BLOCK", returns=None)
def judge_softmax_kernel(answer: Callable[..., None]) -> None:
    """A kernel in Triton: the softmax of each row, for float32 and float16, without overflow."""
    expect_kernel(row_softmax, answer, RUBRIC, CASES)
