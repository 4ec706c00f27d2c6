"""The disk benchmark: what it counts, what it checks, that nothing is left, and how fio judges it."""

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hpml_lab.core.errors import LabError
from hpml_lab.loading import disk, fio
from hpml_lab.loading import experiments_disk as row
from hpml_lab.loading.disk import KIB, MIB, Job

SMALL = dict(mib=8, blocks=(4 * KIB, MIB), depths=(1, 4), seconds=0.02, repeats=1, fio_seconds=0.1, pairs=2)
JOBS = [Job(*mode.split(), block, depth) for mode in row.MODES for block in (4 * KIB, 64 * KIB) for depth in (1, 3)]
needs_fio = pytest.mark.skipif(fio.version() is None, reason="fio is not installed; on Debian: apt-get install fio")


@pytest.fixture
def file(tmp_path):
    with disk.disk_file(tmp_path, 4 * MIB) as opened:
        yield opened


@pytest.mark.parametrize("job", JOBS, ids=str)
def test_a_run_counts_its_requests_and_bytes_and_checks_its_blocks(file, job):
    threads = threading.active_count()
    one = disk.sample(file, job, seconds=0.02, warm_up=0.0)
    assert one.requests == len(one.latencies) >= job.depth
    assert one.bytes == one.requests * job.block
    assert one.bytes_per_s == pytest.approx(one.iops * job.block, rel=1e-9)
    assert one.checked > 0 and one.misplaced == 0
    assert threading.active_count() == threads


def test_a_block_in_the_wrong_place_is_found(file):
    assert file.misplaced([0, 4096, MIB]) == 0
    handle = os.open(file.path, os.O_RDWR)
    page = os.pread(handle, 4096, 0)
    os.pwrite(handle, page, 8192)  # page 0's bytes in the place of page 2
    os.fsync(handle)
    os.close(handle)
    file.drop()
    assert file.misplaced([0, 4096, 8192]) == 1
    read = disk.sample(file, Job("sequential", "read", 4 * KIB, 1), seconds=0.2, warm_up=0.0)
    assert read.misplaced > 0


def test_places_are_inside_the_file_and_sequential_threads_share_it():
    for job in JOBS:
        per_thread = [disk.places(job, thread, 4 * MIB, seed=1) for thread in range(job.depth)]
        flat = [place for one in per_thread for place in one]
        assert all(place % job.block == 0 and 0 <= place <= 4 * MIB - job.block for place in flat)
        if job.pattern == "sequential":
            assert all(np.diff(one).tolist() == [job.block] * (len(one) - 1) for one in per_thread)
            assert len(set(flat)) == len(flat)
        else:
            assert per_thread[0] != sorted(per_thread[0])


def test_the_file_is_gone_after_an_error_and_after_ctrl_c(tmp_path):
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), disk.disk_file(tmp_path, MIB) as opened:
            assert opened.path.exists() and opened.path.stat().st_size == MIB
            raise error
        assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_uses_is_not(tmp_path):
    left = tmp_path / f"{disk.NAME}killed.part"
    left.write_bytes(b"x")
    with disk.disk_file(tmp_path, MIB) as first, disk.disk_file(tmp_path, MIB) as second:
        assert not left.exists() and first.path.exists() and second.path.exists()


def test_a_file_without_room_or_of_an_odd_size_is_refused(tmp_path, monkeypatch):
    with pytest.raises(LabError, match="no size for the test file"), disk.disk_file(tmp_path, 1000):
        pass
    usage = type("Usage", (), {"free": 100 * MIB})()
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(LabError, match="100 MiB free"), disk.disk_file(tmp_path, 64 * MIB):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(LabError, match="is not a folder that can be written"):
        disk.choose_folder(tmp_path / "missing")


def test_blocks_that_the_disk_cannot_take_are_refused(file):
    for block in (1000, 2 * MIB):
        with pytest.raises(LabError, match="no block size"):
            disk.sample(file, Job("random", "read", block, 1), 0.01)


def test_without_o_direct_the_figures_are_labelled_as_buffered(tmp_path, monkeypatch):
    if not hasattr(os, "O_DIRECT"):
        pytest.skip("there is no O_DIRECT here")
    monkeypatch.delattr(disk.os, "O_DIRECT")
    with disk.disk_file(tmp_path, MIB) as opened:
        assert opened.access != disk.DIRECT and opened.access in opened.label
        assert disk.sample(opened, Job("random", "read", 4 * KIB, 2), 0.02).misplaced == 0


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm here")
def test_a_file_in_memory_says_so():
    with disk.disk_file("/dev/shm", MIB) as opened:
        assert opened.in_memory and "memory, not a disk" in opened.label


