"""The experiments of notebook 10 on fusion: GELU and layer norm, each as a chain of operators and as one kernel."""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hpml_lab.core import style
from hpml_lab.core.counting import kernels, operators
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.errors import LabError
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.timing import Timing, interleaved, measure
from hpml_lab.tuning.compiled import compiled

NOTEBOOK = "10_tuning"


def draw_against_limit(axes: Any, rows: list[dict[str, Any]], limit: float) -> None:
    """Bars of the measured times, one a way, and the time that the memory needs for one read and one write as a line."""
    timed = [row for row in rows if row["time, µs"] != "-"]
    places = range(len(timed))
    bars = axes.barh(places, [row["time, µs"] for row in timed], color=style.BLUE, edgecolor="white", label="measured")
    # A ground of its own, for the line of the limit may pass through the figure.
    axes.bar_label(bars, fmt="{:,.0f}", fontsize=8, padding=3, zorder=4, bbox=dict(facecolor="white", edgecolor="none", pad=1))
    axes.axvline(limit, color=style.RED, linestyle="--", label="memory limit")
    axes.set_yticks(places, [row["way"] for row in timed])
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)
    axes.set(xlabel="time in µs", ylabel="way to run it")


def draw_counts(axes: Any, rows: list[dict[str, Any]]) -> None:
    """Bars of the kernels that each way runs; of an eager way the operators are counted."""
    bars = axes.barh(range(len(rows)), [row["kernels"] for row in rows], color=style.ORANGE, hatch="///", edgecolor="white")
    axes.bar_label(bars, fmt="%.4g", fontsize=8, padding=2)
    axes.set_yticks(range(len(rows)), [row["way"] for row in rows])
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)
    axes.set_xlabel("operators or kernels")


@cache
def copy_bandwidth(device: torch.device) -> float:
    """GB/s of a large copy, read and written, once per process; as core.timing.ceiling takes it, without the product."""
    source = torch.ones((1 << 28) if device.type == "cuda" else (1 << 25), device=device)
    target = torch.empty_like(source)
    return measure(lambda: target.copy_(source), samples=5, bytes=2.0 * source.nbytes).gb_per_s


def moved(work: Callable[[], object]) -> float:
    """MB that the operators of `work()` read and write."""
    return sum(one.bytes for one in operators(work)) / 1e6


# --- pointwise-fusion --------------------------------------------------------------------------------------------------------


def gelu(x: Tensor) -> Tensor:
    """The lecture's GELU, x · 0.5 · (1 + erf(x / 1.41421)): multiply, divide, erf, add, multiply."""
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))


