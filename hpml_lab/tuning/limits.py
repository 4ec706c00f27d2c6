"""The largest batch that fits into memory, found by doubling and bisection without a crash."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from hpml_lab.core.counting import peak_bytes, synchronize


@dataclass(frozen=True)
class Search:
    """What a search found: the largest batch that fits (0: none does), and what was tried, in order."""

    batch: int
    tries: tuple[tuple[int, bool], ...]


def largest_batch(fits: Callable[[int], bool], most: int = 1 << 30) -> Search:
    """The largest batch up to `most` for which `fits(batch)` is true, with at most 2 log₂(batch) + 2 tries.

    Doubles from 1 until a batch does not fit, then halves the interval between the last that did and the first that did
    not. `batch` fits and `batch + 1` does not: both were tried, unless nothing fits or `most` does.
    """
    tries: list[tuple[int, bool]] = []

    def tried(batch: int) -> bool:
        tries.append((batch, bool(fits(batch))))
        return tries[-1][1]

    good, bad = 0, 1
    while good < most and tried(bad):
        good, bad = bad, min(2 * bad, most)
    while bad - good > 1:
        middle = (good + bad) // 2
        if tried(middle):
            good = middle
        else:
            bad = middle
    return Search(good, tuple(tries))


def within_budget(step: Callable[[int], object], budget: int, device: torch.device) -> Callable[[int], bool]:
    """`fits` for a budget in bytes: runs `step(batch)` and counts what it had in use at once.

    This is the way on a CPU. Linux grants more memory than there is and then ends a process that uses it: there is no
    exception to catch. The search tries at most about twice the budget, so the machine must have that much to spare.
    """
    return lambda batch: peak_bytes(lambda: step(batch), device) <= budget


def until_out_of_memory(
    step: Callable[[int], object], clear: Callable[[], object], device: torch.device
) -> Callable[[int], bool]:
    """`fits` for a GPU: runs `step(batch)` and sees whether it runs out of memory.

    clear  drops what a step leaves behind, such as gradients: half a backward pass may have made some
    """

    def fits(batch: int) -> bool:
        clean(clear, device)
        try:
            step(batch)
            synchronize(device)
        except torch.OutOfMemoryError:
            fitted = False  # no more in here: until this block ends, the error's traceback holds the tensors of the step
        else:
            fitted = True
        clean(clear, device)
        return fitted

    return fits


def clean(clear: Callable[[], object], device: torch.device) -> None:
    """Give memory back to the device: what `clear` drops, what only cycles hold, and what the allocator keeps for later.

    Without the last, free memory in pieces of the wrong size could make the next try fail.
    """
    clear()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def capped(budget: int | None, device: torch.device) -> Iterator[None]:
    """On a GPU, let torch take at most `budget` bytes more than it holds; all of the memory again afterwards."""
    if budget is None or device.type != "cuda":
        yield
        return
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, (torch.cuda.memory_reserved(device) + budget) / total), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
