"""Monitors: what the machine does while a run goes, at an instant and on average."""

import contextlib
import hashlib
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean, pstdev

import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.counting import synchronize
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.show import style
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.profiling.experiments.monitors import gpu_use
from hpml_lab.profiling.experiments.monitors.gpu_use import KNOWN, QUERIED, GpuHistory, GpuUse
from hpml_lab.profilers.monitor import Monitor, MonitorSample

QUICK = dict(seconds=1.6, duty=0.5, cycle=0.2, rate=50.0, together=20)
FULL = dict(seconds=12.0, duty=0.5, cycle=0.5, rate=50.0, together=50)
TICKS_SECONDS = 0.05  # some ticks of the coarsest clock by which a system counts processor time
SAMPLER = "of which the sampler's own"
PRODUCTS = 16  # matrix products in a row, so that the GPU computes for nearly all of a burst and waits for no launch
BLOCK = bytes(1 << 18)  # hashing it takes a few tenths of a millisecond without the interpreter's lock
SHORT, LONG = "short windows", "long windows"


@dataclass
class WindowUse(Row):
    """Processor use of one load, averaged over windows of one length."""

    averaged_over: str = column("averaged over")
    seconds: float = column("window", "s")
    windows: int = column("windows")
    least: float = column("least", "% of a core")
    most: float = column("most", "% of a core")
    near_0_or_100: float = column("share of windows near 0 or 100", "%")


# ---- a load whose use is known: it computes for a part of each cycle, on one core and, where there is one, on the GPU ----


class KnownLoad:
    """Computes for `duty` of each `cycle` seconds. A burst is over when it has had its processor time: where other programs
    want the core too, it takes longer.

    spans  (begin, end) of each burst of the last run, by `core.system.shared_clock.CLOCK`
    """

    def __init__(self, duty: float, cycle: float, device: torch.device) -> None:
        self.duty, self.cycle, self.spans = duty, cycle, []
        self._multiply = _products(device)
        self._multiply()  # the first product loads the library, which takes longer than a burst

    def run(self, seconds: float, after_each: Callable[[], object] = lambda: None) -> None:
        """Bursts for `seconds`; `after_each()` is called after each of them."""
        start, self.spans = CLOCK(), []
        for number in itertools.count():
            begin = start + number * self.cycle
            if begin >= start + seconds:
                return
            used, began = time.thread_time(), CLOCK()
            while time.thread_time() - used < self.duty * self.cycle:
                hashlib.sha256(BLOCK).digest()
                self._multiply()
            self.spans.append((began, CLOCK()))
            after_each()
            time.sleep(max(0.0, begin + self.cycle - CLOCK()))


def _products(device: torch.device) -> Callable[[], None]:
    if device.type != "cuda":
        return lambda: None
    matrix = torch.ones(2048, 2048, device=device)
    out = torch.empty_like(matrix)

    def multiply() -> None:
        for _ in range(PRODUCTS):
            torch.mm(matrix, matrix, out=out)
        synchronize(device)  # waits at work, so that the processor's time goes on

    return multiply


# ---- measuring -------------------------------------------------------------------------------------------------------


