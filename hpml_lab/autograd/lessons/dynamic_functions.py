"""Functions whose graph depends on the data, and the graphs that torch.compile captures of them."""

import logging
from collections.abc import Callable

import torch


def grown(w, x: float):
    """Multiply x by w until |y| ≥ 10, then return log y (for y > 0) or y².

    w is a scalar tensor, torch's or our engine's. How many multiplications there are, and what comes last, depends on x.
    """
    y = w * x
    while abs(y.item()) < 10:
        y = w * y
    return y.log() if y.item() > 0 else y * y


def branch(x: torch.Tensor) -> torch.Tensor:
    """A Python `if` on data: a compiler cannot know which branch will run."""
    h = torch.tanh(x)
    if h.sum() > 0:
        return h * 2
    return h - 1


def both_branches(x: torch.Tensor) -> torch.Tensor:
    """The same value without an `if`: both branches are computed, and one is selected."""
    h = torch.tanh(x)
    return torch.where(h.sum() > 0, h * 2, h - 1)


def read_out(x: torch.Tensor) -> torch.Tensor:
    """`.item()` turns a tensor into a Python number: the graph ends there."""
    h = torch.tanh(x)
    return h * h.sum().item()


def captured_graphs(function: Callable, *inputs: torch.Tensor) -> list[torch.fx.GraphModule]:
    """The graphs that torch.compile captures while `function` is called with each of `inputs` in turn.

    If there is one graph for one path through the function, nothing broke it. The graphs are run as they are: no code is
    generated, so no compiler is needed.
    """
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()  # forget what was captured of this function before
    compiled = torch.compile(function, backend=backend)
    log = logging.getLogger("torch._dynamo")
    level = log.level
    log.setLevel(logging.ERROR)  # torch writes a page about each break, with paths; here breaks are what is counted
    try:
        for x in inputs:
            compiled(x)
    finally:
        log.setLevel(level)
    return graphs
