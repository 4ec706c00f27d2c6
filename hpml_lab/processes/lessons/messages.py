"""The message that a queue sends for an item, and how often each route copies the item's bytes.

route     what is put                       what travels                      what the producer must not change meanwhile
pickle    a NumPy array                     all bytes, through a pipe         the array (a thread pickles it later)
bytes     the tensor's bytes                all bytes, through a pipe         nothing
torch     a new tensor                      a handle of its shared memory     the tensor
reused    one of two shared tensors         a handle, and a handle back       the tensor, until it is back
ring      nothing: a slot is written        a semaphore is raised             the slot, until it is free again
"""

import multiprocessing
import pickle
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import resource_sharer
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing

from hpml_lab.core.experiment import Row, column

COUNTED = 16 << 10  # bytes, from which copies of a message can be distinguished from its other parts
ROUTES = ("pickle", "bytes", "torch", "reused", "ring")


@dataclass
class RouteCopies(Row):
    """How often a route copies the bytes of a tensor of one size after it was written, stage by stage.

    pack    blocks of the tensor's size that making the message needs together (tracemalloc), or whether the tensor moved
    pipe    the tensor's bytes in the message: they are copied into the pipe; and out of it, which counts as read
    read    blocks that receiving the message needs together
    unpack  blocks that making an array of the message needs
    """

    route: str = column("route")
    kilobytes: float = column("size", "KB")
    message_bytes: int = column("message", "bytes")
    pack: int = column("make the message")
    pipe: int = column("into the pipe")
    read: int = column("out of the pipe")
    unpack: int = column("make the array")
    copies: int = column("copies")


def message_bytes(item: Any) -> int:
    """The length of the message that a multiprocessing queue sends for `item`."""
    threads = set(threading.enumerate())
    message = ForkingPickler.dumps(item)
    pickle.loads(message)  # receive it as well: a handle that nobody fetches would stay open
    if set(threading.enumerate()) - threads:
        resource_sharer.stop(timeout=5)  # the thread that hands out files
    return len(message)


def count_copies(nbytes: int) -> list[RouteCopies]:
    """How often each route copies the bytes of a tensor of `nbytes`, at least COUNTED: below, small objects weigh as much."""
    tensor = torch.ones(nbytes // 4)
    new, shared = tensor.clone(), tensor.clone().share_memory_()
    return [
        _through_pipe("pickle", lambda: tensor.numpy(), nbytes),
        _through_pipe("bytes", lambda: tensor.numpy().tobytes(), nbytes),
        _as_handle("torch", new),
        _as_handle("reused", shared),
        RouteCopies("ring", nbytes / 1e3, 0, 0, 0, 0, 0, 0),
    ]


def _through_pipe(route: str, make: Callable[[], Any], nbytes: int) -> RouteCopies:
    here, there = multiprocessing.Pipe(duplex=False)
    with here, there:
        message, pack = _blocks(lambda: ForkingPickler.dumps(make()), nbytes)
        # A pipe holds 64 KiB: a thread sends the rest while this one reads. Sending allocates nothing of the message's size.
        sender = threading.Thread(target=there.send_bytes, args=(message,))
        sender.start()
        received, read = _blocks(here.recv_bytes, nbytes)
        sender.join()
        _, unpack = _blocks(lambda: pickle.loads(received), nbytes)
    pipe = len(message) // nbytes
    return RouteCopies(route, nbytes / 1e3, len(message), pack, pipe, read, unpack, pack + pipe + read + unpack)


def _as_handle(route: str, tensor: torch.Tensor) -> RouteCopies:
    before = tensor.data_ptr()
    message = message_bytes(tensor)
    moved = int(tensor.data_ptr() != before)  # into shared memory; a tensor that is already there stays
    pipe = message // tensor.nbytes
    return RouteCopies(route, tensor.nbytes / 1e3, message, moved, pipe, 0, 0, moved + pipe)


def _blocks(work: Callable[[], Any], nbytes: int) -> tuple[Any, int]:
    """What `work()` returns, and how many blocks of `nbytes` it held at its peak."""
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        made = work()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        if not tracing:
            tracemalloc.stop()
    return made, round((peak - before) / nbytes)
