"""What the machine does while the pipeline runs, and waits of known length that check the arithmetic of overlapping."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from hpml_lab import loading, profiling
from hpml_lab.capstone import overlap_arithmetic as arithmetic
from hpml_lab.capstone import scans
from hpml_lab.capstone.lung_pipeline import LungPipeline, SpanClock
from hpml_lab.core.experiment.findings import Row, column
from hpml_lab.core.measure.timeline import busy, rows
from hpml_lab.core.system.machine import cores

RATE = 50.0  # samples a second
WAITS = {"preprocessing": 0.030, "network": 0.010}  # seconds: the lecture's 3' and 1'


@dataclass
class MachineUse(Row):
    """One version of the pipeline, watched by notebook 10's monitor.

    points  (time in s, cores that the run keeps busy); spans: what each thread did when
    """

    version: str = column("version")
    patients: int = column("patients")
    ms: float = column("a patient", "ms")
    core_percent: float = column("processor, of one core", "%")
    all_percent: float = column("of all cores", "%")
    network_percent: float = column("network at work", "% of the time")
    gpu_percent: float | None = column("GPU, by NVML", "%", default=None)
    points: list[tuple[float, float]] = field(default_factory=list)
    spans: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class OverlapRow(Row):
    """Patients whose stages only wait, 3 : 1 as in the lecture, through notebook 08's prefetcher."""

    arrangement: str = column("arrangement")
    lecture: str = column("the lecture's image", "minutes")
    expected_ms: float = column("expected, a patient", "ms")
    ms: float = column("measured, a patient", "ms")
    longer_percent: float = column("longer by", "%")


def watched(version: str, pipeline: LungPipeline, patients: Sequence[Path], shown: int) -> MachineUse:
    """Run a pipeline under the monitor.

    shown  how many of the last patients keep their spans, for the chart
    """
    clock = SpanClock(pipeline.device)
    with profiling.Monitor(RATE) as monitor:
        start = time.perf_counter()
        for outcome in pipeline.run(patients, scans.load, clock):
            outcome.checked()
        seconds = time.perf_counter() - start
    used = sum(sample.process_cpu for sample in monitor.samples) / monitor.seconds
    gpus = [gpu.utilization for sample in monitor.samples for gpu in sample.gpus if gpu.utilization is not None]
    network = busy(span for span in clock.spans if span.what == "network") / seconds
    spans = sorted(clock.spans, key=lambda span: span.start)
    # The chart begins where the patients that are shown do: those before them have filled the pipeline.
    reads = [span.start for span in spans if span.what == "read"]
    since = reads[max(0, len(reads) - shown)]
    return MachineUse(
        version, len(patients), 1e3 * seconds / len(patients), 100 * used, 100 * used / cores(), 100 * network,
        mean(gpus) if gpus and pipeline.device.type == "cuda" else None,
        [(sample.at, sample.process_cpu / max(sample.seconds, 1e-9)) for sample in monitor.samples],
        rows(span for span in spans if span.start >= since),
    )  # fmt: skip


def known_waits(patients: int, waits: dict[str, float] = WAITS, workers: Sequence[int] = (0, 1, 2, 3, 4)) -> list[OverlapRow]:
    """Time `patients` of known stages: in sequence (0 workers), and with threads that prepare them ahead."""
    found, (before, after) = [], waits.values()
    for count in workers:
        start = time.perf_counter()
        items = range(patients)
        # As many ahead as fit: a worker that waits for room would be another arrangement.
        prepare = partial(_wait, before)
        room = max(patients, count)
        for _ in loading.ThreadPrefetcher(items, prepare, threads=count, depth=room) if count else map(prepare, items):
            time.sleep(after)
        measured = (time.perf_counter() - start) / patients
        expected = arithmetic.sequential_time((before, after))
        if count:
            spans = arithmetic.schedule([(before, after)] * patients, (count, 1))
            expected = arithmetic.finished(spans) / patients
        found.append(
            OverlapRow(named(count), in_minutes(count), 1e3 * expected, 1e3 * measured, 100 * (measured / expected - 1))
        )
    return found


def _wait(seconds: float, _: int) -> None:
    time.sleep(seconds)


def named(workers: int) -> str:
    if not workers:
        return "in sequence"
    return "one thread ahead" if workers == 1 else f"{workers} workers ahead"


def in_minutes(workers: int) -> str:
    """What the lecture's image takes, 3' before the network and 1' in it."""
    minutes = {"preprocessing": 3, "network": 1}
    if not workers:
        return f"3' + 1' = {arithmetic.sequential_time(list(minutes.values()))}'"
    return f"max(3' / {workers}, 1') = {float(arithmetic.time_per_item(minutes, {'preprocessing': workers})):.3g}'"
