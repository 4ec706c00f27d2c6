"""The theory of queues next to the virtual clock, the same on every machine; and a measured server on that clock."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpml_lab.core.experiment import Result, Row, column
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.serving.lessons.traffic import due_times, percentiles
from hpml_lab.serving.lessons.virtual_queue import (
    TICKS_PER_SECOND,
    ServiceModel,
    batch_capacity,
    md1_sojourn,
    poisson_ticks,
    request_ticks,
    simulate,
)

SERVICE = 1_000  # ticks of the queue without batches
MS = 1_000  # ticks a millisecond
BASE, PER_REQUEST = 8 * MS, 1 * MS  # a batch of n takes 8 + n ms
HELD_TO = 0.7  # the load up to which the mean is compared with the formula: beyond, a mean of few requests says little
SETTINGS = ((1, 0), (8, 0), (32, 0), (8, 10))  # batch limit, window in ms
RATES = (0.05, 0.1, 0.3, 0.6, 0.8)  # requests per ms
LIMITS = (1, 8, 32)


@dataclass(frozen=True)
class SimulatedQueue(Row):
    """One server that takes one request at a time, at one load, in services of 1."""

    load: float = column("load ρ")
    formula: float = column("W by the formula", "services")
    simulated: float = column("W on the virtual clock", "services")
    difference: float = column("difference", "%")
    p50: float = column("p50", "services")
    p99: float = column("p99", "services")
    little: bool = column("Little's law, in whole numbers")


@dataclass(frozen=True)
class BatchedQueue(Row):
    """One server that takes up to `limit` requests, in 8 + n ms, at one rate."""

    rate: float = column("rate", "requests/ms")
    limit: int = column("batch limit")
    window: int = column("window", "ms")
    capacity: float = column("capacity", "requests/ms")
    p50: float | None = column("p50", "ms")
    p99: float | None = column("p99", "ms")
    batch: float | None = column("mean batch")
    steady: str = column("steady state")


def queues_by_load(loads: tuple[float, ...], requests: int, seeds: int) -> list[SimulatedQueue]:
    """M/D/1 on the virtual clock: means over `seeds` traces of `requests` each."""
    rows = []
    for load in loads:
        traces = [simulate(poisson_ticks(load / SERVICE, requests, seed), 0, SERVICE) for seed in range(seeds)]
        mean = float(np.mean([trace.sojourns.mean() for trace in traces])) / SERVICE
        formula = md1_sojourn(load, 1.0)
        little = all(request_ticks(trace.arrivals, trace.departures) == trace.sojourns.sum() for trace in traces)
        p50, p99 = percentiles(np.concatenate([trace.sojourns for trace in traces]) / SERVICE, (50, 99))
        rows.append(SimulatedQueue(load, formula, mean, 100 * (mean / formula - 1), p50, p99, little))
    return rows


def batched_queues(requests: int) -> list[BatchedQueue]:
    """Batches on the virtual clock; where there is no steady state, no percentiles are given."""
    rows = []
    for rate in RATES:
        for limit, window in SETTINGS:
            capacity = float(batch_capacity(limit, BASE, PER_REQUEST)) * MS
            if rate >= capacity:
                rows.append(BatchedQueue(rate, limit, window, capacity, None, None, None, "none"))
                continue
            trace = simulate(poisson_ticks(rate / MS, requests), BASE, PER_REQUEST, limit=limit, window=window * MS)
            p50, p99 = percentiles(trace.sojourns / MS, (50, 99))
            rows.append(BatchedQueue(rate, limit, window, capacity, p50, p99, float(trace.batches.mean()), "yes"))
    return rows


def queue_curves(requests: int) -> dict[str, dict[str, list[float]]]:
    """p99 in ms by rate, up to 0.97 of each limit's capacity."""
    found = {}
    for limit in LIMITS:
        capacity = float(batch_capacity(limit, BASE, PER_REQUEST)) * MS
        rates = [share * capacity for share in np.linspace(0.05, 0.97, 16).tolist()]
        traces = [simulate(poisson_ticks(rate / MS, requests), BASE, PER_REQUEST, limit=limit) for rate in rates]
        found[str(limit)] = {"rate": rates, "p99": [percentiles(trace.sojourns / MS, (99,))[0] for trace in traces]}
    return found


