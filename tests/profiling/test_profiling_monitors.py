"""The sampler: its counters, its file, its end; and NVML, played by a module of the test."""

import itertools
import sys
import threading
import time
import types

import pytest
import torch

from hpml_lab.core.experiment import Result, Table
from hpml_lab.core.system.errors import LabError
from hpml_lab.profilers import monitor as module
from hpml_lab.profilers.monitor import Monitor
from hpml_lab.profilers.monitor_table import GPU_COLUMNS, read_csv
from hpml_lab.profilers.nvml import MIB, GpuReading, Gpus
from hpml_lab.profiling import monitors
from hpml_lab.profiling.experiments import monitors as monitors_module
from hpml_lab.profiling.experiments.monitors import gpu_use


class NVMLError(Exception):
    """The library's own kind of error."""


def fake_nvml(gpus, initial_error=None):
    """A module that answers as pynvml does, for `gpus` (a list of dicts); a missing figure raises, as on a slice of a GPU."""
    nvml = types.ModuleType("pynvml")
    nvml.NVMLError, nvml.ended = NVMLError, 0

    def start():
        if initial_error:
            raise NVMLError(initial_error)

    def end():
        nvml.ended += 1

    def figure(name):
        def ask(handle):
            if name not in handle:
                raise NVMLError("Not Supported")
            return handle[name]

        return ask

    nvml.nvmlInit, nvml.nvmlShutdown = start, end
    nvml.nvmlDeviceGetCount = lambda: len(gpus)
    nvml.nvmlDeviceGetHandleByIndex = gpus.__getitem__
    nvml.nvmlDeviceGetPciInfo = lambda handle: types.SimpleNamespace(busId=handle["bus"])
    nvml.nvmlDeviceGetUtilizationRates = figure("rates")
    nvml.nvmlDeviceGetMemoryInfo = figure("memory")
    nvml.nvmlDeviceGetPowerUsage = figure("power")
    nvml.NVML_GPU_UTILIZATION_SAMPLES = 1

    def by_uuid(uuid):
        for gpu in gpus:
            if gpu.get("uuid") == uuid:
                return gpu
        raise NVMLError("Not Found")

    def samples(handle, kind, since):
        found = [types.SimpleNamespace(timeStamp=at, sampleValue=types.SimpleNamespace(uiVal=value))
                 for at, value in figure("samples")(handle) if at > since]  # fmt: skip
        return kind, found

    class Asked(types.SimpleNamespace):
        def __init__(self):
            super().__init__(metrics=[types.SimpleNamespace(metricId=0, nvmlReturn=0, value=None)])

    def metrics(asked):
        asked.metrics[0].value = asked.sample2[1] - asked.sample1[1] if asked.metrics[0].metricId == 2 else None
        return asked

    def sample(handle, number):
        handle["looks"] = handle.get("looks", 0) + 1
        return number, figure("active")(handle)[handle["looks"] - 1]

    nvml.allocated, numbers = set(), itertools.count()

    def allocate():
        number = next(numbers)
        nvml.allocated.add(number)
        return number

    nvml.nvmlGpmSampleAlloc = allocate
    nvml.nvmlGpmSampleFree = lambda sample: nvml.allocated.discard(sample[0])
    nvml.nvmlGpmQueryDeviceSupport = lambda handle: types.SimpleNamespace(isSupportedDevice="active" in handle)
    nvml.nvmlGpmSampleGet, nvml.nvmlGpmMetricsGet, nvml.c_nvmlGpmMetricsGet_t = sample, metrics, Asked
    nvml.NVML_GPM_METRICS_GET_VERSION, nvml.NVML_GPM_METRIC_SM_UTIL = 1, 2
    nvml.nvmlDeviceGetHandleByUUID, nvml.nvmlDeviceGetSamples = by_uuid, samples
    return nvml


WHOLE = {
    "bus": b"00000000:3B:00.0",  # older versions give bytes
    "rates": types.SimpleNamespace(gpu=87, memory=31),
    "memory": types.SimpleNamespace(used=2048 * MIB),
    "power": 312_500,  # mW
    "uuid": "GPU-1f",
    "samples": [(1_000_000, 5), (2_000_000, 95), (2_500_000, 40)],
}
HALF = types.SimpleNamespace(uiVal=50)
SLICE = {"bus": "00000000:AF:00.0", "uuid": "MIG-5b", "memory": types.SimpleNamespace(used=512 * MIB)}


