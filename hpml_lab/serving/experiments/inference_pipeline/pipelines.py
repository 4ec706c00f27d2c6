"""The slice's pipeline in several modes: what a mode is, the server that runs in it, and everything that is measured of it.

The experiment says what is served, in which modes and under which traffic; `measure` does all of it and returns rows.
"""

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.show.progress import progress
from hpml_lab.core.system.device import Device
from hpml_lab.core.timing.clock import Timing, interleaved
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.core.timing.timeline import Span, rows, span
from hpml_lab.serving.experiments.inference_pipeline.queue_theory import fit_service, virtual_latencies
from hpml_lab.serving.experiments.inference_pipeline.runners import (
    AtOnce,
    Graphed,
    InTurn,
    Models,
    Outputs,
    resolved,
    without_tf32,
)
from hpml_lab.serving.experiments.slice_stages import SliceAnswer, postprocess, preprocess
from hpml_lab.serving.lessons.stage_server import ServerStage, StageServer
from hpml_lab.serving.lessons.traffic import due_times, open_loop, summary
from hpml_lab.serving.lessons.virtual_queue import ServiceModel

ONE_STREAM, AT_ONCE, GRAPH = "one stream", "two models in parallel", "two models, one CUDA graph"
OVERLAPPED, BATCHED, BOTH = "overlapped", "batched", "overlapped and batched"
BITWISE = "bitwise equal"


@dataclass(frozen=True)
class PipelineThroughput(Row):
    """All requests at once, in one mode."""

    mode: str = column("mode")
    limit: int = column("batch limit")
    rate: float = column("throughput", "requests/s")
    batch: float = column("mean batch")
    outputs: str = column("outputs next to one stream's")
    gain: float | None = column("speed-up", default=None)
    interval: str | None = column("90 % interval", default=None)
    verdict: str | None = column("verdict", default=None)


@dataclass(frozen=True)
class LatencyAtLoad(Row):
    """One mode under Poisson traffic; load 1 is what one stream can serve. Latency counts from the moment due."""

    mode: str = column("mode")
    load: float = column("load")
    rate: float = column("rate", "requests/s")
    p50: float = column("p50", "ms")
    p95: float = column("p95", "ms")
    p99: float = column("p99", "ms")
    virtual_p50: float | None = column("p50 on the virtual clock", "ms")
    virtual_p95: float | None = column("p95 on the virtual clock", "ms")
    batch: float = column("mean batch")
    steady: str = column("steady state")
    failed: int = 0
    late: float = 0.0
    little: bool = True  # of recorded runs: it held in all of them
    latencies: tuple[float, ...] = ()  # ms, sorted


@dataclass(frozen=True)
class BatchService(Row):
    """All stages of a batch of n in one thread, measured, and the line a + b·n through the measurements."""

    batch: int = column("batch n")
    measured: float = column("measured", "ms")
    fitted: float = column("a + b·n", "ms")
    each: float = column("measured, per request", "ms")


@dataclass(frozen=True)
class SliceWorkload:
    """What every mode serves: slices as they are stored, HU = slope · stored + intercept, and both models on the device."""

    slices: np.ndarray
    models: Models
    device: torch.device
    slope: float = 1.0
    intercept: float = -1024.0


@dataclass(frozen=True)
class PipelineMeasurements:
    """What was measured of all modes.

    rates           bursts of all slices, a row for each mode
    gains           the speed-ups over one stream
    farthest        the largest distance of batched outputs
    services        batches of several sizes, all stages in one thread
    service_models  the same services as the virtual clock takes them, of the modes that it can follow
    traffic         a row for each load and mode
    spans           for each mode which stage worked when, as rows for a Gantt chart
    """

    rates: list[PipelineThroughput]
    gains: dict[str, SpeedUp]
    farthest: float
    services: list[BatchService]
    service_models: dict[str, ServiceModel]
    traffic: list[LatencyAtLoad]
    spans: dict[str, list[dict]]


# ---- what serves -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PipelineMode:
    """One way to run the pipeline: how both models run, whether stages overlap, and the most requests in a batch."""

    name: str
    runner: type[InTurn]
    staged: bool = False
    limit: int = 1


