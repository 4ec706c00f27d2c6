"""row-parallel-backward: a column and a row with dropout and a bias on each rank, forward and backward by formula."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric, by_part

Parts = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def right(
    x: Tensor, a: Tensor, b: Tensor, bias: Tensor, grad: Tensor, own: Tensor, shared: Tensor, all_reduce: Callable
) -> Parts:
    h = (x @ a) * own
    y = (all_reduce(h @ b) + bias) * shared
    after = grad * shared
    inner = after @ b.T * own
    return y, all_reduce(inner @ a.T), x.T @ inner, h.T @ after, after.sum(0)


class RankWaits(Exception):
    """A rank has come to an all-reduce whose sum is not known yet."""


class ReplayedSums:
    """A rank's `all_reduce`: gives the sums that are known, and stops the rank at the first that is not."""

    def __init__(self, sums: list[Tensor]) -> None:
        self.sums, self.given, self.is_complete = sums, [], False

    def __call__(self, value: Tensor) -> Tensor:
        self.given.append(value.detach().clone())
        number = len(self.given) - 1
        if self.is_complete:  # the call of a verdict, made again
            number %= len(self.sums)
        elif number == len(self.sums):
            raise RankWaits("The other ranks have not called all_reduce as often.")
        return self.sums[number].clone()


def on_ranks_in_turn(answer: Callable) -> Callable[..., list[Any]]:
    """The answer on all ranks: each runs up to its next all-reduce, and from the start when the sum is known.

    What differs between ranks is a list, one tensor for each.
    """

    def every_rank(x: Tensor, a: list, b: list, bias: Tensor, grad: Tensor, own: list, shared: Tensor) -> list[Any]:
        sums: list[Tensor] = []
        while True:
            found, waiting, calls = [], [], [ReplayedSums(sums) for _ in a]
            for rank, call in enumerate(calls):
                try:
                    found.append(answer(x, a[rank], b[rank], bias, grad, own[rank], shared, call))
                    call.is_complete = True
                except RankWaits:
                    waiting.append(call.given[-1])
            if not waiting:
                return found
            if found:
                raise Mistake("waits-forever", "Some ranks call all_reduce more often than others, and wait for them forever.")
            sums.append(sum(waiting[1:], start=waiting[0]))

    return every_rank


RUBRIC = Rubric(
    right,
    """
all_reduce(h @ b) + bias
    bias-on-every-rank :: all_reduce(h @ b + bias) :: Every rank adds the bias, and the sum over the ranks has it n times.
    output-not-summed :: h @ b + bias :: Your ranks have different outputs: what a rank's rows give is a part of Y, and Y is
        the sum of the parts.
    bias-divided :: all_reduce(h @ b) + bias / all_reduce(torch.ones(())) :: The bias is added once, behind the sum, and then
        whole.
    bias-forgotten :: all_reduce(h @ b) :: Y has a bias, which no rank may forget and only one sum may hold.
(x @ a) * own
    dropout-equal-inside :: (x @ a) * shared :: $OWN
    no-dropout-inside :: x @ a :: Dropout acts twice: behind the columns, and on Y. What multiplies h?
+ bias) * shared
    dropout-differs-outside :: + bias) * own :: $SHARED
    dropout-before-the-bias :: * shared + bias) :: Dropout acts on Y, with its bias.
after = grad * shared
    gradient-summed-twice :: after = all_reduce(grad * shared) :: $WHOLE
    gradient-averaged :: after = grad * shared / all_reduce(torch.ones(())) :: The gradient of Y is whole on every
        rank, and the part of a rank's slice comes from all of it.
    no-dropout-backward :: after = grad :: Y was multiplied by a mask, and so is what comes back through it.
    dropout-differs-outside :: after = grad * own :: $SHARED
after @ b.T * own
    no-dropout-backward :: after @ b.T :: h was multiplied by a mask, and so is what comes back through it.
    dropout-equal-inside :: after @ b.T * shared :: $OWN
all_reduce(inner @ a.T)
    input-not-summed :: inner @ a.T :: Every rank has used the whole x, so each has a part of its gradient. Who adds them up?
x.T @ inner
    weights-summed :: all_reduce(x.T @ inner) :: $SLICE
h.T @ after
    weights-summed :: all_reduce(h.T @ after) :: $SLICE
    dropout-forgotten-in-b :: (x @ a).T @ after :: b was multiplied by h with its dropout, not by h without.
after.sum(0)
    bias-summed :: all_reduce(after.sum(0)) :: $WHOLE
    bias-divided :: after.sum(0) / all_reduce(torch.ones(())) :: Every rank holds the whole bias, and updates it by its
        whole gradient.
    bias-without-mask :: grad.sum(0) :: The bias is added before the last dropout: what does the mask do to its gradient?
    not-summed-over-rows :: after.mean(0) :: The bias is added to each row, so its gradient is a sum over the rows.
whole answer
    every-gradient-summed :: every_gradient_summed :: $WHOLE
error
    shapes-do-not-fit :: cannot be multiplied :: x is (B, d), a (d, w), b (w, d): look at the shapes of the two factors.
""",
    wrap=on_ranks_in_turn,
    OWN="Behind the columns each rank has other hidden units, and each unit is dropped for itself. Which mask differs by rank?",
    SHARED="Y is the same on all ranks, and has to stay so. Which mask is the same on all of them?",
    WHOLE="A gradient that every rank has as a whole becomes n times as large if it is summed over the ranks.",
    SLICE="Each rank has other columns and rows, and so other gradients of them: they are not parts of one sum.",
)


def every_gradient_summed(*given: Any) -> Parts:
    """As after data parallelism: all gradients are added up."""
    *_, all_reduce = given
    y, *gradients = right(*given)
    return y, gradients[0], *map(all_reduce, gradients[1:])


def _cases() -> dict[str, tuple]:
    generator = torch.Generator().manual_seed(0)

    def case(ranks: int, rows: int, width: int, hidden: int) -> tuple:
        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        def mask(*shape: int) -> Tensor:
            return 2 * torch.randint(2, shape, generator=generator).double()

        a, b = [draw(width, hidden) for _ in range(ranks)], [draw(hidden, width) for _ in range(ranks)]
        own = [mask(rows, hidden) for _ in range(ranks)]
        return draw(rows, width), a, b, draw(width), draw(rows, width), own, mask(rows, width)

    return {
        "2 ranks, each with as many hidden units as x has columns": case(2, 3, 4, 4),
        "4 ranks": case(4, 2, 3, 3),
        "3 ranks with 2 hidden units each": case(3, 5, 4, 2),
        "one rank alone": case(1, 4, 3, 3),
    }


CASES = _cases()


def _explain(answer: Callable, judged: list[Judged]) -> None:
    """Name the first part that is wrong, and the rank."""
    by_rank = [
        Judged(f"{case}, rank {rank}", given, *parts)
        for case, given, got, wanted in judged
        for rank, parts in enumerate(zip(got, wanted, strict=True))
    ]
    by_part("output", *(f"gradient of {name}" for name in ("x", "a", "b", "bias")))(answer, by_rank)


@exercise(
    "row-parallel-backward",
    notebook="23_model_parallel",
    takes="x, a, b, bias, grad, own, shared, all_reduce",
    returns=(like("x"), like("x"), like("a"), like("b"), like("bias")),
)
def judge_row_parallel_backward(answer: Callable) -> None:
    """Y = dropout(g(dropout(f(x) A_r) B_r) + bias) and its gradients, on one to four ranks that take turns."""
    RUBRIC.expect(answer, CASES, explain=_explain)
