"""GELU as five operators, each of which reads and writes memory, and as one fused kernel."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import horizontal_bars, timed_bars
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.warned import collect_warnings
from hpml_lab.core.timing.clock import SAMPLES, Timing, captured, copy_bandwidth, interleaved, launch_seconds
from hpml_lab.core.timing.counting import kernels, operators
from hpml_lab.core.timing.noise import speed_up
from hpml_lab.tuning.lessons.compositions import gelu
from hpml_lab.tuning.tools.generated_kernels import compiled
from hpml_lab.tuning.tools.triton_kernel import require_triton

QUICK = dict(sizes=(1_000_000,), samples=SAMPLES, checked=3000)
FULL = dict(sizes=(1_000_000, 1 << 26), samples=15, checked=100_003)
EAGER, SCRIPTED, COMPILED, LIBRARY, TRITON = (
    "formula, eager",
    "torch.jit.script (lecture)",
    "torch.compile",
    "F.gelu",
    "Triton kernel",
)
MOVED, MOVED_FUSED = 11, 2  # tensors as large as x that are read or written: by the five operators, by one kernel
REPLAYED = 20  # calls in one graph, so that launching the graph costs next to nothing


@dataclass
class GeluRun(Row):
    """One implementation of GELU on one number of elements."""

    implementation: str = column("implementation")
    elements: int = column("elements")
    kernels: int = column("operators or kernels")
    moved_mb: float = column("memory traffic", "MB")
    limit_us: float = column("memory limit", "µs")
    time_us: float | None = column("time, called from Python", "µs")
    alone_us: float | None = column("kernels alone", "µs")
    bandwidth_share: float | None = column("share of the copy bandwidth")
    error: float = column("largest error")
    gain: float | None = column("speed-up", "", None)
    interval: str | None = column("90 % interval", "", None)
    verdict: str | None = column("verdict", "", None)
    alone_gain: float | None = column("speed-up, kernels alone", "", None)


def scripted_gelu() -> tuple[Callable[[Tensor], Tensor], str]:
    """The lecture's version, torch.jit.script, and the class of the warning that it raises today."""
    with collect_warnings() as caught:
        scripted = torch.jit.script(gelu)
    found = [warning.category.__name__ for warning in caught if "torch.compile" in str(warning.message)]
    return scripted, found[0] if found else "no warning"


def implementations(x: Tensor, notes: list[str]) -> tuple[dict[str, Callable[[Tensor], Tensor]], dict[str, int]]:
    """What can run here, compiled for x, and how many operators or kernels each runs."""
    device = x.device
    scripted, warning = scripted_gelu()
    for _ in range(3):  # TorchScript profiles the first calls before it fuses
        scripted(x)
    run_scripted = partial(scripted, x)
    if device.type == "cuda":
        scripted_count = sum(kernel.calls for kernel in kernels(run_scripted, device))
    else:
        scripted_count = len(operators(run_scripted))
    functions: dict[str, Callable[[Tensor], Tensor]] = {EAGER: gelu, SCRIPTED: scripted}
    counts = {EAGER: len(operators(lambda: gelu(x))), SCRIPTED: scripted_count}
    try:
        found = compiled(gelu, lambda function: function(x), device)
        functions[COMPILED], counts[COMPILED] = found.function, found.kernels
    except LabError as error:
        notes.append(str(error))
    functions[LIBRARY], counts[LIBRARY] = F.gelu, len(operators(lambda: F.gelu(x)))
    try:
        from hpml_lab.tuning.lessons.triton_gelu import triton_gelu

        require_triton(device)
        functions[TRITON], counts[TRITON] = triton_gelu, 1
    except LabError as error:
        notes.append(str(error))
    notes.append(f"torch.jit.script raises a {warning} today: use torch.compile. On the CPU it fuses nothing.")
    return functions, counts


def largest_errors(functions: dict[str, Callable[[Tensor], Tensor]], x: Tensor, interpreted: int) -> dict[str, float]:
    """The largest error of each implementation, relative to 1 + |GELU|, against GELU in float64.

    interpreted  how many elements Triton's interpreter computes on a CPU: it is slow
    """
    wide = x.double()
    truth = wide * 0.5 * (1 + torch.erf(wide / 2**0.5))
    found = {}
    for name, function in functions.items():
        n = interpreted if name == TRITON and x.device.type == "cpu" else len(x)
        found[name] = ((function(x[:n]) - truth[:n]).abs() / (1 + truth[:n].abs())).max().item()
    return found


