"""How many CPU threads torch uses: one for what is too small to share, all where a whole processor is measured."""

import contextlib
from collections.abc import Iterator

import torch

_ALL = torch.get_num_threads()  # torch's own choice, noted before anything here changes it


def all_threads() -> int:
    """The number of threads that torch chose by itself on this machine."""
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
