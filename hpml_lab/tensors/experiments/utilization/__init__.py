"""utilization: a busy processor, and the share of its measured peak that training loops reach: MFU, HFU; joules a sample."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING

import torch
from matplotlib.ticker import PercentFormatter
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.clock import ceiling, measure
from hpml_lab.core.timing.counting import synchronize
from hpml_lab.profilers.energy import CpuEnergy, used_joules
from hpml_lab.profilers.nvml import Gpus
from hpml_lab.tensors.experiments.utilization.training_loops import BLOCK, CNN, MLP, RECOMPUTED, SIDE, LoopSize, TrainingLoop
from hpml_lab.tensors.experiments.utilization.training_loops import training_loop
from hpml_lab.tensors.lessons.model_flops import (
    attention_flops,
    convolution_flops,
    fused_attention_backward,
    linear_flops,
    share_of_peak,
    training_flops,
)

if TYPE_CHECKING:
    from hpml_lab.profilers.monitor import Monitor

# The first two differ by their batch alone.
QUICK = dict(loops=((MLP, 1), (MLP, 256), (CNN, 16), (BLOCK, 4), (RECOMPUTED, 4)), sizes=(256, 32, 128), seconds=0.5)
FULL = dict(loops=((MLP, 1), (MLP, 4096), (CNN, 256), (BLOCK, 8), (RECOMPUTED, 8)), sizes=(1024, 128, 512), seconds=4.0)
RATE = 20  # samples a second
BAND = 0.1  # of a rate over another that was measured at another time
CONVOLVE = partial(F.conv2d, padding=1)
ODD = 3, 2, 24, 40, 16  # batch, heads, queries, keys, width: attention whose FLOPs are counted


@dataclass
class LoopUse(Row):
    """A training loop: its FLOPs by formula and counted, and what it makes of the processor."""

    loop: str = column("loop")
    batch: int = column("batch")
    model_mflop: float = column("the model needs", "MFLOP a step")
    hardware_mflop: float = column("computed, by formula", "MFLOP")
    counted_mflop: float = column("counted", "MFLOP")
    milliseconds: float = column("step", "ms")
    busy: float | None = column("processor busy", "%")
    hfu: float = column("HFU", "%")
    mfu: float = column("MFU", "%")
    cpu_joules: float | None = column("energy of the CPU", "J a sample")
    gpu_joules: float | None = column("energy of the GPUs", "J a sample")


def draw(result: Result):
    """Three answers to "how busy is it?" for each loop. Grey: the share of time in which the processor had work, as top or
    nvidia-smi show it. Hatched: HFU, the FLOPs that it computed over those that the fastest product or convolution reaches in
    that time. Blue: MFU, those of them that the model needs. The dashed line is the measured peak. Grey is near it in every
    row, blue in few."""
    figure = style.new_figure(8, 4.6)
    axes, rows = figure.subplots(), result.rows(LoopUse)
    looks = (("busy", "processor busy", style.GREY, None), ("hfu", "HFU", "none", "////"), ("mfu", "MFU", style.BLUE, None))
    for shift, (field, label, color, hatch) in enumerate(looks):
        values = [getattr(row, field) or 0.0 for row in rows]
        places = [number + 0.27 * (shift - 1) for number in range(len(rows))]
        bars = axes.barh(places, values, 0.25, color=color, hatch=hatch, label=label, edgecolor=style.INK)
        inside = dict(label_type="center", color="white") if field == "busy" and min(values) > 15 else dict(padding=3)
        axes.bar_label(bars, [f"{value:.0f} %" for value in values], fontsize=8, **inside)
    axes.axvline(100, linestyle="--", color=style.INK)
    axes.set_yticks(range(len(rows)), [f"{row.loop},\nbatch {row.batch}" for row in rows])
    axes.set(
        xlabel="of the time, and of the measured peak", ylabel="training loop", xlim=(0, max(125, 1.15 * axes.dataLim.xmax))
    )
    axes.xaxis.set_major_formatter(PercentFormatter(100))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.12), ncols=3)
    return figure


# ---- measuring ---------------------------------------------------------------------------------------------------------------


def counted_in(work) -> int:
    """FLOPs of one `work()` as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def measured_peak(loops: tuple[tuple[str, int], ...], size: LoopSize, device: torch.device) -> float:
    """FLOP/s of the fastest of a large product and of the loops' largest layers, forward and backward.

    What stays in a cache, or has few rows, can be faster than a large product: over that alone a loop reached 123 %.
    """
    peak = 1e9 * ceiling(device).gflop_per_s
    for work, flops in own_kernels(loops, size, device):
        peak = max(peak, flops / min(measure(work).samples))
    return peak


