"""energy.py and the monitor's columns of it: counters that wrap, units, and readings that are missing, which are not 0."""

from types import SimpleNamespace

import pytest

from hpml_lab.cli.monitor import _summary
from hpml_lab.profilers import monitor, monitor_table
from hpml_lab.profilers.energy import CpuEnergy, moved_joules, used_joules
from hpml_lab.profilers.monitor import Monitor
from hpml_lab.profilers.monitor_table import read_csv, row_of
from hpml_lab.profilers.nvml import GpuReading, Gpus

SPAN = 262_143_328_850  # µJ: what Intel's counters of 32 bits with a unit of 61 µJ say of themselves


@pytest.fixture
def powercap(tmp_path):
    """(zone, name, µJ, span) writes a zone as Linux shows it; two packages, a part of one, and two zones that are none."""

    def write(zone, name=None, microjoules=None, span=None):
        folder = tmp_path / zone
        folder.mkdir(exist_ok=True)
        for file, value in (("name", name), ("energy_uj", microjoules), ("max_energy_range_uj", span)):
            if value is not None:
                (folder / file).write_text(f"{value}\n", encoding="ascii")
        return folder

    write("intel-rapl:0", "package-0", SPAN - 1_000_000, SPAN)
    write("intel-rapl:1", "package-1", 5_000_000, SPAN)
    write("intel-rapl:0:0", "core", 7, SPAN)
    write("intel-rapl:2", "psys", 9, SPAN)
    write("intel-rapl-mmio:0", "package-0", SPAN - 1_000_000, SPAN)
    write.root = tmp_path
    return write


def test_packages_add_up_in_joules_and_a_counter_that_wraps_goes_on(powercap):
    energy = CpuEnergy(powercap.root)
    assert energy.note == "" and energy.joules() == 0.0
    powercap("intel-rapl:0", microjoules=2_500_000)  # 1 J to its end, and 2.5 J after it
    powercap("intel-rapl:1", microjoules=5_250_000)
    for zone in ("intel-rapl:0:0", "intel-rapl:2", "intel-rapl-mmio:0"):
        powercap(zone, microjoules=999_999_999)
    assert energy.joules() == pytest.approx(3.75)
    powercap("intel-rapl:1", microjoules=6_250_000)
    assert energy.joules() == pytest.approx(4.75)


def test_a_package_without_a_reading_gives_none_and_the_next_reading_has_it_all(powercap):
    energy = CpuEnergy(powercap.root)
    file = powercap("intel-rapl:1") / "energy_uj"
    powercap("intel-rapl:0", microjoules=SPAN)
    file.write_text("", encoding="ascii")
    assert energy.joules() is None, "half of the machine is not the machine"
    file.write_text("6000000", encoding="ascii")
    assert energy.joules() == pytest.approx(2.0)


def test_no_counter_is_a_note_and_no_zero(tmp_path, powercap):
    absent = CpuEnergy(tmp_path / "none")
    assert absent.joules() is None and absent.note.endswith("the system has no RAPL counter of a package.")
    (powercap("intel-rapl:1") / "max_energy_range_uj").unlink()
    blind = CpuEnergy(powercap.root)
    assert blind.joules() is None, "a counter whose end is not known could go backwards"
    assert blind.note.startswith("The CPU's energy is not read: FileNotFoundError")


def test_what_was_used_is_a_difference_of_two_readings():
    assert moved_joules(5.0, 2.0) == 3.0 and moved_joules(2.0, 2.0) == 0.0
    assert moved_joules(None, 2.0) is moved_joules(5.0, None) is moved_joules(1.0, 2.0) is None


def test_nvml_counts_millijoules():
    nvml = SimpleNamespace(nvmlDeviceGetTotalEnergyConsumption=lambda handle: handle)
    with Gpus() as gpus:
        gpus._nvml, gpus._handles = nvml, [("bus", 16_522_288)]
        assert [reading.energy for reading in gpus.read()] == [16_522.288], "pyJoules took it for 16.5 J"
        gpus._nvml = None


def watched_run(monkeypatch, tmp_path, gpu_readings, cpu_readings, samples):
    """A monitor's file and rows, with given cumulative readings: of the GPUs, by bus, and of the CPU."""
    gpu, cpu = iter(gpu_readings), iter(cpu_readings)

    class Played:
        note = ""

        def read(self):
            return tuple(GpuReading(bus, 50, 10, 1.0, 100.0, joules) for bus, joules in next(gpu).items())

        def close(self):
            pass

    monkeypatch.setattr(monitor, "Gpus", Played)
    monkeypatch.setattr(monitor, "CpuEnergy", lambda: SimpleNamespace(joules=lambda: next(cpu)))
    run = Monitor(rate=1e-3)
    with run:
        for _ in range(samples - 1):
            run._sample()
    return run, run.to_csv(tmp_path / "run.csv")


def test_a_sample_has_the_joules_since_the_one_before_by_gpu(monkeypatch, tmp_path):
    gpus = [{"a": 100.0, "b": None}, {"a": 130.5, "b": None}, {"a": None, "b": None}, {"a": 140.0, "b": None}]
    run, path = watched_run(monkeypatch, tmp_path, gpus, [0.0, 2.0, None, 7.5], 3)
    own, other = (run.rows[number::2] for number in (0, 1))
    assert [row["gpu.energy [J]"] for row in own] == [30.5, None, 9.5]
    assert [row["gpu.energy [J]"] for row in other] == [None] * 3
    assert [row["cpu.energy [J]"] for row in own] == [2.0, None, 5.5]
    assert read_csv(path) == run.rows
    assert path.read_text(encoding="utf-8").splitlines()[2].endswith(", [N/A], 2.0 J"), "no reading is not 0"
    assert used_joules(run.samples) == (7.5, None), "one GPU gives none, so their sum is not known"
    assert used_joules(run.samples[:2]) == (None, None) == used_joules([])


def test_the_energy_of_all_gpus_is_their_sum_and_the_commands_line_says_it(monkeypatch, tmp_path):
    gpus = [{"a": 1.0, "b": 10.0}, {"a": 2.0, "b": 40.0}]
    run, _ = watched_run(monkeypatch, tmp_path, gpus, [None, None], 1)
    assert used_joules(run.samples) == (None, 31.0)
    line = _summary(run, None)
    assert line.endswith(", 31 J by the machine's GPUs.") and "CPU" not in line


def test_each_column_is_described():
    sample = monitor.MonitorSample("", 0.0, 1.0, (), 0.0, 0.0, 0.0, 0, 0, ())
    assert [name for name in row_of(sample, None) if name not in monitor_table.__doc__] == []