@pytest.fixture
def two_gpus(monkeypatch):
    nvml = fake_nvml([WHOLE, SLICE])
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml([], "NVML Shared Library Not Found"))


def sampler_threads():
    return [thread for thread in threading.enumerate() if thread.name == "hpml-monitor"]


def test_the_row_monitors_is_sound(sound, ran):
    result = ran("monitors")
    sound(result)
    each, some, whole = result.rows()
    assert [row.averaged_over for row in result.rows()] == ["each sample", "some cycles", "whole run"]
    assert each.windows > some.windows > whole.windows == 1
    assert each.least <= whole.least <= each.most


def judged(whole, known, cost):
    """Whether the claim holds."""
    result = Result()
    monitors_module.judge_use(result, whole, known, types.SimpleNamespace(cost=cost))
    return [claim.holds for claim in result.claims]


def test_claims_of_use_are_about_the_load_and_not_about_how_slow_the_host_is():
    assert judged(55.4, 50.0, 0.0444) == [True], "the recorded H100's host"
    assert judged(67.0, 50.0, 0.16) == [True], "a slower one: its sampler's time is none of the load's"
    assert judged(26.0, 24.0, 0.01) == [True], "a busy one, where each burst takes twice as long"
    assert judged(80.0, 50.0, 0.01) == [False]


def test_a_sample_is_taken_at_the_end_also_of_a_block_shorter_than_a_period(no_gpu):
    with Monitor(rate=0.5) as monitor:
        sum(range(100_000))
    (sample,) = monitor.samples
    assert sample.process_cpu > 0 and sample.seconds == pytest.approx(monitor.seconds) == pytest.approx(sample.at)
    assert len(sample.cores) >= 1 and all(0 <= use <= 100 for use in sample.cores)
    assert sample.rss > 1 and sample.memory > 1


def test_counters_are_reported_as_what_they_count(no_gpu, monkeypatch):
    ticks = iter(((1000, 70), (5000, 170)))

    def disk(perdisk=False):
        if perdisk:  # of a machine that says nothing of single disks
            return {}
        read, written = next(ticks)
        return types.SimpleNamespace(read_bytes=read, write_bytes=written)

    memory = types.SimpleNamespace(total=100 * MIB, available=30 * MIB)
    monkeypatch.setattr(module.psutil, "disk_io_counters", disk)
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: memory)
    with Monitor(rate=0.01) as monitor:
        pass
    (sample,) = monitor.samples
    assert (sample.disk_read, sample.disk_written, sample.memory) == (4000, 100, 70)
    assert sample.rss == pytest.approx(module.psutil.Process().memory_info().rss / 2**20, rel=0.02)
    assert module._percent((1.0, 4.0), (0.0, 0.0)) == 75, "idle for a quarter"


def test_the_last_sample_is_taken_at_the_end_of_a_long_block_too(no_gpu):
    with Monitor(rate=8) as monitor:
        time.sleep(0.31)  # two periods and a half
    assert len(monitor.samples) > 1 and monitor.samples[-1].at == pytest.approx(monitor.seconds) and monitor.seconds >= 0.3
    assert sum(sample.seconds for sample in monitor.samples) == pytest.approx(monitor.seconds)


def test_processor_time_of_the_samples_adds_up(no_gpu):
    with Monitor(rate=50) as monitor:
        before = time.process_time()
        end = time.perf_counter() + 0.3
        while time.perf_counter() < end:
            pass
        own = time.process_time() - before
    assert sum(sample.process_cpu for sample in monitor.samples) == pytest.approx(own, abs=0.05)
    assert 0 < monitor.cost < 1


def test_a_block_that_raises_ends_the_sampler_and_passes_the_error_on(two_gpus):
    monitor = Monitor(rate=100)
    with pytest.raises(ZeroDivisionError), monitor:
        assert sampler_threads()
        1 / 0  # noqa: B018
    assert not sampler_threads() and monitor.samples and two_gpus.ended == 1


