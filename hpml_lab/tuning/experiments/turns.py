"""Comparisons whose states cannot stand side by side in one piece of code: each has a context or a process of its own, and
they take turns.

    with own_process(Bench, *arguments) as bench:      # Bench(*arguments) lives in a new interpreter
        times = in_turns({"off": partial(other.seconds, "forward"), "on": partial(bench.seconds, "forward")}, samples=7)
"""

import contextlib
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch

from hpml_lab.core.system.children import Child, child_process
from hpml_lab.core.system.device import Device
from hpml_lab.core.timing.clock import Timing, captured, interleaved

ANSWER_SECONDS = 300.0  # for one call, the first of which waits until the interpreter has imported torch


# The note of a result whose steps were replayed.
REPLAYED = (
    "On this GPU the time of a step is that of its kernels, replayed from a CUDA graph. Called from Python, a step of hundreds"
    " of short kernels may take as long as their launches, whatever the kernels do."
)


def one_sample(work: Callable[[], object], gpu: torch.device | None = None, *, fastest_of: int = 1) -> float:
    """Seconds per call of `work()` after a warm-up, with the clock of `interleaved`: the fastest of so many samples.

    What holds a host up only ever adds time, so the fastest of several is nearest to what the work itself takes.
    """
    return min(interleaved({"": work}, samples=fastest_of, gpu=gpu)[""].samples)


def steps_in_turns(steps: dict[str, Callable[[], object]], *, samples: int, placebo: str, device: Device) -> dict[str, Timing]:
    """As `interleaved`, for whole training steps: on a GPU each is replayed from a CUDA graph, without Python's launches.

    Each step needs a network of its own, which nothing else trains: the graph writes where its gradients were.
    """
    if not device.is_cuda:
        return interleaved(steps, samples=samples, placebo=placebo)
    graphs = {name: captured(step, device.torch) for name, step in steps.items()}
    return interleaved(graphs, samples=samples, placebo=placebo, gpu=device.torch)


def in_turns(samplers: dict[str, Callable[[], float]], *, samples: int) -> dict[str, Timing]:
    """As `interleaved`, for works that take their samples themselves: each call of a sampler returns seconds."""
    rounds = [{name: sample() for name, sample in samplers.items()} for _ in range(samples)]
    return {name: Timing(tuple(turn[name] for turn in rounds), 1) for name in samplers}


class Remote:
    """An object in a process of its own: its methods are called here and run there."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(self._call, method)

    def _call(self, method: str, *arguments: Any) -> Any:
        with contextlib.suppress(ConnectionError):  # it has ended: what it sent before says why
            self._child.connection.send((method, arguments))
        how, value = self._child.receive(ANSWER_SECONDS, default=("ended", "it ended, or took too long"))
        if how != "returned":
            kind = torch.OutOfMemoryError if "OutOfMemoryError: " in value else RuntimeError  # of a full GPU
            raise kind(f"The process that was to run {method}() failed: {value}")
        return value


@contextlib.contextmanager
def own_process(kind: Callable[..., Any], *arguments: Any) -> Iterator[Remote]:
    """Make `kind(*arguments)` in a new interpreter, and end it with the block. Several can start at the same time."""
    # spawn: a forked child cannot use the GPU once its parent has.
    with child_process(_serve, kind, *arguments, method="spawn", duplex=True) as child:
        yield Remote(child)


def _serve(connection: Connection, kind: Callable[..., Any], *arguments: Any) -> None:
    """In the child: make the object, then call its methods until the parent ends this process."""
    torch.set_num_threads(1)  # as in the experiment that started it
    try:
        target = kind(*arguments)
        while True:
            method, given = connection.recv()
            connection.send(("returned", getattr(target, method)(*given)))
    except EOFError:  # the parent has left the block
        return
    except Exception:
        connection.send(("raised", traceback.format_exc()))
