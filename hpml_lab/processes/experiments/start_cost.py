"""What it costs to start a worker: from the call of `start()` to the worker's first line, and until it has ended.

`measure_starts` runs this module in an interpreter of its own, which is small and has one thread, as a script has when it
starts.
"""

import json
import mmap
import multiprocessing
import statistics
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.children import child_process
from hpml_lab.core.system.programs import call_python_module
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.processes.lessons.work import send_time

PATIENCE_SECONDS = 120.0  # for one start; importing torch takes a few seconds, on a busy machine many
SPAWN_WITH_TORCH = "spawn, then import torch"
AGAIN = ", again"  # the cheapest method once more in every round: the placebo
HELD_BYTES = 256 << 20
HOLDING = f"fork, the parent has written {HELD_BYTES >> 20} MiB"
DONE, HANGS = "done", "hangs"


@dataclass
class StartCost(Row):
    """One way to start a worker: medians over several starts.

    gain, interval  speed-up over the cheapest way to start a process until it is ready, where they took turns
    samples         seconds to the first line, start by start
    """

    way: str = column("start")
    has_torch: bool = column("torch in the worker")
    ready: float = column("to the first line", "ms")
    ended: float | None = column("until it ended", "ms")
    starts: int = column("starts")
    gain: float | None = column("speed-up over the cheapest process", default=None)
    interval: str = column("90 % interval", default="")
    samples: Sequence[float] = ()


@dataclass
class ForkWithTorch:
    """What torch adds to a start, and what it does to a fork.

    all_threads, one_thread  DONE, HANGS or an exit code: a forked child's first large operation after the parent has used
                             OpenMP's threads, as it is, and after torch.set_num_threads(1); "" where nothing was forked
    cuda_error               what a forked child gets when it uses CUDA after the parent did; "" where nothing was tried
    """

    rows: list[StartCost]
    all_threads: str = ""
    one_thread: str = ""
    cuda_error: str = ""


def safe_methods() -> list[str]:
    """The start methods of this platform that are safe in a process that has loaded libraries with threads, cheapest first.

    macOS offers fork, but its own frameworks crash in a forked child.
    """
    known = multiprocessing.get_all_start_methods()
    return [
        method
        for method in ("fork", "forkserver", "spawn")
        if method in known and not (method == "fork" and sys.platform == "darwin")
    ]


def start_process(context: Any, target: Callable[[Connection], None] = send_time) -> tuple[float, float]:
    """Start one process of a multiprocessing context; the seconds from `start()` to its first line and to its end."""
    with child_process(target, context=context) as child:
        return _ready_and_ended(child.connection, child.called, child.process)


def start_thread() -> tuple[float, float]:
    """The same for a thread."""
    here, there = multiprocessing.Pipe(duplex=False)
    thread = threading.Thread(target=send_time, args=(there,))
    called = CLOCK()
    thread.start()
    with here:
        return _ready_and_ended(here, called, thread)


def _ready_and_ended(connection: Connection, called: float, worker: Any) -> tuple[float, float]:
    if not connection.poll(PATIENCE_SECONDS):
        raise TimeoutError("the worker did not get to its first line")
    first_line = connection.recv()
    worker.join(PATIENCE_SECONDS)
    return first_line - called, CLOCK() - called


def start_costs(methods: Sequence[str], samples: int, preload: bool) -> list[StartCost]:
    """Median times to be ready and to have ended, one row for each way to start; the ways take turns.

    Among them are the first method once more (AGAIN), and a fork while this process has written HELD_BYTES (HOLDING).
    preload  also let a fork server import torch once, so that every worker it forks has it
    """
    rows = []
    if "forkserver" in methods:
        first = start_process(multiprocessing.get_context("forkserver"))
        rows.append(_row("forkserver, first (starts the server)", False, [first]))
    ways: dict[str, Callable[[], tuple[float, float]]] = {"thread": start_thread}
    ways |= {name: partial(start_process, multiprocessing.get_context(name)) for name in methods}
    ways[methods[0] + AGAIN] = ways[methods[0]]
    if "fork" in methods:
        ways[HOLDING] = partial(_fork_holding, HELD_BYTES)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(samples):
        for name, start in ways.items():
            times[name].append(start())
    rows += [_row(name, False, seconds) for name, seconds in times.items()]
    if preload and "forkserver" in methods:
        rows += _preloaded(samples)
    return rows