def times_of(
    functions: dict[str, Callable[[Tensor], Tensor]], x: Tensor, samples: int
) -> tuple[dict[str, Timing], dict[str, Timing]]:
    """Times of one call of each function: as Python calls it and, on a GPU, of its kernels alone.

    Called from Python, a GPU waits for the launch of each kernel if the kernels are short. A replayed graph launches them all
    at once.
    """
    works = {name: partial(function, x) for name, function in functions.items()}
    if x.device.type != "cuda":
        return interleaved(works, samples=samples, placebo=EAGER), {}
    called = interleaved(works, samples=samples, placebo=EAGER, gpu=x.device)
    graphs = {name: captured(partial(repeated, work), x.device) for name, work in works.items()}
    replayed = interleaved(graphs, samples=samples, placebo=EAGER, gpu=x.device)
    alone = {name: Timing(tuple(s / REPLAYED for s in time.samples), time.threads) for name, time in replayed.items()}
    return called, alone


def repeated(work: Callable[[], object]) -> None:
    """`REPLAYED` calls; each result is dropped at once, so that the next takes its memory."""
    for _ in range(REPLAYED):
        work()


def gelu_rows(
    elements: int,
    counts: dict[str, int],
    errors: dict[str, float],
    times: tuple[dict[str, Timing], dict[str, Timing]],
    gb_per_s: float,
) -> list[GeluRun]:
    """The rows of one number of elements; `times` as `times_of` gives them, `gb_per_s` of a large copy."""
    called, alone = times
    rows = []
    for name, count in counts.items():
        seconds = {kind: found[name].seconds for kind, found in (("called", called), ("alone", alone)) if name in found}
        moved = (MOVED if count > 1 else MOVED_FUSED) * 4 * elements
        rows.append(
            GeluRun(
                implementation=name,
                elements=elements,
                kernels=count,
                moved_mb=moved / 1e6,
                limit_us=MOVED_FUSED * 4 * elements / gb_per_s / 1e3,
                time_us=seconds["called"] * 1e6 if seconds else None,
                alone_us=seconds["alone"] * 1e6 if "alone" in seconds else None,
                bandwidth_share=moved / seconds.get("alone", seconds["called"]) / gb_per_s / 1e9 if seconds else None,
                error=errors[name],
                alone_gain=speed_up(alone, EAGER, name).ratio if name in alone and name != EAGER else None,
                **(speed_up(called, EAGER, name).columns if name in called and name != EAGER else {}),
            )
        )
    return rows


def draw(result: Result):
    """GELU with each implementation. Bars: time of one call; a color means that it differs from the formula's by more than
    noise. Dashed line: the time that memory bandwidth needs to read x and write y once. Diamonds, on a GPU: the kernels alone,
    without the time that Python takes to launch them. Last panel: how many operators or kernels each runs."""
    rows = result.rows(GeluRun)
    sizes = list(dict.fromkeys(row.elements for row in rows))
    figure = style.new_figure(6 + 3 * len(sizes), 3.6)
    *times, counts = figure.subplots(1, len(sizes) + 1, width_ratios=[1.5] * len(sizes) + [1])
    for axes, elements in zip(times, sizes, strict=True):
        timed = [row for row in rows if row.elements == elements and row.time_us is not None]
        columns = [row.implementation for row in timed], [row.time_us for row in timed], [row.verdict for row in timed]
        timed_bars(axes, *columns, limit=timed[0].limit_us)
        alone = [(row.alone_us, index) for index, row in enumerate(timed) if row.alone_us is not None]
        if alone:
            axes.plot(
                *zip(*alone, strict=True), "D", color=style.ORANGE, markeredgecolor="white", label="kernels alone", zorder=5
            )
        axes.set_title(f"GELU of {elements:,} numbers")
    times[0].set_ylabel("implementation")
    for axes in times[1:]:
        axes.set_yticklabels([])
    figure.legend(*times[0].get_legend_handles_labels(), loc="outside lower left", fontsize=8)
    shown = [row for row in rows if row.elements == sizes[0]]
    horizontal_bars(
        counts, [row.implementation for row in shown], [row.kernels for row in shown], color=style.SKY, labels="{:,.4g}"
    )
    counts.set_xlabel("operators or kernels")
    return figure