def modes(device: Device, limit: int) -> list[PipelineMode]:
    """The modes of this device; the first one is what the others are compared with."""
    graph = Graphed if device.is_cuda else AtOnce
    found = [PipelineMode(ONE_STREAM, InTurn), PipelineMode(AT_ONCE, AtOnce)]
    if device.is_cuda:
        found.append(PipelineMode(GRAPH, Graphed))
    return [
        *found,
        PipelineMode(OVERLAPPED, graph, staged=True),
        PipelineMode(BATCHED, InTurn, limit=limit),
        PipelineMode(BOTH, graph, staged=True, limit=limit),
    ]


class SlicePipeline:
    """A server for slices in one mode; its threads run until it is closed; also a context manager.

    spans  if a list is given, what each stage and model does when is appended, except inside a CUDA graph
    """

    def __init__(self, mode: PipelineMode, workload: SliceWorkload, spans: list[Span] | None = None) -> None:
        options = {} if mode.runner is Graphed else {"spans": spans}
        self.mode, self._slope, self._intercept, self._spans = mode, workload.slope, workload.intercept, spans
        self._runner = mode.runner(workload.models, workload.device, mode.limit, **options)
        if mode.staged:
            stages = [
                ServerStage("preprocess", self.preprocessed),
                ServerStage("models", self.outputs, mode.limit),
                ServerStage("postprocess", self.postprocessed),
            ]
        else:
            stages = [ServerStage("all", self.answers, mode.limit)]
        self._server = StageServer(stages, spans if mode.staged else None)
        self.submit = self._server.submit
        self.batches = self._server.batches[1 if mode.staged else 0]

    def preprocessed(self, slices: Sequence[np.ndarray]) -> list[Tensor]:
        return [preprocess(stored, self._slope, self._intercept) for stored in slices]

    def outputs(self, inputs: Sequence[Tensor]) -> list[Outputs]:
        return list(zip(*self._runner(torch.stack(list(inputs))), strict=True))

    def postprocessed(self, outputs: Sequence[Outputs]) -> list[SliceAnswer]:
        return [postprocess(heat, mask) for heat, mask in outputs]

    def answers(self, slices: Sequence[np.ndarray]) -> list[SliceAnswer]:
        """All stages in the calling thread."""
        with self._timed("preprocess"):
            inputs = self.preprocessed(slices)
        outputs = self.outputs(inputs)
        with self._timed("postprocess"):
            return self.postprocessed(outputs)

    def _timed(self, lane: str):
        return nullcontext() if self._spans is None else span(self._spans, lane, lane)

    def burst(self, slices: Sequence[np.ndarray]) -> list[SliceAnswer]:
        """All slices at once: their answers in order."""
        return [future.result() for future in [self.submit(stored) for stored in slices]]

    def close(self) -> None:
        self._server.close()
        self._runner.close()

    def __enter__(self) -> "SlicePipeline":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


# ---- what is measured ------------------------------------------------------------------------------------------------


def measure(
    workload: SliceWorkload, served: Sequence[PipelineMode], samples: int, plan: Sequence[tuple[float, int, Sequence[str]]]
) -> PipelineMeasurements:
    """All modes side by side: bursts in turns, services of batches, traffic as planned, and one burst as spans.

    plan  loads, each with its number of requests and the names of the modes that get them
    """
    with ExitStack() as running:
        running.enter_context(without_tf32())
        pipelines = {mode.name: running.enter_context(SlicePipeline(mode, workload)) for mode in served}
        rates, gains, farthest = throughputs(pipelines, workload.slices, samples)
        services = service_times(pipelines[BATCHED], workload.slices, samples)
        known = service_models_of(services, pipelines[BATCHED].mode.limit)
        capacity = known[ONE_STREAM].capacity
        traffic = [
            under_traffic(pipelines[name], workload.slices, load, capacity, requests, known.get(name))
            for load, requests, names in progress(plan, "traffic")
            for name in names
        ]
        spans = {mode.name: spans_of(mode, workload) for mode in served if mode.name != GRAPH}
    return PipelineMeasurements(rates, gains, farthest, services, known, traffic, spans)


