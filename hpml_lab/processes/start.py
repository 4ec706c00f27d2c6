"""What it costs to start a worker: from the call of `start()` to the worker's first line, and until it has ended.

`measure` runs this module in an interpreter of its own, which is small and has one thread, as a script has when it starts.
"""

import json
import multiprocessing
import statistics
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from hpml_lab.core import programs
from hpml_lab.core.children import child_process
from hpml_lab.core.timeline import CLOCK
from hpml_lab.processes.work import tell_the_time

PATIENCE = 60.0  # seconds for one start; importing torch takes a few


def methods() -> list[str]:
    """The start methods of this platform that are safe in a process with threads' libraries loaded, cheapest first.

    macOS offers fork, but its own frameworks crash in a forked child.
    """
    known = multiprocessing.get_all_start_methods()
    return [one for one in ("fork", "forkserver", "spawn") if one in known and not (one == "fork" and sys.platform == "darwin")]


def start_one(context: Any, target: Any = tell_the_time) -> dict[str, float]:
    """Start one process of multiprocessing's `context`; give the seconds from `start()` to its first line and to its end."""
    with child_process(target, context=context) as child:
        return _stamps(child.connection, child.called, child.process)


def start_thread() -> dict[str, float]:
    """The same for a thread."""
    here, there = multiprocessing.Pipe(duplex=False)
    thread = threading.Thread(target=tell_the_time, args=(there,))
    begin = CLOCK()
    thread.start()
    with here:
        return _stamps(here, begin, thread)


def _stamps(connection: Connection, begin: float, worker: Any) -> dict[str, float]:
    if not connection.poll(PATIENCE):
        raise TimeoutError("the worker did not get to its first line")
    first_line = connection.recv()
    worker.join(PATIENCE)
    return {"ready": first_line - begin, "ended": CLOCK() - begin}


def costs(methods: Sequence[str], samples: int, preload: bool) -> list[dict[str, Any]]:
    """Median seconds to be ready and to have ended, one row a way to start; the ways take turns.

    preload  also let a fork server import torch once, so that every worker it forks has it
    """
    rows = []
    if "forkserver" in methods:
        rows.append(
            _row("forkserver, first (starts the server)", False, [start_one(multiprocessing.get_context("forkserver"))])
        )
    contexts = {name: multiprocessing.get_context(name) for name in methods}
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in ("thread", *methods)}
    for _ in range(samples):
        taken["thread"].append(start_thread())
        for name, context in contexts.items():
            taken[name].append(start_one(context))
    rows += [_row(name, False, found) for name, found in taken.items()]
    if preload and "forkserver" in methods:
        rows += _preloaded(samples)
    return rows


def _preloaded(samples: int) -> list[dict[str, Any]]:
    from multiprocessing import forkserver

    forkserver._forkserver._stop()  # multiprocessing has no public way to start its server anew, with torch this time
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    first = start_one(context)
    return [
        _row("forkserver with torch preloaded, first (starts the server)", True, [first]),
        _row("forkserver with torch preloaded", True, [start_one(context) for _ in range(samples)]),
    ]


def _row(name: str, torch: bool, found: Sequence[dict[str, float]]) -> dict[str, Any]:
    return {
        "start": name,
        "torch in the worker": torch,
        "to the first line, ms": 1e3 * statistics.median(one["ready"] for one in found),
        "until it ended, ms": 1e3 * statistics.median(one["ended"] for one in found),
        "starts": len(found),
    }


def measure(deadline_seconds: float = 180.0, **parameters: Any) -> list[dict[str, Any]]:
    """`costs(**parameters)` in an interpreter of its own. Raises RuntimeError with the end of its errors if it fails."""
    return programs.call_python_module("hpml_lab.processes.start", parameters, deadline_seconds=deadline_seconds)


def with_torch(called: float, samples: int, patience: float, cuda: bool) -> dict[str, Any]:
    """Run by core.children.run_in_child in a spawned child: what torch adds to a start, and what it does to a fork.

    called    CLOCK when the parent called start()
    patience  seconds that a forked child gets for one matrix product before it counts as hung
    Returns {"rows", "fork after OpenMP": {case: "done" or "hangs"}, "fork after CUDA": error or ""}.
    """
    import torch

    imported = CLOCK() - called
    rows = [
        {
            "start": "spawn, then import torch",
            "torch in the worker": True,
            "to the first line, ms": 1e3 * imported,
            "until it ended, ms": None,
            "starts": 1,
        }
    ]
    found: dict[str, Any] = {"rows": rows, "fork after OpenMP": {}, "fork after CUDA": ""}
    if "fork" not in methods():
        return found
    context = multiprocessing.get_context("fork")
    rows.append(_row("fork of a process that has torch", True, [start_one(context) for _ in range(samples)]))
    # From here on this process has OpenMP's threads, which no forked child of it has.
    torch.set_num_threads(2)
    _multiply(torch)
    for case, threads in (("all threads", None), ("one thread", 1)):
        found["fork after OpenMP"][case] = _forked_product(context, threads, patience)
    if cuda:
        torch.ones(1, device="cuda")
        found["fork after CUDA"] = _forked_cuda(context, patience)
    return found


def _multiply(torch: Any) -> None:
    ones = torch.ones(512, 512)
    float((ones @ ones).sum())


def _forked_product(context: Any, threads: int | None, patience: float) -> str:
    with child_process(_product, threads, context=context) as child:
        child.receive(PATIENCE)  # it is running: what follows is the product only
        return child.receive(patience, default="hangs")


def _product(connection: Connection, threads: int | None) -> None:
    import torch

    connection.send("running")
    if threads is not None:
        torch.set_num_threads(threads)
    _multiply(torch)
    connection.send("done")


def _forked_cuda(context: Any, patience: float) -> str:
    with child_process(_touch_cuda, context=context) as child:
        return child.receive(10 * patience, default="hangs")


def _touch_cuda(connection: Connection) -> None:
    import torch

    try:
        torch.ones(1, device="cuda")
        connection.send("")
    except RuntimeError as error:
        connection.send(str(error).splitlines()[0])


if __name__ == "__main__":
    print(json.dumps(costs(**json.loads(sys.argv[1]))))
