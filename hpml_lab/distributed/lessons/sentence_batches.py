"""Batches of sentences for several ranks: in which order they come, what padding and waiting cost, and how random they are.

A rank pads its batch to the longest sentence in it, so the cost of its step is batch · longest. All ranks wait for the slowest:

    rank time of a step = N · batch · max over ranks(longest) = useful + padding + waiting

With sentences drawn at random, the longest of k has the expected length

    E[max of k] = Σᵢ x₍ᵢ₎ · ((i / m)ᵏ − ((i − 1) / m)ᵏ)          x₍₁₎ ≤ … ≤ x₍ₘ₎: all lengths

so a rank is busy for the share E[max of B] / E[max of N·B] of the time: the more ranks, the longer the wait for the slowest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from hpml_lab.data.lengths import LengthBuckets

RANDOM, DEALT, SORTED = "random", "random, dealt by length", "sorted"
OWN, TOGETHER = "buckets of each rank", "buckets over all ranks"
ORDERS = (RANDOM, DEALT, OWN, TOGETHER, SORTED)
Plan = list[list[list[int]]]  # [step][rank] → the indices of the rank's batch
SHORTEST, LONGEST = 4, 256


def sentence_lengths(count: int, seed: int = 0) -> list[int]:
    """Lengths as in text: many short sentences and a few long ones (log-normal, from 4 to 256 words)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.exp(2.9 + 0.7 * torch.randn(count, generator=generator)).clamp(SHORTEST, LONGEST).int().tolist()


def epochs(order: str, lengths: Sequence[int], ranks: int, batch: int, pool: int, seed: int = 0) -> Iterator[Plan]:
    """One plan after another, each of one epoch; what does not fill a batch on each rank is left out.

    order  RANDOM: shuffled, and dealt as they come. DEALT: the same steps, in each of which the sentences are dealt by length,
           so that neighbors in length go to different ranks. OWN: each rank has a fixed share and sorts it within pools of
           `pool` batches. TOGETHER: all sentences are sorted within pools of `pool` steps, and dealt by length. SORTED: from
           the shortest to the longest, the same in each epoch, and dealt by length.
    """
    generator = torch.Generator().manual_seed(seed)
    words, whole = torch.tensor(lengths), ranks * batch
    steps = len(lengths) // whole
    if order == OWN:
        shares = torch.randperm(len(lengths), generator=generator)[: steps * whole].view(ranks, -1)
        samplers = [LengthBuckets(words[share].tolist(), batch, pool, generator) for share in shares]
        while True:
            drawn = [share[list(sampler)].view(steps, batch) for share, sampler in zip(shares, samplers, strict=True)]
            yield torch.stack(drawn, dim=1).tolist()
    buckets = LengthBuckets(lengths, whole, pool, generator)
    while True:
        if order == TOGETHER:
            indices = torch.tensor(list(buckets))
        else:
            indices = words.argsort() if order == SORTED else torch.randperm(len(lengths), generator=generator)
        by_step = indices[: steps * whole].view(steps, whole)
        if order == RANDOM:
            yield by_step.view(steps, ranks, batch).tolist()
            continue
        by_length = by_step.gather(1, words[by_step].argsort(dim=1))
        yield by_length.view(steps, batch, ranks).transpose(1, 2).tolist()  # dealt like cards


@dataclass(frozen=True)
class PlanCost:
    """The rank time of a plan, counted in words: useful ones, padding, and those that fit in while a rank waits."""

    useful: int
    padding: int
    waiting: int

    @property
    def total(self) -> int:
        return self.useful + self.padding + self.waiting

    @property
    def speed(self) -> float:
        """The useful share of the time, to which words per second are proportional."""
        return self.useful / self.total

    @property
    def busy(self) -> float:
        """The share of the time in which a rank does not wait."""
        return 1 - self.waiting / self.total


def plan_cost(plan: Plan, lengths: Sequence[int]) -> PlanCost:
    words = torch.tensor(lengths)[torch.tensor(plan)]  # (steps, ranks, batch)
    longest, batch = words.amax(dim=2), words.shape[2]
    padded, useful = int(longest.sum()) * batch, int(words.sum())
    return PlanCost(useful, padded - useful, int((longest.amax(dim=1, keepdim=True) - longest).sum()) * batch)


def expected_longest(lengths: Sequence[int], draws: int) -> float:
    """E[max of `draws` lengths], drawn at random with replacement."""
    ordered = torch.tensor(sorted(lengths), dtype=torch.float64)
    cumulated = (torch.arange(len(lengths) + 1, dtype=torch.float64) / len(lengths)) ** draws
    return float((ordered * cumulated.diff()).sum())


# ---- how random an order is ------------------------------------------------------------------------------------------------


def design_effect(plans: Sequence[Plan], lengths: Sequence[int]) -> float:
    """How many times as large as with random batches the variance of a batch's mean length is: B for B equal lengths.

    Of what depends on the length, a batch of B says no more than B / (design effect) random samples, and the noise of its
    gradient is that of the smaller batch.
    """
    words = torch.tensor(lengths, dtype=torch.float64)[torch.tensor(list(plans))]  # (epochs, steps, ranks, batch)
    whole = words.flatten(2)  # a step's batch over all ranks
    return float(whole.mean(2).var(correction=0) * whole.shape[2] / whole.var(correction=0))


def position_correlation(plans: Sequence[Plan]) -> float:
    """The correlation of a sentence's step in one epoch and in the next: 1 if the order is the same, about 0 if it is drawn."""
    found = []
    for one, other in zip(plans, plans[1:], strict=False):
        first, second = _step_of(one), _step_of(other)
        both = sorted(first.keys() & second.keys())
        pair = torch.tensor([[first[i] for i in both], [second[i] for i in both]], dtype=torch.float64)
        found.append(float(torch.corrcoef(pair)[0, 1]))
    return sum(found) / len(found)


def _step_of(plan: Plan) -> dict[int, int]:
    return {index: step for step, ranks in enumerate(plan) for batch in ranks for index in batch}
