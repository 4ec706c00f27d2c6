"""Honest timing: warm-up, synchronization, several samples, median and spread; comparisons take turns.

Work that only computes, on one thread, is timed by the processor's clock, which stands still while other programs have the core
(`core/timing/laps.py`); all other work by the wall's.
The parts are the standard library's `timeit`, with garbage collection off, and torch's clock, which waits for the device. Not
`torch.utils.benchmark.Timer`: it warms up at least twice before each sample, so that long work takes three times as long.
"""

import functools
import logging
import time
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import torch

from hpml_lab.core.show.numbers import number
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.laps import Lap, held_up, lap, seconds_by_one_clock
from hpml_lab.core.timing.threads import all_threads

# The benchmark module imports torch's extension builder, which warns on every machine that has nvcc but no GPU.
logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
from torch.utils.benchmark import select_unit, set_torch_threads, timer  # noqa: E402

SAMPLES = 11  # the interval that holds the median nine times in ten then leaves out the two largest and the two smallest
SAMPLE_SECONDS = 0.01  # a sample repeats the call until it takes this long, so that the clock's own cost does not count


@dataclass(frozen=True)
class Timing:
    """Seconds per call: several samples of one piece of work, and the bytes and FLOPs that one call accounts for.

    `print(timing)` shows median, smallest and largest sample.

    stretch  how many times as long it took on the wall clock, where the samples are the processor's; else 1
    """

    samples: tuple[float, ...]
    threads: int
    bytes: float = 0.0
    flops: float = 0.0
    stretch: float = 1.0

    @property
    def seconds(self) -> float:
        """Median seconds per call."""
        return median(self.samples)

    @property
    def spread(self) -> float:
        """Interquartile range in seconds. Raises LabError for a single sample."""
        if len(self.samples) < 2:
            raise LabError("One sample has no spread.", f"Measure with samples=2 or more; the default is {SAMPLES}.")
        low, _, high = quantiles(self.samples, n=4)
        return high - low

    @property
    def gb_per_s(self) -> float:
        return self.bytes / self.seconds / 1e9

    @property
    def gflop_per_s(self) -> float:
        return self.flops / self.seconds / 1e9

    @property
    def intensity(self) -> float:
        """Arithmetic intensity in FLOP per byte."""
        return self.flops / self.bytes

    def __repr__(self) -> str:
        unit, scale = select_unit(self.seconds)
        unit = unit.replace("us", "µs")
        middle, low, high = (f"{number(s / scale, 3)} {unit}" for s in (self.seconds, min(self.samples), max(self.samples)))
        count = "1 sample" if len(self.samples) == 1 else f"{len(self.samples)} samples"
        rates = [f"{number(self.gb_per_s, 3)} GB/s"] * bool(self.bytes) + [f"{number(self.gflop_per_s, 3)} GFLOP/s"] * bool(
            self.flops
        )
        others = [found] if (found := held_up(self.stretch)) else []
        return ", ".join([f"{middle} a call ({count}, {low} to {high})", *rates, *others])


class _Sampler:
    """Takes one sample at a time of one function, after a first call and a search for how many calls make a sample."""

    def __init__(self, name: str, work: Callable[[], object], threads: int, gpu: torch.device | None = None) -> None:
        if not callable(work):
            raise LabError(f"{name}: {work!r} is not a function.", "Give one without arguments, such as lambda: net(x).")
        self._work, self._timer, self._threads, self._gpu = work, timeit.Timer(work, timer=timer), threads, gpu
        self._sleeps, self._usual = False, 0.0
        self._run(1)  # allocations, lazy imports and kernel selection happen in the first call
        self._sleeps = threads > 1 or (gpu is None and torch.cuda.is_initialized())
        calls, took = 1, self._run(1).seconds
        self._usual = took
        # Twice each, because one may have been held up: too few calls would make every sample a cold one.
        while took < 5 * SAMPLE_SECONDS and (took := min(took, self._run(calls).seconds)) < SAMPLE_SECONDS / 4:
            self._usual = took / calls
            calls *= 2
            took = self._run(calls).seconds
        self._calls = max(1, round(calls * SAMPLE_SECONDS / took))
        self._sleeps = self._sleeps and took < 50 * SAMPLE_SECONDS

    def __call__(self) -> Lap:
        return self._run(self._calls) / self._calls

    def _run(self, calls: int) -> Lap:
        """Seconds of `calls` calls in a row."""
        with set_torch_threads(self._threads):
            if self._sleeps:
                self._wake()
            if self._gpu is not None:
                return Lap(event_seconds(functools.partial(self._repeat, calls), self._gpu))
            in_a_row = functools.partial(self._timer.timeit, calls)
            return lap(in_a_row) if self._threads == 1 else Lap(in_a_row())

    def _wake(self) -> None:
        """Wake the threads that set_torch_threads has just asked for, or a GPU that was idle: it is in the first calls that
        they start to work (copying 1 MB on two busy cores: the first call 36 ms, the second 7 ms, the twentieth 39 µs)."""
        end = timer() + 5 * SAMPLE_SECONDS
        for _ in range(20):
            start = timer()
            self._work()
            if timer() - start < 2 * self._usual or timer() > end:
                break

    def _repeat(self, calls: int) -> None:
        """Drop each result before the next call, as timeit does: a list of them could fill the GPU's memory."""
        for _ in range(calls):
            self._work()


