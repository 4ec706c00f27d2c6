"""Preprocess, two models, postprocess: one stream, overlapped, batched; and a queue on a virtual clock next to it."""

import textwrap

import numpy as np
from matplotlib.ticker import LogLocator

from hpml_lab.core.show.numbers import number
from hpml_lab.capstone import synthetic
from hpml_lab.serving.experiments.inference_pipeline.pipelines import (
    AT_ONCE,
    BATCHED,
    BITWISE,
    BOTH,
    GRAPH,
    ONE_STREAM,
    OVERLAPPED,
    BatchService,
    LatencyAtLoad,
    PipelineThroughput,
    SliceWorkload,
    measure,
    modes,
)
from hpml_lab.serving.experiments.inference_pipeline.queue_theory import (
    HELD_TO,
    BatchedQueue,
    SimulatedQueue,
    batched_queues,
    queue_curves,
    queues_by_load,
    virtual_curve,
)
from hpml_lab.serving.experiments.slice_stages import slice_models
from hpml_lab.serving.lessons.virtual_queue import ServiceModel
from hpml_lab.core.experiment import Params, Result, Table, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.core.timing.timeline import gantt
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.system.device import NO_CUDA

ROWS = (PipelineThroughput, LatencyAtLoad, BatchService, SimulatedQueue, BatchedQueue)  # what a saved result holds
MAIN = 0.7  # the load at which all modes are compared
OVERLOAD = 1.5
PREDICTED = (ONE_STREAM, BATCHED)  # the modes that the virtual clock follows, and that get traffic at every load
QUICK = dict(
    slices=16,
    samples=SAMPLES,
    limit=8,
    traffic=((0.3, 30), (MAIN, 60), (OVERLOAD, 90)),  # load and requests
    every_mode=False,
    queue_loads=(0.1, 0.3, 0.5, 0.7, 0.9),
    queue_requests=100_000,
    seeds=5,
    batched_requests=5_000,
)
FULL = QUICK | dict(
    slices=48,
    limit=16,
    traffic=((0.3, 400), (0.5, 400), (MAIN, 400), (0.9, 400), (OVERLOAD, 600), (3.0, 600)),
    every_mode=True,
    queue_requests=200_000,
    batched_requests=20_000,
)
TOLERANCE = 1e-4  # of batched outputs, relative to the largest: other sums of products, in another order
COLORS = dict(
    zip(
        (ONE_STREAM, AT_ONCE, OVERLAPPED, BATCHED, BOTH, GRAPH),
        (style.GREY, style.SKY, style.BLUE, style.ORANGE, style.RED, style.PURPLE),
        strict=True,
    )
)
LANES = {
    "preprocess": style.GREY,
    "detector": style.BLUE,
    "segmenter": style.ORANGE,
    "models": style.PURPLE,
    "postprocess": style.GREEN,
}
LANES = {"all": style.SKY} | LANES


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: throughput when all requests wait from the start. Middle: at the same load, 0.7 of what one stream can serve, the
    share of requests that were answered within so many milliseconds from the moment they were due. Right: p95 by load,
    measured (markers) and on the virtual clock with the same services (lines); the dotted lines are the capacities."""
    figure = style.new_figure(11.0, 4.3)
    bars, shares, loads = figure.subplots(1, 3, width_ratios=(1, 1.1, 1.2))
    rows = result.rows(PipelineThroughput)[::-1]
    bars.barh([row.mode for row in rows], [row.rate for row in rows], color=[COLORS[row.mode] for row in rows])
    bars.grid(axis="y", visible=False)
    bars.set_axisbelow(True)
    bars.set_yticks(range(len(rows)), [textwrap.fill(row.mode, 15) for row in rows])
    bars.set(xlabel="throughput (requests/s)", title="All wait from the start")
    traffic = result.rows(LatencyAtLoad)
    for row, line in zip((row for row in traffic if row.load == MAIN), [*style.LINES] * 2, strict=False):
        count = len(row.latencies)
        label = row.mode
        shares.step(
            row.latencies,
            np.arange(1, count + 1) / count * 100,
            where="post",
            color=COLORS[row.mode],
            linestyle=line,
            label=label,
        )
    shares.set(
        xscale="log", xlabel="latency (ms)", ylabel="requests answered (%)", ylim=(0, 101), title=f"Latency at a load of {MAIN}"
    )
    style.label_log_axis(shares.xaxis, "{x:g}")
    shares.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    shares.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
    for mode, marker in zip(PREDICTED, "os", strict=True):
        curve = result.arrays["virtual"][mode]
        loads.plot(curve["load"], curve["p95"], color=COLORS[mode], label=f"{mode}, virtual clock")
        loads.axvline(result.arrays["capacity"][mode], color=COLORS[mode], linestyle=":", linewidth=1.2)
        found = [row for row in traffic if row.mode == mode]
        loads.plot(
            [row.load for row in found],
            [row.p95 for row in found],
            marker,
            color=COLORS[mode],
            markeredgecolor=style.INK,
            label=f"{mode}, measured",
        )
    loads.set(
        yscale="log",
        xlim=(0, None),
        xlabel="load (1: what one stream serves)",
        ylabel="p95 of the latency (ms)",
        title="Measured and simulated",
    )
    style.label_log_axis(loads.yaxis, "{x:g}")
    loads.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
    return figure


@picture
def modes_in_time(result: Result):
    """Six slices that wait from the start, in each mode on one time axis: which stage works when. In one stream nothing runs
    side by side; then the models do; then the stages do; batches take several slices together. Look for idle lanes."""
    spans = result.arrays["spans"]
    figure = style.new_figure(9.5, 1.1 + 1.15 * len(spans))
    panels = figure.subplots(len(spans), 1, sharex=True, squeeze=False)[:, 0]
    longest = max(row["end"] for rows in spans.values() for row in rows)
    for axes, (mode, rows) in zip(panels, spans.items(), strict=True):
        lanes = [lane for lane in LANES if any(row["lane"] == lane for row in rows)]
        gantt(axes, rows, {lane: LANES[lane] for lane in lanes}, lanes)
        axes.set_title(mode, loc="left", fontsize=10)
        axes.tick_params(labelsize=8)
        if axes is not panels[-1]:
            axes.set_xlabel("")
    scale, unit = style.time_unit(longest)
    panels[-1].set(xlim=(0, longest * scale), xlabel=f"time in {unit}")
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


def judge(result: Result, gains: dict[str, SpeedUp], farthest: float, service_models: dict[str, ServiceModel]) -> None:
    """Add what the modes share, what two of them gain, and what theory and the virtual clock predict."""
    rows, traffic = result.rows(PipelineThroughput), result.rows(LatencyAtLoad)
    result.claim(
        "Without batches every mode gives bitwise the outputs of one stream; batches change them by less than "
        f"{TOLERANCE:g} of the largest",
        all(row.outputs == BITWISE for row in rows if row.limit == 1) and farthest < TOLERANCE,
        f"{farthest:.1e} with batches",
    )
    result.check("Every request was answered", not any(row.failed for row in traffic))
    held = [row for row in result.rows(SimulatedQueue) if row.load <= HELD_TO]
    result.claim(
        f"M/D/1: the mean time in the system is S·(1 + ρ / (2·(1 − ρ))), within 1 % up to ρ = {HELD_TO}",
        bool(held) and all(abs(row.difference) < 1 for row in held),
        "; ".join(f"ρ = {row.load}: {row.simulated:.4f} for {row.formula:.4f}" for row in held),
    )
    for mode, text in (
        (OVERLAPPED, "Stages that overlap serve more than one stream"),
        (BATCHED, "Batches serve more than one stream"),
    ):
        if mode in gains:
            result.measured(text, gains[mode].faster, str(gains[mode]))
    at = {(row.mode, row.load): row for row in traffic}
    slow, fast = at[ONE_STREAM, OVERLOAD], at[BATCHED, OVERLOAD]
    result.measured(
        f"At {OVERLOAD} times what one stream serves, there is no steady state, and batches answer in less than half the time",
        fast.p95 < slow.p95 / 2 and service_models[BATCHED].capacity > fast.rate,
        f"p95 {number(slow.p95, 3)} ms and {number(fast.p95, 3)} ms",
    )
    apart = [max(row.p50 / row.virtual_p50, row.virtual_p50 / row.p50) for row in traffic if row.steady == "yes"]
    result.measured(
        "The virtual clock predicts each measured median within a factor of 2 where there is a steady state",
        max(apart) < 2,
        f"factors {min(apart):.3g} to {max(apart):.3g}",
        depends_on="other work on the machine",
    )
    for row in rows:
        result.key_figure(row.mode, row.rate, "requests/s")
    result.key_figure(f"p95 at a load of {MAIN}, one stream", at[ONE_STREAM, MAIN].p95, "ms")
    result.key_figure(f"p95 at a load of {MAIN}, batched", at[BATCHED, MAIN].p95, "ms")
    result.key_figure(f"p95 at a load of {MAIN}, overlapped and batched", at[BOTH, MAIN].p95, "ms")


@experiment("inference-pipeline", lecture="L1", notebook="20_serving", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def inference_pipeline(params: Params) -> Result:
    """Two models between pre- and postprocessing: one stream, overlapped, batched; latency from the moment due."""
    scan, device = synthetic(0), params.device.torch
    middle = len(scan.stored) // 2 - params.slices // 2
    slices = scan.stored[middle : middle + params.slices]
    served = modes(params.device, params.limit)
    plan = [
        (load, requests, [mode.name for mode in served if params.every_mode or load == MAIN or mode.name in PREDICTED])
        for load, requests in params.traffic
    ]
    workload = SliceWorkload(slices, slice_models(device), device, scan.slope, scan.intercept)
    found = measure(workload, served, params.samples, plan)
    known, capacity = found.service_models, found.service_models[ONE_STREAM].capacity
    result = Result(
        [
            Table(f"Throughput: {len(slices)} slices that wait from the start", found.rates),
            Table("Latency under Poisson traffic, from the moment due", found.traffic),
            Table("Service of a batch, all stages in one thread", found.services),
            Table(
                f"Virtual clock: M/D/1, {params.seeds} traces of {params.queue_requests:,} requests",
                queues_by_load(params.queue_loads, params.queue_requests, params.seeds),
            ),
            Table("Virtual clock: batches of n in 8 + n ms", batched_queues(params.batched_requests)),
        ],
        arrays={
            "spans": found.spans,
            "virtual": {name: virtual_curve(model, capacity, params.batched_requests) for name, model in known.items()},
            "capacity": {name: model.capacity / capacity for name, model in known.items()},
            "queue curves": queue_curves(params.batched_requests),
            "service": [known[BATCHED].base, known[BATCHED].per_request],
        },
    )
    judge(result, found.gains, found.farthest, known)
    if not params.device.is_cuda:
        what = "streams and graphs are a GPU's; on this CPU the models run in threads"
        result.notes.append(NO_CUDA.format(what=what, slug="inference-pipeline"))
    return result
