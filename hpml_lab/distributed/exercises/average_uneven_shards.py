"""average-uneven-shards: what a rank calls backward on, so that DDP's average is the gradient of the whole batch's mean."""

from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.core.judge.asked import ask_later
from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect, expect_function
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same, shown

# {shares in words: (losses of the samples by rank)}
CASES = {
    "2 ranks with 1 and 3 samples": ([4.0], [1.0, 2.0, 3.0]),
    "3 ranks with 2, 2 and 2 samples": ([0.5, 1.5], [2.0, 4.0], [3.0, 1.0]),
    "4 ranks with 1, 4, 2 and 3 samples": ([8.0], [1.0, 0.5, 2.5, 1.0], [3.0, 7.0], [0.25, 0.5, 0.75]),
    "3 ranks with 5, 1 and 2 samples": ([1.0, 1.0, 2.0, 3.0, 5.0], [8.0], [13.0, 21.0]),
    "2 ranks with 2 and 1 samples, of which some have a loss below 0": ([-1.0, 3.0], [-0.004]),
}
EMPTY = "a rank without samples, of 2 ranks"


def right(losses: torch.Tensor, samples: int, ranks: int) -> torch.Tensor:
    return losses.sum() * ranks / samples


def one_number(answer: Callable) -> Callable:
    """backward() also starts from a tensor of one element, whatever its shape."""

    def loss(*given: Any) -> Any:
        found = answer(*given)
        return found.reshape(()) if isinstance(found, torch.Tensor) and found.numel() == 1 else found

    return loss


RUBRIC = Rubric(
    right,
    """
losses.sum() * ranks / samples
    mean-of-the-share :: losses.mean() :: DDP averages over ranks. After a mean over this rank's samples, a sample in a small
        share counts more than one in a large share.
    divided-by-n-twice :: losses.sum() / samples :: Your ranks' losses add up to the mean of the whole batch. But DDP does not
        add gradients up, it averages them: what it divides by is missing.
    share-times-mean :: losses.sum() / samples / ranks :: The weight of a share is right, but you divide by the number of
        ranks, and so does DDP: multiply instead.
    weight-upside-down :: losses.mean() * samples / (len(losses) * ranks) :: Your weight is upside down: a large share has to
        count more, not less.
    mean-times-ranks :: losses.mean() * ranks :: You undo DDP's division, but each share still counts as much as any other,
        whatever its size.
    mean-weighted-by-ranks :: losses.mean() * ranks / samples :: N/G belongs to the sum over the samples; you took their mean,
        which divides by the share's own samples as well.
    own-samples-for-ranks :: losses.sum() * len(losses) / samples :: You multiply by this rank's samples. What DDP divides by
        is the number of ranks.
    rounded-factor :: losses.sum() / (samples // ranks) :: // rounds down: the samples need not be a multiple of the ranks.
    per-sample :: losses * ranks / samples :: The factor is right. backward() needs one number: add the samples up.
error
    calls-backward :: does not require grad :: Return the loss: the training calls backward() on it, not you.
    asks-the-group :: process group has not been :: There is no process group here, and none is needed: the arguments say all,
        and DDP does the sum.
""",
    wrap=one_number,
)


@exercise("average-uneven-shards", notebook="13_distributed", takes="losses, samples, ranks", returns=like("losses"))
def judge_average_uneven_shards(answer: Callable) -> None:
    """losses.sum() · N/G, differentiable, for any shares, also an empty one."""
    cases = {
        f"{case}, rank {rank}": (torch.tensor(losses, dtype=torch.float64), sum(map(len, shares)), len(shares))
        for case, shares in CASES.items()
        for rank, losses in enumerate(shares)
    }
    RUBRIC.expect(answer, cases, explain=_explain)
    leaf = torch.tensor([2.0, 4.0, 5.0], dtype=torch.float64, requires_grad=True)
    expect_function(one_number(answer), right, {"losses of 3 samples of 4, on 2 ranks": (leaf, 4, 2)})
    ask_later(lambda: _judge_empty(answer))


def _explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says how much each sample counts, where that is wrong and can be found out."""
    for case, (losses, samples, ranks), *_ in judged:
        losses = losses.clone().requires_grad_()
        loss = answer(losses, samples, ranks)
        if not loss.requires_grad or loss.ndim:
            return
        [weights] = torch.autograd.grad(loss, losses, allow_unused=True)
        if weights is None or same(weights, torch.full_like(weights, ranks / samples)):
            continue
        count = f"count {weights[0]:.4g} each" if same(weights, weights[:1].expand_as(weights)) else f"count {shown(weights)}"
        hint = (
            f"For {case} of {samples} samples in all, the losses {count} in yours. Each should count N/G = {ranks}/{samples}."
        )
        raise Mistake("other-weights", hint)


def _judge_empty(answer: Callable) -> None:
    """A rank without samples takes part with a gradient of 0: the others wait for it."""
    losses = torch.empty(0, dtype=torch.float64, requires_grad=True)
    loss = answer(losses, 4, 2)
    if loss.isnan().any():
        hint = f"For {EMPTY}, the mean of nothing is not a number, and would spoil every rank's gradient. Its sum is 0."
        raise Mistake("empty-share", hint)
    expect(loss.sum(), 0.0, case=EMPTY)
    if not loss.requires_grad or torch.autograd.grad(loss.sum(), losses, allow_unused=True)[0] is None:
        raise Mistake(
            "empty-share-left-out",
            f"For {EMPTY}, your 0 does not come from `losses`, so backward() does not reach the parameters: this rank sends "
            "nothing, and the others wait for it. The sum of no losses is a 0 that does.",
        )