def scripted_gelu() -> tuple[Callable[[Tensor], Tensor], str]:
    """The lecture's way, torch.jit.script, and the class of the warning that it gives today."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scripted = torch.jit.script(gelu)
    return scripted, next((one.category.__name__ for one in caught if "torch.compile" in str(one.message)), "none")


def draw_pointwise_fusion(result: Result):
    """Time of GELU for each way to run it, beside the time that the memory needs to read x and write y once; and how many
    kernels or operators each way runs."""
    figure = style.new_figure(9, 3.6)
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    shown = [row for row in result.rows if row["elements"] == result.arrays["largest"]]
    draw_against_limit(left, shown, result.arrays["limit, µs"])
    left.set_title(f"GELU of {result.arrays['largest']:,} numbers")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=2, fontsize=8)
    draw_counts(right, shown)
    right.set_title("what runs")
    return figure


@experiment(
    "pointwise-fusion",
    lecture="L4",
    notebook=NOTEBOOK,
    draw=draw_pointwise_fusion,
    quick=dict(sizes=(1_000_000,), samples=7, checked=3000),
    full=dict(sizes=(1_000_000, 1 << 26), samples=15, checked=100_003),
    lecture_says={
        "kernels of the formula": 5,
        "kernels when fused": 1,
        "1 M elements: formula over fused, times": "close to 4",
    },
    uses=("cuda", "compiler"),
)
def pointwise_fusion(size: Size) -> Result:
    """GELU: five trips through memory, or one fused kernel."""
    device, notes = size.device.torch, []
    x = torch.randn(size.sizes[0], device=device)
    chain = operators(lambda: gelu(x))
    ways: dict[str, Callable[[Tensor], Tensor]] = {"formula, eager": gelu}
    counts: dict[str, Any] = {"formula, eager": len(chain)}
    scripted, warning = scripted_gelu()
    for _ in range(3):  # TorchScript watches the first calls before it fuses, where it does
        scripted(x)
    ways["torch.jit.script (lecture)"] = scripted
    counts["torch.jit.script (lecture)"] = (
        sum(one.calls for one in kernels(lambda: scripted(x), device))
        if device.type == "cuda"
        else len(operators(lambda: scripted(x)))
    )
    try:
        made = compiled(gelu, lambda work: work(x), device)
        ways["torch.compile"], counts["torch.compile"] = made.work, made.kernels
    except LabError as error:
        notes.append(str(error))
    ways["F.gelu"], counts["F.gelu"] = F.gelu, len(operators(lambda: F.gelu(x)))
    own = None
    try:
        from hpml_lab.tuning.triton_gelu import triton_gelu as own
    except LabError as error:
        notes.append(str(error))
    if own is not None and device.type == "cuda":
        ways["own kernel in Triton"], counts["own kernel in Triton"] = own, 1

    wide = x.double()
    truth = wide * 0.5 * (1 + torch.erf(wide / 2**0.5))
    every = ways if own is None else ways | {"own kernel in Triton": own}
    apart = {}
    for name, way in every.items():
        n = len(x) if name in ways else size.checked  # the interpreter is slow
        apart[name] = ((way(x[:n]) - truth[:n]).abs() / (1 + truth[:n].abs())).max().item()

    limit = copy_bandwidth(device)
    rows = []
    # One kernel reads x and writes y; TorchScript moves what its operators move where it fuses nothing.
    passes = {name: sum(one.bytes for one in chain) / x.nbytes if counts.get(name, 1) > 1 else 2 for name in every}
    for n in size.sizes:
        numbers = torch.randn(n, device=device)
        turns = interleaved({name: lambda way=way, v=numbers: way(v) for name, way in ways.items()}, samples=size.samples)
        floor = 8 * n / limit / 1e3  # one read and one write of 4 bytes
        for name in every:
            time = turns[name].seconds * 1e6 if name in turns else None
            rows.append(
                {
                    "way": name,
                    "elements": n,
                    "kernels": counts.get(name, 1),
                    "moved, MB": passes[name] * 4 * n / 1e6,
                    "time, µs": time or "-",
                    "share of the memory limit": floor / time if time else "-",
                    "times faster": turns["formula, eager"].seconds * 1e6 / time if time else "-",
                    "largest error": apart[name],
                }
            )
    first = {row["way"]: row for row in rows if row["elements"] == size.sizes[0]}
    fused = "torch.compile" if "torch.compile" in first else "F.gelu"
    claims = [
        Claim(
            "the lecture's formula is five operators: mul, div, erf, add, mul",
            sorted(one.name for one in chain) == ["add", "div", "erf", "mul", "mul"],
        ),
        Claim("they move 11 times the bytes of x, and one kernel moves 2", sum(one.bytes for one in chain) == 11 * x.nbytes),
        Claim(
            "F.gelu is one operator, and torch.compile, where there is a compiler, makes one kernel of the five",
            counts["F.gelu"] == 1 == counts.get("torch.compile", 1),
        ),
        Claim(
            "every way gives GELU, the lecture's with 1.41421 for √2 too: within 5e-6 · (1 + |GELU|) of float64",
            max(apart.values()) < 5e-6,
            f"largest error {max(apart.values()):.1e}",
        ),
        Claim(
            f"one kernel is at least 2.5 times as fast as five ({fused})",
            first[fused]["times faster"] > 2.5,
            f"{first[fused]['times faster']:.2f} times",
            exact=False,
        ),
    ]
    notes.append(f"torch.jit.script gives a {warning} today: use torch.compile. On the CPU it fuses nothing.")
    if device.type != "cuda":
        notes.append(
            NO_CUDA.format(what="the Triton kernel was checked in the interpreter and not timed", slug="pointwise-fusion")
        )
    quantities = {
        "kernels of the formula": len(chain),
        "kernels when fused": counts[fused],
        "1 M elements: formula over fused, times": first[fused]["times faster"],
        "F.gelu over the formula, times": first["F.gelu"]["times faster"],
    }
    arrays = {"largest": size.sizes[-1], "limit, µs": 8 * size.sizes[-1] / limit / 1e3}
    return Result(rows, claims, quantities, notes, arrays)


# --- fused-layernorm ---------------------------------------------------------------------------------------------------------


def composed(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Layer norm from its parts: y = (x − mean) / √(variance + ε) · γ + β over the last dimension; x (rows, features)."""
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + eps) * weight + bias


def library(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """torch's own layer norm."""
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def draw_fused_layernorm(result: Result):
    """Time of layer norm, forward with backward, for each way to run it, beside the time that the memory needs; and how
    many operators or generated kernels each way runs."""
    figure = style.new_figure(9, 3.2)
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    draw_against_limit(left, result.rows, result.arrays["limit, µs"])
    left.set_title("layer norm, forward and backward")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=2, fontsize=8)
    draw_counts(right, result.rows)
    right.set_title("what runs")
    return figure


