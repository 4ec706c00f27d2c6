"""standardize: each column with mean 0 and deviation 1, where the deviation's sum is divided by N."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.same import same


def right(x: torch.Tensor) -> torch.Tensor:
    centered = x - x.mean(0)
    return centered / x.std(0, correction=0)


RUBRIC = Rubric(
    right,
    """
x - x.mean(0)
    wrong-sign :: x.mean(0) - x :: The right size with the wrong sign: x - μ, not μ - x.
    scaled-to-the-range :: (x - x.amin(0)) / (x.amax(0) - x.amin(0)) * x.std(0, correction=0) :: $RANGE
centered / x.std(0, correction=0)
    sample-deviation :: centered / x.std(0) :: By default, torch's std divides by N - 1; here the sum is divided by N. Look for
        `correction` in its documentation.
    variance-instead-of-deviation :: centered / x.var(0) :: You divided by the variance (and by N - 1 in it); its square root is
        the standard deviation, in the units of x.
    not-scaled :: centered :: The columns have mean 0, but their deviation is not 1 yet.
    norm-instead-of-deviation :: centered / centered.norm(dim=0) :: You divided by the root of the sum of squares. The deviation
        is the root of their mean: where is 1/N?
    root-mean-square :: centered / (x * x).mean(0).sqrt() :: The squares under the root are those of x. The deviation squares
        x - μ.
    mean-distance :: centered / centered.abs().mean(0) :: You divided by the mean distance from μ. The standard deviation
        squares the distances first.
    scaled-to-the-range :: (x - x.amin(0)) / (x.amax(0) - x.amin(0)) :: $RANGE
    rows-instead-of-columns :: (x - x.mean(1, keepdim=True)) / x.std(1, correction=0, keepdim=True) :: $BY_ROWS
    rows-instead-of-columns :: (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True) :: $BY_ROWS
    eps-added :: centered / (x.var(0, correction=0) + 1e-3).sqrt() :: $EPS
    eps-added :: centered / (x.var(0, correction=0) + 1e-5).sqrt() :: $EPS
    eps-added :: centered / (x.std(0, correction=0) + 1e-3) :: $EPS
    eps-added :: centered / (x.std(0, correction=0) + 1e-5) :: $EPS
    eps-added :: centered / (x.std(0, correction=0) + 1e-6) :: $EPS
    untouched :: x :: x comes back as it was.
error
    no-keepdim :: must match the size :: A mean over the last axis has shape (4,), which does not fit (4, 3). Over which axis
        are columns averaged?
""",
    RANGE="That puts each column between 0 and 1. Here the mean becomes 0, and the deviation 1.",
    BY_ROWS="You standardized each sample. Each feature, a column, needs its own mean: reduce over the samples.",
    EPS="You add a small number to the divisor, as layers of nets do against a deviation of 0. The formula here has none.",
)


@exercise("standardize", notebook="01_tensors", takes="x", returns=like("x"))
def judge_standardize(answer: Callable) -> None:
    """(x - mean) / standard deviation of each column."""
    x = torch.tensor([[1.0, 10.0, 5.0], [2.0, 20.0, 1.0], [4.0, 60.0, 3.0], [9.0, 30.0, 0.0]])
    far = torch.tensor([7]), torch.full((1, 2), 500.0)
    cases = {
        "a batch of 4 samples with 3 features": (x,),
        "3 samples with 3 features": (x[1:],),  # nothing raises here if rows and columns are mixed up
        "4 samples whose features have the sizes 0.001, 1 and 1000": (x * torch.tensor([1e-3, 1.0, 1e3]),),
        "4 other samples with 3 features": (x.roll(1, 0) * x,),  # scaled alone, x has the same answer
        "40 samples, one of them 6 deviations away": (torch.cat([x[:, :2]] * 10).index_add(0, *far),),
        "6 samples with 2 features": (torch.cat([x[:3, :2], x[:3, 1:]]) ** 2,),
    }
    RUBRIC.expect(answer, cases, tolerance=1e-5, but=("small",))  # an ε beside σ is common
    if not same(answer(x + 4096), right(x + 4096), 1e-3):
        hint = "Where means are far from 0, E[x²] − E[x]² is a small difference of large numbers: take the mean off first."
        raise Mistake("cancels", hint, (x + 4096,))
