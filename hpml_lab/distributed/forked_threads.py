"""Why a forked rank uses one thread: with two it waits for threads that its parent has and it has not."""

import torch

from hpml_lab.core.system.children import run_in_child


def fork_hang(threads: int, deadline_seconds: float = 3.0) -> str:
    """How a forked child ends that multiplies two matrices on `threads` threads: "returned", or "hung" at the deadline.

    This process multiplies on two threads before. OpenMP then keeps the second thread for the next parallel operation. A fork
    copies the memory, in which that thread exists, but only the thread that forks. The child hands half of its product to a
    thread that is not there, and waits. On one thread it needs nobody.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        _multiply()
    finally:
        torch.set_num_threads(before)
    return run_in_child(_multiply_on, threads, method="fork", deadline_seconds=deadline_seconds).how


def _multiply_on(threads: int) -> None:
    torch.set_num_threads(threads)
    _multiply()


def _multiply() -> None:
    a = torch.ones(600, 600)
    torch.exp(a @ a)
