"""gpu-prefetcher: the next batch is copied to the GPU during the current step (the idea of apex's data prefetcher)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.system.workers import sleep_until
from hpml_lab.core.timing.clock import SAMPLES, event_seconds, interleaved
from hpml_lab.core.timing.counting import profiled, trace_events
from hpml_lab.core.timing.noise import speed_up_of
from hpml_lab.core.timing.timeline import Span, gantt, overlap
from hpml_lab.core.timing.timeline import rows as timeline_rows
from hpml_lab.loading.lessons.prefetchers import DevicePrefetcher, ThreadPrefetcher

NOTEBOOK = "08_loading"
IN_TURN, AHEAD = "copy, then compute", "next copy during the step"
AGAIN = "copy, then compute, again"  # the placebo
COLORS = {"copy": style.SKY, "compute": style.ORANGE}
DRAWN = 8  # copies and steps
BUFFERS = 3  # of pinned memory
COLUMNS = 512  # of a batch as a matrix: one product of it takes a part of the time of its copy
QUICK = dict(batches=12, megabytes=32, seconds=0.01, rounds=SAMPLES)
FULL = dict(batches=24, megabytes=154, seconds=0.02, rounds=SAMPLES)  # 256 images of 3 × 224 × 224 float32


@dataclass
class CopySchedule(Row):
    """A loop over all batches with one schedule of its copies: the median over the rounds."""

    schedule: str = column("schedule")
    step: float = column("step", "ms")
    copy: float = column("copy", "ms")
    compute: float = column("compute", "ms")
    hidden: float = column("share of the copies that is hidden")
    gain: float = column("speed-up over in turn")
    interval: str = column("90 % interval")
    verdict: str = column("verdict")


@dataclass
class ScheduleRun:
    """What was observed of one schedule: the loop's seconds, round by round; the copies and steps of one loop; the batches in
    the order of arrival."""

    samples: list[float]
    spans: list[Span]
    order: list[int]

    def of(self, what: str) -> list[Span]:
        return sorted((span for span in self.spans if span.what == what), key=lambda span: span.start)


def draw_gpu_prefetcher(result: Result):
    """When batches are copied and when they are computed on, one lane each: above, every copy before its step; below,
    the next batch's copy under way during the current step.

    With a GPU the times are those of the profiler's trace; without one they are of an emulation, and the title says so.
    """
    figure = style.new_figure(8, 4.4)
    grid = figure.subplots(2, 1)
    drawn = min(sum(span["what"] == what for span in spans) for spans in result.arrays["timelines"].values() for what in COLORS)
    timelines = {
        name: [span for what in COLORS for span in [span for span in spans if span["what"] == what][:drawn]]
        for name, spans in result.arrays["timelines"].items()
    }  # of each lane as many: a record may hold one copy more than steps
    longest = max(span["end"] for timeline in timelines.values() for span in timeline)
    for axes, (name, timeline) in zip(grid, timelines.items(), strict=True):
        gantt(axes, timeline, COLORS, ("copy", "compute"))
        axes.set_xlim(0, longest * style.time_unit(max(span["end"] for span in timeline))[0])
        axes.set_title(f"{name} ({result.arrays['kind']})")
    grid[0].set_xlabel("")
    return figure


def emulated(batches: int, seconds: float, rounds: int) -> dict[str, ScheduleRun]:
    """The two schedules without a GPU: a thread stands for the copy engine, and copies and steps are waits."""

    def copy(number: int) -> tuple[int, Span]:
        start = CLOCK()
        sleep_until(start + seconds)
        return number, Span("copy", "copy", start, CLOCK())

    runs = {name: ScheduleRun([], [], []) for name in (IN_TURN, AHEAD, AGAIN)}
    for _ in range(rounds):
        for name, run in runs.items():
            arriving = ThreadPrefetcher(range(batches), copy) if name == AHEAD else map(copy, range(batches))
            run.spans, run.order, begin = [], [], CLOCK()
            for number, copied in arriving:
                start = CLOCK()
                sleep_until(start + seconds)
                run.spans += [copied, Span("compute", "compute", start, CLOCK())]
                run.order.append(number)
            run.samples.append(CLOCK() - begin)
    return runs


def spans_of_trace(events: list[dict[str, Any]], steps: int) -> list[Span]:
    """Copies to the GPU and steps on it from the events of a profiler's trace; a step is an equal share of the kernels."""
    copies = [event for event in events if event.get("cat") == "gpu_memcpy" and "HtoD" in event["name"]]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    if not kernels or len(kernels) % steps:
        raise LabError(
            f"the profiler's trace has {len(kernels)} kernels for {steps} equal steps.",
            "Close other tools that use the GPU's counters (nsys, ncu, a second profiler) and run it again.",
        )
    share = len(kernels) // steps
    spans = [Span("copy", "copy", event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6) for event in copies]
    for begin in range(0, len(kernels), share):
        first, last = kernels[begin], kernels[begin + share - 1]
        spans.append(Span("compute", "compute", first["ts"] / 1e6, (last["ts"] + last["dur"]) / 1e6))
    return spans


class NumberedBatches:
    """Pinned batches (height, COLUMNS) whose last element is their number, as many times as one asks for them.

    They share BUFFERS pieces of memory: one is copied ahead while up to two steps are in flight.
    """

    def __init__(self, batches: int, height: int) -> None:
        self.batches = batches
        self.buffers = [torch.ones(height, COLUMNS).pin_memory() for _ in range(min(batches, BUFFERS))]

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(self.batches):
            batch = self.buffers[number % len(self.buffers)]
            batch[-1, -1] = number
            yield batch


