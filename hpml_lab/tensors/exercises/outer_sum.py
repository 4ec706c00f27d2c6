"""outer-sum: table[i, j] = a[i] + b[j] by broadcasting."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_no_loop
from hpml_lab.core.judge.rubric import Rubric


def right(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a[:, None] + b


RUBRIC = Rubric(
    right,
    """
a[:, None] + b
    transposed :: a + b[:, None] :: Row i belongs to a[i], and column j to b[j]: which operand needs the new last axis?
    flattened :: (a[:, None] + b).flatten() :: The numbers are right, but they form a single line: keep the two axes.
    transposed :: (a + b[:, None]).reshape(len(a), len(b)) :: The shape is right, but a runs along the rows of memory: reshape
        does not exchange axes.
    product :: torch.outer(a, b) :: torch.outer multiplies; here the entries are added.
    swapped-sign :: a[:, None] - b :: The entries are sums, not differences.
    swapped-sign :: b - a[:, None] :: The entries are sums, not differences.
    b-missing :: a[:, None].expand(-1, len(b)) :: Each row is a[i] alone: b was not added.
error
    no-new-axis :: at non-singleton dimension 0 :: Your operands do not broadcast; a is (3,), b (2,). Which shapes would give
        (3, 2)? Add an axis of length 1.
""",
)


@exercise("outer-sum", notebook="01_tensors", takes="a, b", returns=like("a"))
def judge_outer_sum(answer: Callable) -> None:
    """a[:, None] + b."""
    vectors = {
        "a = [1, 2, 3], b = [10, 20]": ([1.0, 2.0, 3.0], [10.0, 20.0]),
        "a = [1, 2], b = [10, 20]": ([1.0, 2.0], [10.0, 20.0]),
        "a = [4, 0], b = [5, 6]": ([4.0, 0.0], [5.0, 6.0]),  # of the same lengths as the last
        "a = [0.5, -1.25], b = [0.3, 0.1, 0.4, 0.2]": ([0.5, -1.25], [0.3, 0.1, 0.4, 0.2]),
        "a = [7], b = [1, 2, 3] (integers)": ([7], [1, 2, 3]),
        "a = [1, 2, 4], b = [8]": ([1.0, 2.0, 4.0], [8.0]),
    }
    RUBRIC.expect(answer, {case: (torch.tensor(a), torch.tensor(b)) for case, (a, b) in vectors.items()})
    few, many = ((torch.ones(n), torch.ones(m)) for n, m in ((3, 4), (40, 41)))
    expect_no_loop(answer, few, many, more=37, over="elements", hint="Broadcasting adds all of them in one operation.")
