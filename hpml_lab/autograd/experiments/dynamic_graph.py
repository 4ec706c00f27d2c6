"""A graph that depends on the data, what torch.compile captures of such functions, and what compiling costs and gains."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import networkx as nx
import numpy as np
import torch

from hpml_lab.autograd.lessons.dynamic_functions import both_branches, branch, captured_graphs, grown, read_out
from hpml_lab.autograd.lessons.engine import Tensor
from hpml_lab.autograd.tools.torch_graphs import grad_fn_graph
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.graph import chain_figure, graph_from_record, graph_record
from hpml_lab.core.show.picture import picture
from hpml_lab.core.timing.clock import Timing, interleaved, measure
from hpml_lab.core.timing.noise import speed_up
from hpml_lab.core.timing.pointwise import gelu
from hpml_lab.core.timing.threads import one_thread

QUICK = dict(elements=1 << 18, gpu_elements=1 << 18)
FULL = dict(elements=1 << 24, gpu_elements=1 << 26)  # on a GPU so many that its fused kernel takes longer than its launch


@dataclass
class RecordedGraph(Row):
    """The graph that autograd recorded of one call."""

    call: str = column("call")
    operations: int = column("operations")
    side_by_side: int = column("most operations side by side")
    value: float | None = column("f")
    gradient: float | None = column("df/dw, by torch")
    by_engine: float | None = column("df/dw, by the engine")


@dataclass
class CapturedGraphs(Row):
    """How many graphs torch.compile captured of one function."""

    function: str = column("function")
    inputs: int = column("calls with different branches")
    graphs: int = column("graphs captured")


@dataclass
class CompileCost(Row):
    """What compiling GELU costs, and what it gains in each call."""

    elements: int = column("elements")
    first: float = column("first compilation, which loads the compiler", "s")
    latency: float = column("compiling GELU", "s")
    eager: float = column("eager call", "s")
    compiled: float = column("compiled call", "s")
    largest_difference: float = column("largest difference of the results")
    gain: float = column("compiled, speed-up")
    interval: str = column("interval")
    verdict: str = column("compiled is")

    @property
    def calls_to_break_even(self) -> float | None:
        """How many calls it takes until compiling has paid; None if the compiled call is not faster beyond noise."""
        return self.latency / (self.eager - self.compiled) if self.verdict == "faster" else None


# ---- drawing -----------------------------------------------------------------------------------------------


def draw(result: Result):
    """The graphs that autograd recorded of one function for two inputs, x = 3 and x = -1. The number of multiplications and the
    last operation depend on the data. The lines on the right are further uses of w."""
    return chain_figure({title: graph_from_record(record) for title, record in result.arrays["graphs"].items()}, font_size=9)


@picture
def break_even(result: Result):
    """The time that a number of calls of GELU takes, eager and (if there is a compiler) compiled. The compiled line starts at
    the time that compiling takes; if it is faster beyond noise, compiling pays to the right of the crossing."""
    figure = style.new_figure(7, 3.8)
    axes = figure.subplots()
    calls = np.geomspace(1, 1e6, 100)
    axes.plot(calls, result.arrays["eager"] * calls, color=style.BLUE, label="eager")
    for row in result.rows(CompileCost):
        axes.plot(calls, row.latency + row.compiled * calls, color=style.ORANGE, linestyle="--", label="compiled")
    axes.set(xscale="log", yscale="log", xlabel="calls", ylabel="time since the start (s)")
    axes.set_title("When compiling pays" if result.rows(CompileCost) else "No compiler here: eager calls only")
    axes.legend()
    return figure


# ---- graphs that autograd records --------------------------------------------------------------------------


def most_side_by_side(graph: nx.DiGraph) -> int:
    """The most operations in one layer of a graph: none of them needs the result of another."""
    operations = graph.subgraph(node for node, data in graph.nodes(data=True) if data["kind"] != "leaf")
    return max(len(layer) for layer in nx.topological_generations(operations))


def operation_names(graph: nx.DiGraph) -> list[str]:
    """Mul, Log, … of the nodes that are operations, sorted."""
    labels = [data["label"] for _, data in graph.nodes(data=True)]
    return sorted(label.removesuffix("Backward0") for label in labels if label.endswith("Backward0"))


def record_grown(x: float, device: torch.device) -> tuple[RecordedGraph, nx.DiGraph]:
    """The graph of grown(w = 2, x) and its gradient, by torch and by our engine."""
    w = torch.tensor(2.0, device=device, dtype=torch.float64, requires_grad=True)
    f = grown(w, x)
    graph = grad_fn_graph(f, {"w": w})
    f.backward()
    ours = Tensor(2.0, requires_grad=True)
    grown(ours, x).backward()
    call, operations = f"grown(w = 2, x = {x:g})", len(graph) - 1
    row = RecordedGraph(call, operations, most_side_by_side(graph), f.item(), w.grad.item(), ours.grad.item())
    return row, graph


def record_heads(device: torch.device) -> RecordedGraph:
    """The graph of four attention-like heads, which do not need each other's results."""
    heads = [torch.randn(8, 8, device=device, requires_grad=True) for _ in range(4)]
    x = torch.randn(2, 8, device=device)
    graph = grad_fn_graph(torch.cat([torch.tanh(x @ head) for head in heads]).sum())
    call = "four heads tanh(x @ Wᵢ), concatenated and summed"
    return RecordedGraph(call, len(graph) - 4, most_side_by_side(graph), None, None, None)


# ---- what compiling costs and gains ------------------------------------------------------------------------