def measure(
    work: Callable[[], object], *, samples: int = SAMPLES, threads: int = 1, bytes: float = 0.0, flops: float = 0.0
) -> Timing:
    """Time `work()`: median and spread over `samples`; `bytes` and `flops` are what one call moves and computes.

    One thread is the default because two threads on a busy machine measure the neighbors, not the work. Raises LabError for a
    `work` that is not a function, and for less than one sample.
    """
    _check(samples)
    sample = _Sampler("work", work, threads)
    seconds, stretch = seconds_by_one_clock({"work": [sample() for _ in range(samples)]})
    return Timing(seconds["work"], threads, bytes, flops, stretch)


def _check(samples: int) -> None:
    if not isinstance(samples, int) or samples < 1:
        raise LabError(f"samples={samples!r} is not a whole number from 1 on.", f"Leave it out: the default is {SAMPLES}.")


def best_threads(work: Callable[[], object], **options: Any) -> Timing:
    """Time `work()` on one CPU thread and on all, and return the faster: what the processor takes for it.

    options  of `measure`
    """
    return min((measure(work, threads=n, **options) for n in {1, all_threads()}), key=lambda timing: timing.seconds)


STUCK = (
    "Some times stay the same while the work grows a hundredfold: do not read this run's times. "
    "Run it again on a machine without other work."
)


def stuck(work: Sequence[float], seconds: Sequence[float], floor: float = 0.0) -> list[tuple[float, float]]:
    """Pairs (less, more) of `work` that took equally long although `more` is at least a hundred times `less`.

    A clock that measures something else, such as a sleeping thread, gives equal times whatever the work is; so may a machine
    with much other work. An experiment whose sizes span a factor of 100 adds the note STUCK if there are any.

    work     FLOPs or bytes of each measurement
    seconds  what it took; 10 % more counts as equal
    floor    seconds that a call costs however little it does; times up to ten of these may be equal
    """
    both = list(zip(work, seconds, strict=True))
    return [(less, more) for less, a in both for more, b in both if more >= 100 * less and 10 * floor < b < 1.1 * a]


@functools.cache
def launch_seconds(device: torch.device) -> float:
    """Seconds that Python and the driver take to launch one small kernel, without waiting for it; on a CPU, for one operator.

    The least of several series. Work that is a row of kernels shorter than this is bound by their launches, not by the GPU.
    """
    x, series = torch.zeros(1, device=device), []
    for _ in range(20):
        timer()  # waits for the device, so that its queue is empty
        start = time.perf_counter()
        for _ in range(100):  # fewer than the queue holds
            x.add_(1)
        series.append(time.perf_counter() - start)
    return min(series) / 100


PLACEBO = "placebo"


def interleaved(
    works: dict[str, Callable[[], object]],
    *,
    samples: int = SAMPLES,
    threads: int = 1,
    placebo: str | None = None,
    gpu: torch.device | str | None = None,
) -> dict[str, Timing]:
    """Time each of `works` in turns in one run, A B C A B C …, so that a drift of the machine's speed falls on all.

    placebo  the name of the work that takes part twice, the second time as `PLACEBO`: what it seems to gain or lose against
             itself is noise (see `core.noise.speed_up`)
    gpu      a CUDA device: time between two events in its stream instead of waiting for it before and after, so that
             Python's launch time counts only where the GPU waits for it
    """
    _check(samples)
    if placebo is not None:
        works = {**works, PLACEBO: works[placebo]}
    samplers = {name: _Sampler(name, work, threads, gpu) for name, work in works.items()}
    rounds = [{name: sample() for name, sample in samplers.items()} for _ in range(samples)]
    seconds, stretch = seconds_by_one_clock({name: [turn[name] for turn in rounds] for name in works})
    return {name: Timing(seconds[name], threads, stretch=stretch) for name in works}