def test_a_monitor_begins_anew_in_each_epoch_and_wants_a_rate(no_gpu):
    monitor = Monitor(rate=0.01)
    for _ in range(3):
        with monitor:
            pass
        assert len(monitor.samples) == 1 and monitor.rows and monitor.seconds < 300
    with monitor, pytest.raises(LabError, match="is running"), monitor:
        pass
    for rate in (0, -1, float("nan")):
        with pytest.raises(LabError, match="not a valid rate"):
            Monitor(rate)


def test_two_gpus_give_two_rows_a_sample_in_the_names_and_units_of_nvidia_smi(two_gpus, tmp_path):
    with Monitor(rate=100) as monitor:
        time.sleep(0.05)
    assert monitor.note == "" and two_gpus.ended == 1
    whole, part = monitor.rows[:2]
    assert len(monitor.rows) == 2 * len(monitor.samples)
    assert (whole["pci.bus_id"], whole["utilization.gpu [%]"], whole["utilization.memory [%]"]) == ("00000000:3B:00.0", 87, 31)
    assert (whole["memory.used [MiB]"], whole["power.draw [W]"]) == (2048.0, 312.5)
    assert part["utilization.gpu [%]"] is None and part["power.draw [W]"] is None and part["memory.used [MiB]"] == 512.0
    assert {k: v for k, v in whole.items() if "cpu" in k} == {k: v for k, v in part.items() if "cpu" in k}
    path = monitor.to_csv(tmp_path / "run.csv")
    header, first, second = path.read_text().splitlines()[:3]
    assert header.startswith("timestamp, pci.bus_id, utilization.gpu [%], utilization.memory [%], ")
    assert first.split(", ")[1:4] == ["00000000:3B:00.0", "87 %", "31 %"]
    assert second.split(", ")[1:4] == ["00000000:AF:00.0", "[N/A]", "[N/A]"]
    assert read_csv(path) == monitor.rows


def test_a_file_of_nvidia_smi_itself_can_be_read(tmp_path):
    path = tmp_path / "smi.csv"
    path.write_text(
        "timestamp, pci.bus_id, utilization.gpu [%], utilization.memory [%]\n"
        "2024/03/01 10:00:00.123, 00000000:01:00.0, 35 %, 12 %\n"
        "2024/03/01 10:00:01.124, 00000000:01:00.0, [N/A], 0 %\n"
        "2024/03/01 10:00:02.125, 00000000:01:00.0, [Not Supported], [Unknown Error]\n"
    )
    first, second, third = read_csv(path)
    assert first["utilization.gpu [%]"] == 35 and first["timestamp"] == "2024/03/01 10:00:00.123"
    assert second["utilization.gpu [%]"] is None and second["utilization.memory [%]"] == 0
    assert third["utilization.gpu [%]"] is None and third["utilization.memory [%]"] is None


def test_without_nvml_there_is_a_note_and_the_columns_are_empty(no_gpu, tmp_path):
    with Monitor(rate=100) as monitor:
        time.sleep(0.03)
    assert "Not Found" in monitor.note
    assert all(row[name] is None for row in monitor.rows for name in GPU_COLUMNS)
    path = monitor.to_csv(tmp_path / "run.csv")
    assert path.read_text().splitlines()[1].split(", ")[1:6] == [""] * 5
    assert read_csv(path) == monitor.rows


def test_where_the_system_does_not_tell_of_disks_their_columns_are_empty(no_gpu, monkeypatch, tmp_path):
    def unknown():
        raise NotImplementedError("neither /proc/diskstats nor /sys/block are available")

    monkeypatch.setattr(module.psutil, "disk_io_counters", unknown)
    with Monitor(rate=100) as monitor:
        time.sleep(0.03)
    assert all(sample.disk_read is sample.disk_written is None for sample in monitor.samples)
    assert read_csv(monitor.to_csv(tmp_path / "run.csv")) == monitor.rows


