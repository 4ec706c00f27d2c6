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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hpml_lab.core.system.children import child_process
from hpml_lab.core.system.installed import find_tool
from hpml_lab.core.system.programs import call_python_module
from hpml_lab.core.system.shared_clock import CLOCK

KINDS = {
    "loop": "Python loop",
    "sleep": "sleep (waiting for I/O)",
    "sha256": "hashlib.sha256",
    "numpy": "NumPy matmul",
    "torch": "torch matmul",
}
RUNS, SLEEPS, WAITS = "at work", "asleep", "waits for the lock or a core"
AGAIN = "threads, again"  # one thread once more in every round: the placebo
# The interpreter that measures has no other threads: fork is safe, where there is one.
PROCESSES = "fork" if sys.platform not in ("darwin", "win32") else "spawn"
FREE_THREADED = ("3.15t", "3.14t", "3.13t")  # on PATH these are python3.15t, …
# Each worker is one thread: the matrix libraries must start none of their own.
ONE_THREAD_EACH = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")} | {"VECLIB_MAXIMUM_THREADS": "1"}

Trace = list[tuple[str, float, float]]  # what a worker did, from, to


@dataclass(frozen=True)
class WorkersRun:
    """One kind of work shared by a number of workers.

    on       "threads", "processes", or AGAIN
    samples  seconds from the first start to the last end, round by round
    traces   of each worker, for each of its pieces, in the fastest round
    """

    kind: str
    on: str
    workers: int
    samples: list[float]
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
    """Call `unit()` `times` times, and record when the worker ran, slept or waited.

    A unit that needs no core sleeps. For the others: if the time from the end of one unit to the end of the next is more than
    twice its processor time and a millisecond, the worker waited for the lock or for a core.
    """
    found: Trace = []
    start, used = CLOCK(), time.thread_time()
    for _ in range(times):
        unit()
        end, used_now = CLOCK(), time.thread_time()
        waited = end - start > 2 * (used_now - used) + 1e-3
        what = SLEEPS if not needs_core else WAITS if waited else RUNS
        if found and found[-1][0] == what:
            found[-1] = (what, found[-1][1], end)  # one bar in the picture for what belongs together
        else:
            found.append((what, start, end))
        start, used = end, used_now
    return found


def _work(connection: Any, kind: str, seconds: float) -> None:
    """A worker process: say how many units make a piece of `seconds`; then work whenever (units, pieces) come."""
    with connection:
        unit = unit_of(kind, seconds)
        connection.send(_units_of_a_piece(unit, kind, seconds))
        while (task := connection.recv()) is not None:
            times, pieces = task
            connection.send([trace_units(unit, times, kind != "sleep") for _ in range(pieces)])


def _units_of_a_piece(unit: Callable[[], object], kind: str, seconds: float) -> int:
    unit()  # the first call also allocates and loads
    if kind == "sleep":
        return 1
    took = []
    for _ in range(9):
        start = time.perf_counter()
        unit()
        took.append(time.perf_counter() - start)
    return max(1, round(seconds / statistics.median(took)))


@contextlib.contextmanager
def worker_processes(kind: str, workers: int, seconds: float) -> Iterator[tuple[list[Any], int]]:
    """The connections to `workers` processes that wait for work, and how many units make a piece of `seconds`.

    They start before this process has multiplied matrices: libraries keep locks and threads for that, which a fork would copy.
    """
    how = {"method": PROCESSES, "duplex": True, "grace_seconds": 5.0}
    with contextlib.ExitStack() as started:
        children = [started.enter_context(child_process(_work, kind, seconds, **how)) for _ in range(workers)]
        connections = [child.connection for child in children]
        units = [connection.recv() for connection in connections]
        yield connections, round(statistics.median(units))
        for connection in connections:
            connection.send(None)


def on_processes(connections: Sequence[Any], shares: Sequence[int], times: int) -> list[list[Trace]]:
    """Let the first of the waiting processes do its share of pieces, and so on; their start is not part of the traces."""
    used = connections[: len(shares)]
    for connection, share in zip(used, shares, strict=True):
        connection.send((times, share))
    return [connection.recv() for connection in used]


