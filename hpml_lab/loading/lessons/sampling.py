"""Samplers, which decide what a DataLoader asks for next, and data sets that show what was asked for and what was drawn."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from hpml_lab.core.system.workers import allow_oversubscription
from hpml_lab.data.lengths import LengthBuckets

SAMPLERS = ("sequential", "random", "subset", "weighted", "length buckets")
BUCKETS = SAMPLERS[-1]
RARE = 0.1  # share of the rare class
BIG = 2**30  # numbers below it: two draws are equal by accident less often than once in a thousand million


class Indices(Dataset):
    """`size` samples; a sample is its own index, so that an epoch shows what the sampler drew."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        return int(index)


def make_sampler(name: str, labels: torch.Tensor, lengths: list[int], batch: int, seed: int = 0) -> Sampler[int]:
    """One of SAMPLERS over samples with these classes and lengths, with its own generator."""
    generator = torch.Generator().manual_seed(seed)
    if name == "sequential":
        return SequentialSampler(labels)
    if name == "random":
        return RandomSampler(labels, generator=generator)
    if name == "subset":  # as a training set is taken out of all samples
        return SubsetRandomSampler(range(len(labels) // 2, len(labels)), generator=generator)
    if name == "weighted":  # 1 / the size of the sample's class
        weights = 1 / torch.bincount(labels)[labels].double()
        return WeightedRandomSampler(weights, num_samples=len(labels), replacement=True, generator=generator)
    return LengthBuckets(lengths, batch, generator=generator)


def imbalanced(count: int, seed: int = 0) -> tuple[torch.Tensor, list[int]]:
    """Classes (count,), of which every tenth is the rare 1, and lengths from 10 to some hundreds, many short and few long."""
    labels = (torch.arange(count) % round(1 / RARE) == 0).long()
    lengths = np.random.default_rng(seed).lognormal(4.0, 0.6, count).clip(10, 600).astype(int)
    return labels, lengths.tolist()


def drawn_indices(sampler: Any, count: int, batch: int, epochs: int) -> list[list[int]]:
    """The indices that a DataLoader hands out in each epoch."""
    loader = DataLoader(Indices(count), batch_size=batch, sampler=sampler)
    return [[index for indices in loader for index in indices.tolist()] for _ in range(epochs)]


class Draws(Dataset):
    """`size` samples; a sample is one random number below 2³⁰, drawn where the sample is made: in the worker.

    kind  "numpy": NumPy's global generator. "own": a NumPy Generator that the data set brings along. "torch": torch's.
    """

    def __init__(self, size: int, kind: str) -> None:
        self.size, self.kind, self.rng = size, kind, np.random.default_rng(0)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[int, int]:
        """(the worker's number, the random number)."""
        info = torch.utils.data.get_worker_info()
        if self.kind == "numpy":
            drawn = np.random.randint(BIG)
        elif self.kind == "own":
            drawn = self.rng.integers(BIG)
        else:
            drawn = torch.randint(BIG, ()).item()
        return (-1 if info is None else info.id), int(drawn)


def seed_own(worker_id: int) -> None:
    """A worker_init_fn that gives the data set's generator the worker's own seed: base_seed + worker_id."""
    info = torch.utils.data.get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)


def seed_numpy_by_number(worker_id: int) -> None:
    """A worker_init_fn that is often seen and wrong: the seed differs by worker, but not by epoch."""
    np.random.seed(worker_id)


def draw_numbers(
    kind: str, size: int, epochs: int, init: Callable | None = None, remake: bool = False
) -> list[list[list[int]]]:
    """The numbers that two workers draw in each epoch, [epoch][worker] → list.

    remake  True makes the loader's generator anew, with the same seed, before each epoch; False keeps one for all epochs
    """
    generator, result = torch.Generator().manual_seed(0), []
    for _ in range(epochs):
        if remake:
            generator = torch.Generator().manual_seed(0)
        loader = DataLoader(
            Draws(size, kind), batch_size=2, num_workers=2, worker_init_fn=init, generator=generator, timeout=120
        )
        with allow_oversubscription():
            pairs = [pair for workers, numbers in loader for pair in zip(workers.tolist(), numbers.tolist(), strict=True)]
        result.append([[number for worker, number in pairs if worker == wanted] for wanted in range(2)])
    return result


def repeats(draws: list[list[list[int]]]) -> dict[str, bool]:
    """Whether the two workers drew the same numbers in the first epoch, and whether a worker drew them again in the second."""
    return {"across workers": draws[0][0] == draws[0][1], "across epochs": any(a == b for a, b in zip(*draws[:2], strict=True))}
