"""The disk benchmark: what it counts, what it checks, that nothing is left, and how it compares with fio."""

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hpml_lab.core.system.errors import LabError
from hpml_lab.storage import disk_against_fio, disk_iops, disk_page_cache
from hpml_lab.storage.experiments import disk_iops as experiment
from hpml_lab.storage.experiments.disk_iops import FIO, MODES, OURS, DepthRate, GridCell, fio, page_cache
from hpml_lab.storage.experiments.disk_iops.page_cache import AGAIN, BUFFERED_WRITE, FIRST, PLACEBO, CacheRate, cache_rates
from hpml_lab.storage.tools import disk_benchmark, uncached_file
from hpml_lab.storage.tools.disk_benchmark import DiskJob, DiskRate, DiskSample, offsets, run_job
from hpml_lab.storage.tools.uncached_file import KIB, MIB, choose_folder, disk_file

SMALL = dict(mib=8, blocks=(4 * KIB, MIB), depths=(1, 4), seconds=0.02, repeats=1, fio_seconds=0.1, pairs=2, fio_turns=2)
JOBS = [DiskJob(*mode.split(), block, depth) for mode in MODES for block in (4 * KIB, 64 * KIB) for depth in (1, 3)]
needs_fio = pytest.mark.skipif(fio.version() is None, reason="fio is not installed; on Debian: apt-get install fio")


@pytest.fixture
def file(tmp_path):
    with disk_file(tmp_path, 4 * MIB) as opened:
        yield opened


@pytest.mark.parametrize("job", JOBS, ids=str)
def test_a_run_counts_its_requests_and_bytes_and_checks_its_blocks(file, job):
    threads = threading.active_count()
    sample = run_job(file, job, seconds=0.02, warm_up_seconds=0.0)
    assert sample.requests == len(sample.latencies) >= job.depth
    assert sample.bytes == sample.requests * job.block
    assert sample.bytes_per_s == pytest.approx(sample.iops * job.block, rel=1e-9)
    assert sample.iops * 60 > sample.requests, "they took 0.02 seconds, and not a minute"
    assert sample.checked > 0 and sample.misplaced == 0
    assert threading.active_count() <= threads


def test_a_block_at_the_wrong_offset_is_found(file):
    assert file.misplaced([0, 4096, MIB]) == 0
    handle = os.open(file.path, os.O_RDWR)
    page = os.pread(handle, 4096, 0)
    for offset in range(8192, 4 * MIB, 8192):  # page 0's bytes where every other page was: no two reads in order miss them
        os.pwrite(handle, page, offset)
    os.fsync(handle)
    os.close(handle)
    file.drop()
    assert file.misplaced([0, 4096, 8192]) == 1
    read = run_job(file, DiskJob("sequential", "read", 4 * KIB, 1), seconds=0.2, warm_up_seconds=0.0)
    assert read.misplaced > 0


def test_offsets_are_inside_the_file_and_sequential_threads_share_it():
    for job in JOBS:
        per_thread = [offsets(job, thread, 4 * MIB, seed=1) for thread in range(job.depth)]
        flat = [offset for thread in per_thread for offset in thread]
        assert all(offset % job.block == 0 and 0 <= offset <= 4 * MIB - job.block for offset in flat)
        if job.pattern == "sequential":
            assert all(np.diff(thread).tolist() == [job.block] * (len(thread) - 1) for thread in per_thread)
            assert len(set(flat)) == len(flat)
        else:
            assert per_thread[0] != sorted(per_thread[0])


def test_the_file_is_gone_after_an_error_and_after_ctrl_c(tmp_path):
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), disk_file(tmp_path, MIB) as opened:
            assert opened.path.exists() and opened.path.stat().st_size == MIB
            raise error
        assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_uses_is_not(tmp_path):
    left = tmp_path / f"{uncached_file.NAME}killed.part"
    left.write_bytes(b"x")
    new = tmp_path / f"{uncached_file.NAME}new.part"
    new.touch()  # by a process that is about to lock it
    with disk_file(tmp_path, MIB) as first, disk_file(tmp_path, MIB) as second:
        assert not left.exists() and first.path.exists() and second.path.exists() and new.exists()