@experiment(
    "pointwise-fusion", lecture="L4", notebook="11_tuning", draw=draw, quick=QUICK, full=FULL, uses=("cuda", "compiler")
)
def pointwise_fusion(params: Params) -> Result:
    """GELU: five trips through memory, or one fused kernel."""
    device, notes = params.device.torch, []
    gb_per_s = copy_bandwidth(device).gb_per_s
    rows, times = [], {}
    for elements in params.sizes:
        x = torch.randn(elements, device=device)
        functions, counts = implementations(x, notes)
        if elements == params.sizes[0]:
            chain, errors = operators(partial(gelu, x)), largest_errors(functions, x, params.checked)
            chain_bytes, first_counts = sum(op.bytes for op in chain) / x.nbytes, counts
        timed = {name: f for name, f in functions.items() if name != TRITON or params.device.is_cuda}
        times[elements] = times_of(timed, x, params.samples)
        rows += gelu_rows(elements, counts, errors, times[elements], gb_per_s)
    result = Result([Table("GELU", rows)], notes=list(dict.fromkeys(notes)))
    fused = COMPILED if COMPILED in counts else LIBRARY
    result.key_figure("kernels of the formula", len(chain), lecture=5)
    result.key_figure("kernels when fused", counts[fused], lecture=1)
    gains = {elements: speed_up(called, EAGER, fused) for elements, (called, _) in times.items()}
    for elements, (called, alone) in times.items():
        size = f"{elements / 1e6:.3g} M elements"
        lecture = "close to 4" if elements == 1_000_000 else None
        result.key_figure(f"{size}, torch.jit.script over formula", speed_up(called, EAGER, SCRIPTED).ratio, "times", lecture)
        one_over_five = speed_up(alone or called, EAGER, fused).ratio
        result.key_figure(f"{size}, one kernel over five", one_over_five, "times", lecture)
        result.key_figure(f"{size}, fused over formula", gains[elements].ratio, "times")  # as called from Python

    result.claim(
        "The lecture's formula runs five operators, which move 11 times the bytes of x; one fused kernel moves 2",
        sorted(op.name for op in chain) == ["add", "div", "erf", "mul", "mul"] and chain_bytes == MOVED,
        ", ".join(op.name for op in chain),
    )
    result.claim(
        "F.gelu is one operator, and torch.compile, where there is a compiler, turns the five into one kernel",
        first_counts[LIBRARY] == 1 == first_counts.get(COMPILED, 1),
    )
    result.claim(
        "Every implementation computes GELU within 5e-6 · (1 + |GELU|) of float64, also with the lecture's 1.41421 for √2",
        max(errors.values()) < 5e-6,
        f"largest error {max(errors.values()):.1e}",
    )
    largest = params.sizes[-1]
    result.measured(
        f"With {largest:,} elements, one kernel is at least 2.5 times as fast as five ({fused})",
        gains[largest].faster and gains[largest].low >= 2.5,
        str(gains[largest]),
    )
    called, alone = times[params.sizes[0]]
    if alone:
        scripted = speed_up(called, EAGER, SCRIPTED)
        result.measured(
            f"With {params.sizes[0]:,} elements the lecture's torch.jit.script is at least 2.5 times as fast as the formula",
            scripted.faster and scripted.low >= 2.5,
            str(scripted),
        )
        result.measured(
            f"With {params.sizes[0]:,} elements launches bind the formula: its kernels alone take less than half the time",
            2 * max(alone[EAGER].samples) < min(called[EAGER].samples),
            f"{alone[EAGER].seconds * 1e6:.1f} of {called[EAGER].seconds * 1e6:.1f} µs",
        )
        result.notes.append(
            "“One kernel over five” compares kernels alone, replayed from a CUDA graph. The others compare calls from Python:"
            f" “fused over formula” is a call of {fused}, whose kernel takes {alone[fused].seconds * 1e6:.3g} of its"
            f" {called[fused].seconds * 1e6:.3g} µs with {params.sizes[0]:,} elements. A launch costs"
            f" {launch_seconds(device) * 1e6:.3g} µs here."
        )
    else:
        what = "the Triton kernel was checked in the interpreter and not timed"
        result.notes.append(NO_CUDA.format(what=what, slug="pointwise-fusion"))
    return result
