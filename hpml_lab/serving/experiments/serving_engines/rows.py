"""The servers that are compared, and the rows of their traffic."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hpml_lab.core.experiment import Row, column
from hpml_lab.serving.experiments.serving_engines.load_test import Load, Served
from hpml_lab.serving.lessons.traffic import summary

SHOWN = 400  # points of a curve that are kept

TORCH, ORT = "ours, torch", "ours, ONNX Runtime"
LIT_ALONE, LIT_BATCHED = "LitServe, one by one", "LitServe, batched"
SERVERS = (TORCH, ORT, LIT_ALONE, LIT_BATCHED)


@dataclass(frozen=True)
class EngineTraffic(Row):
    """One server under one load, all turns together; None where it did not run."""

    engine: str = column("server")
    load: str = column("load")
    rate: float = column("rate", "requests/s")
    requests: int | None = column("requests", default=None)
    failed: int | None = column("failed", default=None)
    throughput: float | None = column("answers", "per s", default=None)
    p50_ms: float | None = column("p50", "ms", default=None)
    p95_ms: float | None = column("p95", "ms", default=None)
    p99_ms: float | None = column("p99", "ms", default=None)
    mean_batch: float | None = column("requests per batch", default=None)
    late: float | None = column("sent late", "share", default=None)
    note: str = column("note", default="")
    turns_p50_ms: tuple[float, ...] = ()
    turns_p99_ms: tuple[float, ...] = ()


def rows_of(served: Mapping[tuple[str, str], Served], faults: Mapping[str, str], loads: Iterable[Load]) -> list[EngineTraffic]:
    """A row for each server and load, also for those that did not run."""
    rows = []
    for load in loads:
        for name in SERVERS:
            found = served.get((name, load.name))
            if found is None or not found.batches:
                requests = found.requests if found else []
                lost = (len(requests), len(requests)) if requests else (None, None)
                rows.append(EngineTraffic(name, load.name, load.rate, *lost, note=faults.get(name, "it did not run")))
                continue
            whole, turns = summary(found.requests), [turn for turn in found.summaries if turn.throughput]
            rows.append(
                EngineTraffic(
                    name,
                    load.name,
                    load.rate,
                    whole.requests,
                    whole.failed,
                    found.throughput,
                    *(1e3 * seconds for seconds in (whole.p50, whole.p95, whole.p99)),
                    found.mean_batch,
                    whole.late,
                    faults.get(name) or first_error(found),
                    tuple(1e3 * turn.p50 for turn in turns),
                    tuple(1e3 * turn.p99 for turn in turns),
                )
            )
    return rows


def first_error(served: Served) -> str:
    """The first error of a server that failed for some requests; percentiles are those of the others."""
    return next((f"the first error: {request.error}" for request in served.requests if request.error), "")


def curve(served: Served) -> tuple[list[float], list[float]]:
    """Moments due (s) and latencies (ms) of the first turn, at most SHOWN of them."""
    turn = [request for request in served.turns[0] if not request.error][:SHOWN]
    return [request.due for request in turn], [1e3 * request.latency for request in turn]