def averaged(samples: list[MonitorSample], together: int) -> list[tuple[float, float]]:
    """(time in s, % of one core that this process used), over whole windows of `together` samples each."""
    windows = [samples[start : start + together] for start in range(0, max(1, len(samples) - together + 1), together)]
    return [
        (window[-1].at, 100 * sum(sample.process_cpu for sample in window) / sum(sample.seconds for sample in window))
        for window in windows
    ]


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Processor use of one load that is busy for half of each cycle, as its own process's counters give it: over short windows,
    shorter than a burst, and over long windows, each of several cycles. A dashed line marks the known duty cycle. Short windows
    jump between idle and busy; long windows stay level, above the known share by the sampler's own time. Where a GPU computes,
    a second panel sets its known bursts against what NVML says of it.
    """
    gpu = result.rows(GpuUse)
    figure = style.new_figure(8, 5.6 if gpu else 3.6)
    axes, *below = figure.subplots(2 if gpu else 1, 1, squeeze=False)[:, 0]
    for name, color, marker, width in ((SHORT, style.SKY, ".", 1), (LONG, style.BLUE, "s", 3)):
        points = result.arrays[name]
        points = [(0.0, points[0][1]), *points]  # a value holds from the point before on
        at, use = zip(*points, strict=True)
        axes.step(at, use, where="pre", color=color, linewidth=width, marker=marker, label=name)
    axes.axhline(result.arrays["duty"], linestyle="--", color=style.ORANGE, label="known duty cycle")
    axes.set(xlabel="time in s", ylabel="use of one core in %", ylim=(-4, 150))
    axes.legend(ncols=3, loc="upper right", fontsize=9)
    for panel in below:
        draw_gpu(panel, {use.source: use.points for use in gpu})
    return figure


def draw_gpu(axes, points: dict[str, list[tuple[float, float]]]) -> None:
    """The known bursts filled, NVML's own samples and the SM activity as points, and what its query returns as a line."""
    axes.fill_between(*zip(*points[KNOWN], strict=True), color=style.SKY, alpha=0.4, label=KNOWN)
    for source, marker, color in ((gpu_use.SAMPLED, ".", style.GREEN), (gpu_use.ACTIVE, "x", style.PURPLE)):
        if source in points:
            axes.plot(*zip(*points[source], strict=True), marker, color=color, label=source)
    axes.step(*zip(*points[QUERIED], strict=True), where="pre", color=style.RED, label=QUERIED)
    axes.set(xlabel="time in s", ylabel="use of the GPU in %", ylim=(-4, 135))
    axes.legend(ncols=3, loc="upper right", fontsize=9)


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment(
    "monitors", lecture="L1 L3", notebook="10_profiling", draw=draw, quick=QUICK, full=FULL, uses=("cuda",)
)  # fmt: skip
def monitors(params: Params) -> Result:
    """Monitors: what the machine does while a run goes, at an instant and on average."""
    device = params.device.torch
    load = KnownLoad(params.duty, params.cycle, device)
    with contextlib.closing(GpuHistory(device)) as history:
        with Monitor(params.rate) as fast:
            before = time.process_time()
            load.run(params.seconds, history.collect)
            own = time.process_time() - before
        history.collect()
        gpu = history.uses(fast.samples, load.spans, fast.seconds)
        narrow = gpu_use.one_multiprocessor(history, device) if gpu and params.device.is_cuda else (None, None)
        # The duty cycle, on a quiet machine; on a busy one a burst waits for the core, and the run takes longer.
        known = 100 * len(load.spans) * params.duty * params.cycle / fast.seconds

    samples, rows, spread, duty = fast.samples, [], [], 100 * params.duty
    for name, together in (("each sample", 1), ("some cycles", params.together), ("whole run", len(samples))):
        values = [value for _, value in averaged(samples, together)]
        spread.append(pstdev(values))
        extreme = sum(value < 0.2 * duty or value > 100 - 0.2 * duty for value in values)
        window = mean(sample.seconds for sample in samples) * min(together, len(samples))
        rows.append(WindowUse(name, window, len(values), min(values), max(values), 100 * extreme / len(values)))
    whole = rows[-1].most

    result = Result([Table("Use of one core by the load", rows)])
    result.arrays |= {SHORT: averaged(samples, 1), LONG: averaged(samples, params.together), "duty": duty}
    result.key_figure("known duty cycle", duty, unit="%")
    result.key_figure("average over the run", whole, unit="% of a core")
    result.key_figure(SAMPLER, 100 * fast.cost, unit="% of a core")
    result.key_figure("process's resident memory at the end", samples[-1].rss, unit="MiB")
    result.key_figure("cores", len(samples[0].cores))
    queried = next((use.average for use in gpu if use.source == QUERIED), None)
    result.key_figure("this GPU's utilization by NVML, mean", queried, unit="%")
    for name, percent in zip(("NVML's utilization", "SM activity"), narrow, strict=True):
        result.key_figure(f"a kernel of one thread: {name}", percent, unit="%")
    if None not in narrow:
        result.measured(
            "A kernel of a single thread is a busy GPU by NVML's utilization, and an idle one by SM activity",
            narrow[0] > 90 and narrow[1] < 10,
            f"{narrow[0]:.0f} % and {narrow[1]:.1f} %",
            depends_on="the GPU and its driver",
        )
    if gpu:
        result.tables.append(Table("Use of this process's GPU", gpu))
        result.measured(
            "NVML's utilization, averaged over the run, is the share of time in which the GPU computed, to 15 points",
            abs(queried - gpu[0].average) < 15,
            f"{queried:.0f} % and {gpu[0].average:.0f} %",
        )

    summed = sum(sample.process_cpu for sample in samples)
    result.measured(
        "The processor time of all samples adds up to what the process's own clock gives, to 0.05 s",
        abs(summed - own) <= TICKS_SECONDS,
        f"{summed:.3f} s and {own:.3f} s",
    )
    judge_use(result, whole, known, fast)
    result.measured(
        "Single samples vary at least three times as much as averages over some cycles (standard deviation)",
        spread[0] > 3 * spread[1],
        f"{spread[0]:.0f} and {spread[1]:.0f} points",
    )
    if device.type == "cuda" and not gpu:
        result.notes.append(f"{fast.note or 'NVML does not give the use of this GPU.'} Its panel is missing.")
    elif not gpu:
        result.notes.append(
            f"{fast.note} Its columns are empty. {NO_CUDA.format(what='its load is not seen', slug='monitors')}"
        )
    return result


def judge_use(result: Result, whole: float, known: float, monitor: Monitor) -> None:
    """Whether the average is right: `whole`, the process's use over the run in % of a core with its sampler's, and `known`,
    what the load is known to take."""
    own = 100 * monitor.cost
    result.measured(
        "Without the sampler's own time, the average over the run is what the load is known to take, to 10 points",
        abs(whole - own - known) < 10,
        f"{whole - own:.0f} % of one core, known {known:.0f} %",
    )
