"""Sharing work among the ranks that torchrun starts: each takes its share, and all get the whole result.

torchrun --nproc-per-node 4 -m hpml_lab run mnist-three-nets --size full
"""

import atexit
import importlib
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

import torch
from torch import distributed

Item = TypeVar("Item")


def rank() -> int:
    """This process's number among the ranks: 0 if torchrun did not start it."""
    return int(os.environ.get("RANK", 0)) if size() > 1 else 0


def size() -> int:
    """How many ranks there are."""
    return int(os.environ.get("WORLD_SIZE", 1))


def own(items: Sequence[Item]) -> list[Item]:
    """The items that this rank works on: every size()-th. Put the most expensive ones first to balance the load."""
    return list(items[rank() :: size()])


def own_device(device: torch.device) -> torch.device:
    """With several ranks on one machine, each takes its own GPU; if there are fewer GPUs, ranks share them in turn."""
    if size() == 1 or device.type != "cuda":
        return device
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())


def gather(mine: Item) -> list[Item]:
    """The objects of all ranks, by rank, on every rank; waits for the slowest. They are pickled and sent over gloo."""
    if size() == 1:
        return [mine]
    if not distributed.is_initialized():
        importlib.import_module("torch.distributed.nn")  # before there is a group: see sharding, `train.leave`
        distributed.init_process_group("gloo", timeout=timedelta(days=7))  # ranks may finish hours apart
        atexit.register(leave)
    everyone: list[Item | None] = [None] * size()
    distributed.all_gather_object(everyone, mine)
    return everyone  # type: ignore[return-value]


def leave() -> None:
    """Close the connection between the ranks, if there is one."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