def test_littles_law_and_percentiles_are_taken_over_all_samples():
    job = Job("random", "read", 4096, 2)
    samples = [disk.Sample(job, 100.0, 409_600.0, 2, 8192, np.array([0.01, 0.03])) for _ in range(3)]
    point = disk.Point.of(samples)
    assert (point.iops, point.mean, point.p50) == (100.0, pytest.approx(0.02), pytest.approx(0.02))
    assert point.in_flight == pytest.approx(2.0)


def test_a_row_of_the_disk_has_the_units_of_its_columns():
    job, latencies = Job("random", "read", 4096, 1), np.arange(1, 101) * 1e-6
    point = disk.Point.of([disk.Sample(job, iops, 4096 * iops, 100, 409_600, latencies) for iops in (900.0, 1000.0, 5000.0)])
    told = row._row("ours", job, point)
    assert (told["IOPS"], told["MB/s"]) == (1000, pytest.approx(4.096)), "medians"
    assert (told["p50, µs"], told["p95, µs"], told["p99, µs"]) == pytest.approx((50.5, 95.05, 99.01), abs=0.5)


def test_the_rate_of_threads_is_the_sum_of_theirs_each_by_its_own_clock(file, monkeypatch):
    class Worker:
        ident, error = 1, None

        def __init__(self, _, job, number, *rest):
            self.requests, self.took, self.misplaced = 10, number + 1.0, number  # 10 in 1 s, 10 in 2 s
            self.bytes, self.latencies = 10 * job.block, np.full(10, 10**6 * (number + 1))

        start = is_alive = lambda self: None
        join = lambda self, _: None  # noqa: E731

    monkeypatch.setattr(disk, "_Worker", Worker)
    one = disk.sample(file, Job("random", "read", 4 * KIB, 2), 0.01, warm_up=0.0)
    assert (one.iops, one.bytes_per_s, one.requests, one.bytes) == (15, 15 * 4096, 20, 20 * 4096)
    assert sorted(set(one.latencies)) == [0.001, 0.002] and (one.checked, one.misplaced) == (20, 1)


def planted(job, iops):
    """A sample of so many requests a second, each as long as the queue depth makes it."""
    return disk.Sample(job, iops, iops * job.block, 10, 10 * job.block, np.full(10, job.depth / iops), 10, 0)


def test_with_planted_samples_the_row_tells_rates_and_who_measured_them(tmp_path, monkeypatch):
    """A queue of four gives three times the requests, a block of 1 MiB a 64th of them; fio counts twice as many as we do."""
    base = {"random read": 1000.0, "random write": 500.0, "sequential read": 4000.0, "sequential write": 2000.0}

    def grid(file, jobs, *_):
        return {
            one: [planted(one, base[one.mode] * (3 if one.depth == 4 else 1) / (64 if one.block == MIB else 1))] for one in jobs
        }

    ours, theirs = iter([700.0, 1000.0, 1500.0, 2500.0]), iter([1400.0, 3000.0, 2000.0, 5000.0])

    def run(file, job, seconds):
        iops = next(theirs)
        return fio.FioReport(iops, iops * job.block, 10, 10 * job.block, 1e-3, 2e-3, 3e-3, 4e-3)

    ways = {f"read, {disk.DIRECT}": 100.0, "read, buffered, first time": 50.0, "read, buffered, again": 200.0}
    monkeypatch.setenv("HPML_DISK", str(tmp_path))
    monkeypatch.setattr(disk, "grid", grid)
    monkeypatch.setattr(disk, "sample", lambda file, job, seconds: planted(job, next(ours)))
    monkeypatch.setattr(disk, "page_cache", lambda *_, **__: [{"way": way, "MB/s": rate} for way, rate in ways.items()])
    monkeypatch.setattr(fio, "run", run)
    result = replace(row.disk_iops, quick={**SMALL, "pairs": 3})("quick", device="cpu")
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []
    measured = {claim.text.split(":")[0].split(" (")[0]: claim.measured for claim in result.claims}
    assert measured["more outstanding requests give more IOPS"] == "1000 at depth 1, 3000 at 4"
    assert measured["large blocks give more bandwidth than small ones, at fewer requests a second"] == "12 and 49 MB/s"
    assert measured["Little's law"] == "median 1.00 of the depth"
    assert measured["the second buffered read is faster than the first"] == "4.0×"
    judged = measured["at queue depth 1 our benchmark is within a quarter of fio's figure"]
    assert judged == "0.50 of fio's, 3 pairs in turns, 0.33 to 0.75"
    assert result.quantities["IOPS with requests outstanding over one"] == 3
    assert result.quantities["random reads of 4 KiB, depth 1, IOPS"] == 1000
    assert result.quantities["most bandwidth, MB/s"] == 4000 * 3 / 64 * MIB / 1e6
    by = {(one["by"], one["queue depth"]): one for one in result.rows if one["by"] != "ours"}
    assert {key: one["IOPS"] for key, one in by.items()} == {
        (row.BESIDE, 1): 1000,
        (row.BESIDE, 4): 2500,
        ("fio", 1): 2000,
        ("fio", 4): 5000,
    }
    assert [by["fio", 1][f"{p}, µs"] for p in ("p50", "p95", "p99")] == pytest.approx([2000, 3000, 4000])


