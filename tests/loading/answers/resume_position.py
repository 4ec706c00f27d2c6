"""Answers to `resume-position`: what is left of the epoch in which a run was stopped, for one rank."""

import itertools

import numpy as np
import torch
from edited_source import wrong_answers


def solution(runs, size, batch, seed, rank, ranks):
    steps = sum(run[0] for run in runs)
    batches = size // batch
    epoch = steps // batches
    first = steps % batches
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(size, generator=generator).tolist()
    left = []
    for number in range(first, batches):
        left += order[number * batch : (number + 1) * batch][rank::ranks]
    return epoch, left


# ---- unusual, and right -------------------------------------------------------------------------------------------------


def with_numpy(runs, size, batch, seed, rank, ranks):
    epoch, first = np.divmod(np.asarray(runs, dtype=int).reshape(-1, 2)[:, 0].sum(), size // batch)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(int(seed + epoch))).numpy()
    return epoch, list(order[: size // batch * batch].reshape(-1, batch)[first:, rank::ranks].ravel())


def skipping(runs, size, batch, seed, rank, ranks):
    """An iterator over all batches that forgets those that were taken."""
    steps = sum(taken for taken, _ in runs)
    for epoch in itertools.count():
        if steps < size // batch:
            break
        steps -= size // batch
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed + epoch))
    batches = order[: size // batch * batch].view(-1, ranks)
    return epoch, batches[steps * batch // ranks :, rank].tolist()


ALSO_RIGHT = [with_numpy, skipping]


def sorted_rest(*given):
    epoch, left = solution(*given)
    return epoch, sorted(left)


WRONG = [
    *wrong_answers(
        solution,
        [
            ("wrong-epoch", ("epoch = steps // batches", "epoch = steps // batches + 1")),
            ("wrong-number", ("range(first, batches)", "range(first + 1, batches)")),
            ("second-resume-shifted", ("sum(run[0] for run in runs)", "runs[-1][0] if runs else 0")),
            ("prefetched-are-lost", ("run[0]", "max(run)")),
            ("dropped-samples-come", ("batches):\n", "batches + 1):\n")),
        ],
    ),
    ("other-order", sorted_rest),
]
