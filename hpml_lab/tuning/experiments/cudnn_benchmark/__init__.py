"""cuDNN can compute a convolution in several ways; with `torch.backends.cudnn.benchmark` it tries them and keeps the fastest.

The search can pay off where shapes stay the same and the default choice is not the best: cases in which it may still gain are
compared, the lecture's among them. Each new shape is searched again, so the experiment also times first calls.
"""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch.nn import functional as F

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.counting import short_kernel_names
from hpml_lab.core.timing.noise import LEAST_EFFECT, SpeedUp, speed_up, times_faster
from hpml_lab.core.timing.clock import PLACEBO, SAMPLES, interleaved
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import timed_bars
from hpml_lab.core.system.device import NO_CUDA, Device
from hpml_lab.tuning.experiments.cudnn_benchmark.in_process import ConvolutionCase, Convolutions
from hpml_lab.tuning.experiments.turns import in_turns, own_process

QUICK = dict(batch=2, channels=64, side=64, samples=SAMPLES, shapes=4)
FULL = dict(batch=32, channels=64, side=64, samples=15, shapes=16)
LECTURE, LECTURE_MS = "float32 without TF32", {"off": 1.43, "on": 0.84}  # forward, batch 32; its GPU had no TF32
DEFAULT = "float32, TF32"
FORWARD = Convolutions.WORKS[0]


@dataclass(kw_only=True)
class SearchTiming(Row):
    """One pass through one convolution, without the search and, on a GPU, with it."""

    case: str = column("convolution", "", DEFAULT)  # the only one in runs that were recorded before there were several
    work: str = column("pass")
    batch: int = column("batch")
    off_ms: float = column("search off", "ms")
    off_spread_ms: float = column("spread, search off", "ms")
    on_ms: float | None = column("search on", "ms", None)
    on_spread_ms: float | None = column("spread, search on", "ms", None)
    gain: float | None = column("speed-up", "", None)
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
    """What the search does on a GPU: the gain of each (case, pass), its row, first calls, and how far outputs differ."""

    gains: dict[tuple[str, str], SpeedUp]
    rows: list[SearchTiming]
    first_calls: list[FirstCall]
    differences: dict[str, float]

    @property
    def best(self) -> tuple[str, str]:
        """The case and pass that gain most, by the lower ends of their intervals."""
        return max(self.gains, key=lambda key: self.gains[key].low)

    def difference(self, number_format: str) -> float:
        """The largest difference of an output in that format, relative to the largest output."""
        return max(difference for case, difference in self.differences.items() if case.startswith(number_format))


def convolution_cases(params: Params) -> dict[str, ConvolutionCase]:
    """The convolutions to compare: the lecture's first, then, on a GPU, others in which the default may not be the best."""
    lecture = ConvolutionCase(params.batch, params.channels, params.side, tf32=False)
    if not params.device.is_cuda:
        return {LECTURE: lecture}
    half, odd = replace(lecture, dtype=torch.float16), dict(channels=params.channels - 3, side=params.side - 3)
    return {
        LECTURE: lecture,
        **({DEFAULT: replace(lecture, tf32=True)} if params.device.can("tf32") else {}),
        "float16": half,
        "float16, channels last": replace(half, layout=torch.channels_last),
        f"float16, {odd['channels']} channels, {odd['side']} × {odd['side']}": replace(half, **odd),
    }


def search_gain(params: Params) -> SearchGain:
    """Compare processes that have the search off, on, and off once more (the placebo), in turns."""
    cases = convolution_cases(params)
    with ExitStack() as started:
        states = {"off": False, "on": True, PLACEBO: False}
        nets = {
            name: started.enter_context(own_process(Convolutions, on, params.device.torch, cases))
            for name, on in states.items()
        }
        times = {
            (case, work): in_turns(
                {name: partial(net.seconds, case, work) for name, net in nets.items()}, samples=params.samples
            )
            for case in cases
            for work in Convolutions.WORKS
        }
        first = [FirstCall(name, params.shapes, nets[name].first_calls(params.shapes) * 1e3) for name in ("off", "on")]
        # The profiler stays attached to a process and slows its launches, so it comes last.
        kernels = {key: short_kernel_names([net.longest_kernel(*key) for net in nets.values()], 60) for key in times}
        outputs = {case: (nets["off"].output(case), nets["on"].output(case)) for case in cases}
    gains = {key: speed_up(turns, "off", "on") for key, turns in times.items()}
    rows = [
        SearchTiming(
            case=case,
            work=work,
            batch=params.batch,
            off_ms=turns["off"].seconds * 1e3,
            off_spread_ms=turns["off"].spread * 1e3,
            on_ms=turns["on"].seconds * 1e3,
            on_spread_ms=turns["on"].spread * 1e3,
            off_kernel=kernels[case, work][0] or None,
            on_kernel=kernels[case, work][1] or None,
            **gains[case, work].columns,
        )
        for (case, work), turns in times.items()
    ]
    differences = {case: float(abs(on - off).max() / abs(off).max()) for case, (off, on) in outputs.items()}
    return SearchGain(gains, rows, first, differences)


def plain_times(params: Params) -> list[SearchTiming]:
    """The times of a CPU, where there is nothing to search and so nothing to compare."""
    net = Convolutions(False, params.device.torch, convolution_cases(params))
    times = interleaved({work: partial(net.run, LECTURE, work) for work in net.WORKS}, samples=params.samples)
    return [
        SearchTiming(case=LECTURE, work=work, batch=params.batch, off_ms=turn.seconds * 1e3, off_spread_ms=turn.spread * 1e3)
        for work, turn in times.items()
    ]


