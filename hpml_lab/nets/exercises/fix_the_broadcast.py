"""Exercise: the mean squared error of an output (N, 1) and a target (N,)."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric


def right(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    errors = output[:, 0] - target
    squares = errors.square()
    return squares.mean()


def one_number(function: Callable) -> Callable:
    """The function with a loss of shape () for one of shape (1,), from which backward can start as well."""

    def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = function(output, target)
        return loss.reshape(()) if isinstance(loss, torch.Tensor) and loss.numel() == 1 else loss

    return loss_of


RUBRIC = Rubric(
    right,
    """
output[:, 0] - target
    all-pairs :: output - target :: 4 outputs and 4 targets have 4 differences, not 4 × 4. Print (output - target).shape: which
        of the two must get or lose an axis, and at which end?
    sorted :: output[:, 0].sort().values - target.sort().values :: Sorting separates the outputs from their targets: sample i
        belongs to sample i.
    first-sample-only :: (output[:, 0] - target)[0] :: That is the first sample alone. output[0] is one sample, output[:, 0] is
        one column.
errors.square()
    absolute :: errors.abs() :: The differences are squared; their absolute values would make it the mean absolute error.
    not-squared :: errors :: These are the differences without the square: positive and negative ones cancel.
    means-compared :: errors.mean().square() :: Here differences of opposite sign cancel: square each one first and take the
        mean last.
squares.mean()
    not-averaged :: squares :: The loss is one number: the mean of the squares, not the squares of the samples.
    summed :: squares.sum() :: This is the sum; return the mean, as nn.MSELoss does.
    root :: squares.mean().sqrt() :: That is the root of the mean square: leave the root out.
    halved :: squares.mean() / 2 :: That is half of it: the mean itself is asked for, without the 1/2 of some textbooks.
    divided-twice :: squares.mean() / len(target) :: You divided by N twice: mean does it already.
whole answer
    all-pairs-divided :: lambda output, target: (output - target).square().sum() / len(target) :: Dividing by N does not help:
        there are still N² squares. Look at the shapes.
error
    one-size-only :: invalid for input :: The number of samples is not always the same: take it from the tensors.
""",
    wrap=one_number,
)


@exercise("fix-the-broadcast", notebook="03_nets", takes="output, target", returns=like("output"))
def judge_fix_the_broadcast(answer: Callable) -> None:
    output = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    target = torch.tensor([1.0, 3.0, 2.0, 7.0])
    cases = {
        "output (4, 1) and target (4,)": (output.clone().requires_grad_(), target),
        "a last batch of one sample, output (1, 1) and target (1,)": (torch.tensor([[3.0]]), torch.tensor([1.0])),
        "outputs and targets near 4096, half a unit apart": (4096 + output / 2, 4096 + target / 2),
        "output (7, 1) and target (7,)": (torch.linspace(-1, 1, 7)[:, None], torch.tensor([0.0, 3, 1, 0, 2, 2, 5])),
    }
    RUBRIC.expect(answer, cases)
