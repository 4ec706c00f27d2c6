"""Times works on the ranks of a process group: in turns, so that a drift of the machine's speed falls on all of them."""

import time
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple, TypeVar

import torch
from torch import distributed as dist

from hpml_lab.core.system.placement import wait_for

Name = TypeVar("Name", bound=Hashable)


class RankSample(NamedTuple):
    """Seconds of a work on this rank: wall-clock time, and CPU time with the threads of its communication."""

    wall: float
    cpu: float


def in_turns_on_ranks(
    works: Mapping[Name, Callable[[], object] | None], turns: int, device: torch.device, until_all: bool = False
) -> dict[Name, list[RankSample]]:
    """{work: a sample of each turn}, after a turn for warming up; all ranks begin each work together.

    works      the same names on all ranks, in the same order; None where this rank has no part: it waits, and its times are 0
    until_all  a work ends when it has ended on all ranks, not on this one
    """
    found: dict[Name, list[RankSample]] = {name: [] for name in works}
    for turn in range(turns + 1):
        for name, work in works.items():
            wait_for(device)
            meet()
            wall, cpu = time.perf_counter(), time.process_time()
            if work is not None:
                work()
                wait_for(device)
            if until_all:
                meet()
            if turn:
                sample = RankSample(time.perf_counter() - wall, time.process_time() - cpu)
                found[name].append(sample if work is not None else RankSample(0.0, 0.0))
    return found


def meet() -> None:
    """Wait for all ranks, over gloo: that takes no processor time."""
    dist.all_reduce(torch.zeros(1))