# ---- a server that was measured --------------------------------------------------------------------------------------


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


def virtual_latencies(model: ServiceModel, due: np.ndarray) -> tuple[float, float]:
    """p50 and p95 in ms of requests that are due at these seconds, served on the virtual clock."""
    trace = model.trace(np.rint(due * TICKS_PER_SECOND).astype(np.int64))
    p50, p95 = percentiles(trace.sojourns, (50, 95))
    return 1e3 * p50 / TICKS_PER_SECOND, 1e3 * p95 / TICKS_PER_SECOND


def virtual_curve(model: ServiceModel, one_stream: float, requests: int) -> dict[str, list[float]]:
    """p50 and p95 in ms by load, up to 0.97 of the model's capacity; load 1 is what one stream serves."""
    loads = (np.linspace(0.05, 0.97, 20) * model.capacity / one_stream).tolist()
    p50, p95 = zip(*(virtual_latencies(model, due_times(load * one_stream, requests)) for load in loads), strict=True)
    return {"load": loads, "p50": list(p50), "p95": list(p95)}


# ---- drawing ---------------------------------------------------------------------------------------------------------


@picture
def theory_and_ticks(result: Result):
    """Left: mean time in the system without batches, the formula as a line and the virtual clock as dots; it takes off well
    before the load reaches 1. Middle: p99 of the latency when a batch of n takes 8 + n ms, by rate, for three batch limits; the
    dotted lines are the capacities n / (8 + n), and no curve crosses its own. Right: batches up to 8 without a window and with
    one of 10 ms, the median and p99. At which rates does the window make the median longer?"""
    figure = style.new_figure(11, 4.0)
    single, batched, windows = figure.subplots(1, 3)
    load = np.linspace(0, 0.95, 200)
    single.plot(load, 1 + load / (2 * (1 - load)), color=style.GREY, label="S·(1 + ρ / (2·(1 − ρ)))")
    rows = result.rows(SimulatedQueue)
    single.plot([row.load for row in rows], [row.simulated for row in rows], "o", color=style.BLUE, label="virtual clock")
    single.set(xlabel="load ρ = λ·S", ylabel="mean time in the system (services)", ylim=(0, None), title="One at a time")
    single.legend(loc="upper left")
    found = result.rows(BatchedQueue)
    for limit, color, marker in zip(LIMITS, style.CYCLE, style.MARKERS, strict=False):
        curve = result.arrays["queue curves"][str(limit)]
        batched.plot(curve["rate"], curve["p99"], color=color, label=f"up to {limit}" if limit > 1 else "one at a time")
        rows = [row for row in found if row.limit == limit and not row.window and row.p99 is not None]
        batched.plot([row.rate for row in rows], [row.p99 for row in rows], marker, color=color)
        batched.axvline(limit * MS / (BASE + PER_REQUEST * limit), color=color, linestyle=":", linewidth=1.2)
    batched.set(xlabel="rate (requests/ms)", ylabel="p99 of the latency (ms)", ylim=(0, 150), title="In batches, 8 + n ms")
    batched.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)
    for window, color, marker in ((0, style.ORANGE, "o"), (10, style.BLUE, "v")):
        rows = [row for row in found if row.limit == 8 and row.window == window and row.p50 is not None]
        for which, line in (("p50", "-"), ("p99", ":")):
            label = f"{which}, {f'window {window} ms' if window else 'no window'}"
            windows.plot(
                [row.rate for row in rows], [getattr(row, which) for row in rows], line, marker=marker, color=color, label=label
            )
    windows.set(xlabel="rate (requests/ms)", ylabel="latency (ms)", ylim=(0, None), title="Up to 8: what a window costs")
    windows.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)
    return figure
