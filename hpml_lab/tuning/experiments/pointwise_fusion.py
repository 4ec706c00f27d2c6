"""GELU as five operators, each of which reads and writes memory, and as one fused kernel."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from hpml_lab.core import style
from hpml_lab.core.counting import kernels, operators
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.errors import LabError
from hpml_lab.core.experiment import Params, experiment
from hpml_lab.core.findings import Table, column
from hpml_lab.core.result import Result
from hpml_lab.core.timing import copy_bandwidth, interleaved
from hpml_lab.core.warned import collect_warnings
from hpml_lab.tuning.bars import horizontal_bars, times_against_limit
from hpml_lab.tuning.compilation import compiled
from hpml_lab.tuning.compositions import gelu

QUICK = dict(sizes=(1_000_000,), samples=7, checked=3000)
FULL = dict(sizes=(1_000_000, 1 << 26), samples=15, checked=100_003)
EAGER, SCRIPTED, COMPILED, LIBRARY, TRITON = (
    "formula, eager", "torch.jit.script (lecture)", "torch.compile", "F.gelu", "Triton kernel"
)  # fmt: skip


@dataclass
class GeluRun:
    """One implementation of GELU on one number of elements."""

    implementation: str = column("implementation")
    elements: int = column("elements")
    kernels: int = column("operators or kernels")
    moved_mb: float = column("memory traffic", "MB")
    limit_us: float = column("memory limit", "µs")
    time_us: float | None = column("time", "µs")
    limit_share: float | None = column("memory limit / time")
    speedup: float | None = column("speedup", "times")
    error: float = column("largest error")


def scripted_gelu() -> tuple[Callable[[Tensor], Tensor], str]:
    """The lecture's version, torch.jit.script, and the class of the warning that it raises today."""
    with collect_warnings() as caught:
        scripted = torch.jit.script(gelu)
    found = [warning.category.__name__ for warning in caught if "torch.compile" in str(warning.message)]
    return scripted, found[0] if found else "no warning"


def implementations(
    x: Tensor, notes: list[str]
) -> tuple[dict[str, Callable[[Tensor], Tensor]], dict[str, int], Callable[[Tensor], Tensor] | None]:
    """What runs on the device of x, how many operators or kernels each runs, and the Triton kernel where there is Triton."""
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
    triton_gelu = None
    try:
        from hpml_lab.tuning.triton_pointwise import triton_gelu
    except LabError as error:
        notes.append(str(error))
    if triton_gelu is not None and device.type == "cuda":
        functions[TRITON], counts[TRITON] = triton_gelu, 1
    notes.append(f"torch.jit.script raises a {warning} today: use torch.compile. On the CPU it fuses nothing.")
    return functions, counts, triton_gelu


def largest_errors(functions: dict[str, Callable[[Tensor], Tensor]], x: Tensor) -> dict[str, float]:
    """The largest error of each implementation, relative to 1 + |GELU|, against GELU in float64."""
    wide = x.double()
    truth = wide * 0.5 * (1 + torch.erf(wide / 2**0.5))
    return {name: ((f(x) - truth).abs() / (1 + truth.abs())).max().item() for name, f in functions.items()}


def draw(result: Result):
    """GELU of the largest number of elements measured. Left: time of each implementation; the dashed line is the time that
    memory bandwidth needs to read x and write y once. Right: how many operators or kernels each runs."""
    rows = result.rows(GeluRun)
    shown = [row for row in rows if row.elements == rows[-1].elements]
    timed = [row for row in shown if row.time_us is not None]
    figure = style.new_figure(9, 3.6)
    times, counts = figure.subplots(1, 2, width_ratios=(1.5, 1))
    times_against_limit(times, [row.implementation for row in timed], [row.time_us for row in timed], shown[0].limit_us)
    times.set(title=f"GELU of {shown[0].elements:,} numbers", ylabel="implementation")
    figure.legend(*times.get_legend_handles_labels(), loc="outside lower left", fontsize=8)
    horizontal_bars(counts, [row.implementation for row in shown], [row.kernels for row in shown], color=style.ORANGE)
    counts.set_xlabel("operators or kernels")
    return figure


@experiment(
    "pointwise-fusion", lecture="L4", notebook="10_tuning", draw=draw, quick=QUICK, full=FULL, uses=("cuda", "compiler")
)
def pointwise_fusion(params: Params) -> Result:
    """GELU: five trips through memory, or one fused kernel."""
    device, notes = params.device.torch, []
    x = torch.randn(params.sizes[0], device=device)
    chain = operators(lambda: gelu(x))
    chain_bytes = sum(op.bytes for op in chain)
    functions, counts, triton_gelu = implementations(x, notes)
    largest_error = largest_errors(functions, x)
    if triton_gelu is not None and TRITON not in functions:  # the interpreter is slow: a small part of x is enough
        largest_error |= largest_errors({TRITON: triton_gelu}, x[: params.checked])

    bandwidth = copy_bandwidth(device).gb_per_s
    rows = []
    for elements in params.sizes:
        values = torch.randn(elements, device=device)
        times = interleaved({name: partial(f, values) for name, f in functions.items()}, samples=params.samples)
        limit_us = 8 * elements / bandwidth / 1e3  # one read and one write of 4 bytes
        eager_us = times[EAGER].seconds * 1e6
        for name in largest_error:
            time_us = times[name].seconds * 1e6 if name in times else None
            # One kernel reads x and writes y. Where nothing is fused, memory traffic is that of the operators.
            passes = chain_bytes / x.nbytes if counts.get(name, 1) > 1 else 2
            rows.append(
                GeluRun(
                    implementation=name,
                    elements=elements,
                    kernels=counts.get(name, 1),
                    moved_mb=passes * 4 * elements / 1e6,
                    limit_us=limit_us,
                    time_us=time_us,
                    limit_share=limit_us / time_us if time_us else None,
                    speedup=eager_us / time_us if time_us else None,
                    error=largest_error[name],
                )
            )
    first = {row.implementation: row for row in rows if row.elements == params.sizes[0]}
    fused = first.get(COMPILED, first[LIBRARY])

    result = Result([Table("GELU", rows)], notes=notes)
    result.key_figure("kernels of the formula", len(chain), lecture=5)
    result.key_figure("kernels when fused", fused.kernels, lecture=1)
    result.key_figure("1 M elements, fused over formula", fused.speedup, unit="times", lecture="close to 4")
    result.key_figure("1 M elements, F.gelu over formula", first[LIBRARY].speedup, unit="times")

    result.claim(
        "The lecture's formula runs five operators: mul, div, erf, add, mul",
        sorted(op.name for op in chain) == ["add", "div", "erf", "mul", "mul"],
    )
    result.claim("They move 11 times the bytes of x, where one fused kernel moves 2", chain_bytes == 11 * x.nbytes)
    result.claim(
        "F.gelu is one operator, and torch.compile, where there is a compiler, turns the five into one kernel",
        counts[LIBRARY] == 1 == counts.get(COMPILED, 1),
    )
    result.claim(
        "Every implementation computes GELU within 5e-6 · (1 + |GELU|) of float64, also with the lecture's 1.41421 for √2",
        max(largest_error.values()) < 5e-6,
        f"largest error {max(largest_error.values()):.1e}",
    )
    result.measured(
        f"One kernel is at least 2.5 times as fast as five ({fused.implementation})",
        fused.speedup > 2.5,
        f"{fused.speedup:.2f} times",
    )
    if device.type != "cuda":
        what = "the Triton kernel was checked in the interpreter and not timed"
        result.notes.append(NO_CUDA.format(what=what, slug="pointwise-fusion"))
    return result
