"""Functions whose graph depends on the data, what torch.compile takes from them, and what compiling costs and
gains."""

import logging
import time
from collections.abc import Callable

import torch

from hpml_lab.core.threads import one_thread
from hpml_lab.core.timing import compare


def grown(w, x: float):
    """Multiply x by w until it is 10 or more in size, then take log (of a positive value) or square (of a
    negative one).

    w is a scalar tensor, torch's or our engine's. How many multiplications there are, and what comes last,
    depends on x.
    """
    y = w * x
    while abs(y.item()) < 10:
        y = w * y
    return y.log() if y.item() > 0 else y * y


def branch(x: torch.Tensor) -> torch.Tensor:
    """A Python `if` on data: a compiler cannot know which way it will go."""
    h = torch.tanh(x)
    if h.sum() > 0:
        return h * 2
    return h - 1


def both_ways(x: torch.Tensor) -> torch.Tensor:
    """The same value without an `if`: both ways are computed, and one is chosen."""
    h = torch.tanh(x)
    return torch.where(h.sum() > 0, h * 2, h - 1)


def read_out(x: torch.Tensor) -> torch.Tensor:
    """`.item()` takes a number out of the tensors' world into Python's: the graph ends there."""
    h = torch.tanh(x)
    return h * h.sum().item()


def captured(function: Callable, *inputs: torch.Tensor) -> list[torch.fx.GraphModule]:
    """The graphs that torch.compile captures while `function` is called with each of `inputs` in turn.

    One graph for one way through the function means that nothing broke it. The graphs are run as they are: no
    code is generated, so no compiler is needed.
    """
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()  # forget what was captured of this function before
    compiled = torch.compile(function, backend=backend)
    log = logging.getLogger("torch._dynamo")
    level = log.level
    log.setLevel(logging.ERROR)  # torch writes a page about a break, with paths; here breaks are what is counted
    try:
        for x in inputs:
            compiled(x)
    finally:
        log.setLevel(level)
    return graphs


def gelu(x: torch.Tensor, root_of_two: float = 2**0.5) -> torch.Tensor:
    """GELU by its formula, x/2 · (1 + erf(x/√2)): five elementwise operations, each of which reads and writes
    memory."""
    return x * 0.5 * (1.0 + torch.erf(x / root_of_two))


@one_thread()  # a CPU kernel is compiled for a number of threads, and is timed on one
def compile_gelu(elements: int, device: torch.device) -> dict[str, float]:
    """What compiling `gelu` costs and gains: all times in seconds.

    first     the first compilation in this process, of another small function: it loads the compiler
    latency   the first call of the compiled gelu: capture, code, compiler, run
    eager, compiled   one later call, plain and compiled, timed in turns; `ratio` is eager/compiled
    apart     the largest difference between their results

    Raises RuntimeError where torch finds no compiler: a C++ compiler for the CPU, Triton for a GPU.
    """
    from torch._inductor import config

    x = torch.randn(elements, device=device)
    root_of_two = 2**0.5 + (time.time_ns() % 1_000_000) * 1e-13  # new in every run: no cache on disk knows this program
    torch.compiler.reset()
    # By itself torch tries out each vector extension that the processor names: it takes ten seconds.
    with config.patch({"cpp.vec_isa_ok": True}):
        start = time.perf_counter()
        torch.compile(lambda x: x + 1.0)(x)
        first = time.perf_counter() - start
        compiled = torch.compile(lambda x: gelu(x, root_of_two))
        start = time.perf_counter()
        out = compiled(x)
        if x.is_cuda:
            torch.cuda.synchronize(device)
        latency = time.perf_counter() - start
    apart = (out - gelu(x, root_of_two)).abs().max().item()
    both = compare(lambda: gelu(x, root_of_two), lambda: compiled(x))
    return {
        "first": first,
        "latency": latency,
        "eager": both.a.seconds,
        "compiled": both.b.seconds,
        "ratio": both.ratio,
        "apart": apart,
    }