def on_threads(kind: str, shares: Sequence[int], seconds: float, times: int) -> list[list[Trace]]:
    """The same on threads of this process."""
    released: list[float] = []
    barrier = threading.Barrier(len(shares), action=lambda: released.append(CLOCK()))
    done: list[list[Trace]] = [[] for _ in shares]

    def work(worker: int) -> None:
        unit = unit_of(kind, seconds)
        unit()
        barrier.wait()
        done[worker] = [trace_units(unit, times, kind != "sleep") for _ in range(shares[worker])]
        for first in done[worker][:1]:  # before it a thread waits for the lock too
            first.insert(0, (WAITS, released[0], first[0][1]))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(len(shares))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def seconds_of(traces: Sequence[Sequence[Trace]]) -> float:
    """From the first start to the last end."""
    spans = [span for worker in traces for piece in worker for span in piece]
    return max(end for _, _, end in spans) - min(start for _, start, _ in spans)


def compare_workers(
    kinds: Sequence[str], workers: Sequence[int], pieces: int, seconds: float, rounds: int, hows: Sequence[str]
) -> list[WorkersRun]:
    """Share `pieces` pieces of `seconds` each among each number of workers, for every kind of work.

    hows  "threads", "processes" or both
    In each round all combinations take their turn, and one thread once more (AGAIN).
    """
    for kind in set(kinds) - set(KINDS):
        raise ValueError(f"{kind!r} is not a kind of work: {', '.join(KINDS)}")
    runs = []
    for kind in kinds:
        if kind in ("numpy", "torch"):
            importlib.import_module(kind)  # once here, not in each process that is forked from here
        turns = [*((how, count) for how in hows for count in workers), (AGAIN, 1)]
        found: dict[tuple[str, int], list[list[list[Trace]]]] = {turn: [] for turn in turns}
        with worker_processes(kind, max(workers) if "processes" in hows else 1, seconds) as (connections, times):
            for _ in range(rounds):
                for how, count in turns:
                    shares = [len(range(worker, pieces, count)) for worker in range(count)]
                    if how == "processes":
                        traces = on_processes(connections, shares, times)
                    else:
                        traces = on_threads(kind, shares, seconds, times)
                    found[how, count].append(traces)
        for (how, count), taken in found.items():
            samples = [seconds_of(traces) for traces in taken]
            runs.append(WorkersRun(kind, how, count, samples, min(taken, key=seconds_of)))
    return runs


def has_gil() -> bool:
    """True if this interpreter runs one thread's bytecode at a time."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def measure_workers(
    *, python: str = sys.executable, deadline_seconds: float = 600.0, **parameters: Any
) -> tuple[str, list[WorkersRun]]:
    """An interpreter's version, and the runs of `compare_workers(**parameters)` in it. Raises RuntimeError if it fails."""
    options = {"python": python, "deadline_seconds": deadline_seconds, "environment": ONE_THREAD_EACH}
    version, runs = call_python_module("hpml_lab.processes.experiments.parallel", parameters, **options)
    return version, [WorkersRun(**run) for run in runs]


def free_threaded_python() -> str | None:
    """A Python here that runs without the lock; None if there is none.

    Looked for: this one, then `python3.14t` and its like on PATH, then those that uv has installed.
    """
    if sysconfig.get_config_var("Py_GIL_DISABLED") and not has_gil():
        return sys.executable
    candidates = [path for version in FREE_THREADED if (path := find_tool(f"python{version}"))]
    if uv := find_tool("uv"):
        answers = (_answer_of([uv, "python", "find", "--no-python-downloads", version]) for version in FREE_THREADED)
        candidates += [path for path in answers if path]
    question = "import sys; print(sys._is_gil_enabled())"
    return next((path for path in candidates if _answer_of([path, "-c", question]) == "False"), None)


def _answer_of(command: Sequence[str]) -> str:
    """What a program prints; "" if it fails, does not start, or takes very long."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""


if __name__ == "__main__":
    found = compare_workers(**json.loads(sys.argv[1]))
    print(json.dumps([sys.version.split()[0], [asdict(run) for run in found]]))
