"""Five ways to bring a tensor to another process, how often each copies its bytes, and the shared segments behind them.

route     what is put                       what travels                      what the producer may not touch meanwhile
pickle    a NumPy array                     all bytes, through a pipe         the array (it is pickled later, by a thread)
bytes     the tensor's bytes                all bytes, through a pipe         nothing
torch     a new tensor                      a handle of its shared memory     the tensor
reused    one of two shared tensors         a handle, and a handle back       the tensor, until it is back
ring      nothing: a slot is written        a semaphore is raised             the slot, until it is free again
"""

import contextlib
import gc
import multiprocessing
import os
import pickle
import threading
import tracemalloc
from collections.abc import Callable
from multiprocessing import resource_sharer
from multiprocessing.reduction import ForkingPickler
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
import torch.multiprocessing

from hpml_lab.core.children import START_SECONDS, child_process, run_in_child
from hpml_lab.core.errors import LabError
from hpml_lab.core.ring import SHM, Ring
from hpml_lab.core.timeline import CLOCK

ROUTES = ("pickle", "bytes", "torch", "reused", "ring")
DEADLINE = 30.0  # seconds that either side waits for the other
WAITING = 2  # messages that may lie in a queue, and buffers that go back and forth
WRITTEN = -7.0  # what the consumer writes into an item to see whose memory it is


# ---- messages and copies ------------------------------------------------------------------------------------------------


def message_bytes(item: Any) -> int:
    """Length of the message that a multiprocessing queue sends for `item`."""
    threads = set(threading.enumerate())
    message = ForkingPickler.dumps(item)
    pickle.loads(message)  # receive it as well: a handle that nobody fetches would stay open
    if set(threading.enumerate()) - threads:
        resource_sharer.stop(timeout=5)  # the thread that hands out files
    return len(message)


