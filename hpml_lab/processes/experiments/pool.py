"""The lecture's Process and Pool with every start method, from a script or a notebook, each with a deadline."""

import contextlib
import io
import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from hpml_lab.core.system.children import START_SECONDS, child_process, shield_children_from_sigint, suppress_fork_warning
from hpml_lab.core.system.programs import Finished, run_python
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.timeline import Span
from hpml_lab.processes.lessons import work

STARTS, SQUARES = "starts", "squares"

# What a notebook cell is to a child: code of `__main__` that is in no file, so that a new interpreter cannot import it.
CELL = """
import multiprocessing, sys

def square_in_a_cell(x):
    print(x * x, flush=True)

process = multiprocessing.get_context(sys.argv[1]).Process(target=square_in_a_cell, args=(3,))
process.start()
process.join()
print("exit code", process.exitcode)
"""


@dataclass(frozen=True)
class Printed:
    """What a process printed, and its exit code."""

    text: str
    exitcode: int | None


@dataclass(frozen=True)
class Squared:
    """What a pool returned, in order, and the spans of its workers: getting ready, and each square."""

    values: list[float]
    spans: list[Span]


def process_prints(
    method: str, function: Callable[..., None] = work.greet, *arguments: Any, deadline_seconds: float = 30.0
) -> Printed:
    """Run `function(*arguments)` in a Process and return what it printed.

    A process returns nothing: what its function returns is lost, and what it prints goes to the terminal. So the child
    writes into a buffer, and sends that through a pipe. A child that has run for `deadline_seconds` is ended.
    """
    with child_process(_send_printed, function, arguments, method=method) as child:
        child.receive(START_SECONDS)  # it runs: a new interpreter and its imports do not count
        end = CLOCK() + deadline_seconds
        text = child.receive(deadline_seconds, default="")
        child.process.join(max(0.0, end - CLOCK()))
    return Printed(text, child.exitcode)


def _send_printed(connection: Connection, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    connection.send("running")
    with connection, contextlib.redirect_stdout(io.StringIO()) as printed:
        function(*arguments)
        connection.send(printed.getvalue())


def pool_squares(
    method: str,
    workers: int,
    items: Sequence[float],
    *,
    seconds: float = 0.0,
    chunksize: int = 1,
    deadline_seconds: float = 120.0,
) -> Squared:
    """`Pool(workers).map(square, items)`, with the time of everything.

    seconds    how long each square waits, which stands for work
    chunksize  how many items a worker takes at a time; None lets the pool choose
    Raises multiprocessing.TimeoutError after `deadline_seconds`. The workers have ended when it returns or raises.
    """
    context = multiprocessing.get_context(method)
    arrivals = context.SimpleQueue()
    begin = CLOCK()
    with suppress_fork_warning(), contextlib.ExitStack() as ending:
        with shield_children_from_sigint():
            pool = ending.enter_context(context.Pool(workers, initializer=work.report_ready, initargs=(arrivals,)))
        try:
            tasks = [(item, seconds) for item in items]
            done = pool.map_async(work.square_with_times, tasks, chunksize).get(deadline_seconds)
            pool.close()  # no more work: each worker ends once it has nothing to do …
        except BaseException:
            pool.terminate()  # … or at once
            raise
        finally:
            pool.join()
    ready: dict[int, float] = {}
    while not arrivals.empty():
        process, when = arrivals.get()
        ready[process] = when
    arrivals.close()
    lanes = {process: f"worker {number}" for number, process in enumerate(sorted(ready, key=ready.get), 1)}
    spans = [Span(lane, STARTS, begin, ready[process]) for process, lane in lanes.items()]
    spans += [Span(lanes[process], SQUARES, start, end) for _, process, start, end in done]
    return Squared([value for value, *_ in done], spans)


def run_slides(deadline_seconds: float = 60.0) -> Finished:
    """Run the lecture's two slides, each with a function f, as one program."""
    return run_python(["-m", "hpml_lab.processes.lessons.slide"], deadline_seconds=deadline_seconds)


def run_cell_function(method: str, deadline_seconds: float = 60.0) -> Finished:
    """Start a process with a function that is not part of any module, as one typed into a notebook cell."""
    return run_python(["-c", CELL, method], deadline_seconds=deadline_seconds)