def _fork_holding(nbytes: int) -> tuple[float, float]:
    """Fork while this process has written `nbytes` of memory, in the ordinary pages of 4 KiB that most of its memory has."""
    with mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(0, nbytes, mmap.PAGESIZE):
            memory[page] = 1
        return start_process(multiprocessing.get_context("fork"))


def _preloaded(samples: int) -> list[StartCost]:
    from multiprocessing import forkserver

    forkserver._forkserver._stop()  # multiprocessing has no public way to restart its server, with torch this time
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    first = start_process(context)
    return [
        _row("forkserver with torch preloaded, first (starts the server)", True, [first]),
        _row("forkserver with torch preloaded", True, [start_process(context) for _ in range(samples)]),
    ]


def _row(way: str, has_torch: bool, times: Sequence[tuple[float, float]]) -> StartCost:
    ready, ended = zip(*times, strict=True)
    medians = (1e3 * statistics.median(seconds) for seconds in (ready, ended))
    return StartCost(way, has_torch, *medians, len(times), samples=ready)


def measure_starts(deadline_seconds: float = 600.0, **parameters: Any) -> list[StartCost]:
    """`start_costs(**parameters)` in an interpreter of its own. Raises RuntimeError if it fails."""
    rows = call_python_module("hpml_lab.processes.experiments.start_cost", parameters, deadline_seconds=deadline_seconds)
    return [StartCost(**row) for row in rows]


# ---- with torch ----------------------------------------------------------------------------------------------------------


def starts_with_torch(called: float, samples: int, patience_seconds: float, cuda: bool) -> ForkWithTorch:
    """Measure what torch adds to a start and does to a fork; call it in a spawned child (core.system.children.run_in_child).

    called            CLOCK when the parent called start()
    patience_seconds  how long a forked child with all threads has for one matrix product before it counts as hung
    """
    import torch

    found = ForkWithTorch([StartCost(SPAWN_WITH_TORCH, True, 1e3 * (CLOCK() - called), None, 1)])
    if "fork" not in safe_methods():
        return found
    context = multiprocessing.get_context("fork")
    found.rows.append(_row("fork of a process that has torch", True, [start_process(context) for _ in range(samples)]))
    # From here on this process has OpenMP's threads, which no forked child of it has.
    torch.set_num_threads(2)
    _multiply(torch)
    found.all_threads = _forked_product(context, None, patience_seconds)
    found.one_thread = _forked_product(context, 1, PATIENCE_SECONDS)  # it is expected to end: it may take its time
    if cuda:
        torch.ones(1, device="cuda")
        with child_process(_use_cuda, context=context) as child:
            found.cuda_error = child.receive(PATIENCE_SECONDS, default=HANGS)
    return found


def _multiply(torch: Any) -> None:
    ones = torch.ones(512, 512)
    float((ones @ ones).sum())


def _forked_product(context: Any, threads: int | None, patience_seconds: float) -> str:
    with child_process(_product, threads, context=context) as child:
        child.receive(PATIENCE_SECONDS)  # it is running: what follows is the product only
        if done := child.receive(patience_seconds):
            return done
        child.process.join(0.1)  # a child that crashed has sent nothing either
        return f"exit code {child.exitcode}" if child.exitcode else HANGS


def _product(connection: Connection, threads: int | None) -> None:
    import torch

    connection.send("running")
    if threads is not None:
        torch.set_num_threads(threads)
    _multiply(torch)
    connection.send(DONE)


def _use_cuda(connection: Connection) -> None:
    import torch

    try:
        torch.ones(1, device="cuda")
        connection.send("")
    except RuntimeError as error:
        connection.send(str(error).splitlines()[0])


if __name__ == "__main__":
    print(json.dumps([asdict(row) for row in start_costs(**json.loads(sys.argv[1]))]))
