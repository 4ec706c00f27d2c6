"""Model and data to the GPU: what .to does, that the result stays the same, and from which width on the GPU is faster."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import SGD

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.progress import progress
from hpml_lab.core.system.attempt import attempt
from hpml_lab.core.timing.clock import PLACEBO, STUCK, best_threads, interleaved, launch_seconds, measure, stuck
from hpml_lab.core.timing.noise import SpeedUp, speed_up, speed_up_of
from hpml_lab.core.timing.threads import all_threads
from hpml_lab.nets.lessons.batched_xor import INPUTS, TARGETS, train_one
from hpml_lab.nets.lessons.networks import ThreeLayerNet, XorNet, parameter_count

NOTEBOOK = "03_nets"
OPERATORS = 40  # about so many does a training step call, however narrow the net
QUICK = dict(widths=(16, 64, 256, 1024), batch=128, same_steps=500, threads=1, samples=5)
FULL = dict(widths=(16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192), batch=128, same_steps=2000, threads=None, samples=7)


@dataclass
class TrainingStep(Row):
    """One training step of one net; the GPU's columns are None where no GPU was used."""

    net: str = column("net")
    width: int = column("width")
    batch: int = column("batch")
    parameters: int = column("parameters")
    mflop: float = column("MFLOP per step")
    cpu_us: float = column("CPU step", "µs")
    cpu_gflops: float = column("CPU", "GFLOP/s")
    gpu_us: float | None = column("GPU step", "µs", default=None)
    gpu_gflops: float | None = column("GPU", "GFLOP/s", default=None)
    gain: float | None = column("GPU, speed-up", default=None)
    interval: str | None = column("interval", default=None)
    verdict: str | None = column("the GPU is", default=None)
    copy_us: float | None = column("copy of the batch", "µs", default=None)


