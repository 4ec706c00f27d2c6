"""average-uneven-shards: what a rank calls backward on, so that DDP's average is the gradient of the whole batch's mean."""

from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.same import numbers, same, shown

# {shares in words: (losses of the samples by rank)}
CASES = {
    "2 ranks with 1 and 3 samples": ([4.0], [1.0, 2.0, 3.0]),
    "3 ranks with 2, 2 and 2 samples": ([0.5, 1.5], [2.0, 4.0], [3.0, 1.0]),
    "4 ranks with 1, 4, 2 and 3 samples": ([8.0], [1.0, 0.5, 2.5, 1.0], [3.0, 7.0], [0.25, 0.5, 0.75]),
    "3 ranks with 5, 1 and 2 samples": ([1.0, 1.0, 2.0, 3.0, 5.0], [8.0], [13.0, 21.0]),
    "2 ranks with 2 and 1 samples, of which some have a loss below 0": ([-1.0, 3.0], [-0.004]),
}
EMPTY = "a rank without samples, of 2 ranks"

MISTAKES = {
    "mean-of-the-share": (
        lambda losses, samples, ranks: losses.mean(),
        "That is the mean over this rank's samples. DDP then averages over ranks: a sample in a small share counts more than "
        "one in a large share.",
    ),
    "divided-by-n-twice": (
        lambda losses, samples, ranks: losses.sum() / samples,
        "Your ranks' losses add up to the mean of the whole batch. But DDP does not add gradients up, it averages them: what "
        "it divides by is missing.",
    ),
    "plain-sum": (
        lambda losses, samples, ranks: losses.sum(),
        "The sum over the samples is G/N times too large after DDP has averaged.",
    ),
    "divided-by-ranks": (
        lambda losses, samples, ranks: losses.sum() / ranks,
        "DDP divides by the number of ranks already. What is missing is the number of samples.",
    ),
    "share-times-mean": (
        lambda losses, samples, ranks: losses.mean() * len(losses) / samples / ranks,
        "The weight of a share is right, but you divide by the number of ranks, and so does DDP: multiply instead.",
    ),
    "weight-upside-down": (
        lambda losses, samples, ranks: losses.mean() * samples / (len(losses) * ranks),
        "Your weight is upside down: a large share has to count more, not less.",
    ),
    "mean-times-ranks": (
        lambda losses, samples, ranks: losses.mean() * ranks,
        "You undo DDP's division, but each share still counts as much as any other, whatever its size.",
    ),
    "mean-weighted-by-ranks": (
        lambda losses, samples, ranks: losses.mean() * ranks / samples,
        "N/G belongs to the sum over the samples; you took their mean, which divides by the share's own samples as well.",
    ),
    "own-samples-for-ranks": (
        lambda losses, samples, ranks: losses.sum() * len(losses) / samples,
        "You multiply by this rank's samples. What DDP divides by is the number of ranks.",
    ),
    "ranks-twice": (
        lambda losses, samples, ranks: losses.sum() * ranks**2 / samples,
        "DDP divides by the number of ranks once; you multiply by it twice.",
    ),
    "factor-upside-down": (
        lambda losses, samples, ranks: losses.sum() * samples / ranks,
        "Turn the factor around: more samples in all make each of them count less.",
    ),
    "sum-times-ranks": (
        lambda losses, samples, ranks: losses.sum() * ranks,
        "You undo DDP's division, and the sum over all samples is left. The mean is asked for.",
    ),
    "two-ranks": (lambda losses, samples, ranks: losses.sum() * 2 / samples, "Right for two ranks; there may be more."),
    "rounded-factor": (
        lambda losses, samples, ranks: losses.sum() * (ranks // samples),
        "// rounds down: N // G is 0 for more samples than ranks.",
    ),
    "rounded-factor, the other way round": (
        lambda losses, samples, ranks: losses.sum() / (samples // ranks),
        "// rounds down: the samples need not be a multiple of the ranks.",
    ),
    "per-sample": (
        lambda losses, samples, ranks: losses * ranks / samples,
        "The factor is right. backward() needs one number: add the samples up.",
    ),
}

NOT_DIFFERENTIABLE = Mistake(
    "not-differentiable",
    "The number is right, but backward() does not get from it to the losses: use torch's operations, no item(), no detach().",
)


@exercise("average-uneven-shards", notebook="13_distributed")
def judge_average_uneven_shards(answer: Callable) -> None:
    """losses.sum() · N/G, differentiable, for any shares, also an empty one."""
    cases = {
        f"{case}, rank {rank}": (torch.tensor(losses, dtype=torch.float64), sum(map(len, shares)), len(shares))
        for case, shares in CASES.items()
        for rank, losses in enumerate(shares)
    }
    try:
        _judge_values(answer, cases)
    except Mistake as mistake:
        if mistake.name == "wrong-value":
            for case, given in cases.items():
                _explain(answer, case, *given)
        raise
    total = sum(_gradient(answer, values) for values in ([1.0], [2.0, 4.0, 5.0])) / 2
    if abs(total - 3.0) > 1e-9:
        raise Mistake("wrong-gradient", f"The value is right, but DDP's gradient comes out as {total:g} instead of 3.")
    _judge_empty(answer)


def _judge_values(answer: Callable, cases: dict[str, tuple]) -> None:
    expect_function(
        lambda *given: _one_number(answer(*given)),
        lambda losses, samples, ranks: losses.sum() * ranks / samples,
        cases,
        errors={
            "does not require grad": ("calls-backward", "Return the loss: the training calls backward() on it, not you."),
            "process group has not been": (
                "asks-the-group",
                "There is no process group here, and none is needed: the arguments say all, and DDP does the sum.",
            ),
        },
        mistakes={name: (lambda *given, f=f: _one_number(f(*given)), hint) for name, (f, hint) in MISTAKES.items()},
    )


def _explain(answer: Callable, case: str, losses: torch.Tensor, samples: int, ranks: int) -> None:
    """Raise the Mistake that says how much each sample counts, if that is wrong in this case and can be found out."""
    losses = losses.clone().requires_grad_()
    loss = _one_number(answer(losses, samples, ranks))
    if not isinstance(loss, torch.Tensor) or not loss.requires_grad or loss.ndim:
        return
    [weights] = torch.autograd.grad(loss, losses, allow_unused=True)
    if weights is None or same(weights, torch.full_like(weights, ranks / samples)):
        return
    count = f"count {weights[0]:.4g} each" if same(weights, weights[:1].expand_as(weights)) else f"count {shown(weights)}"
    hint = f"For {case} of {samples} samples in all, the losses {count} in yours. Each should count N/G = {ranks}/{samples}."
    raise Mistake("other-weights", hint)


def _one_number(loss: Any) -> Any:
    """backward() also starts from a tensor of one element, whatever its shape."""
    return loss.reshape(()) if isinstance(loss, torch.Tensor) and loss.numel() == 1 else loss


def _gradient(answer: Callable, values: list[float]) -> float:
    """The gradient of a rank with these losses by a weight of 3, of 4 samples on 2 ranks."""
    weight = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    loss = answer(weight * torch.tensor(values, dtype=torch.float64), 4, 2)
    if not (isinstance(loss, torch.Tensor) and loss.requires_grad):
        raise NOT_DIFFERENTIABLE
    loss.backward()
    if weight.grad is None:
        raise NOT_DIFFERENTIABLE
    return weight.grad.item()


def _judge_empty(answer: Callable) -> None:
    """A rank without samples takes part with a gradient of 0: the others wait for it."""
    loss = answer(torch.empty(0, dtype=torch.float64), 4, 2)
    nothing = numbers(loss)
    if nothing is None:
        raise Mistake("empty-share-returns-nothing", f"For {EMPTY}, your function returns {shown(loss)}: it should be a 0.")
    if nothing.isnan().any():
        raise Mistake(
            "empty-share",
            f"For {EMPTY}, the mean of nothing is not a number, and would spoil every rank's gradient. Its sum is 0.",
        )
    if nothing.any():
        raise Mistake("wrong-value", f"For {EMPTY}, the answer should be 0; yours is {nothing.item():g}.")
    try:
        _gradient(answer, [])
    except Mistake:
        raise Mistake(
            "empty-share-left-out",
            f"For {EMPTY}, your 0 does not come from `losses`, so backward() does not reach the parameters: this rank sends "
            "nothing, and the others wait for it. The sum of no losses is a 0 that does.",
        ) from None