def timed_in_turns(eager: Callable[[], object], compiled: Callable[[], object], device: torch.device) -> dict[str, Timing]:
    """Both in turns. On a GPU by its own events: what Python takes for a launch counts only where the GPU waits for it."""
    gpu = device if device.type == "cuda" else None
    return interleaved({"eager": eager, "compiled": compiled}, placebo="eager", gpu=gpu)


@one_thread()  # a CPU kernel is compiled for a number of threads, and is timed on one
def compile_gelu(elements: int, device: torch.device) -> tuple[CompileCost, str]:
    """Compile `gelu` and time it, with an eager call for comparison; and the gain in words.

    Raises RuntimeError if torch finds no compiler: a C++ compiler for the CPU, Triton for a GPU.
    """
    from torch._inductor import config

    x = torch.randn(elements, device=device)
    root_of_two = 2**0.5 + (time.time_ns() % 1_000_000) * 1e-13  # new in every run: no cache on disk has this program
    torch.compiler.reset()
    # By default torch tries each vector extension that the processor names, which takes ten seconds.
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
    difference = (out - gelu(x, root_of_two)).abs().max().item()
    times = timed_in_turns(lambda: gelu(x, root_of_two), lambda: compiled(x), device)
    gain = speed_up(times, "eager", "compiled")
    seconds = times["eager"].seconds, times["compiled"].seconds
    return CompileCost(elements, first, latency, *seconds, difference, **gain.columns), str(gain)


# ---- the experiment ----------------------------------------------------------------------------------------


@experiment(
    "dynamic-graph",
    lecture="L0",
    notebook="02_autograd",
    draw=draw,
    quick=QUICK,
    full=FULL,
    uses=("cuda", "compiler"),
    same_picture=True,
)
def dynamic_graph(params: Params) -> Result:
    """A graph that depends on the data, and what torch.compile makes of it."""
    device = params.device.torch
    (positive, positive_graph), (negative, negative_graph) = (record_grown(x, device) for x in (3.0, -1.0))
    heads = record_heads(device)

    plus, minus = torch.ones(4, device=device), -torch.ones(4, device=device)
    calls = [(branch, (plus,)), (branch, (plus, minus)), (both_branches, (plus, minus)), (read_out, (plus,))]
    captured = [CapturedGraphs(f.__name__, len(inputs), len(captured_graphs(f, *inputs))) for f, inputs in calls]
    one_branch, two_branches, selected, _ = (row.graphs for row in captured)
    agree = all(torch.equal(branch(x), both_branches(x)) for x in (plus, minus))

    result = Result(
        [
            Table("Graphs that autograd recorded", [positive, negative, heads]),
            Table("Graphs that torch.compile captured", captured),
        ]
    )
    result.arrays["graphs"] = {"x = 3": graph_record(positive_graph), "x = -1": graph_record(negative_graph)}
    result.key_figure("graph breaks of an if on data", one_branch - 1)
    result.claim(
        "Two inputs make two graphs of one function: 2 multiplications and a log, or 4 multiplications and a square",
        operation_names(positive_graph) == ["Log", "Mul", "Mul"] and operation_names(negative_graph) == ["Mul"] * 5,
    )
    result.claim(
        "The gradient follows the recorded graph: n/w for log(wⁿx) and 2n·w²ⁿ⁻¹x² for (wⁿx)², by torch and by our engine",
        all(np.isclose(found, 2 / 2, rtol=1e-12) for found in (positive.gradient, positive.by_engine))
        and all(np.isclose(found, 2 * 4 * 2.0**7, rtol=1e-12) for found in (negative.gradient, negative.by_engine)),
    )
    result.claim(
        "Four heads stand side by side in their graph and need not wait for each other; in a chain there is one at a time",
        (heads.side_by_side, positive.side_by_side, negative.side_by_side) == (4, 1, 1),
    )
    result.claim(
        "A Python `if` on data breaks the compiled graph in two; a call that takes the other branch adds a third graph",
        (one_branch, two_branches) == (2, 3),
    )
    result.claim("torch.where keeps one graph for both branches, with the same result", selected == 1 and agree)
    add_compile_cost(result, params.gpu_elements if params.device.is_cuda else params.elements, device)
    if not params.device.is_cuda:
        result.notes.append(
            "No CUDA GPU here: the gain is the CPU's. Run `hpml-lab run dynamic-graph --size full` on a machine with one."
        )
    return result


def add_compile_cost(result: Result, elements: int, device: torch.device) -> None:
    """Add table, key figures and claims about compiling, or a note on what is missing for it."""
    try:
        cost, gain = compile_gelu(elements, device)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0][:160]
        result.notes.append(
            f"torch.compile could not build a kernel here ({reason}). It needs a C++ compiler on the CPU and Triton on a GPU: "
            "`hpml-lab doctor` says what is missing. On Debian and Ubuntu: sudo apt-get install g++."
        )
        x = torch.randn(elements, device=device)
        result.arrays["eager"] = measure(lambda: gelu(x)).seconds
        for label in ("compile latency", "first compilation in this process"):
            result.key_figure(label, None, "s")
        return
    result.arrays["eager"] = cost.eager
    result.tables.append(Table("Compiling GELU", [cost]))
    calls = cost.calls_to_break_even
    result.key_figure("compile latency", cost.latency, "s")
    result.key_figure("first compilation in this process", cost.first, "s")
    result.key_figure("compiled call, speed-up over an eager one", cost.gain)
    result.key_figure("calls until compiling has paid", "not faster beyond noise" if calls is None else round(calls))
    result.measured("A compiled call is faster than an eager one", cost.verdict == "faster", gain)