def training_step(net: nn.Module, x: torch.Tensor, y: torch.Tensor, criterion: nn.Module) -> Callable[[], None]:
    """One step of training: forward, loss, backward, SGD."""
    optimizer = SGD(net.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        criterion(net(x), y).backward()
        optimizer.step()

    return step


def step_flops(net: nn.Module, samples: int) -> int:
    """FLOPs of one step's matrix products: for each weight and sample 2 forward and 4 backward.

    The first layer needs no gradient of its input: 2 fewer there.
    """
    weights = [layer.weight.numel() for layer in net.modules() if isinstance(layer, nn.Linear)]
    return samples * (6 * sum(weights) - 2 * weights[0])


@dataclass
class TrainingSetup:
    """A net, a batch for it and its loss."""

    name: str
    width: int
    net: nn.Module
    x: torch.Tensor
    y: torch.Tensor
    criterion: nn.Module


def timed(work: TrainingSetup, device: torch.device, threads: int | None, samples: int) -> tuple[TrainingStep, SpeedUp | None]:
    """Time a training step on the CPU and, if `device` is a GPU, on both in turns; and how many times as fast the GPU is.

    threads  of the CPU; None: the better of one and all
    """
    flops, on_cpu = step_flops(work.net, len(work.x)), copy.deepcopy(work.net)
    step = training_step(on_cpu, work.x, work.y, work.criterion)

    def row(cpu_seconds: float, **gpu: float | str) -> TrainingStep:
        about = work.name, work.width, len(work.x), parameter_count(work.net), flops / 1e6
        return TrainingStep(*about, cpu_seconds * 1e6, flops / cpu_seconds / 1e9, **gpu)

    if device.type == "cpu":
        timing = measure(step, samples=samples, threads=threads) if threads else best_threads(step, samples=samples)
        return row(timing.seconds), None
    threads = threads or best_threads(step, samples=3).threads
    on_gpu = training_step(copy.deepcopy(work.net).to(device), work.x.to(device), work.y.to(device), work.criterion)
    both = interleaved({"cpu": step, "gpu": on_gpu}, samples=samples, threads=threads, placebo="cpu")
    copying = measure(lambda: (work.x.to(device), work.y.to(device)), samples=samples)
    gain, gpu_seconds = speed_up(both, "cpu", "gpu"), both["gpu"].seconds
    measured = row(
        both["cpu"].seconds,
        gpu_us=gpu_seconds * 1e6,
        gpu_gflops=flops / gpu_seconds / 1e9,
        **gain.columns,
        copy_us=copying.seconds * 1e6,
    )
    return measured, gain


def gain_per_flop(narrow: TrainingSetup, wide: TrainingSetup, samples: int) -> SpeedUp:
    """How many times as fast one thread of the CPU computes a FLOP in a step of the wide net as in one of the narrow net."""
    works = {work.name: training_step(copy.deepcopy(work.net), work.x, work.y, work.criterion) for work in (narrow, wide)}
    times = interleaved(works, samples=samples, placebo=narrow.name)
    flops = {PLACEBO: step_flops(narrow.net, len(narrow.x))} | {
        work.name: step_flops(work.net, len(work.x)) for work in (narrow, wide)
    }
    return speed_up_of(*([s / flops[name] for s in times[name].samples] for name in (narrow.name, wide.name, PLACEBO)))


# ---- drawing -------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Time of one training step by the width of the net, both axes logarithmic: flat while the start of the operations takes
    most of the time, steep once the arithmetic does. The point at width 4 is the XOR net. A GPU line is drawn only if a GPU
    was measured; moving to the GPU is worth it where the table says faster."""
    figure = style.new_figure(7.5, 4.2)
    ax = figure.subplots()
    tiny, *wider = result.rows(TrainingStep)
    widths = [row.width for row in wider]
    measured = tiny.gpu_us is not None
    for device, field, color, marker in (("CPU", "cpu_us", style.BLUE, "o"), ("GPU", "gpu_us", style.ORANGE, "s")):
        if getattr(tiny, field) is None:
            continue
        look = {"color": color, "marker": marker}
        ax.plot(widths, [getattr(row, field) for row in wider], label=f"256-width-width-10 on the {device}", **look)
        hollow = {"linestyle": "none", "markersize": 10, "markerfacecolor": "none"}
        ax.plot(tiny.width, getattr(tiny, field), label=f"XOR net 2-4-1 on the {device}", **hollow, **look)
    title = "When the GPU is faster" if measured else "A training step on the CPU (no GPU was measured)"
    ax.set(xscale="log", yscale="log", title=title)
    ax.set(xlabel="width of the hidden layers (units)", ylabel="one training step (µs)")
    ticks = [tiny.width, *widths]
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.xaxis.minorticks_off()
    style.label_log_axis(ax.yaxis)
    ax.legend(fontsize=8)
    return figure


# ---- the experiment ------------------------------------------------------------------------------------------------


@experiment("move-to-gpu", lecture="L2", notebook=NOTEBOOK, draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def move_to_gpu(params: Params) -> Result:
    """Model and data to the GPU: the same result, and when it is faster."""
    device = params.device.torch

    # The same result: float32 on the device and float64 on the CPU, from the same start.
    def make_optimizer(parameters):
        return SGD(parameters, lr=1.0)

    on_device = train_one(0, params.same_steps, make_optimizer, device=device)
    in_float64 = train_one(0, params.same_steps, make_optimizer, dtype=torch.float64)
    with torch.no_grad():
        answers = on_device(INPUTS.to(device)).cpu().double()
        difference = (answers - in_float64(INPUTS.double())).abs().max().item()

    # What .to does. "meta" is a second device on every machine: tensors there have a shape but no numbers.
    net, x = XorNet(), INPUTS
    moved_net, moved_x = net.to("meta"), x.to("meta")
    module_moves = moved_net is net and all(parameter.is_meta for parameter in net.parameters())
    tensor_stays = moved_x.is_meta and x.device.type == "cpu"
    two_devices = attempt(lambda: XorNet().to(device)(x if device.type == "cuda" else moved_x))

    works = [TrainingSetup("XOR net", 4, XorNet(), INPUTS, TARGETS, nn.BCELoss())]
    for width in params.widths:
        x, y = torch.randn(params.batch, 256), torch.randn(params.batch, 10)
        works.append(TrainingSetup(f"256-{width}-{width}-10", width, ThreeLayerNet(hidden=(width, width)), x, y, nn.MSELoss()))
    found = [timed(work, device, params.threads, params.samples) for work in progress(works, "widths")]
    rows, gains = [row for row, _ in found], [gain for _, gain in found]
    result = Result([Table("One training step", rows)])

    tiny, wide = rows[0], rows[-1]
    faster_from = next((row.width for row, gain in found[1:] if gain and gain.faster), "none of these")
    on_gpu = device.type != "cpu"
    result.key_figure("XOR step on the CPU", tiny.cpu_us, "µs")
    result.key_figure("widest net's step on the CPU", wide.cpu_us, "µs")
    result.key_figure("CPU threads", params.threads or f"the better of 1 and {all_threads()}")
    result.key_figure("XOR step on the GPU", tiny.gpu_us, "µs")
    result.key_figure("widest net's step on the GPU", wide.gpu_us, "µs")
    result.key_figure("narrowest net for which the GPU is faster", faster_from if on_gpu else None, "units")

    result.claim(
        "Trained on the chosen device in float32, the XOR net answers as on the CPU in float64 to 10⁻³",
        difference < 1e-3,
        f"difference {difference:.1e} after {params.same_steps} steps on {device}",
    )
    result.claim(
        "net.to(device) moves the module itself; x.to(device) returns a new tensor and leaves x where it was",
        module_moves and tensor_stays,
    )
    result.claim(
        "A net and an input on two different devices raise RuntimeError", two_devices.startswith("RuntimeError"), two_devices
    )
    per_flop = gain_per_flop(works[1], works[-1], params.samples)
    result.measured(
        f"Per FLOP, the CPU's step of {works[-1].name} is faster than that of {works[1].name}", per_flop.faster, str(per_flop)
    )
    floor = OPERATORS * launch_seconds(torch.device("cpu"))
    if stuck([row.mflop for row in rows], [row.cpu_us * 1e-6 for row in rows], floor):
        result.notes.append(STUCK)
    if on_gpu:
        result.measured("The GPU is slower on the XOR net", gains[0].slower, str(gains[0]))
        result.measured("The GPU is faster on the widest net", gains[-1].faster, str(gains[-1]))
    else:
        result.notes.append(
            "No GPU was used, so only the CPU was measured: run `hpml-lab run move-to-gpu --size full` on a machine with one."
        )
    return result