def test_a_file_without_room_or_of_an_odd_size_is_refused(tmp_path, monkeypatch):
    with pytest.raises(LabError, match="not a valid size for the test file"), disk_file(tmp_path, 1000):
        pass
    usage = type("Usage", (), {"free": 100 * MIB})()
    monkeypatch.setattr(uncached_file.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(LabError, match="100 MiB free"), disk_file(tmp_path, 64 * MIB):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(LabError, match="is not a folder that can be written"):
        choose_folder(tmp_path / "missing")


def test_blocks_that_the_disk_cannot_take_are_refused(file):
    for action, block in (("read", 0), ("read", 1000), ("read", 2 * MIB), ("write", 12 * KIB)):
        with pytest.raises(LabError, match="not a valid block size"):
            run_job(file, DiskJob("random", action, block, 1), 0.01)


def test_a_disk_that_does_not_answer_is_given_up_as_soon_for_many_requests_as_for_one(file, monkeypatch):
    answers, joined = threading.Event(), []
    wait = threading.Thread.join

    def join(thread, timeout=None):
        joined.append(timeout)
        wait(thread, timeout)

    monkeypatch.setattr(disk_benchmark, "STUCK_SECONDS", 0.5)
    monkeypatch.setattr(disk_benchmark.os, "preadv", lambda *_: answers.wait(60) and 4 * KIB)
    monkeypatch.setattr(disk_benchmark._Requester, "join", join)
    with pytest.raises(LabError, match="has not answered"):
        run_job(file, DiskJob("random", "read", 4 * KIB, 8), 0.01)
    answers.set()
    assert len(joined) == 16 and sum(joined) < 2, "0.5 s for all eight together, twice"


def test_without_o_direct_the_figures_are_labeled_as_buffered(tmp_path, monkeypatch):
    if not hasattr(os, "O_DIRECT"):
        pytest.skip("there is no O_DIRECT here")
    monkeypatch.delattr(uncached_file.os, "O_DIRECT")
    with disk_file(tmp_path, MIB) as opened:
        assert opened.access != uncached_file.DIRECT and not opened.direct and opened.access in opened.label
        assert run_job(opened, DiskJob("random", "read", 4 * KIB, 2), 0.02).misplaced == 0


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm here")
def test_a_file_in_memory_says_so():
    with disk_file("/dev/shm", MIB) as opened:
        assert opened.in_memory and "memory, not a disk" in opened.label


def test_littles_law_and_percentiles_are_taken_over_all_samples():
    job = DiskJob("random", "read", 4096, 2)
    samples = [DiskSample(job, 100.0, 409_600.0, 2, 8192, np.array([0.01, 0.03])) for _ in range(3)]
    point = DiskRate.of(samples)
    assert (point.iops, point.mean, point.p50) == (100.0, pytest.approx(0.02), pytest.approx(0.02))
    assert point.in_flight == pytest.approx(2.0)


def test_a_rate_takes_medians_and_percentiles_in_seconds():
    job, latencies = DiskJob("random", "read", 4096, 1), np.arange(1, 101) * 1e-6
    rate = DiskRate.of([DiskSample(job, iops, 4096 * iops, 100, 409_600, latencies) for iops in (900.0, 1000.0, 5000.0)])
    assert (rate.iops, rate.bytes_per_s) == (1000, 4_096_000), "medians"
    assert (rate.requests, rate.bytes) == (300, 3 * 409_600), "all runs"
    assert experiment._percentiles(rate) == pytest.approx((50.5, 95.05, 99.01), abs=0.5), "in µs"


def test_the_rate_of_threads_is_the_sum_of_theirs_each_by_its_own_clock(file, monkeypatch):
    class Requester:
        ident, error = 1, None

        def __init__(self, _, job, number, *rest):
            self.requests, self.took, self.misplaced = 10, number + 1.0, number  # 10 in 1 s, 10 in 2 s
            self.bytes, self.latencies = 10 * job.block, np.full(10, 10**6 * (number + 1))

        start = is_alive = lambda self: None
        join = lambda self, _: None  # noqa: E731

    monkeypatch.setattr(disk_benchmark, "_Requester", Requester)
    sample = run_job(file, DiskJob("random", "read", 4 * KIB, 2), 0.01, warm_up_seconds=0.0)
    assert (sample.iops, sample.bytes_per_s, sample.requests, sample.bytes) == (15, 15 * 4096, 20, 20 * 4096)
    assert sorted(set(sample.latencies)) == [0.001, 0.002] and (sample.checked, sample.misplaced) == (20, 1)


BASE = {"random read": 1000.0, "random write": 500.0, "sequential read": 4000.0, "sequential write": 2000.0}


def known_iops(job):
    """A queue of four gives three times the requests, a block of 1 MiB a 64th of them."""
    return BASE[job.mode] * (3 if job.depth == 4 else 1) / (64 if job.block == MIB else 1)


def known_sample(job, iops):
    """A sample of so many requests a second, each as long as the queue depth makes it."""
    return DiskSample(job, iops, iops * job.block, 10, 10 * job.block, np.full(10, job.depth / iops), 10, 0)


@pytest.mark.parametrize("installed", [True, False])
def test_with_known_rates_the_experiment_reports_them_and_who_measured_them(tmp_path, monkeypatch, installed):
    """fio counts twice as many random reads as we do; without it the grid is our own."""
    turn = [1000.0, 3000.0, 50.0, 1000.0, 2500.0]  # one, many, large blocks; the two placebos
    by_depth = [700.0, 2500.0, 1000.0, 2400.0, 1500.0, 2600.0]  # depth 1, 4, 1, 4, …
    ours = iter([*turn, *turn, *turn, *(by_depth if installed else [])])
    theirs = iter([1400.0, 5000.0, 3000.0, 6000.0, 2000.0, 4000.0, 2000.0])  # one more than ours at depth 1

    def run(file, jobs, seconds):
        if not installed:
            raise LabError("fio is not installed.", "Install fio.")
        measured = [job.mode == "random read" and job.block == 4 * KIB for job in jobs]
        assert all(measured) or not any(measured), "what is compared with ours is not measured once more for the map"
        found = [next(theirs) if known else known_iops(job) for job, known in zip(jobs, measured, strict=True)]
        return [
            DiskRate(job, iops, iops * job.block, 10, 10 * job.block, job.depth / iops, 2e-3, 3e-3, 4e-3)
            for job, iops in zip(jobs, found, strict=True)
        ]

    ways = {FIRST: [2.0, 2.0], AGAIN: [0.5, 0.5], PLACEBO: [2.0, 1.9]}
    monkeypatch.setenv("HPML_DISK", str(tmp_path))
    monkeypatch.setattr(
        disk_benchmark, "grid", lambda file, jobs, *_: {job: [known_sample(job, known_iops(job))] for job in jobs}
    )
    monkeypatch.setattr(disk_benchmark, "run_job", lambda file, job, seconds: known_sample(job, next(ours)))
    monkeypatch.setattr(
        experiment, "cache_rates", lambda *_, **__: [CacheRate(way, 1.0, None, taken) for way, taken in ways.items()]
    )
    monkeypatch.setattr(fio, "run", run)
    result = replace(disk_iops, quick={**SMALL, "pairs": 3, "fio_turns": 3})("quick", device="cpu")
    exact = [claim for claim in [*result.claims, *result.checks] if claim.exact]
    assert [claim.text for claim in exact if not claim.holds] == []
    measured = {claim.text.split(":")[0].split(" (")[0]: claim.measured for claim in result.claims}
    deeper = "our threads, depth 4 over 1: 3× faster (3 to 3; noise ±0 %)"
    assert measured["More outstanding requests give more IOPS"] == deeper
    larger = measured["Large blocks give more bandwidth than small ones, at fewer requests a second"]
    assert larger == "our threads, bandwidth: 4.27× faster (4.27 to 5.12; noise ±20 %); 3000 requests a second and 50"
    assert 50 * MIB / (3000 * 4 * KIB) == pytest.approx(4.27, rel=1e-3), "the ratio is that of the two counts"
    assert measured["Little's law"] == "median 1.00 of the depth"
    assert measured["The second buffered read is faster than the first"] == "3.9× faster (3.8 to 4; noise ±5.3 %)"
    assert PLACEBO not in [row.way for row in result.rows(CacheRate)]
    assert result.here("IOPS with many requests outstanding over one") == 3
    assert result.here("random reads of 4 KiB, depth 1") == (2000 if installed else 1000), "as in the map"
    assert result.here("highest bandwidth") == 4000 * 3 / 64 * MIB / 1e6
    cells = {(cell.mode, cell.block, cell.depth): cell for cell in experiment.grid_cells(result)}
    assert [cell.mode for cell in result.rows(GridCell)] == ["random read"] * 4, "the rest is in the maps"
    large_reads = 3000 / 64 if installed else 50.0  # by fio, or as in the turns above
    assert len(cells) == 16 and cells["random read", MIB, 4].mb_per_s == pytest.approx(large_reads * MIB / 1e6)
    compared = {(row.by, row.depth): row for row in result.rows(DepthRate)}
    for depth in (1, 4):
        if installed:
            assert cells["random read", 4 * KIB, depth].iops == compared[FIO, depth].iops, "one figure of one thing"
    title = "Random reads, measured by " + (FIO if installed else OURS)
    assert result.tables[0].title == title and bool(compared) == installed
    if installed:
        judged = measured["At queue depth 1, our benchmark is within a quarter of fio's figure"]
        assert judged == "0.50 of fio's (0.233 to 0.75)"
        iops = {key: row.iops for key, row in compared.items()}
        assert iops == {(OURS, 1): 1000, (OURS, 4): 2500, (FIO, 1): 2000, (FIO, 4): 5000}
        row = compared[FIO, 1]
        assert (row.p50, row.p95, row.p99) == pytest.approx((2000, 3000, 4000))
    else:
        assert any("fio is not installed. Install fio." in note for note in result.notes)


def test_the_page_caches_rate_is_its_bytes_over_their_seconds(file, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(page_cache.time, "perf_counter", lambda: float(next(clock)))
    assert {row.mb_per_s for row in cache_rates(file, size=2 * MIB, turns=2, limit_seconds=1e6)} == {2 * MIB / 1e6}


def test_the_page_cache_is_read_from_the_disk_once(file):
    ways = {row.way: row for row in cache_rates(file, turns=1)}
    assert {FIRST, AGAIN, BUFFERED_WRITE} <= set(ways)
    assert ways[AGAIN].fetched in (None, 0.0)
    first = ways[FIRST].fetched
    assert first is None or file.in_memory or first >= 0.9


def test_the_experiment_is_sound(sound, ran):
    result = ran("disk-iops")
    assert {row.by for row in result.rows(DepthRate)} == ({OURS, FIO} if fio.version() else set())
    sound(result)
    assert len(result.figure().axes) == 4
    assert disk_against_fio(result).figure.axes and disk_page_cache(result).figure.axes


@pytest.mark.parametrize("installed", [True, False])
def test_a_wrong_count_breaks_the_identity_and_a_wrong_block_is_told(tmp_path, monkeypatch, installed):
    monkeypatch.setenv("HPML_DISK", str(tmp_path))
    if installed:  # its figures do not matter here, and it needs seconds
        monkeypatch.setattr(fio, "run", lambda file, jobs, _: [DiskRate.of([known_sample(job, 100.0)]) for job in jobs])
    else:
        monkeypatch.setattr(fio, "version", lambda: None)
    real = disk_benchmark.run_job

    def wrong(*arguments):
        sample = real(*arguments)
        return replace(sample, bytes=sample.bytes + 1, misplaced=1)

    monkeypatch.setattr(disk_benchmark, "run_job", wrong)
    result = replace(disk_iops, quick=SMALL)("quick", device="cpu")
    assert list(tmp_path.iterdir()) == []
    broken = [claim.text[:16] for claim in [*result.claims, *result.checks] if claim.exact and not claim.holds]
    assert broken == ["Bandwidth is IOP", "Every block that"]


@needs_fio
def test_fio_reports_its_own_identity(file):
    jobs = [
        DiskJob("random", "read", 4 * KIB, 2),
        DiskJob("sequential", "write", 64 * KIB, 1),
        DiskJob("random", "read", MIB, 1),
    ]
    before = page_cache.kernel_read_bytes()
    rates = fio.run(file, jobs, 0.2)
    assert [rate.job for rate in rates] == jobs
    for rate in rates:
        assert rate.bytes == rate.requests * rate.job.block > 0
        assert rate.bytes_per_s == pytest.approx(rate.iops * rate.job.block, rel=0.01)
        assert 0 < rate.p50 <= rate.p95 <= rate.p99
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name]
    if before is not None and file.direct and not file.in_memory:
        assert page_cache.kernel_read_bytes() - before >= rates[0].bytes + rates[2].bytes, "all of it came from the disk"


def test_without_fio_the_experiment_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("HPML_DISK", str(tmp_path))
    monkeypatch.setattr(fio, "version", lambda: None)
    result = replace(disk_iops, quick=SMALL)("quick", device="cpu")
    assert result and any("Install fio" in note for note in result.notes)


def test_a_fio_that_fails_is_reported_in_a_note(tmp_path, monkeypatch):
    monkeypatch.setenv("HPML_DISK", str(tmp_path))

    def fails(*_):
        raise LabError("fio failed: bad option.", "Update it.")

    monkeypatch.setattr(fio, "run", fails)
    result = replace(disk_iops, quick=SMALL)("quick", device="cpu")
    assert result and any(
        "of our own benchmark" in note and "fio failed: bad option. Update it." in note for note in result.notes
    )


def test_an_error_of_the_block_is_not_the_disks(tmp_path):
    with pytest.raises(FileNotFoundError), disk_file(tmp_path, MIB):
        open(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_a_report_of_fio_is_read_in_seconds_and_bytes():
    times = {"mean": 2e6, "percentile": {"50.000000": 1_000_000, "95.000000": 5_000_000, "99.000000": 9_000_000}}
    other = {"iops": 1, "bw_bytes": 2, "total_ios": 3, "io_bytes": 4, "clat_ns": {**times, "mean": 0}}
    read = {"iops": 250.5, "bw": 1002, "bw_bytes": 1_026_048, "total_ios": 501, "io_bytes": 2_052_096, "clat_ns": times}
    text = "fio: a note\n" + json.dumps({"jobs": [{"read": read, "write": other}]})
    job, other = DiskJob("random", "read", 4096, 1), DiskJob("random", "write", 4096, 1)
    assert fio.parse(text, [job]) == [DiskRate(job, 250.5, 1_026_048, 501, 2_052_096, 0.002, 0.001, 0.005, 0.009)]
    assert fio.parse(text, [other])[0].iops == 1


def test_a_disk_too_slow_for_fios_time_is_no_wrong_version_of_fio():
    """As fio 3.33 reports a single read that began before the time did."""
    read = {"iops": 16.4, "bw_bytes": 67147, "total_ios": 1, "io_bytes": 4096, "clat_ns": {"min": 0, "mean": 0.0, "N": 0}}
    with pytest.raises(LabError, match="fio finished no random read of 4096 bytes"):
        fio.parse(json.dumps({"jobs": [{"read": read}]}), [DiskJob("random", "read", 4096, 1)])


@pytest.mark.parametrize("text", ["", "{}", '{"jobs": []}', '{"jobs": [{"read": {"iops": 1}}]}'])
def test_a_report_without_figures_is_refused(text):
    with pytest.raises(LabError, match="not as expected"):
        fio.parse(text, [DiskJob("random", "read", 4096, 1)])


def test_a_pipe_under_the_name_of_a_test_file_is_passed_over(tmp_path):
    os.mkfifo(tmp_path / f"{uncached_file.NAME}1.part")
    with uncached_file.disk_file(tmp_path, MIB) as file:
        assert file.bytes == MIB
