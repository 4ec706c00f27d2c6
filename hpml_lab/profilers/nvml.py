"""What NVIDIA's management library (NVML, the source of nvidia-smi) tells of each GPU, and nothing where there is none."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpml_lab.profilers.beside import cause_of

MIB = 1 << 20


@dataclass(frozen=True)
class GpuReading:
    """One look at one GPU; None stands for a figure that this GPU does not give.

    utilization         % of NVML's last sample period (1/6 to 1 s) in which at least one kernel ran
    memory_utilization  % of that period in which its memory was read or written
    memory_used         MiB
    power               W
    energy              J since its driver was loaded, of GPUs from Volta on
    """

    bus_id: str
    utilization: int | None
    memory_utilization: int | None
    memory_used: float | None
    power: float | None
    energy: float | None = None


class Gpus:
    """All GPUs of the machine; `note` says why there is none. Close it, or use it in a `with` block."""

    def __init__(self) -> None:
        self.note, self._handles, self._gpm, self._nvml = "", [], {}, None
        try:  # besides NVMLError: a library that is damaged, or older than pynvml, fails in many ways
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
        except Exception as error:
            self.note = f"No GPU is read: {cause_of(error)}."
            return
        self._nvml = nvml
        try:
            for index in range(self._nvml.nvmlDeviceGetCount()):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                self._handles.append((_text(self._nvml.nvmlDeviceGetPciInfo(handle).busId), handle))
        except Exception as error:  # such as no permission for one of them
            self.note = f"Only {len(self._handles)} GPUs are read: {cause_of(error)}."
        if not self._handles and not self.note:
            self.note = "No GPU is read: NVML knows of none."

    def read(self) -> tuple[GpuReading, ...]:
        """A reading of each GPU, in NVML's order."""
        return tuple(self._reading(bus_id, handle) for bus_id, handle in self._handles)

    def bus_id_of(self, uuid: str) -> str | None:
        """The bus id of the GPU, or slice of one, with CUDA's `uuid`, None where NVML does not know it.

        CUDA counts the GPUs that CUDA_VISIBLE_DEVICES names, and orders them by speed; NVML counts all, by their bus.
        """
        for kind in ("GPU", "MIG") if self._nvml is not None else ():
            name = f"{kind}-{uuid}"
            found = self._ask(lambda name=name: self._nvml.nvmlDeviceGetPciInfo(self._nvml.nvmlDeviceGetHandleByUUID(name)))
            if found is not None:
                return _text(found.busId)
        return None

    def processes(self, bus_id: str) -> set[int]:
        """The processes that compute on a GPU, as far as NVML names them; in a container it may name them by other numbers."""
        handle = dict(self._handles).get(bus_id)
        found = handle and self._ask(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        return {process.pid for process in found or ()}

    def utilization_samples(self, bus_id: str, since: float) -> list[tuple[float, int]]:
        """(seconds since the epoch, %) of NVML's own short samples of a GPU's use after `since`; [] where it has none."""
        handle = dict(self._handles).get(bus_id)
        kind = getattr(self._nvml, "NVML_GPU_UTILIZATION_SAMPLES", None)
        found = handle and self._ask(lambda: self._nvml.nvmlDeviceGetSamples(handle, kind, int(since * 1e6)))
        return [(sample.timeStamp / 1e6, sample.sampleValue.uiVal) for sample in found[1]] if found else []

    def sm_activity(self, bus_id: str) -> float | None:
        """% of a GPU's multiprocessors that had work, on average since the last call for it (NVML's GPM, from Hopper on).

        None at the first call, and where NVML does not give it.
        """
        handle = dict(self._handles).get(bus_id)
        return handle and self._ask(lambda: self._sm_activity(bus_id, handle))

    def _sm_activity(self, bus_id: str, handle: Any) -> float | None:
        nvml, before = self._nvml, self._gpm.get(bus_id)
        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            return None
        self._gpm[bus_id] = nvml.nvmlGpmSampleGet(handle, nvml.nvmlGpmSampleAlloc())
        if before is None:
            return None
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 1
        asked.sample1, asked.sample2 = before, self._gpm[bus_id]
        asked.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        try:
            metric = nvml.nvmlGpmMetricsGet(asked).metrics[0]
            return None if metric.nvmlReturn else metric.value
        finally:
            nvml.nvmlGpmSampleFree(before)

    def _reading(self, bus_id: str, handle: Any) -> GpuReading:
        use, memory_use = self._ask(lambda: self._rates(handle)) or (None, None)
        memory = self._ask(lambda: self._nvml.nvmlDeviceGetMemoryInfo(handle).used / MIB)
        power = self._ask(lambda: self._nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
        energy = self._ask(lambda: self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000)  # mJ
        return GpuReading(bus_id, use, memory_use, memory, power, energy)

    def _rates(self, handle: Any) -> tuple[int, int]:
        rates = self._nvml.nvmlDeviceGetUtilizationRates(handle)
        return rates.gpu, rates.memory

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except Exception:  # a figure that this GPU, or a slice of one, does not give, or in a form that is not known
            return None

    def close(self) -> None:
        """Give NVML back; closing twice does nothing."""
        if self._nvml is not None:
            for sample in self._gpm.values():
                self._ask(lambda sample=sample: self._nvml.nvmlGpmSampleFree(sample))
            self._ask(self._nvml.nvmlShutdown)  # it fails where a GPU was lost
        self._nvml, self._handles, self._gpm = None, [], {}

    def __enter__(self) -> "Gpus":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
