"""The shared memory behind rings and tensors, as the system shows it: while it is in use and afterwards."""

import gc
import os
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.children import run_in_child
from hpml_lab.core.system.errors import LabError
from hpml_lab.processes.lessons.shared_memory_ring import SHM, Ring

DEADLINE_SECONDS = 30.0
STRATEGIES = ("file_descriptor", "file_system")


@dataclass
class Segment(Row):
    """One kind of shared memory: how many the system shows more than before, while one is in use and afterwards.

    name  as the system shows it while it is in use; "(deleted)": the name is removed, the memory is not
    """

    kind: str = column("shared memory")
    seen_as: str = column("seen as")
    name: str = column("name")
    in_use: int = column("while in use")
    afterwards: int = column("afterwards")


def named_segments() -> set[str]:
    """The names in /dev/shm of this process's rings and torch's shared tensors; empty on a system without that folder."""
    mine = f"_{os.getpid()}_"  # both put the process's id into the name; the others there belong to other processes
    return {path.name for path in SHM.iterdir() if mine in path.name} if SHM.is_dir() else set()


def has_name(name: str) -> bool:
    """True if a block of shared memory of that name exists: by looking, or, where nothing is shown, by opening it."""
    if SHM.is_dir():
        return (SHM / name).exists()
    try:
        SharedMemory(name).close()
    except FileNotFoundError:
        return False
    return True


def nameless_segments() -> set[str]:
    """The mappings that this process has of shared memory whose name is already removed, as /proc/self/maps calls them."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return {line[line.index("/dev/shm") :] for line in lines if "/dev/shm/torch_" in line and line.endswith("(deleted)")}


def ring_segment(nbytes: int = 1 << 20) -> Segment:
    """The memory of a ring, while it is used and after it was closed."""
    with Ring(1, (nbytes,), np.uint8) as ring:
        name = ring.name
        ring.put(1)
        in_use = has_name(name)
    shown = str(SHM / name) if SHM.is_dir() else name
    return Segment("a ring", "a name in /dev/shm" if SHM.is_dir() else "a name", shown, int(in_use), int(has_name(name)))


def tensor_segment(strategy: str, nbytes: int = 1 << 20) -> Segment:
    """A shared tensor with one of torch's two strategies; run it in a child of its own, because it changes the strategy.

    file_descriptor removes the name at once and passes the open file; file_system keeps the name and passes that.
    """
    torch.set_num_threads(1)
    torch.multiprocessing.set_sharing_strategy(strategy)
    named = strategy == "file_system"

    def shown() -> set[str]:
        return {str(SHM / name) for name in named_segments()} if named else nameless_segments()

    before = shown()
    tensor = torch.ones(nbytes // 4).share_memory_()
    in_use = shown() - before
    del tensor
    gc.collect()
    seen_as = "a name in /dev/shm" if named else "a mapping without a name"
    return Segment(f"a tensor, {strategy}", seen_as, ", ".join(in_use), len(in_use), len(shown() - before))


def shared_segments() -> list[Segment]:
    """The memory of a ring and, on Linux, of a tensor with each of torch's two strategies."""
    rows = [ring_segment()]
    for strategy in STRATEGIES if SHM.is_dir() else ():  # a strategy holds for a whole process: each gets its own
        outcome = run_in_child(tensor_segment, strategy, method="fork", deadline_seconds=DEADLINE_SECONDS)
        if outcome.how != "returned":
            raise LabError(f"The child with {strategy} {outcome.how}. {outcome.error}", "Run it again.")
        rows.append(outcome.value)
    return rows