def own_kernels(
    loops: tuple[tuple[str, int], ...], size: LoopSize, device: torch.device
) -> Iterator[tuple[Callable[[], object], int]]:
    """The largest convolution of the CNN and linear layer of the others, forward and backward, and the FLOPs of each."""
    width, channels, tokens = size
    layers: set[tuple[Callable[..., torch.Tensor], tuple[int, ...], tuple[int, ...], int]] = set()
    for name, batch in loops:
        if name == CNN:
            flops = convolution_flops(batch, SIDE**2, channels, channels, 3)
            layers.add((CONVOLVE, (batch, channels, SIDE, SIDE), (channels, channels, 3, 3), flops))
        else:
            rows, wider = (batch, 1) if name == MLP else (batch * tokens, 4)
            layers.add((F.linear, (rows, width), (wider * width, width), linear_flops(rows, width, wider * width)))
    for layer, *shapes, flops in layers:
        x, weight = (torch.randn(shape, device=device).requires_grad_() for shape in shapes)
        y = layer(x, weight)
        yield partial(layer, x, weight), flops
        yield partial(torch.autograd.grad, y, (x, weight), torch.ones_like(y), retain_graph=True), 2 * flops


def loop_use(loop: TrainingLoop, device: torch.device, peak: float, seconds: float) -> LoopUse:
    """Count a step, time it, and watch the machine while it is repeated for some seconds; `peak` is in FLOP/s."""
    from hpml_lab.profilers.monitor import Monitor  # here: psutil is not for every Python

    counted, timing, steps = counted_in(loop.step), measure(loop.step), 0
    with Monitor(RATE) as watched:
        end = CLOCK() + seconds
        while not steps or CLOCK() < end:
            loop.step()
            steps += 1
        synchronize(device)
    joules = [None if used is None else used / (steps * loop.batch) for used in used_joules(watched.samples)]
    hfu, mfu = (100 * share_of_peak(flops, timing.seconds, peak) for flops in (loop.hardware_flops, loop.model_flops))
    flops = [count / 1e6 for count in (loop.model_flops, loop.hardware_flops, counted)]
    return LoopUse(loop.name, loop.batch, *flops, 1e3 * timing.seconds, busy_share(watched, device), hfu, mfu, *joules)


def busy_share(watched: "Monitor", device: torch.device) -> float | None:
    """% of the time in which the processor had work of this process, as usual tools say it; None where they do not."""
    if device.type == "cpu":
        used = [sample.process_cpu for sample in watched.samples]
        return None if None in used else 100 * (sum(used) / watched.seconds - watched.cost)
    with Gpus() as gpus:
        own = gpus.bus_id_of(str(torch.cuda.get_device_properties(device).uuid))
    known = [gpu.utilization for sample in watched.samples for gpu in sample.gpus if gpu.bus_id == own]
    return mean(known) if known and None not in known else None


def attention_passes() -> dict[str, tuple[int, int]]:
    """FLOPs that torch counts of attention's forward and backward pass: as two products, and fused, where it counts that."""
    batch, heads, queries, keys, width = ODD
    q, k, v = (torch.randn(batch, heads, length, width, requires_grad=True) for length in (queries, keys, keys))
    ways = {
        "products": lambda: (q @ k.transpose(-1, -2)).softmax(-1) @ v,
        "fused": lambda: F.scaled_dot_product_attention(q, k, v),
    }
    found = {}
    for name, forward in ways.items():
        first, both = counted_in(forward), counted_in(lambda forward=forward: forward().sum().backward())
        if 0 < first < both:  # a torch that has no formula for this kernel counts nothing
            found[name] = first, both - first
    return found