def copies(nbytes: int = 32768) -> list[dict[str, Any]]:
    """How often each route copies the bytes of a tensor of `nbytes` after it was written, stage by stage.

    pack    blocks of the payload's size that making the message needs at once (tracemalloc), or whether the tensor moved
    pipe    the payload's bytes in the message: they are copied into the pipe; and out of it, which counts as read
    read    blocks that receiving the message needs at once
    unpack  blocks that making an array of the message needs
    The payload is small enough to lie in a pipe, so that one process can do both ends.
    """
    tensor = torch.ones(nbytes // 4)
    fresh, shared = tensor.clone(), tensor.clone().share_memory_()
    stages = {
        "pickle": _piped(lambda: tensor.numpy(), nbytes),
        "bytes": _piped(lambda: tensor.numpy().tobytes(), nbytes),
        "torch": _handed(fresh),
        "reused": _handed(shared),
        "ring": {"message": 0, "pack": 0, "pipe": 0, "read": 0, "unpack": 0},
    }
    return [
        {"route": route, **row, "copies": sum(row[part] for part in ("pack", "pipe", "read", "unpack"))}
        for route, row in stages.items()
    ]


def _piped(make: Callable[[], Any], nbytes: int) -> dict[str, int]:
    here, there = multiprocessing.Pipe(duplex=False)
    with here, there:
        message, pack = _blocks(lambda: ForkingPickler.dumps(make()), nbytes)
        there.send_bytes(message)
        received, read = _blocks(here.recv_bytes, nbytes)
        _, unpack = _blocks(lambda: pickle.loads(received), nbytes)
    return {"message": len(message), "pack": pack, "pipe": len(message) // nbytes, "read": read, "unpack": unpack}


def _handed(tensor: torch.Tensor) -> dict[str, int]:
    before = tensor.data_ptr()
    message = message_bytes(tensor)
    moved = int(tensor.data_ptr() != before)  # into shared memory; a tensor that lies there already stays
    return {"message": message, "pack": moved, "pipe": message // tensor.nbytes, "read": 0, "unpack": 0}


def _blocks(work: Callable[[], Any], nbytes: int) -> tuple[Any, int]:
    """What `work()` gives, and how many blocks of `nbytes` it held at its peak."""
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


# ---- segments -----------------------------------------------------------------------------------------------------------


def named_segments() -> set[str]:
    """The names in /dev/shm of this process's rings and torch's shared tensors; empty on a system without that folder."""
    mine = f"_{os.getpid()}_"  # both put the process's id into the name; the others there belong to others
    return {path.name for path in SHM.iterdir() if mine in path.name} if SHM.is_dir() else set()


def has_name(name: str) -> bool:
    """True where a block of shared memory of that name exists: by looking, or, where nothing is shown, by opening it."""
    if SHM.is_dir():
        return (SHM / name).exists()
    try:
        SharedMemory(name).close()
    except FileNotFoundError:
        return False
    return True


def nameless_segments() -> int:
    """How many mappings this process has of shared memory whose name is already gone (Linux)."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum("/dev/shm/torch_" in line and line.endswith("(deleted)") for line in lines)


def look_at_ring(nbytes: int = 1 << 20) -> dict[str, Any]:
    """The block of a ring before, while and after it is used."""
    with Ring(1, (nbytes,), np.uint8) as ring:
        name = ring.name
        ring.put(1)
        during = has_name(name)
    return _look("the block of a ring", during, has_name(name), "a name in /dev/shm" if SHM.is_dir() else "a name")


def look_at_handles(strategy: str, nbytes: int = 1 << 20) -> dict[str, Any]:
    """A shared tensor under one of torch's two strategies, "file_descriptor" or "file_system"; run it in a child of its own.

    file_descriptor takes the name away at once and hands the open file on; file_system keeps the name and hands that on.
    """
    torch.set_num_threads(1)
    torch.multiprocessing.set_sharing_strategy(strategy)
    named = strategy == "file_system"

    def seen() -> int:
        return len(named_segments()) if named else nameless_segments()

    before = seen()
    tensor = torch.ones(nbytes // 4).share_memory_()
    during = seen()
    del tensor
    gc.collect()
    where = "a name in /dev/shm" if named else "a mapping without a name"
    return _look(f"a tensor, {strategy}", during > before, seen() > before, where)


def _look(what: str, during: bool, after: bool, where: str) -> dict[str, Any]:
    return {"segment": what, "seen as": where, "while in use": during, "afterwards": after}


def segments() -> list[dict[str, Any]]:
    """What the three kinds of shared segments leave to see: a ring's block, and on Linux torch's tensors by both strategies."""
    rows = [look_at_ring()]
    strategies = ("file_descriptor", "file_system") if SHM.is_dir() else ()
    for strategy in strategies:  # a strategy holds for a whole process: each gets one
        outcome = run_in_child(look_at_handles, strategy, method="fork", deadline_seconds=DEADLINE)
        if outcome.how != "returned":
            raise LabError(f"Looking at {strategy} in a child failed: it {outcome.how}. {outcome.error}", "Run it again.")
        rows.append(outcome.value)
    return rows


# ---- throughput ---------------------------------------------------------------------------------------------------------


class Exchange:
    """A consumer in a process of its own, and the five routes to it. Use it in a `with` block.

    largest  bytes of the largest message
    method   how the consumer is started
    """

    def __init__(self, largest: int, method: str) -> None:
        context = torch.multiprocessing.get_context(method)
        self.right = True  # every message so far was the one expected, with its stamp at both ends
        self._buffers: list[torch.Tensor] = []
        self._undo = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            self._ring = undo.enter_context(Ring(WAITING, (largest // 4,), context=context, deadline_seconds=DEADLINE))
            self._plain, self._handles, self._back = (context.Queue(WAITING) for _ in range(3))
            undo.callback(self._close_queues)
            arguments = (self._plain, self._handles, self._back, self._ring)
            child = undo.enter_context(child_process(_consume, *arguments, context=context, duplex=True))
            self._consumer, self._control = child.process, child.connection
            self._answer(START_SECONDS)  # it has imported torch: what follows is the work
            self._undo = undo.pop_all()

    def __enter__(self) -> "Exchange":
        return self

    def send(self, route: str, source: torch.Tensor, count: int) -> float:
        """Seconds in which `count` tensors are made like `source`, sent over `route`, and looked at by the consumer."""
        if route == "reused" and (not self._buffers or self._buffers[0].shape != source.shape):
            self._buffers = [torch.empty_like(source).share_memory_() for _ in range(WAITING)]
        put = getattr(self, f"_put_{route}")
        self._control.send((route, count, source.numel(), False))
        begin = CLOCK()
        for number in range(count):
            put(source, number)
        right = self._answer()
        seconds = CLOCK() - begin
        self.right &= right
        return seconds

    def writes_through(self, route: str) -> bool:
        """True where the producer sees what the consumer writes into the item that it got."""
        source = torch.zeros(1024)
        if route == "reused":
            self._buffers = [torch.empty_like(source).share_memory_() for _ in range(WAITING)]
        self._control.send((route, 1, source.numel(), True))
        sent = getattr(self, f"_put_{route}")(source, 0)
        self._answer()
        return bool(sent[0] == WRITTEN)

    def _answer(self, deadline_seconds: float | None = None) -> Any:
        seconds = deadline_seconds or DEADLINE
        try:
            if self._control.poll(seconds):
                return self._control.recv()
        except EOFError:
            pass
        raise LabError(
            f"The consumer gave no answer within {seconds:g} s (exit code {self._consumer.exitcode}).",
            "Is /dev/shm full? `df -h /dev/shm` shows it.",
        )

    # Each makes one item in one pass over its memory, stamps it with its number at both ends, sends it, and gives it back.

    def _put_pickle(self, source: torch.Tensor, number: int) -> Any:
        item = _stamp(source.clone(), number).numpy()
        self._plain.put(item, timeout=DEADLINE)
        return item

    def _put_bytes(self, source: torch.Tensor, number: int) -> Any:
        item = _stamp(source.clone(), number)
        self._plain.put(item.numpy().tobytes(), timeout=DEADLINE)
        return item

    def _put_torch(self, source: torch.Tensor, number: int) -> Any:
        item = _stamp(source.clone(), number)
        self._handles.put(item, timeout=DEADLINE)
        return item

    def _put_reused(self, source: torch.Tensor, number: int) -> Any:
        item = self._buffers[number] if number < WAITING else self._back.get(timeout=DEADLINE)
        _stamp(item.copy_(source), number)
        self._handles.put(item, timeout=DEADLINE)
        return item

    def _put_ring(self, source: torch.Tensor, number: int) -> Any:
        with self._ring.filling() as slot:
            item = torch.from_numpy(slot)[: source.numel()]
            _stamp(item.copy_(source), number)
        return item

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._undo:
            if kind is None:
                with contextlib.suppress(OSError, ValueError):  # it is gone already
                    self._control.send(None)
                    self._consumer.join(DEADLINE)

    def _close_queues(self) -> None:
        self._buffers.clear()
        for queue in (self._plain, self._handles, self._back):
            queue.cancel_join_thread()  # what was not sent has nobody to read it
            queue.close()
        resource_sharer.stop(timeout=5)  # the thread that hands out files, and what nobody fetched


def _stamp(item: torch.Tensor, number: int) -> torch.Tensor:
    item[0] = item[-1] = number
    return item


def _consume(control: Any, plain: Any, handles: Any, back: Any, ring: Ring) -> None:
    torch.set_num_threads(1)  # a forked child has lost the parent's other threads
    control.send("ready")
    while (order := control.recv()) is not None:
        route, count, elements, write = order
        right = True
        for number in range(count):
            if route == "ring":
                with ring.reading() as slot:
                    right &= _look_at(slot[:elements], number, write)
                continue
            item = (plain if route in ("pickle", "bytes") else handles).get(timeout=DEADLINE)
            if route == "bytes":
                item = np.frombuffer(bytearray(item) if write else item, np.float32)
            right &= _look_at(item, number, write)
            if route == "reused" and number < count - WAITING:  # the last ones are not needed again
                back.put(item, timeout=DEADLINE)
        item = None
        control.send(right)


def _look_at(item: Any, number: int, write: bool) -> bool:
    right = bool(item[0] == number and item[-1] == number)
    if write:
        item[0] = WRITTEN
    return right


def throughput(
    sizes: list[int], seconds: float, rounds: int, method: str
) -> tuple[list[dict[str, Any]], dict[str, bool], bool]:
    """Messages per second and MB/s of each route at each size in bytes; on which routes the consumer writes through; and
    whether every message was the one expected.

    seconds  of one sample, of which each route has `rounds` in turns; the best is taken, for neighbours only slow down
    """
    rows = []
    with Exchange(max(sizes), method) as exchange:
        through = {route: exchange.writes_through(route) for route in ROUTES}
        for nbytes in sizes:
            source = torch.ones(nbytes // 4)
            once = {route: exchange.send(route, source, 3) / 3 for route in ROUTES}  # warms up too
            count = {route: max(3, min(2000, int(seconds / once[route]))) for route in ROUTES}
            samples: dict[str, list[float]] = {route: [] for route in ROUTES}
            for _ in range(rounds):
                for route in ROUTES:
                    samples[route].append(exchange.send(route, source, count[route]) / count[route])
            for route, taken in samples.items():
                per_message = min(taken)
                rows.append(
                    {
                        "route": route,
                        "bytes": nbytes,
                        "messages": rounds * count[route],
                        "µs per message": per_message * 1e6,
                        "messages/s": 1 / per_message,
                        "MB/s": nbytes / per_message / 1e6,
                    }
                )
    return rows, through, exchange.right


def crossover(rows: list[dict[str, Any]], slow: str = "pickle", fast: str = "torch") -> float | None:
    """Bytes from which on `fast` beats `slow` at every larger size, interpolated in the logarithms; None where it never does.

    The smallest measured size where it wins already there.
    """
    sizes = sorted({row["bytes"] for row in rows})
    rate = {(row["route"], row["bytes"]): row["MB/s"] for row in rows}
    ratio = [np.log(rate[fast, n] / rate[slow, n]) for n in sizes]
    if ratio[-1] < 0:
        return None
    losing = [place for place, value in enumerate(ratio) if value < 0]
    if not losing:
        return float(sizes[0])
    at = losing[-1]
    share = -ratio[at] / (ratio[at + 1] - ratio[at])
    return float(np.exp(np.log(sizes[at]) + share * (np.log(sizes[at + 1]) - np.log(sizes[at]))))
