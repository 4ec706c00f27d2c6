"""Activations sent to another memory or computed again: memory and time of a step, and where copying back begins to pay."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.nn import functional as F

from hpml_lab.core.experiment import Fits, Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.numbers import number
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.clock import SAMPLES, interleaved
from hpml_lab.core.timing.counting import peak_bytes
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.tuning.experiments.checkpointing import BLOCKS, gpu_bytes
from hpml_lab.tuning.lessons.offloading import Far, Offload, bring_back, mapped_file, pinned_memory, send
from hpml_lab.tuning.lessons.recomputing import gelu_and_next_linear, in_segments, mlp_blocks

QUICK = dict(batch=512, gpu_batch=512, width=128, rows=512, depths=(8, 32, 128, 512, 2048), samples=SAMPLES)
# On a GPU an activation of 64 MiB: the 47 of them are 3 GB, which a link of 50 GB/s moves one way in 0.06 s.
FULL = dict(batch=2048, gpu_batch=1 << 15, width=512, rows=4096, depths=(8, 64, 512, 1024, 2048, 4096, 8192, 16384))
FULL |= dict(samples=8)  # a step with save_on_cpu() takes 3 s
KEEP, TORCH, ALL, POLICY = "keep everything", "save_on_cpu()", "send everything", "send activations"
BLOCK, GELU = "recompute each block", "recompute GELU + next linear"
Step = tuple[Callable[[], contextlib.AbstractContextManager], Callable[[], torch.Tensor]]  # (within what, forward)


@dataclass
class RoomierStep(Row):
    """One training step of 16 MLP blocks with one way to make room; `link_ms` is what its rate allows for the bytes sent."""

    way: str = column("way")
    sent: int | None = column("sent away", "bytes")
    peak_mb: float = column("peak memory", "MB")
    step_ms: float = column("step", "ms")
    times_as_long: float = column("slowdown")
    extra_ms: float = column("extra time", "ms")
    link_ms: float | None = column("the link's part", "ms")
    gradients_equal: bool = column("gradients bitwise equal")


@dataclass
class CopiedOrRecomputed(Row):
    """One activation: copied away and back, or computed again."""

    operator: str = column("operator")
    depth: int | None = column("depth")
    copy_ms: float = column("away and back", "ms")
    again_ms: float = column("computed again", "ms")
    verdict: str = column("computing again is")


def roomier_steps(
    net: nn.Sequential, x: torch.Tensor, far: Far, samples: int, link: float
) -> tuple[dict[str, RoomierStep], float]:
    """Measure a training step for each way to make room, and the noise; `link` in bytes/s is its rate, one way."""
    parameters = list(net.parameters())
    as_it_is = partial(net, x)
    steps: dict[str, Step] = {
        KEEP: (contextlib.nullcontext, as_it_is),
        TORCH: (save_on_cpu, as_it_is),
        ALL: (lambda: Offload(far), as_it_is),
        POLICY: (lambda: Offload(far, stays=[*parameters, x], least=x.nbytes), as_it_is),
        BLOCK: (contextlib.nullcontext, lambda: in_segments(net, x, BLOCKS)),
        GELU: (contextlib.nullcontext, lambda: gelu_and_next_linear(net, x)),
    }

    def loss(step: Step) -> tuple[torch.Tensor, int | None]:
        hooks = step[0]()
        with hooks:
            return step[1]().sum(), getattr(hooks, "sent", None)

    def train(step: Step) -> None:
        loss(step)[0].backward()
        net.zero_grad()

    right = torch.autograd.grad(loss(steps[KEEP])[0], parameters)
    times = interleaved({way: partial(train, step) for way, step in steps.items()}, samples=samples, placebo=KEEP)
    rows = {}
    for way, step in steps.items():
        total, sent = loss(step)
        found = torch.autograd.grad(total, parameters)
        rows[way] = RoomierStep(
            way=way,
            sent=sent,
            peak_mb=peak_bytes(partial(train, step), x.device) / 1e6,
            step_ms=1e3 * times[way].seconds,
            times_as_long=speed_up(times, KEEP, way).slowdown.ratio,
            extra_ms=1e3 * median(a - b for a, b in zip(times[way].samples, times[KEEP].samples, strict=True)),
            link_ms=1e3 * 2 * sent / link if sent else None,
            gradients_equal=all(torch.equal(a, b) for a, b in zip(found, right, strict=True)),
        )
    return rows, speed_up(times, KEEP, KEEP).noise


def copies_and_products(params: Params, far: Far) -> tuple[list[CopiedOrRecomputed], SpeedUp]:
    """An output (rows, width) copied away and back, next to computing it: as GELU, and as a product of each depth."""
    device, gpu = params.device.torch, params.device.torch if params.device.is_cuda else None
    y = torch.randn(params.rows, params.width, device=device)
    works = {("GELU", None): lambda: F.gelu(y)}
    for depth in params.depths:
        a, b = torch.randn(params.rows, depth, device=device), torch.randn(depth, params.width, device=device)
        works["product", depth] = partial(torch.mm, a, b)
    rows, gains = [], []
    for (operator, depth), work in works.items():
        turns = {"copies": lambda: bring_back(send(y, far), device), "again": work}
        times = interleaved(turns, samples=params.samples, placebo="copies", gpu=gpu)
        gains.append(speed_up(times, "copies", "again"))
        rows.append(CopiedOrRecomputed(operator, depth, *(1e3 * times[turn].seconds for turn in turns), gains[-1].verdict))
    return rows, gains[0]


def draw(result: Result):
    """Left: peak memory and time of a training step for each way to make room; lower is less memory, further right is slower,
    and inside the gray band no slower than noise. Right: the time to copy one activation away and back, and to compute it again
    as a product, by the depth of the product; the dotted line is the depth at which two rates say that they cross."""
    figure = style.new_figure(9, 4.2)
    steps, again = figure.subplots(1, 2)
    plain, noise = result.rows(RoomierStep)[0].step_ms, 1 + result.arrays["noise"]
    steps.axvspan(plain / noise, plain * noise, color=style.GREY, alpha=0.2, label="noise")
    for row, color, marker in zip(result.rows(RoomierStep), style.CYCLE, style.MARKERS, strict=False):
        steps.plot(row.step_ms, row.peak_mb, marker, color=color, markersize=9, label=row.way)
    steps.set(xscale="log", xlabel="time of a step in ms", ylabel="peak memory in MB", ylim=(0, None))
    rows = [row for row in result.rows(CopiedOrRecomputed) if row.depth]
    again.plot([row.depth for row in rows], [row.copy_ms for row in rows], "s-", color=style.ORANGE, label="away and back")
    again.plot([row.depth for row in rows], [row.again_ms for row in rows], "o-", color=style.BLUE, label="computed again")
    again.axvline(result.arrays["crossing"], color=style.GREY, linestyle=":", label="4 R / L")
    again.set(xscale="log", yscale="log", xlabel="depth of the product", ylabel="time of one activation in ms")
    for axes in (steps, again):
        axes.legend(fontsize=8)
    return figure


@experiment(
    "offload",
    lecture="L1",
    notebook="11_tuning",
    draw=draw,
    quick=QUICK,
    full=FULL,
    uses=("cuda",),
    fits=Fits(gpu_bytes, scale="gpu_batch", least=1 << 12),
)
def offload(params: Params) -> Result:
    """Send activations to another memory, or compute them again: memory, time, and the link's rate."""
    cuda = params.device.is_cuda
    net = mlp_blocks(BLOCKS, params.width).to(params.device.torch)
    x = torch.randn(params.gpu_batch if cuda else params.batch, params.width, device=params.device.torch)
    far = pinned_memory if cuda else mapped_file
    # Where a disk is full, writing to a mapped file ends the process: no error could be caught. Counted over a run, at most 48
    # activations and the weights, two matrices a block, lie in files at once.
    needed, free = 50 * x.nbytes + 2 * BLOCKS * 4 * params.width**2, shutil.disk_usage(tempfile.gettempdir()).free
    if not cuda and free < needed:
        problem = f"Mapped files take {needed / 1e6:.0f} MB in {tempfile.gettempdir()}, of which {free / 1e6:.0f} are free."
        raise LabError(problem, "Name a folder with more room in the environment variable TMPDIR.")
    compared, gelu = copies_and_products(params, far)
    copy_ms = median(row.copy_ms for row in compared)
    link = 2 * 4 * params.rows * params.width / (1e-3 * copy_ms)  # bytes/s, one way
    steps, noise = roomier_steps(net, x, far, params.samples, link)
    products = [row for row in compared if row.depth]
    rate = 2 * params.rows * params.width * products[-1].depth / (1e-3 * products[-1].again_ms)  # FLOP/s
    predicted = 4 * rate / link
    expected = {row.depth: row.depth < predicted for row in products if not predicted / 2 <= row.depth <= 2 * predicted}
    faster = {row.depth: row.again_ms < copy_ms for row in products}
    keep, everything, policy, recomputed = (steps[way] for way in (KEEP, ALL, POLICY, GELU))
    weights = (2 * BLOCKS - 1) * 4 * params.width**2  # the first layer's is not saved: the batch needs no gradient

    tables = {"One training step of 16 blocks": list(steps.values()), "One activation, copied or computed again": compared}
    result = Result([Table(title, rows) for title, rows in tables.items()])
    result.arrays |= {"noise": noise, "crossing": predicted}
    between, lecture = ("host and GPU", "16 (PCIe), 75 (NVLink 2.0)") if cuda else ("memory and mapped files", None)
    result.key_figure(f"{between}, each way", link / 1e9, unit="GB/s", lecture=lecture)
    for row in (keep, policy, recomputed):
        result.key_figure(f"peak memory, {row.way}", row.peak_mb, unit="MB")
        result.key_figure(f"slowdown, {row.way}", row.times_as_long)
    result.key_figure("depth of a product from which copies are faster, 4 R / L", predicted)

    result.claim("Every way gives bitwise identical gradients", all(row.gradients_equal for row in steps.values()))
    result.claim(
        "Sending all that autograd saves, as `save_on_cpu` does, moves 31 weights and the batch as well; the policy sends the"
        " 47 activations that nobody else holds",
        (everything.sent, policy.sent) == (48 * x.nbytes + weights, 47 * x.nbytes),
    )
    result.measured(
        "Sending activations away at least halves the peak",
        2 * policy.peak_mb <= keep.peak_mb,
        f"{policy.peak_mb:.1f} instead of {keep.peak_mb:.1f} MB",
    )
    result.measured(
        "Sending activations takes as much longer as the link needs for them, to a factor of 2",
        0.5 <= policy.extra_ms / policy.link_ms <= 2,
        f"{number(policy.extra_ms, 3)} ms more; at {link / 1e9:.3g} GB/s they take {number(policy.link_ms, 3)} ms both ways",
    )
    result.measured("Computing GELU again is faster than copying its output away and back", gelu.faster, str(gelu))
    result.measured(
        "Computing a product again is faster than copies up to half the depth 4 R / L, and slower from twice that depth on",
        len(set(expected.values())) == 2 and expected.items() <= faster.items(),
        f"4 R / L = {number(predicted, 3)} with R = {number(rate / 1e9, 3)} GFLOP/s and L = {link / 1e9:.3g} GB/s; computed"
        f" again faster: {', '.join(str(depth) for depth, again in faster.items() if again) or 'none'}",
    )
    if not cuda:
        what = "mapped files stand for the host's memory: bytes and gradients are the same, the link is another"
        result.notes.append(NO_CUDA.format(what=what, slug="offload"))
    return result