# ---- the experiment ----------------------------------------------------------------------------------------------------------


@experiment("utilization", lecture="L1", notebook="01_tensors", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def utilization(params: Params) -> Result:
    """A processor that is always busy, and the share of its peak that training loops reach: MFU, HFU, and joules a sample."""
    device = params.device.torch
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # else a GPU's convolutions have another peak
        peak = measured_peak(params.loops, LoopSize(*params.sizes), device)
        loops = [training_loop(*name, LoopSize(*params.sizes), device) for name in params.loops]
        rows = [loop_use(loop, device, peak, params.seconds) for loop in loops]
    result = Result([Table(f"Training loops in float32, over a measured peak of {peak / 1e9:,.0f} GFLOP/s", rows)])
    small, large = rows[:2]
    result.key_figure("measured peak", peak / 1e9, unit="GFLOP/s")
    result.key_figure(f"{small.loop}, batch {small.batch}: processor busy", small.busy, unit="%")
    result.key_figure("MFU with a batch of 1", small.mfu, unit="%")
    result.key_figure("best MFU", max(row.mfu for row in rows), unit="%")
    result.key_figure("HFU over MFU with recomputation", rows[-1].hfu / rows[-1].mfu, unit="times")
    for name, field in (("CPU", "cpu_joules"), ("GPUs", "gpu_joules")):
        result.key_figure(f"{large.loop}, batch {large.batch}: energy of the {name}", getattr(large, field), unit="J a sample")
    add_claims(result, loops, rows)
    if large.cpu_joules is None and large.gpu_joules is None:
        result.notes.append(f"No joules: an empty column is no reading, not 0. {CpuEnergy().note} {Gpus().note}")
    if not params.device.is_cuda:
        result.notes.append(NO_CUDA.format(what="the loops run on one thread of the CPU", slug="utilization"))
    return result


def add_claims(result: Result, loops: list[TrainingLoop], rows: list[LoopUse]) -> None:
    result.claim(
        "The FLOPs of linear layers, convolutions and attention by formula, forward and backward, are those that "
        "FlopCounterMode counts",
        all(row.counted_mflop == row.hardware_mflop for row in rows),
        f"{len(rows)} loops",
    )
    plain, again = loops[-2:]
    result.claim(
        "With recomputation the model needs as many FLOPs as without, and the hardware computes one forward pass more",
        plain.model_flops == again.model_flops and again.hardware_flops == plain.hardware_flops + plain.forward,
        f"{again.hardware_flops / again.model_flops:.3f} times as many",
    )
    forward, passes = attention_flops(*ODD), attention_passes()
    wanted = {"products": (forward, 2 * forward), "fused": (forward, fused_attention_backward(forward))}
    result.claim(
        "The backward pass of attention takes two forward passes as plain products; in a fused kernel, where torch counts it, "
        "two and a half, because it computes the scores again",
        all(found == wanted[name] for name, found in passes.items()) and training_flops(forward) == sum(wanted["products"]),
        ", ".join(f"{name} {back / first:g}" for name, (first, back) in passes.items()),
    )
    highest = max(row.hfu for row in rows)
    result.measured(
        f"No loop computes faster than the measured peak, to {BAND:.0%}",
        highest < 100 * (1 + BAND),
        f"HFU at most {highest:.0f} %",
    )
    busy, mfu = [row.busy for row in rows if row.busy is not None], [row.mfu for row in rows]
    result.measured(
        "The processor has work for nine tenths of the time in each loop, and one of them has an MFU below 25 %",
        bool(busy) and min(busy) > 90 and min(mfu) < 25,
        f"busy {min(busy, default=0):.0f} % and more, MFU {min(mfu):.1f} to {max(mfu):.0f} %",
    )
    result.measured(
        "A large batch at least triples the MFU of the same network with a batch of 1",
        mfu[1] > 3 * mfu[0],
        f"{mfu[1] / mfu[0]:.0f} times",
    )
