"""Measuring the slice's pipeline: throughput of bursts, latency under traffic, and the virtual clock with the same services."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.timing.clock import Timing, interleaved
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.core.timing.timeline import Span, rows
from hpml_lab.serving.experiments.inference_pipeline.pipelines import BATCHED, ONE_STREAM, SlicePipeline, resolved
from hpml_lab.serving.lessons.traffic import due_times, open_loop, percentiles, summary
from hpml_lab.serving.lessons.virtual_queue import TICKS_PER_SECOND, ServiceModel

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


def fit_service(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """Least squares for a + b·n, both at least 0; relative errors count, so that small batches matter as much as large ones."""
    sizes, seconds = np.array(sizes, dtype=float), np.array(seconds, dtype=float)
    design = np.stack([np.ones_like(sizes), sizes], axis=1) / seconds[:, None]
    a, b = np.linalg.lstsq(design, np.ones_like(sizes), rcond=None)[0]
    if a < 0:
        return 0.0, float((1 / (sizes / seconds)).mean())
    if b <= 0:  # measurements of a machine with other work may say anything
        return 0.0, float(seconds[-1] / sizes[-1])
    return float(a), float(b)


def service_times(pipeline: SlicePipeline, slices: np.ndarray, samples: int) -> list[BatchService]:
    """Time whole batches of 1, 2, 4, … up to the mode's limit, in turns."""
    sizes = [2**k for k in range(pipeline.mode.limit.bit_length()) if 2**k <= pipeline.mode.limit]
    times = interleaved({str(n): (lambda n=n: pipeline.answers(slices[:n])) for n in sizes}, samples=samples)
    seconds = [times[str(n)].seconds for n in sizes]
    a, b = fit_service(sizes, seconds)
    return [BatchService(n, 1e3 * s, 1e3 * (a + b * n), 1e3 * s / n) for n, s in zip(sizes, seconds, strict=True)]


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


def under_traffic(
    pipeline: SlicePipeline, slices: np.ndarray, load: float, one_stream: float, requests: int, model: ServiceModel | None
) -> LatencyAtLoad:
    """Poisson traffic at `load` times what one stream serves, and the same arrivals on the virtual clock."""
    rate = load * one_stream
    due = due_times(rate, requests)
    pipeline.batches.clear()
    answered = open_loop(lambda index: pipeline.submit(slices[index % len(slices)]), due)
    seen = summary(answered)
    virtual = (None, None)
    if model is not None:
        trace = model.trace(np.rint(due * TICKS_PER_SECOND).astype(np.int64))
        virtual = tuple(1e3 * p / TICKS_PER_SECOND for p in percentiles(trace.sojourns, (50, 95)))
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


def virtual_curve(model: ServiceModel, one_stream: float, requests: int) -> dict[str, list[float]]:
    """p50 and p95 in ms by load, up to 0.97 of the model's capacity; load 1 is what one stream serves."""
    loads = (np.linspace(0.05, 0.97, 20) * model.capacity / one_stream).tolist()
    found = {"load": loads, "p50": [], "p95": []}
    for load in loads:
        arrivals = np.rint(due_times(load * one_stream, requests) * TICKS_PER_SECOND).astype(np.int64)
        p50, p95 = percentiles(model.trace(arrivals).sojourns, (50, 95))
        found["p50"].append(1e3 * p50 / TICKS_PER_SECOND)
        found["p95"].append(1e3 * p95 / TICKS_PER_SECOND)
    return found


def spans_of(pipeline: SlicePipeline, spans: list, slices: np.ndarray) -> list[dict]:
    """Who did what when in one burst, as rows for a Gantt chart; the pipeline is closed afterwards.

    A first burst warms up; of three more the shortest is taken, in which other work of the machine disturbed least.
    """
    bursts = []
    with pipeline:
        for _ in range(4):
            spans.clear()
            pipeline.burst(slices)
            bursts.append(list(spans))
    found = min((resolved(burst, pipeline.device) for burst in bursts[1:]), key=_length)
    if any(each.lane == "detector" for each in found):
        found = [each for each in found if each.lane != "models"]  # its parts say more
    return rows([Span(each.lane, each.lane, each.start, each.end) for each in found])


def _length(spans: Sequence[Span]) -> float:
    return max(each.end for each in spans) - min(each.start for each in spans)


def models_of(services: Sequence[BatchService], limit: int) -> dict[str, ServiceModel]:
    """One stream by its own measurement, batches by the line."""
    first, last = services[0], services[-1]
    b = (last.fitted - first.fitted) / max(last.batch - first.batch, 1)
    return {
        ONE_STREAM: ServiceModel(0.0, first.measured / 1e3, 1),
        BATCHED: ServiceModel((first.fitted - b) / 1e3, b / 1e3, limit),
    }
