"""Finds the largest batch that fits into memory by doubling and bisection, without a crash."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from hpml_lab.core.experiment.fits import free_bytes, is_out_of_memory
from hpml_lab.core.timing.counting import peak_bytes, synchronize


@dataclass(frozen=True)
class BatchSearch:
    """The largest batch that fits (0 if none does), and the tries in order as (batch, whether it fitted)."""

    batch: int
    tries: tuple[tuple[int, bool], ...]


def largest_batch(fits: Callable[[int], bool], most: int = 1 << 30) -> BatchSearch:
    """Find the largest batch up to `most` for which `fits(batch)` is true, with at most 2 log₂(batch) + 2 tries.

    Doubles from 1 until a batch does not fit, then halves the interval between the largest batch that fitted and the smallest
    that did not. The result fits and one sample more does not: both were tried, unless nothing fits or `most` does.
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
    return BatchSearch(good, tuple(tries))


def within_budget(step: Callable[[int], object], budget: float, device: torch.device | str) -> Callable[[int], bool]:
    """A `fits` function for a budget in bytes: runs `step(batch)` and compares its peak memory with the budget.

    Use this on a CPU. Linux promises more memory than there is and kills a process that uses it, so there is no exception to
    catch. The search tries up to about twice the budget, so that much memory must be free.
    """
    return lambda batch: peak_bytes(lambda: step(batch), device) <= budget


def until_out_of_memory(
    step: Callable[[int], object], clear: Callable[[], object], device: torch.device | str
) -> Callable[[int], bool]:
    """A `fits` function for a GPU: runs `step(batch)` within the memory that is free, catches errors for a lack of it, and no
    others.

    clear  drops what a step leaves behind, such as the gradients of an interrupted backward pass
    """

    device = torch.device(device)

    def fits(batch: int) -> bool:
        free_memory(clear, device)
        try:
            with capped_memory(None, device):
                step(batch)
                synchronize(device)
        except RuntimeError as error:  # the error's traceback holds the step's tensors until this block ends
            if not is_out_of_memory(error):
                raise
            fitted = False
        else:
            fitted = True
        free_memory(clear, device)
        return fitted

    return fits


def free_memory(clear: Callable[[], object], device: torch.device) -> None:
    """Return memory to the device: what `clear` drops, what only reference cycles hold, and the allocator's cache.

    Without emptying the cache, fragmented free memory could make the next try fail.
    """
    clear()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def capped_memory(budget: float | None, device: torch.device) -> Iterator[None]:
    """On a GPU, limit torch to `budget` bytes more than it holds now, or to what is free; afterwards to what it was limited to.

    Without a limit a search need not end where the driver moves what does not fit into the host's memory, as on Windows.
    """
    if device.type != "cuda":
        yield
        return
    if device.index is None:  # torch.device("cuda"), for which torch's limits raise a ValueError
        device = torch.device("cuda", torch.cuda.current_device())
    budget = budget or free_bytes(device)
    total = torch.cuda.get_device_properties(device).total_memory
    before = torch.cuda.get_per_process_memory_fraction(device)
    allowed = (torch.cuda.memory_allocated(device) + budget) / total
    torch.cuda.set_per_process_memory_fraction(min(before, allowed), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(before, device)
