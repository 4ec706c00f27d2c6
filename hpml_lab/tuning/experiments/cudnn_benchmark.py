"""cuDNN can compute a convolution in several ways; with `torch.backends.cudnn.benchmark` it tries them and keeps the fastest.

The search pays off where shapes stay the same. Each new shape is searched again, so the experiment also times first calls.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import nan

import torch
from torch.nn import functional as F

from hpml_lab.core import style
from hpml_lab.core.device import NO_CUDA, Device
from hpml_lab.core.experiment import Params, experiment
from hpml_lab.core.findings import Row, Table, column
from hpml_lab.core.noise import SpeedUp, speed_up
from hpml_lab.core.result import Result
from hpml_lab.core.timing import PLACEBO, interleaved
from hpml_lab.tuning.bars import grouped_bars
from hpml_lab.tuning.convolutions import Convolution, by_fft, by_product
from hpml_lab.tuning.turns import in_turns, own_process

QUICK = dict(batch=2, channels=64, side=64, samples=5, shapes=4)
FULL = dict(batch=32, channels=64, side=64, samples=15, shapes=16)
LECTURE_MS = {"search off": 1.43, "search on": 0.84}  # forward, batch 32


@dataclass
class SearchTiming(Row):
    """One pass through the convolution, without the search and, on a GPU, with it."""

    work: str = column("pass")
    batch: int = column("batch")
    off_ms: float = column("search off", "ms")
    off_spread_ms: float = column("spread, search off", "ms")
    on_ms: float | None = column("search on", "ms", None)
    on_spread_ms: float | None = column("spread, search on", "ms", None)
    gain: float | None = column("times as fast", "", None)
    interval: str | None = column("90 % interval", "", None)
    verdict: str | None = column("verdict", "", None)
    off_kernel: str | None = column("longest kernel, search off", "", None)
    on_kernel: str | None = column("longest kernel, search on", "", None)


@dataclass
class FirstCall(Row):
    """The first call with a shape that was not seen before."""

    search: str = column("search")
    shapes: int = column("new shapes")
    first_ms: float = column("first call, median", "ms")


@dataclass(frozen=True)
class SearchGain:
    """What the search does on a GPU: the gain of each pass, its row, first calls, and how far the outputs differ."""

    gains: dict[str, SpeedUp]
    rows: list[SearchTiming]
    first_calls: list[FirstCall]
    difference: float


def search_gain(params: Params) -> SearchGain:
    """Compare processes that have the search off, on, and off once more (the placebo), in turns."""
    arguments = (params.device.torch, params.batch, params.channels, params.side)
    with ExitStack() as started:
        states = {"off": False, "on": True, PLACEBO: False}
        nets = {name: started.enter_context(own_process(Convolution, on, *arguments)) for name, on in states.items()}
        times = {
            work: in_turns({name: partial(net.seconds, work) for name, net in nets.items()}, samples=params.samples)
            for work in Convolution.WORKS
        }
        first = [FirstCall(name, params.shapes, nets[name].first_calls(params.shapes) * 1e3) for name in ("off", "on")]
        # The profiler stays attached to a process and slows its launches, so it comes last.
        kernels = {(name, work): nets[name].longest_kernel(work) for name in ("off", "on") for work in times}
        off, on = nets["off"].output(), nets["on"].output()
    gains = {work: speed_up(turns, "off", "on") for work, turns in times.items()}
    rows = [
        SearchTiming(
            work=work,
            batch=params.batch,
            off_ms=turns["off"].seconds * 1e3,
            off_spread_ms=turns["off"].spread * 1e3,
            on_ms=turns["on"].seconds * 1e3,
            on_spread_ms=turns["on"].spread * 1e3,
            off_kernel=kernels["off", work],
            on_kernel=kernels["on", work],
            **gains[work].columns,
        )
        for work, turns in times.items()
    ]
    return SearchGain(gains, rows, first, float(abs(on - off).max() / abs(off).max()))


def plain_times(params: Params) -> list[SearchTiming]:
    """The times of a CPU, where there is nothing to search and so nothing to compare."""
    net = Convolution(torch.backends.cudnn.benchmark, params.device.torch, params.batch, params.channels, params.side)
    times = interleaved({work: partial(net.run, work) for work in Convolution.WORKS}, samples=params.samples)
    return [SearchTiming(work, params.batch, turn.seconds * 1e3, turn.spread * 1e3) for work, turn in times.items()]


def ways_differ(device: Device) -> float:
    """The largest difference between three ways to compute a convolution, relative to the largest output."""
    x, weight = torch.randn(2, 16, 32, 32, device=device.torch), torch.randn(16, 16, 3, 3, device=device.torch)
    direct = F.conv2d(x, weight, padding=1)
    return max(((way(x, weight) - direct).abs().max() / direct.abs().max()).item() for way in (by_product, by_fft))


def draw(result: Result):
    """Time of a convolution with the search for the fastest algorithm off and on: the forward pass, forward and backward
    together, and the lecture's forward pass. The scale is logarithmic, and error bars show the middle half of the samples. On
    a CPU there is no search, so that its bars are missing."""
    figure = style.new_figure(7, 3.6)
    axes = figure.subplots()
    rows = result.rows(SearchTiming)
    verdicts = ["" if row.gain is None else f"\n{row.gain:.3g} times as fast" for row in rows]
    verdicts = [f"\n{row.verdict}" if row.verdict == "within noise" else text for row, text in zip(rows, verdicts, strict=True)]
    groups = [f"{row.work}\nbatch {row.batch}{verdict}" for row, verdict in zip(rows, verdicts, strict=True)]
    times = {"search off": [row.off_ms for row in rows], "search on": [row.on_ms or nan for row in rows]}
    spread = {"search off": [row.off_spread_ms for row in rows], "search on": [row.on_spread_ms or 0 for row in rows]}
    grouped_bars(
        axes,
        [*groups, "forward, batch 32\n(lecture's GPU)"],
        {name: [*times[name], LECTURE_MS[name]] for name in times},
        spread={name: [*spread[name], 0] for name in spread},
    )
    axes.set_yscale("log")
    style.label_log_axis(axes.yaxis)
    axes.set_ylabel("time in ms")
    axes.set_title(f"3×3 convolution on {'the CPU: no search' if result.device == 'cpu' else 'the GPU'}")
    axes.legend()
    return figure


@experiment("cudnn-benchmark", lecture="L4", notebook="10_tuning", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def cudnn_benchmark(params: Params) -> Result:
    """cuDNN's search for the fastest convolution: what it gains, and what it costs when shapes change."""
    found = search_gain(params) if params.device.is_cuda else None
    rows = found.rows if found else plain_times(params)
    forward = rows[0]

    result = Result([Table("3×3 convolution, 64 channels", rows)])
    result.key_figure("forward, search off", forward.off_ms * 1e3, unit="µs", lecture=1430)
    result.key_figure("forward, search on", found and forward.on_ms * 1e3, unit="µs", lecture=840)
    result.key_figure("forward, times as fast", forward.gain, lecture=1.7)
    differences = [ways_differ(params.device), *([found.difference] if found else [])]
    result.claim(
        "A convolution, directly, as a matrix product or by FFT, with the search or without, has the same result within 2e-3"
        " of the largest output",
        max(differences) < 2e-3,
        ", ".join(f"{difference:.1e}" for difference in differences),
    )
    if found is None:
        what = "cuDNN is not used, so there is no search and nothing to compare"
        result.notes.append(NO_CUDA.format(what=what, slug="cudnn-benchmark"))
        return result
    off, on = found.first_calls
    result.tables.append(Table("First call with a new shape", found.first_calls))
    for row in found.first_calls:
        result.key_figure(f"first call with a new shape, search {row.search}", row.first_ms, unit="ms")
    for work, gain in found.gains.items():
        result.measured(f"The search makes the convolution faster: {work}", gain.faster, str(gain))
    result.measured(
        "With the search on, the first call with a new shape takes at least 1.5 times as long",
        on.first_ms > 1.5 * off.first_ms,
        f"{on.first_ms:.2f} ms compared with {off.first_ms:.2f} ms",
    )
    return result