@experiment(
    "fused-layernorm",
    lecture="L4",
    notebook=NOTEBOOK,
    draw=draw_fused_layernorm,
    quick=dict(rows=2048, features=512, samples=5),
    full=dict(rows=16384, features=4096, samples=15),
    uses=("cuda", "compiler"),
)
def fused_layernorm(size: Size) -> Result:
    """Layer norm: composed of operators, torch's own kernel, and compiled."""
    device, notes = size.device.torch, []
    x = torch.randn(size.rows, size.features, device=device, requires_grad=True)
    weight = (1 + 0.1 * torch.randn(size.features, device=device)).requires_grad_()
    bias = (0.1 * torch.randn(size.features, device=device)).requires_grad_()
    upstream = torch.randn(size.rows, size.features, device=device)
    inputs = (x, weight, bias)

    def both(way: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        y = way(*inputs)
        return (y.detach(), *torch.autograd.grad(y, inputs, upstream))

    ways: dict[str, Callable[..., Tensor]] = {"composed, eager": composed, "nn.LayerNorm": library}
    counts = {name: len(operators(lambda way=way: both(way))) for name, way in ways.items()}
    forward = {name: len(operators(lambda way=way: way(*inputs))) for name, way in ways.items()}
    megabytes: dict[str, Any] = {name: moved(lambda way=way: both(way)) for name, way in ways.items()}
    try:
        made = compiled(composed, both, device)
        ways["composed, torch.compile"], counts["composed, torch.compile"] = made.work, made.kernels
        megabytes["composed, torch.compile"] = "-"
    except LabError as error:
        notes.append(str(error))

    wide = tuple(one.detach().double().requires_grad_() for one in inputs)
    y = F.layer_norm(wide[0], wide[0].shape[-1:], wide[1], wide[2])
    truth = (y.detach(), *torch.autograd.grad(y, wide, upstream.double()))
    apart = {
        name: max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(both(way), truth, strict=True))
        for name, way in ways.items()
    }
    turns: dict[str, Timing] = interleaved({name: lambda way=way: both(way) for name, way in ways.items()}, samples=size.samples)
    # Forward reads x and writes y; backward reads x and the gradient of y and writes that of x: five tensors as large as x.
    limit = 5 * x.nbytes / copy_bandwidth(device) / 1e3
    rows = [
        {
            "way": name,
            "kernels": counts[name],
            "moved, MB": megabytes[name],
            "time, µs": turns[name].seconds * 1e6,
            "share of the memory limit": limit / turns[name].seconds / 1e6,
            "times faster": turns["composed, eager"].seconds / turns[name].seconds,
            "largest error": apart[name],
        }
        for name in ways
    ]
    gain, made_kernels = rows[1]["times faster"], counts.get("composed, torch.compile", 0)
    claims = [
        Claim(
            "torch's own is one operator forward, the composition eight or more",
            forward["nn.LayerNorm"] == 1 and forward["composed, eager"] >= 8,
        ),
        Claim(
            "forward and backward together, the composition runs at least five times as many operators",
            counts["composed, eager"] >= 5 * counts["nn.LayerNorm"],
            f"{counts['composed, eager']} and {counts['nn.LayerNorm']}",
        ),
        Claim(
            "it moves at least three times the bytes",
            megabytes["composed, eager"] >= 3 * megabytes["nn.LayerNorm"],
            f"{megabytes['composed, eager']:.0f} and {megabytes['nn.LayerNorm']:.0f} MB",
        ),
        Claim(
            "output and gradients of every way are within 1e-5 of float64, by the largest value of each",
            max(apart.values()) < 1e-5,
            f"{max(apart.values()):.1e}",
        ),
        Claim(
            "torch.compile, where there is a compiler, makes at most a third as many kernels as the composition has operators",
            made_kernels * 3 <= counts["composed, eager"],
            f"{made_kernels} of {counts['composed, eager']}" if made_kernels else "no compiler",
        ),
        Claim("torch's own layer norm is faster than the composition", gain > 1, f"{gain:.2f} times", exact=False),
    ]
    if device.type != "cuda":
        notes.append(NO_CUDA.format(what="launches cost little on a CPU", slug="fused-layernorm"))
    quantities = {
        "nn.LayerNorm over the composition, times": gain,
        "operators of the composition": counts["composed, eager"],
        "operators of nn.LayerNorm": counts["nn.LayerNorm"],
    }
    return Result(rows, claims, quantities, notes, {"limit, µs": limit})
