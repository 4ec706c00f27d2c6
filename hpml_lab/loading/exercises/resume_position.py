"""resume-position: epoch and indices with which a rank goes on, from what the processes before had taken and handed out."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric

# runs, size, batch, seed, rank, ranks; a batch divides by the ranks
CASES = {
    f"runs={runs}, {size} samples, batch {batch}, seed {seed}, rank {rank} of {ranks}": (runs, size, batch, seed, rank, ranks)
    for runs, size, batch, seed, ranks in (
        ([(6, 10), (9, 13)], 50, 4, 0, 1),
        ([(7, 11), (8, 12), (5, 9)], 46, 4, 7, 2),
        ([(5, 5)], 27, 6, 3, 3),
        ([(3, 7)], 40, 4, 1, 2),
        ([(10, 10), (2, 10)], 25, 2, 5, 1),
        ([], 10, 3, 1, 1),
        ([(13, 15)], 20, 4, 2, 2),
        ([(2, 3)], 29, 6, 4, 3),
    )
    for rank in range(ranks)
}


def right(runs: Sequence[tuple[int, int]], size: int, batch: int, seed: int, rank: int, ranks: int) -> tuple[int, list[int]]:
    steps = sum(taken for taken, handed_out in runs)
    epoch, done = divmod(steps, size // batch)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed + epoch)).tolist()
    end = size // batch * batch
    return epoch, order[done * batch : end][rank::ranks]


def per_rank(runs, size, batch, seed, rank, ranks):
    """Each rank skips as many samples of its own share as all ranks have taken."""
    epoch, left = right(runs, size, batch, seed, rank, ranks)
    _, whole = right([(epoch * (size // batch), 0)], size, batch, seed, rank, ranks)
    return epoch, whole[ranks * (len(whole) - len(left)) :]


def in_blocks(runs, size, batch, seed, rank, ranks):
    """The ranks cut what is left into blocks, one for each."""
    epoch, left = right(runs, size, batch, seed, 0, 1)
    share = len(left) // ranks
    return epoch, left[rank * share : (rank + 1) * share]


RUBRIC = Rubric(
    right,
    """
taken for taken, handed_out in runs
    prefetched-are-lost :: handed_out for taken, handed_out in runs :: What the workers had fetched ahead has died with them,
        and no step was made with it. Which of the two numbers does the training know?
    second-resume-shifted :: taken for taken, handed_out in runs[-1:] :: Right after the first kill, and shifted after the
        second: each run counts from where it began itself.
    first-run-only :: taken for taken, handed_out in runs[:1] :: There may be more than one run before this one.
size // batch)
    dropped-batch-counted :: -(-size // batch)) :: With drop_last the samples that fill no batch make no step: after how many
        steps does an epoch end?
seed + epoch
    order-of-the-first-epoch :: seed :: The order is that of the epoch in which the run was stopped. What does it depend on,
        besides the seed?
    order-drawn-again :: seed + steps :: The order was drawn when the epoch began. What did it depend on then?
done * batch
    batches-taken-for-samples :: done :: A step takes a whole batch: how many samples is that?
    from-the-start-of-the-epoch :: 0 :: What was taken in this epoch comes again. Of the epoch only the rest is left.
: end
    dropped-samples-come :: : :: With drop_last the samples at the end that fill no batch are left out, after a resume as well.
[rank::ranks]
    same-on-all-ranks :: [0::1] :: Each rank gets its share of each batch, not all of it.
whole answer
    position-of-all-ranks :: per_rank :: A rank skips more than it has taken: the batches are those of all ranks together.
    blocks-of-ranks :: in_blocks :: Each batch is divided among the ranks, place by place, so that all make the same steps.
""",
)


@exercise("resume-position", notebook="08_loading", takes="runs, size, batch, seed, rank, ranks", returns=(int, [int]))
def judge_resume_position(answer: Callable[..., Any]) -> None:
    """Steps taken in all runs; epoch and place by the batches of an epoch; its order; the rest, this rank's share."""
    RUBRIC.expect(answer, CASES, but=("mixed",), explain=_explain)


def _explain(_: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says which part is wrong: the epoch, or which indices, or their order."""
    for case, _given, (epoch, indices), (right_epoch, wanted) in judged:
        if epoch != right_epoch:
            raise Mistake("wrong-epoch", f"For {case} the run was stopped in epoch {right_epoch}; yours is {epoch}.")
        if indices != wanted and sorted(indices) == sorted(wanted):
            raise Mistake(
                "other-order", f"For {case} these are the samples that are left, but in another order than the epoch's."
            )
        if len(indices) != len(wanted):
            raise Mistake(
                "wrong-number", f"For {case} this rank still has {len(wanted)} samples to take; yours has {len(indices)}."
            )
