"""A run that is stopped in the middle of an epoch, and goes on with exactly the samples that are left.

    what comes next = (seed, epoch, position)

seed + epoch   give the order: a permutation from a generator of its own, the same however often it is drawn. The state of a
               generator that others use, too, is in mid-epoch already that of the next order
position       samples of the epoch that the training has taken, on all ranks together. It is counted where the training takes
               a batch: with N workers and F batches ahead for each, the sampler has handed out N · F batches more
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from hpml_lab.core.system.errors import LabError


def epoch_order(size: int, seed: int, epoch: int) -> list[int]:
    """The indices 0 … size − 1 in the order of this epoch; seed + epoch, as DistributedSampler has it."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed + epoch)).tolist()


class ResumableSampler(Sampler[int]):
    """What is left of an epoch: rank r of N gets the places position + r, position + r + N, … of its order.

    After each batch call `took`, after the last one `next_epoch`; make a new iterator of the loader for each epoch. The state
    may be loaded on another number of ranks, because it counts the samples of all. Some ranks get one sample more where what is
    left does not divide by them.
    """

    def __init__(self, size: int, seed: int = 0, rank: int = 0, ranks: int = 1) -> None:
        self.size, self.seed, self.rank, self.ranks = size, seed, rank, ranks
        self.epoch = self.position = 0

    def __iter__(self) -> Iterator[int]:
        left = epoch_order(self.size, self.seed, self.epoch)[self.position :]
        return iter(left[self.rank :: self.ranks])

    def __len__(self) -> int:
        return len(range(self.position + self.rank, self.size, self.ranks))

    def took(self, samples: int) -> None:
        """The training has taken so many samples more, on all ranks together."""
        self.position += samples

    def next_epoch(self) -> None:
        self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("size", "seed", "epoch", "position")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises LabError for the state of a data set of another size, whose positions are places of another order."""
        if (size := state["size"]) != self.size:
            raise LabError(f"This state is of {size} samples, and there are {self.size}.", "Resume with the same data set.")
        self.seed, self.epoch, self.position = state["seed"], state["epoch"], state["position"]


def batches_from(step: int, size: int, batch: int, seed: int = 0, rank: int = 0, ranks: int = 1) -> Iterator[list[int]]:
    """For `batch_sampler=`, without an end: this rank's part of each batch after `step`, as train.py of notebook 14 does.

    The step alone says epoch and position, so nothing else is saved; the last size mod batch samples of an epoch are left out.
    """
    if not 0 < batch <= size:
        raise LabError(f"{size} samples give no batch of {batch}.", f"Use a batch of 1 to {size}.")
    for number in itertools.count(step):
        epoch, place = divmod(number, size // batch)
        if number == step or place == 0:
            order = epoch_order(size, seed, epoch)
        yield order[place * batch : (place + 1) * batch][rank::ranks]


def sample_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """For a sample's augmentation: the same numbers whichever worker makes it, and however often the run was stopped."""
    return np.random.default_rng((seed, epoch, index))