def throughputs(
    pipelines: dict[str, SlicePipeline], slices: np.ndarray, samples: int
) -> tuple[list[PipelineThroughput], dict[str, SpeedUp], float]:
    """Bursts of all slices in turns: rows, speed-ups over one stream, and the largest distance of batched outputs."""
    answers = {name: pipeline.burst(slices) for name, pipeline in pipelines.items()}
    for pipeline in pipelines.values():
        pipeline.batches.clear()
    works = {name: (lambda pipeline=pipeline: pipeline.burst(slices)) for name, pipeline in pipelines.items()}
    times: dict[str, Timing] = interleaved(works, samples=samples, placebo=ONE_STREAM)
    gains = {name: speed_up(times, ONE_STREAM, name) for name in pipelines if name != ONE_STREAM}
    found, farthest = [], 0.0
    for name, pipeline in pipelines.items():
        pairs = list(zip(answers[ONE_STREAM], answers[name], strict=True))
        distance = max(a.distance(b) for a, b in pairs)
        equal = all(a.equals(b) for a, b in pairs)
        if pipeline.mode.limit > 1:
            farthest = max(farthest, distance)
        found.append(
            PipelineThroughput(
                name,
                pipeline.mode.limit,
                len(slices) / times[name].seconds,
                float(np.mean(pipeline.batches)),
                BITWISE if equal else f"{distance:.1e} apart",
                **(gains[name].columns if name in gains else {}),
            )
        )
    return found, gains, farthest


def service_times(pipeline: SlicePipeline, slices: np.ndarray, samples: int) -> list[BatchService]:
    """Time whole batches of 1, 2, 4, … up to the mode's limit, in turns."""
    sizes = [2**k for k in range(pipeline.mode.limit.bit_length()) if 2**k <= pipeline.mode.limit]
    times = interleaved({str(n): (lambda n=n: pipeline.answers(slices[:n])) for n in sizes}, samples=samples)
    seconds = [times[str(n)].seconds for n in sizes]
    a, b = fit_service(sizes, seconds)
    return [BatchService(n, 1e3 * s, 1e3 * (a + b * n), 1e3 * s / n) for n, s in zip(sizes, seconds, strict=True)]


def service_models_of(services: Sequence[BatchService], limit: int) -> dict[str, ServiceModel]:
    """What the virtual clock needs to know: one stream by its own measurement, batches by the line."""
    first, last = services[0], services[-1]
    b = (last.fitted - first.fitted) / max(last.batch - first.batch, 1)
    return {
        ONE_STREAM: ServiceModel(0.0, first.measured / 1e3, 1),
        BATCHED: ServiceModel((first.fitted - b) / 1e3, b / 1e3, limit),
    }


def under_traffic(
    pipeline: SlicePipeline, slices: np.ndarray, load: float, one_stream: float, requests: int, model: ServiceModel | None
) -> LatencyAtLoad:
    """Poisson traffic at `load` times what one stream serves, and the same arrivals on the virtual clock."""
    rate = load * one_stream
    due = due_times(rate, requests)
    pipeline.batches.clear()
    answered = open_loop(lambda index: pipeline.submit(slices[index % len(slices)]), due)
    seen = summary(answered)
    virtual = (None, None) if model is None else virtual_latencies(model, due)
    steady = "" if model is None else "yes" if rate < model.capacity else "none"
    return LatencyAtLoad(
        pipeline.mode.name,
        load,
        rate,
        1e3 * seen.p50,
        1e3 * seen.p95,
        1e3 * seen.p99,
        *virtual,
        float(np.mean(pipeline.batches)),
        steady,
        seen.failed,
        seen.late,
        latencies=tuple(sorted(round(1e3 * request.latency, 4) for request in answered if not request.error)),
    )


def spans_of(mode: PipelineMode, workload: SliceWorkload) -> list[dict]:
    """Which stage worked when in one burst of six slices, as rows for a Gantt chart.

    A first burst warms up; of three more the shortest is taken, in which other work of the machine disturbed least.
    """
    spans, bursts = [], []
    with SlicePipeline(mode, workload, spans) as pipeline:
        for _ in range(4):
            spans.clear()
            pipeline.burst(workload.slices[:6])
            bursts.append(list(spans))
    found = min((resolved(burst, workload.device) for burst in bursts[1:]), key=_length)
    if any(each.lane == "detector" for each in found):
        found = [each for each in found if each.lane != "models"]  # its parts say more
    return rows([Span(each.lane, each.lane, each.start, each.end) for each in found])


def _length(spans: Sequence[Span]) -> float:
    return max(each.end for each in spans) - min(each.start for each in spans)