def test_a_gpu_that_may_not_be_opened_is_said(monkeypatch):
    nvml = fake_nvml([WHOLE])
    nvml.nvmlDeviceGetCount = lambda: 2

    def handle(index):
        if index == 1:
            raise NVMLError("Insufficient Permissions")
        return WHOLE

    nvml.nvmlDeviceGetHandleByIndex = handle
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with Gpus() as gpus:
        assert gpus.read() == (GpuReading("00000000:3B:00.0", 87, 31, 2048.0, 312.5),)
        assert gpus.note == "Only 1 GPUs are read: NVMLError: Insufficient Permissions."
    assert gpus.read() == () and nvml.ended == 1


class MuteError(Exception):
    """Its text needs a library that is damaged."""

    def __str__(self):
        raise AttributeError("nvmlErrorString")


@pytest.mark.parametrize(("name", "note"), [("nvmlInit", "No GPU is"), ("nvmlDeviceGetCount", "Only 0 GPUs are")])
def test_an_error_of_nvml_without_a_text_is_named(monkeypatch, name, note):
    def fails():
        raise MuteError

    nvml = fake_nvml([WHOLE])
    setattr(nvml, name, fails)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with Gpus() as gpus:
        assert gpus.read() == () and gpus.note == f"{note} read: MuteError."


def test_the_live_table_is_updated_and_its_stored_text_has_no_figures(two_gpus, monkeypatch):
    shown = []
    display = types.SimpleNamespace(update=lambda bundle, raw: shown.append(bundle))
    monkeypatch.setattr(module, "_live_display", lambda: display)
    monkeypatch.setattr(module, "LIVE_SECONDS", 0.0)
    with Monitor(rate=50, live=True) as monitor:
        time.sleep(0.1)
    assert len(shown) >= 2 and monitor.samples
    assert {bundle["text/plain"] for bundle in shown} == {"Monitor: its live table"}
    assert "core 0" in shown[-1]["text/html"] and "GPU 0" in shown[-1]["text/html"] and "finished" in shown[-1]["text/html"]
    assert "GPU 1" not in shown[-1]["text/html"]  # it does not give its utilization


def test_the_live_table_ends_on_the_averages_of_the_run_and_not_on_its_last_milliseconds():
    gpu = ("bus", 0, 0.0, 0.0)
    values = [(1.0, (80.0, 40.0), 100), (0.001, (0.0, 0.0), 0)]
    samples = [
        module.MonitorSample("", 1.0, seconds, cores, 0.0, 0.0, 0.0, disk, 0, (GpuReading(gpu[0], use, *gpu[1:]),))
        for (seconds, cores, disk), use in zip(values, (90, 30), strict=True)
    ]
    watched = types.SimpleNamespace(samples=samples)
    html = module._picture(watched, module.FINISHED)["text/html"]
    assert "80 %" in html and "40 %" in html and "60 %" in html and "averages over the run" in html
    assert "0 %</td>" in module._picture(watched, "running")["text/html"]


@pytest.mark.cuda
def test_nvml_sees_the_memory_that_torch_takes():
    with Gpus() as gpus:
        before = [gpu.memory_used for gpu in gpus.read()]
        block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        after = [gpu.memory_used for gpu in gpus.read()]
        if None in before:
            pytest.skip("this GPU does not give its memory")
        assert max(b - a for a, b in zip(before, after, strict=True)) > 900
        del block


def test_a_gpu_is_found_by_its_uuid_however_cuda_numbers_it(two_gpus):
    with Gpus() as gpus:
        assert gpus.bus_id_of("1f") == "00000000:3B:00.0" and gpus.bus_id_of("5b") == "00000000:AF:00.0"
        assert gpus.bus_id_of("77") is None


def test_nvmls_own_samples_come_after_the_time_that_is_asked_for(two_gpus):
    with Gpus() as gpus:
        assert gpus.utilization_samples("00000000:3B:00.0", 1.5) == [(2.0, 95), (2.5, 40)]
        assert gpus.utilization_samples("00000000:AF:00.0", 0.0) == [], "a slice has none"
        assert gpus.utilization_samples("00000000:00:00.0", 0.0) == []


