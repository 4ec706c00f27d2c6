"""The same work on threads and on processes: which of it the global interpreter lock (GIL) holds up.

One thread at a time may run Python bytecode; a thread that sleeps, reads, or computes in a library that has released the lock
does not need it. `measure_workers` runs this module in an interpreter of its own, which has no other threads; the module
needs only the standard library, so that a free-threaded Python (one without the lock) can run it too.
"""

import contextlib
import hashlib
import importlib
import json
import statistics
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hpml_lab.core.children import child_process
from hpml_lab.core.programs import call_python_module
from hpml_lab.core.timeline import CLOCK
from hpml_lab.core.tools import find_tool

KINDS = {
    "loop": "Python loop",
    "sleep": "sleep (waiting for I/O)",
    "sha256": "hashlib.sha256",
    "numpy": "NumPy matmul",
    "torch": "torch matmul",
}
RUNS, WAITS = "at work", "waits for the lock or a core"
PROCESSES = "spawn" if sys.platform == "darwin" else "fork"  # the interpreter that measures has no other threads: fork is safe
FREE_THREADED = ("python3.15t", "python3.14t", "python3.13t", "python3t", "python3.13-nogil")
# Each worker is one thread: the matrix libraries must start none of their own.
ONE_THREAD_EACH = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")} | {"VECLIB_MAXIMUM_THREADS": "1"}

Trace = list[tuple[str, float, float]]  # what a worker did, from, to


@dataclass(frozen=True)
class WorkersRun:
    """One kind of work shared by a number of workers.

    on       "threads" or "processes"
    seconds  from the first start to the last end
    traces   of each worker, for each of its pieces
    """

    kind: str
    on: str
    workers: int
    seconds: float
    traces: list[list[Trace]]

    @property
    def pieces(self) -> int:
        return sum(len(worker) for worker in self.traces)


def unit_of(kind: str, seconds: float) -> Callable[[], object]:
    """A small unit of work of about half a millisecond; for "sleep", a whole piece of `seconds`."""
    if kind == "loop":

        def loop() -> int:
            total = 0
            for i in range(5_000):
                total += i * i
            return total

        return loop
    if kind == "sleep":
        return lambda: time.sleep(seconds)
    if kind == "sha256":
        buffer = bytes(1 << 19)
        return lambda: hashlib.sha256(buffer).digest()
    if kind == "numpy":
        import numpy

        matrix = numpy.ones((256, 256), dtype=numpy.float32)
        return lambda: matrix @ matrix
    if kind == "torch":
        import torch

        torch.set_num_threads(1)  # for the calling thread: each worker calls this itself
        ones = torch.ones(256, 256)
        return lambda: ones @ ones
    raise AssertionError(f"{kind} is in KINDS, but has no unit here")


def trace_units(unit: Callable[[], object], times: int, needs_core: bool) -> Trace:
    """Call `unit()` `times` times, and record when the worker ran and when it waited.

    If the time from the end of one unit to the end of the next is more than twice its processor time and a millisecond, the
    worker waited for the lock or for a core.
    """
    found: Trace = []
    start, used = CLOCK(), time.thread_time()
    for _ in range(times):
        unit()
        end, used_now = CLOCK(), time.thread_time()
        what = WAITS if needs_core and end - start > 2 * (used_now - used) + 1e-3 else RUNS
        if found and found[-1][0] == what:
            found[-1] = (what, found[-1][1], end)  # one bar in the picture for what belongs together
        else:
            found.append((what, start, end))
        start, used = end, used_now
    return found


def _work(connection: Any, kind: str, seconds: float, times: int, pieces: int) -> None:
    """A worker process: get ready, wait for the start, work, and send the trace of each piece."""
    with connection:
        unit = unit_of(kind, seconds)
        unit()
        connection.send("ready")
        connection.recv()
        connection.send([trace_units(unit, times, kind != "sleep") for _ in range(pieces)])


def _calibrate(connection: Any, kind: str, seconds: float) -> None:
    with connection:
        unit, took = unit_of(kind, seconds), []
        unit()
        for _ in range(9):
            start = time.perf_counter()
            unit()
            took.append(time.perf_counter() - start)
        connection.send(max(1, round(seconds / statistics.median(took))))


