"""cuDNN can compute a convolution in several ways; with `torch.backends.cudnn.benchmark` it tries them and keeps the fastest.

The search pays off where shapes stay the same. Each new shape is searched again, so the experiment also times first calls.
"""

from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter

import torch
from torch.nn import functional as F

from hpml_lab.core import style
from hpml_lab.core.counting import kernels, synchronize
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.experiment import Params, experiment
from hpml_lab.core.findings import Table, column
from hpml_lab.core.result import Result
from hpml_lab.core.timing import interleaved
from hpml_lab.tuning.bars import grouped_bars
from hpml_lab.tuning.switches import cudnn_search

QUICK = dict(batch=2, channels=64, side=64, samples=3, shapes=4)
FULL = dict(batch=32, channels=64, side=64, samples=15, shapes=16)
LECTURE_MS = {"search off": 1.43, "search on": 0.84}  # forward, batch 32


@dataclass
class SearchTiming:
    """One pass through the convolution, without and with the search."""

    work: str = column("pass")
    batch: int = column("batch")
    off_ms: float = column("search off", "ms")
    on_ms: float = column("search on", "ms")
    speedup: float = column("speedup", "times")
    off_spread_ms: float = column("spread, search off", "ms")
    on_spread_ms: float = column("spread, search on", "ms")
    kernel: str = column("longest kernel, search on")


@dataclass
class FirstCall:
    """The first call with a shape that was not seen before."""

    search: str = column("search")
    shapes: int = column("new shapes")
    first_ms: float = column("first call, median", "ms")


def first_calls(on: bool, params: Params) -> float:
    """Median seconds of the first call with a shape, over `params.shapes` new shapes."""
    device = params.device.torch
    weight = torch.randn(params.channels, params.channels, 3, 3, device=device)
    seconds = []
    for index in range(params.shapes + 1):
        # Other shapes with the search than without it. The very first call also loads kernels and is not counted.
        side = params.side + 2 * index + (3 if on else 2)
        x = torch.randn(params.batch, params.channels, side, side, device=device)
        synchronize(device)
        start = perf_counter()
        with cudnn_search(on):
            F.conv2d(x, weight, padding=1)
        synchronize(device)
        seconds.append(perf_counter() - start)
    return median(seconds[1:])


def draw(result: Result):
    """Time of a convolution with the search for the fastest algorithm off and on: the forward pass, forward and backward
    together, and the lecture's forward pass. The scale is logarithmic, and error bars show the middle half of the samples."""
    figure = style.new_figure(7, 3.6)
    axes = figure.subplots()
    rows = result.rows(SearchTiming)
    groups = [f"{row.work}\nbatch {row.batch}" for row in rows] + ["forward, batch 32\n(lecture's GPU)"]
    times = {"search off": [row.off_ms for row in rows], "search on": [row.on_ms for row in rows]}
    spread = {"search off": [row.off_spread_ms for row in rows], "search on": [row.on_spread_ms for row in rows]}
    grouped_bars(
        axes,
        groups,
        {name: [*times[name], LECTURE_MS[name]] for name in times},
        spread={name: [*spread[name], 0] for name in spread},
    )
    axes.set_yscale("log")
    axes.set_ylim(0.3)
    style.label_log_axis(axes.yaxis)
    axes.set_ylabel("time in ms")
    axes.set_title(f"3×3 convolution on {'the CPU (no search)' if result.device == 'cpu' else 'the GPU'}")
    axes.legend()
    return figure


@experiment("cudnn-benchmark", lecture="L4", notebook="10_tuning", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def cudnn_benchmark(params: Params) -> Result:
    """cuDNN's search for the fastest convolution: what it gains, and what it costs when shapes change."""
    before = torch.backends.cudnn.benchmark
    device = params.device.torch
    x = torch.randn(params.batch, params.channels, params.side, params.side, device=device, requires_grad=True)
    weight = torch.randn(params.channels, params.channels, 3, 3, device=device, requires_grad=True)

    def forward(on: bool) -> torch.Tensor:
        with cudnn_search(on):
            return F.conv2d(x, weight, padding=1)

    def forward_and_backward(on: bool) -> None:
        with cudnn_search(on):
            torch.autograd.grad(F.conv2d(x, weight, padding=1).sum(), (x, weight))

    rows = []
    for name, work in (("forward", forward), ("forward + backward", forward_and_backward)):
        times = interleaved({"off": partial(work, False), "on": partial(work, True)}, samples=params.samples)
        off, on = times["off"], times["on"]
        rows.append(
            SearchTiming(
                work=name,
                batch=params.batch,
                off_ms=off.seconds * 1e3,
                on_ms=on.seconds * 1e3,
                speedup=off.seconds / on.seconds,
                off_spread_ms=off.spread * 1e3,
                on_spread_ms=on.spread * 1e3,
                kernel=kernels(partial(work, True), device)[0].name[:60],
            )
        )
    first_off, first_on = (first_calls(on, params) * 1e3 for on in (False, True))
    first_rows = [FirstCall("off", params.shapes, first_off), FirstCall("on", params.shapes, first_on)]
    difference = ((forward(True) - forward(False)).abs().max() / forward(False).abs().max()).item()
    pass_forward = rows[0]

    result = Result([Table("3×3 convolution, 64 channels", rows), Table("First call with a new shape", first_rows)])
    result.key_figure("forward, search off", pass_forward.off_ms * 1e3, unit="µs", lecture=1430)
    result.key_figure("forward, search on", pass_forward.on_ms * 1e3, unit="µs", lecture=840)
    result.key_figure("forward, speedup", pass_forward.speedup, unit="times", lecture=1.7)
    result.key_figure("first call with a new shape, search off", first_off, unit="ms")
    result.key_figure("first call with a new shape, search on", first_on, unit="ms")

    result.claim(
        "The search may change the algorithm but not the result, within 2e-3 of the largest output",
        difference < 2e-3,
        f"{difference:.1e}",
    )
    result.measured(
        "The search makes the forward pass at least 1.2 times faster",
        pass_forward.speedup >= 1.2,
        f"{pass_forward.speedup:.2f} times",
    )
    result.measured(
        "With the search on, the first call with a new shape takes at least 1.5 times as long",
        first_on > 1.5 * first_off,
        f"{first_on:.2f} ms compared with {first_off:.2f} ms",
    )
    result.check("torch.backends.cudnn.benchmark is restored", torch.backends.cudnn.benchmark == before)
    if not params.device.is_cuda:
        what = "cuDNN is not used and the flag has no effect, so both columns time the same code"
        result.notes.append(NO_CUDA.format(what=what, slug="cudnn-benchmark"))
    return result
