"""How many CPU threads torch uses: one for what is too small to share, all where a whole processor is measured."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch

from hpml_lab.core.system.machine import cores

Item = TypeVar("Item")
Value = TypeVar("Value")
_ALL = min(torch.get_num_threads(), cores())  # torch's own choice, noted before anything here changes it; it knows no quota


def all_threads() -> int:
    """The number of threads that torch chose by itself on this machine, at most one for each core that it may use."""
    return _ALL


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run a `with` block, or a function that this decorates, on one CPU thread, and set the number back.

    A step of a small net takes microseconds. Two threads gain little there; and on a machine with other work they
    lose much, because each operation waits until both had their turn (measured on 2 busy cores: 25 times slower).
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def on_threads(function: Callable[[Item], Value], items: Iterable[Item], threads: int | None = None) -> list[Value]:
    """function(item) for all items, in order, on `threads` threads (by default one for each core, at most eight).

    Each has one thread of torch. NumPy, SciPy and torch release Python's lock while they compute, so threads are enough, and
    unlike processes they start at once.
    """
    with ThreadPoolExecutor(threads or min(cores(), 8), initializer=partial(torch.set_num_threads, 1)) as pool:
        return list(pool.map(function, items))