def test_the_page_caches_rate_is_its_bytes_over_their_seconds(file, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(disk.time, "perf_counter", lambda: float(next(clock)))
    assert {one["MB/s"] for one in disk.page_cache(file, size=2 * MIB, turns=2, limit=1e6)} == {2 * MIB / 1e6}


def test_the_page_cache_is_read_from_the_disk_once(file):
    ways = {one["way"]: one for one in disk.page_cache(file, turns=1)}
    assert {"read, buffered, first time", "read, buffered, again", "write, buffered"} <= set(ways)
    again = ways["read, buffered, again"]["fetched from the disk"]
    assert again is None or again == 0.0
    first = ways["read, buffered, first time"]["fetched from the disk"]
    assert first is None or file.in_memory or first >= 0.9


def test_the_row_is_sound(sound, tmp_path, monkeypatch):
    monkeypatch.setenv("HPML_DISK", str(tmp_path))
    result = replace(row.disk_iops, quick=SMALL)("quick", device="cpu")
    assert list(tmp_path.iterdir()) == []
    assert {one["by"] for one in result.rows} == ({"ours", row.BESIDE, "fio"} if fio.version() else {"ours"})
    sound(result)


def test_a_wrong_count_breaks_the_identity(tmp_path, monkeypatch):
    monkeypatch.setenv("HPML_DISK", str(tmp_path))
    real = disk.sample
    monkeypatch.setattr(disk, "sample", lambda *a: replace(one := real(*a), bytes_per_s=one.bytes_per_s * 1.01, misplaced=1))
    result = replace(row.disk_iops, quick=SMALL)("quick", device="cpu")
    assert [claim.holds for claim in result.claims if claim.exact] == [False, False, True]


@needs_fio
def test_fio_reports_its_own_identity(file):
    report = fio.run(file, Job("random", "read", 4 * KIB, 2), 0.2)
    assert report.bytes == report.requests * 4 * KIB > 0
    assert report.bytes_per_s == pytest.approx(report.iops * 4 * KIB, rel=0.01)
    assert 0 < report.p50 <= report.p95 <= report.p99
    assert [one.name for one in file.path.parent.iterdir()] == [file.path.name]


def test_without_fio_the_row_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("HPML_DISK", str(tmp_path))
    monkeypatch.setattr(fio, "version", lambda: None)
    result = replace(row.disk_iops, quick=SMALL)("quick", device="cpu")
    assert result and any("Install fio" in note for note in result.notes)


def test_a_fio_that_fails_is_told_in_a_note(tmp_path, monkeypatch):
    monkeypatch.setenv("HPML_DISK", str(tmp_path))

    def fails(*_):
        raise LabError("fio failed: bad option.", "Update it.")

    monkeypatch.setattr(fio, "run", fails)
    result = replace(row.disk_iops, quick=SMALL)("quick", device="cpu")
    assert result and any("no judge here: fio failed: bad option. Update it." in note for note in result.notes)


def test_an_error_of_the_block_is_not_the_disks(tmp_path):
    with pytest.raises(FileNotFoundError), disk.disk_file(tmp_path, MIB):
        open(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_a_report_of_fio_is_read_in_seconds_and_bytes():
    times = {"mean": 2e6, "percentile": {"50.000000": 1_000_000, "95.000000": 5_000_000, "99.000000": 9_000_000}}
    other = {"iops": 1, "bw_bytes": 2, "total_ios": 3, "io_bytes": 4, "clat_ns": {**times, "mean": 0}}
    read = {"iops": 250.5, "bw": 1002, "bw_bytes": 1_026_048, "total_ios": 501, "io_bytes": 2_052_096, "clat_ns": times}
    text = "fio: a note\n" + json.dumps({"jobs": [{"read": read, "write": other}]})
    assert fio.parse(text, "read") == fio.FioReport(250.5, 1_026_048, 501, 2_052_096, 0.002, 0.001, 0.005, 0.009)
    assert fio.parse(text, "write").iops == 1


@pytest.mark.parametrize("text", ["", "{}", '{"jobs": []}', '{"jobs": [{"read": {"iops": 1}}]}'])
def test_a_report_without_figures_is_refused(text):
    with pytest.raises(LabError, match="not as expected"):
        fio.parse(text, "read")
