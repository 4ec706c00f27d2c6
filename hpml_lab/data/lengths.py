"""Sentences and clips have lengths: an order whose batches need little padding and is still random, and what padding costs."""

from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Sampler


class LengthBuckets(Sampler[int]):
    """Each index once an epoch, in an order whose batches hold samples of like length: little padding, and still random.

    lengths     the length of each sample
    batch_size  of the loader; an epoch's last batch may be smaller
    pool        batches that are sorted together: 1 is a plain shuffle, all of them a plain sort
    generator   the source of the order; None takes torch's own

    The order: shuffle all; cut into pools of `pool` batches; sort each pool by length; shuffle the batches.
    """

    def __init__(
        self, lengths: Sequence[int], batch_size: int, pool: int = 8, generator: torch.Generator | None = None
    ) -> None:
        self.lengths, self.batch_size, self.pool, self.generator = lengths, batch_size, pool, generator

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(len(self.lengths), generator=self.generator).tolist()
        many = self.pool * self.batch_size
        by_length = [
            i for at in range(0, len(order), many) for i in sorted(order[at : at + many], key=self.lengths.__getitem__)
        ]
        batches = [by_length[at : at + self.batch_size] for at in range(0, len(order), self.batch_size)]
        full = len(order) // self.batch_size  # a smaller last batch stays last, or the loader would cut the others elsewhere
        shuffled = torch.randperm(full, generator=self.generator).tolist()
        for number in [*shuffled, *range(full, len(batches))]:
            yield from batches[number]


def padding(lengths: Sequence[int], order: Sequence[int], batch_size: int) -> float:
    """The share of a padded epoch that is padding: 1 − Σ length / Σ (batch's longest × batch's size)."""
    batches = [[lengths[i] for i in order[at : at + batch_size]] for at in range(0, len(order), batch_size)]
    return 1 - sum(map(sum, batches)) / sum(max(batch) * len(batch) for batch in batches)