def by_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Convolution (stride 1, same size) as a matrix product: each column holds the pixels under the filter at one place."""
    columns = F.unfold(x, weight.shape[-1], padding=weight.shape[-1] // 2)
    return (weight.flatten(1) @ columns).view(len(x), len(weight), *x.shape[2:])


def by_fft(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The same by Fourier transform, where a convolution is a product; conj, because a layer does not flip its filter."""
    half = weight.shape[-1] // 2
    size = [side + 2 * half for side in x.shape[2:]]
    spectrum = torch.einsum("nchw,ochw->nohw", torch.fft.rfft2(x, size), torch.fft.rfft2(weight, size).conj())
    return torch.fft.irfft2(spectrum, size).roll((half, half), (2, 3))[..., : x.shape[2], : x.shape[3]]


def ways_differ(device: Device) -> float:
    """The largest difference between three ways to compute a convolution, relative to the largest output."""
    x, weight = torch.randn(2, 16, 32, 32, device=device.torch), torch.randn(16, 16, 3, 3, device=device.torch)
    direct = F.conv2d(x, weight, padding=1)
    return max(((way(x, weight) - direct).abs().max() / direct.abs().max()).item() for way in (by_product, by_fft))


def draw(result: Result):
    """Time of a convolution with the search for the fastest algorithm off and on, for each case and pass, and the lecture's
    pair. A time with the search is in color only if it differs from the one above it by more than noise and by 2 % or more.
    A CPU has no search: it shows its own times alone."""
    rows = result.rows(SearchTiming)
    works = list(dict.fromkeys(row.work for row in rows))
    panels = {work: [bar for row in rows if row.work == work for bar in search_bars(row)] for work in works}
    if any(row.on_ms for row in rows):
        panels[works[0]] += [(f"lecture's GPU, batch 32, search {state}", ms, None) for state, ms in LECTURE_MS.items()]
    slots, all_ms = len(panels[works[0]]), [ms for bars in panels.values() for _, ms, _ in bars]
    figure = style.new_figure(12, 1.4 + 0.26 * slots)
    for axes, (work, bars) in zip(figure.subplots(1, len(panels), sharex=True), panels.items(), strict=True):
        timed_bars(axes, *zip(*bars, strict=True), unit="ms")
        axes.set(title=f"{work}, batch {rows[0].batch}", xlim=(0, 1.25 * max(all_ms)), ylim=(slots - 0.5, -0.5))
    return figure


def search_bars(row: SearchTiming) -> list[tuple[str, float, str | None]]:
    """The bars of one row: name, time in ms, and the verdict that colors it."""
    bars: list[tuple[str, float, str | None]] = [(f"{row.case}, search off", row.off_ms, None)]
    if row.on_ms is not None and row.gain is not None:
        # Also for a run that was recorded before a difference was claimed from 2 % on.
        verdict = row.verdict if abs(row.gain - 1) >= LEAST_EFFECT else None
        bars.append((f"search on: {times_faster(row.gain)}", row.on_ms, verdict))
    return bars


@experiment("cudnn-benchmark", lecture="L4", notebook="11_tuning", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def cudnn_benchmark(params: Params) -> Result:
    """cuDNN's search for the fastest convolution: what it gains, and what it costs when shapes change."""
    found = search_gain(params) if params.device.is_cuda else None
    rows = found.rows if found else plain_times(params)
    lecture = rows[0]

    result = Result([Table("3×3 convolutions", rows)])
    if found:  # a CPU's time, for another batch, would stand next to the lecture's as if the two could be compared
        result.key_figure(f"forward, {LECTURE}, search off", lecture.off_ms * 1e3, unit="µs", lecture=1430)
        result.key_figure(f"forward, {LECTURE}, search on", lecture.on_ms * 1e3, unit="µs", lecture=840)
        result.key_figure(f"forward, {LECTURE}, speed-up", lecture.gain, lecture=1.7)
        best = f"{found.gains[found.best]}, {', '.join(found.best)}"
        result.key_figure("the most that the search gains", best, lecture=1.7)
    differences = [ways_differ(params.device), *([found.difference("float32")] if found else [])]
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
    result.tables.append(Table("First call with a new shape", found.first_calls))
    for row in found.first_calls:
        result.key_figure(f"first call with a new shape, search {row.search}", row.first_ms, unit="ms")
    claim_what_it_gains(result, found)
    return result


def claim_what_it_gains(result: Result, found: SearchGain) -> None:
    """Add the claims about a GPU's search, and a note that says in figures of this run what it gained and what it cost."""
    off, on = (row.first_ms for row in found.first_calls)
    gain, lecture, half = found.gains[found.best], found.gains[LECTURE, FORWARD], found.difference("float16")
    result.measured("The search makes the lecture's convolution faster", lecture.faster, str(lecture))
    result.measured("The search makes at least one of the convolutions faster", gain.faster, f"{', '.join(found.best)}: {gain}")
    result.measured("The search changes no output in float16 by more than 1e-2 of the largest", half <= 1e-2, f"{half:.1e}")
    result.measured(
        "With the search on, the first call with a new shape takes at least 1.5 times as long",
        on > 1.5 * off,
        f"{on:.2f} ms compared with {off:.2f} ms",
    )
    faster, slower = (sum(getattr(gain, which) for gain in found.gains.values()) for which in ("faster", "slower"))
    note = (
        f"The search makes {faster} of {len(found.gains)} passes faster and {slower} slower. It adds {on - off:.3g} ms to the"
    )
    note += " first call with a shape"
    if gain.faster:
        best_ms = next(row.off_ms for row in found.rows if (row.case, row.work) == found.best)
        note += f", which the pass that gains most has saved after {(on - off) / (best_ms * (1 - 1 / gain.ratio)):,.0f} calls"
    result.notes.append(f"{note}.")