def units_for(kind: str, seconds: float) -> int:
    """How many units make a piece of `seconds`, measured in a process of its own.

    This process must not have multiplied matrices yet when it forks: libraries keep locks and threads for that.
    """
    if kind == "sleep":
        return 1
    with child_process(_calibrate, kind, seconds, method=PROCESSES) as child:
        return child.connection.recv()


def on_processes(kind: str, workers: int, shares: Sequence[int], seconds: float, times: int) -> list[list[Trace]]:
    """Let each of `workers` processes do its share of pieces; the start of the processes is not part of the traces."""
    how = {"method": PROCESSES, "duplex": True, "grace_seconds": 5.0}
    with contextlib.ExitStack() as started:
        children = [
            started.enter_context(child_process(_work, kind, seconds, times, share, **how)) for share in shares[:workers]
        ]
        connections = [child.connection for child in children]
        for connection in connections:
            connection.recv()
        for connection in connections:
            connection.send("go")
        return [connection.recv() for connection in connections]


def on_threads(kind: str, workers: int, shares: Sequence[int], seconds: float, times: int) -> list[list[Trace]]:
    """The same on threads of this process."""
    barrier = threading.Barrier(workers)
    done: list[list[Trace]] = [[] for _ in range(workers)]

    def work(worker: int) -> None:
        unit = unit_of(kind, seconds)
        unit()
        barrier.wait()
        done[worker] = [trace_units(unit, times, kind != "sleep") for _ in range(shares[worker])]

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def compare_workers(
    kinds: Sequence[str], workers: Sequence[int], pieces: int, seconds: float, repeats: int, hows: Sequence[str]
) -> list[WorkersRun]:
    """Share `pieces` pieces of `seconds` each among each number of workers, for every kind of work.

    hows  "threads", "processes" or both
    Of each combination the fastest of `repeats` runs is kept.
    """
    for kind in set(kinds) - set(KINDS):
        raise ValueError(f"{kind!r} is not a kind of work: {', '.join(KINDS)}")
    runs = []
    for kind in kinds:
        if kind in ("numpy", "torch"):
            importlib.import_module(kind)  # once here, not in each process that is forked from here
        times = units_for(kind, seconds)
        for how in sorted(hows):  # processes first: see units_for
            measure = {"processes": on_processes, "threads": on_threads}[how]
            best: dict[int, WorkersRun] = {}
            for _ in range(repeats):
                for count in workers:
                    shares = [len(range(worker, pieces, count)) for worker in range(count)]
                    traces = measure(kind, count, shares, seconds, times)
                    spans = [span for worker in traces for piece in worker for span in piece]
                    took = max(end for _, _, end in spans) - min(start for _, start, _ in spans)
                    if count not in best or took < best[count].seconds:
                        best[count] = WorkersRun(kind, how, count, took, traces)
            runs += best.values()
    return runs


def has_gil() -> bool:
    """True if this interpreter runs one thread's bytecode at a time."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def measure_workers(
    *, python: str = sys.executable, deadline_seconds: float = 120.0, **parameters: Any
) -> tuple[str, list[WorkersRun]]:
    """An interpreter's version, and the runs of `compare_workers(**parameters)` in it. Raises RuntimeError if it fails."""
    options = {"python": python, "deadline_seconds": deadline_seconds, "environment": ONE_THREAD_EACH}
    version, runs = call_python_module("hpml_lab.processes.parallel", parameters, **options)
    return version, [WorkersRun(**run) for run in runs]


def free_threaded_python() -> str | None:
    """A Python here that runs without the lock: this one, or one on PATH under its usual names; None if there is none."""
    if sysconfig.get_config_var("Py_GIL_DISABLED") and not has_gil():
        return sys.executable
    for name in FREE_THREADED:
        path = find_tool(name)
        if path is None:
            continue
        question = "import sys; print(sys._is_gil_enabled())"
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            answer = subprocess.run([path, "-c", question], capture_output=True, text=True, timeout=10)
            if answer.stdout.strip() == "False":
                return path
    return None


if __name__ == "__main__":
    found = compare_workers(**json.loads(sys.argv[1]))
    print(json.dumps([sys.version.split()[0], [asdict(run) for run in found]]))
