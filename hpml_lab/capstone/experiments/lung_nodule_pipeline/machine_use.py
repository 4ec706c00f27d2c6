"""What the machine does while the pipeline runs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from hpml_lab import profiling
from hpml_lab.capstone.tools import scans
from hpml_lab.capstone.tools.lung_pipeline import LungPipeline, SpanClock
from hpml_lab.core.experiment.findings import Row, column
from hpml_lab.core.measure.timeline import busy, rows
from hpml_lab.core.system.machine import cores

RATE = 50.0  # samples a second


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
