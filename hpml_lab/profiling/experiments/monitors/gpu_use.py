"""How busy a GPU was, at an instant and on average: its known bursts, NVML's own samples, and what its query returns."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean

import torch

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.profilers.monitor import MonitorSample
from hpml_lab.profilers.nvml import Gpus

KNOWN, SAMPLED, QUERIED = "known: when it computed", "NVML's own samples", "utilization.gpu, as queried"
ACTIVE = "SM activity (GPM)"


@dataclass
class GpuUse(Row):
    """The use of this process's GPU by one source, in % of the source's window."""

    source: str = column("source")
    values: int = column("values")
    least: float = column("least", "%")
    most: float = column("most", "%")
    average: float = column("mean", "%")
    near_0_or_100: float = column("share of values near 0 or 100", "%")
    points: list[tuple[float, float]] = field(default_factory=list)  # (s, %)


class GpuHistory:
    """Collects NVML's own samples of one GPU; `collect` it now and then, for NVML keeps few.

    bus_id  of the GPU that CUDA calls `device`, which NVML may number otherwise; None where NVML does not know it
    """

    def __init__(self, device: torch.device) -> None:
        self.bus_id, self._found, self._gpus = None, {}, Gpus()
        if device.type == "cuda":
            self.bus_id = self._gpus.bus_id_of(str(torch.cuda.get_device_properties(device).uuid))
        self._began, self._began_by_clock, self._active = time.time(), CLOCK(), []
        self.sm_activity()

    def collect(self) -> None:
        if self.bus_id is not None:
            self._found |= dict(self._gpus.utilization_samples(self.bus_id, max(self._found, default=self._began)))
        active = self.sm_activity()
        if active is not None:
            self._active.append((CLOCK() - self._began_by_clock, active))

    def sm_activity(self) -> float | None:
        """% of the multiprocessors that had work since the last look at them; None where NVML does not give it."""
        return None if self.bus_id is None else self._gpus.sm_activity(self.bus_id)

    def utilization(self) -> int | None:
        """NVML's utilization of this GPU, as it is now."""
        return next((gpu.utilization for gpu in self._gpus.read() if gpu.bus_id == self.bus_id), None)

    def close(self) -> None:
        self._gpus.close()

    def uses(self, samples: Sequence[MonitorSample], spans: Sequence[tuple[float, float]], seconds: float) -> list[GpuUse]:
        """The three sources of one run of `seconds`, whose bursts are `spans`; no rows where this GPU is not read."""
        queried = [(s.at, gpu.utilization) for s in samples for gpu in s.gpus if gpu.bus_id == self.bus_id]
        queried = [(at, value) for at, value in queried if value is not None]
        if self.bus_id is None or not queried:
            return []
        sampled = [(at - self._began, value) for at, value in sorted(self._found.items()) if at >= self._began]
        bursts = [(begin - self._began_by_clock, end - self._began_by_clock) for begin, end in spans]
        steps = [point for begin, end in bursts for point in ((begin, 0.0), (begin, 100.0), (end, 100.0), (end, 0.0))]
        known = _use(KNOWN, steps)
        known.average = 100 * sum(end - begin for begin, end in bursts) / seconds
        rest = ((SAMPLED, sampled), (ACTIVE, self._active), (QUERIED, queried))
        return [known, *(_use(source, points) for source, points in rest if points)]


def one_multiprocessor(history: GpuHistory, device: torch.device, seconds: float = 2.0) -> tuple[int | None, float | None]:
    """NVML's utilization and the SM activity, in %, while kernels of a single thread follow one another on the GPU."""
    history.sm_activity()
    end = CLOCK() + seconds
    while CLOCK() < end:
        torch.cuda._sleep(20_000_000)  # cycles: some hundredths of a second
        torch.cuda.synchronize(device)
    return history.utilization(), history.sm_activity()


def _use(source: str, points: list[tuple[float, float]]) -> GpuUse:
    values = [value for _, value in points]
    extreme = sum(value <= 10 or value >= 90 for value in values)
    return GpuUse(source, len(values), min(values), max(values), mean(values), 100 * extreme / len(values), points)