def test_sm_activity_is_the_mean_since_the_look_before_and_its_samples_are_given_back(monkeypatch):
    nvml = fake_nvml([WHOLE | {"active": [0.0, 30.0, 30.5]}, SLICE])
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with Gpus() as gpus:
        assert [gpus.sm_activity("00000000:3B:00.0") for _ in range(3)] == [None, 30.0, 0.5]
        assert gpus.sm_activity("00000000:AF:00.0") is None, "a slice, or a GPU before Hopper"
        assert gpus.sm_activity("00000000:00:00.0") is None and len(nvml.allocated) == 1
    assert not nvml.allocated and nvml.ended == 1


@pytest.mark.cuda
def test_a_kernel_of_one_thread_fills_no_multiprocessor_but_one():
    history = gpu_use.GpuHistory(torch.device("cuda"))
    used, active = gpu_use.one_multiprocessor(history, torch.device("cuda"))
    history.close()
    if used is None or active is None:
        pytest.skip("NVML gives one of the two not here")
    assert used > 90 and active < 10


def test_without_nvml_no_gpu_is_found(no_gpu):
    with Gpus() as gpus:
        assert gpus.bus_id_of("1f") is None and gpus.utilization_samples("00000000:3B:00.0", 0.0) == []


def test_the_use_of_a_gpu_counts_this_processs_gpu_only(two_gpus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: types.SimpleNamespace(uuid="1f"))
    monkeypatch.setattr(gpu_use.time, "time", lambda: 1.5)
    monkeypatch.setattr(gpu_use, "CLOCK", lambda: 100.0)

    def sample(at, own, other):
        gpus = [GpuReading("00000000:3B:00.0", own, 0, None, None), GpuReading("00000000:AF:00.0", other, 0, None, None)]
        return types.SimpleNamespace(at=at, gpus=gpus)

    history = gpu_use.GpuHistory(torch.device("cuda"))
    history.collect()
    history.close()
    known, sampled, queried = history.uses([sample(1.0, 40, 0), sample(2.0, 60, 0)], [(100.0, 100.5), (101.0, 101.5)], 2.0)
    assert known.average == 50 and known.points[:4] == [(0.0, 0.0), (0.0, 100.0), (0.5, 100.0), (0.5, 0.0)]
    assert sampled.points == [(0.5, 95), (1.0, 40)] and sampled.near_0_or_100 == 50
    assert queried.average == 50 and queried.points == [(1.0, 40), (2.0, 60)], "not the mean over both GPUs"
    assert gpu_use.GpuHistory(torch.device("cpu")).uses([sample(1.0, 40, 0)], [], 1.0) == []


def test_the_figure_sets_known_bursts_against_what_nvml_says(ran):
    result = ran("monitors")
    points = [(0.0, 0.0), (0.0, 100.0), (0.1, 100.0), (0.1, 0.0)]
    names = (gpu_use.KNOWN, gpu_use.SAMPLED, gpu_use.QUERIED)
    result.tables.append(Table("GPU", [gpu_use.GpuUse(name, 4, 0.0, 100.0, 50.0, 100.0, points) for name in names]))
    _, panel = result.figure().axes
    assert [text.get_text() for text in panel.get_legend().get_texts()] == list(names)


def test_the_experiment_reads_the_gpu_that_it_computes_on(two_gpus, monkeypatch, sound):
    class OfThisProcess(gpu_use.GpuHistory):
        def __init__(self, device):
            super().__init__(device)
            self.bus_id = self._gpus.bus_id_of("1f")

    monkeypatch.setattr(monitors_module, "GpuHistory", OfThisProcess)
    two_gpus.nvmlDeviceGetSamples = lambda *_: (1, [types.SimpleNamespace(timeStamp=time.time() * 1e6, sampleValue=HALF)])
    result = monitors("quick", device="cpu")
    assert not sampler_threads()
    sound(result)
    known, sampled, queried = result.rows(gpu_use.GpuUse)
    assert 0 < known.average < 100 and (known.least, known.most) == (0, 100)
    assert sampled.average == 50 and len(sampled.points) == sampled.values > 1
    assert queried.average == 87 == result.here("this GPU's utilization by NVML, mean"), "the slice next to it gives none"
    assert not any("No CUDA GPU" in note for note in result.notes)