def captured(work: Callable[[], object], device: torch.device) -> Callable[[], None]:
    """Capture `work()` in a CUDA graph; calling the result launches all its kernels at once, without Python between them.

    Valid as long as the tensors that `work` reads live where they are; torch.cuda.graph says what may not be captured.
    """
    with torch.cuda.device(device):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # lazy initialization and kernel selection must not fall into the capture
            for _ in range(3):
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
    return graph.replay


def event_seconds(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that a CUDA GPU spends on one `work()`, between two events in its stream: Python's launch time counts only
    where the GPU waits for it."""
    with torch.cuda.device(device):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
    return begin.elapsed_time(end) / 1e3


@dataclass(frozen=True)
class Ceiling:
    """The most that was measured on a device: GB/s of a large copy, GFLOP/s of a large matrix product."""

    gb_per_s: float
    gflop_per_s: float
    threads: int

    @property
    def ridge(self) -> float:
        """Intensity in FLOP/byte at which a kernel stops being bound by memory."""
        return self.gflop_per_s / self.gb_per_s

    def attainable(self, intensity: float) -> float:
        """The roofline: min(peak, intensity × bandwidth) in GFLOP/s."""
        return min(self.gflop_per_s, intensity * self.gb_per_s)

    def fraction(self, timing: Timing) -> float:
        """How much of what the roofline allows a kernel reaches.

        Above 1 is possible: the limit is a measured copy, and a kernel that reads more than it writes can move more bytes a
        second, because a CPU often reads a line of memory before it writes to it; and what fits in a cache is faster still.
        """
        if timing.flops == 0:
            return timing.gb_per_s / self.gb_per_s
        return timing.gflop_per_s / self.attainable(timing.intensity)


def ceiling(device: torch.device | str, dtype: torch.dtype = torch.float32, threads: int = 1, tf32: bool = False) -> Ceiling:
    """Measure the device's ceiling once per process: a copy far larger than the caches, and a large matrix product.

    tf32  multiply float32 by a GPU's TF32 units; without it in float32 itself, whatever torch's setting says
    """
    return _ceiling(torch.device(device), dtype, threads, tf32)


@functools.cache
def _ceiling(device: torch.device, dtype: torch.dtype, threads: int, tf32: bool) -> Ceiling:
    n = 8192 if device.type == "cuda" else 256
    multiply = _product(n, device, dtype)
    while device.type == "cpu" and n < 2048 and _seconds(multiply) < 0.05:  # some CPUs take minutes for 2048 in float8
        n *= 2
        multiply = _product(n, device, dtype)
    matmul = torch.backends.cuda.matmul
    before, matmul.fp32_precision = matmul.fp32_precision, "tf32" if tf32 else "ieee"
    try:
        product = measure(multiply, threads=threads, flops=2.0 * n**3)
    finally:
        matmul.fp32_precision = before
    return Ceiling(copy_bandwidth(device, threads).gb_per_s, product.gflop_per_s, threads)


def _product(n: int, device: torch.device, dtype: torch.dtype) -> Callable[[], Any]:
    """A product of two n × n matrices of this type, ready to be timed."""
    if dtype.is_floating_point and dtype.itemsize == 1:  # no randn and no mm; and e5m2 has no product with itself
        a, b = torch.randn(2, n, n, device=device).to(torch.float8_e4m3fn)
        one = torch.ones((), device=device)
        return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    a, b = torch.randn(2, n, n, device=device, dtype=dtype)
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def _seconds(work: Callable[[], Any]) -> float:
    """One call on the wall clock."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@functools.cache
def copy_bandwidth(device: torch.device, threads: int = 1) -> Timing:
    """Time a copy far larger than the caches, once per process: 1 GiB on a GPU, 256 MiB on a CPU.

    `gb_per_s` counts bytes read and bytes written.
    """
    source = torch.ones((1 << 28) if device.type == "cuda" else (1 << 26), device=device)
    target = torch.empty_like(source)
    return measure(lambda: target.copy_(source), threads=threads, bytes=2.0 * source.nbytes)