def on_gpu(batches: int, megabytes: int, device: torch.device, rounds: int) -> dict[str, ScheduleRun]:
    """The two schedules on a GPU: pinned batches, copied on the current stream or ahead on a side stream, then computed on.

    Seconds are those of the whole loop between two events in the current stream, which waits for every copy; the spans come
    from the profiler's trace of a further loop, whose times the profiler has made longer.
    """
    height = max(1, (megabytes << 18) // COLUMNS)
    host = NumberedBatches(batches, height)
    weight = torch.eye(COLUMNS, device=device)

    def step(batch: torch.Tensor, products: int) -> torch.Tensor:
        for _ in range(products):
            batch = batch @ weight
        return batch[-1, -1].clone()  # a view would keep the whole batch

    # A step that takes about as long as a copy shows the overlap best.
    source = host.buffers[0]
    first = source.to(device)
    alone = {"copy": lambda: first.copy_(source, non_blocking=True), "step": lambda: step(first, 10)}
    seconds = {name: timing.seconds for name, timing in interleaved(alone, samples=3, gpu=device).items()}
    products = max(1, round(10 * seconds["copy"] / seconds["step"]))

    def loop(arriving: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        marks, ends = [], []
        for batch in arriving:
            marks.append(step(batch, products))
            ends.append(torch.cuda.Event())
            ends[-1].record()
            if len(ends) > 1:
                ends[-2].synchronize()  # at most two steps in flight, or the loop would fill the GPU with batches
        ends[-1].synchronize()  # or the next loop would write into what the last step reads
        return marks

    ahead = DevicePrefetcher(host, device)  # the same for all rounds: the allocator keeps blocks by their stream
    loops = {IN_TURN: lambda: loop(batch.to(device, non_blocking=True) for batch in host), AHEAD: lambda: loop(ahead)}
    loops[AGAIN] = loops[IN_TURN]
    with torch.cuda.device(device):
        marks = {name: work() for name, work in loops.items()}  # the allocator's first blocks belong to no schedule
        turns = [{name: event_seconds(work, device) for name, work in loops.items()} for _ in range(rounds)]
        spans = {name: spans_of_trace(trace_events(profiled(loops[name], device)), batches) for name in (IN_TURN, AHEAD)}
    orders = {name: [round(float(mark)) for mark in found] for name, found in marks.items()}
    return {name: ScheduleRun([turn[name] for turn in turns], spans.get(name, []), orders[name]) for name in loops}


@experiment("gpu-prefetcher", lecture="L1", notebook=NOTEBOOK, draw=draw_gpu_prefetcher, quick=QUICK, full=FULL, uses=("cuda",))
def gpu_prefetcher(params: Params) -> Result:
    """The next batch copied to the GPU during the current step (the idea of apex's data prefetcher)."""
    notes, kind = [], "profiler's trace"
    if params.device.is_cuda:
        runs = on_gpu(params.batches, params.megabytes, params.device.torch, params.rounds)
    else:
        runs, kind = emulated(params.batches, params.seconds, params.rounds), "emulated: a thread and waits"
        notes.append(
            NO_CUDA.format(what="the two schedules are emulated, a thread stands for the copy engine", slug="gpu-prefetcher")
            + " The milliseconds are those of the waits, not of any GPU."
        )
    again = runs.pop(AGAIN).samples
    gains = {name: speed_up_of(runs[IN_TURN].samples, run.samples, again) for name, run in runs.items()}
    rows, late = [], []
    for name, run in runs.items():
        copies, steps = run.of("copy"), run.of("compute")
        # The trace rounds to nanoseconds or microseconds, depending on its version.
        late += [copy.end > step.start + 1e-5 for copy, step in zip(copies, steps, strict=True)]
        copying, computing = (sum(span.seconds for span in spans) for spans in (copies, steps))
        times = (median(run.samples) / params.batches, copying / len(copies), computing / len(steps))
        compared = (gains[name].ratio, gains[name].interval, gains[name].verdict)
        hidden = overlap(copies, steps) / copying
        rows.append(CopySchedule(f"{name} ({kind})", *(seconds * 1e3 for seconds in times), hidden, *compared))
    in_turn, ahead = rows
    orders = [run.order for run in runs.values()]
    timelines = {name: timeline_rows([*run.of("copy")[:DRAWN], *run.of("compute")[:DRAWN]]) for name, run in runs.items()}
    result = Result([Table("A loop with each schedule", rows)], notes=notes, arrays={"timelines": timelines, "kind": kind})
    for name, row in zip((IN_TURN, AHEAD), rows, strict=True):
        result.key_figure(f"a batch: {name}", row.step, "ms")
    result.key_figure("copying ahead", gains[AHEAD].ratio, "speed-up")
    result.key_figure("share of the copies that is hidden", ahead.hidden)
    result.claim(
        "Both schedules give the same batches in the same order", orders[0] == orders[1] == list(range(params.batches))
    )
    result.claim("No step begins before its batch's copy has ended", not any(late))
    result.measured(
        "Copies hide behind steps only where the next batch is copied ahead",
        in_turn.hidden < 0.01 < ahead.hidden,
        f"{in_turn.hidden:.0%} and {ahead.hidden:.0%}",
    )
    gain = gains[AHEAD]
    result.measured(f"Copying ahead makes the loop faster ({kind})", gain.faster, str(gain))
    result.measured("Copying ahead gains less than a factor of 2", gain.high < 2, str(gain))
    return result
