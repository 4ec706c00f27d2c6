"""The prefetchers, and the experiments on hiding the time to load."""

import multiprocessing
import threading
import time
from collections import namedtuple
from dataclasses import replace

import pytest
import torch

from hpml_lab.core import style
from hpml_lab.core.errors import LabError
from hpml_lab.core.result import Result
from hpml_lab.core.timeline import Span
from hpml_lab.core.timing import Timing
from hpml_lab.loading import experiments_overlap as overlap
from hpml_lab.loading.pipeline import PARTS, Epoch
from hpml_lab.loading.prefetch import DevicePrefetcher, ThreadPrefetcher

ROWS = (overlap.prefetch, overlap.num_workers, overlap.pinned_memory, overlap.gpu_prefetcher, overlap.io_vs_compute)


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.slug)
def run(request):
    return request.param, request.param("quick", device="cpu")


def loader_threads():
    return [one for one in threading.enumerate() if one.name.startswith("thread_")]


def test_the_exact_claims_hold_and_nothing_is_left(run):
    _, result = run
    assert result.rows and any(claim.exact for claim in result.claims)
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []
    assert not multiprocessing.active_children() and not loader_threads()


def test_the_figure_is_drawn_from_a_saved_result(run, tmp_path):
    row, result = run
    figure = row.figure(Result.load(result.save(tmp_path)))
    assert len(style.png(figure)) > 5000
    assert all(axes.get_xlabel() or axes.get_title() or axes.get_ylabel() for axes in figure.axes)


def test_quantities_answer_the_lecture_by_name(run):
    row, result = run
    missing = set(row.lecture_says) - set(result.quantities)
    assert missing <= {"pinned over pageable, times faster"}  # needs a GPU


def test_with_planted_times_a_copys_bandwidth_is_what_they_say(monkeypatch):
    monkeypatch.setattr(overlap, "measure", lambda *_, **__: Timing((0.5,), 1))
    result = replace(overlap.pinned_memory, quick=dict(kilobytes=(64, 1024)))("quick", device="cpu")
    assert [row["MB"] for row in result.rows] == [1 / 16, 1]
    assert [row["host to host, GB/s"] for row in result.rows] == [64 * 1024 / 0.5 / 1e9, 2**20 / 0.5 / 1e9]
    assert result.quantities["host to host, GB/s"] == 2**20 / 0.5 / 1e9


def planted_epoch(seconds, **parts):
    """An epoch in which a batch is loaded from 0 to 3 s and computed on from 2 to 7 s."""
    spans = [Span("main", "load", 0.0, 3.0), Span("main", "compute", 2.0, 7.0)]
    return Epoch(seconds, dict.fromkeys(PARTS, 0.0) | parts, spans, True)


@pytest.mark.parametrize("last, sound", [(14.0, True), (11.0, False)])
def test_with_planted_epochs_prefetch_tells_who_gains_how_much(monkeypatch, last, sound):
    """Five batches are there at once and the sixth takes 6 s: how early it is asked for is all that counts."""
    seconds = iter([12.0, 6.0, 4.0, 3.0, 2.0, 8.0, 5.0, 10.0, last])
    parts = {"compute": 50.0, "waiting": 1.0, "collate": 0.5, "queue": 0.25, "start-up": 0.125}
    steps = []

    def run_epoch(batches, accelerator):
        steps.append(accelerator.seconds)
        return planted_epoch(next(seconds), **parts)

    monkeypatch.setattr(overlap, "run_epoch", run_epoch)
    monkeypatch.setattr(overlap, "batch_loads", lambda *_: [0.0] * 5 + [6.0])
    size = dict(batches=6, batch_size=1, scale=0.0, depths=(1, 2, 4), workers=(1, 2), ratios=(1, 2))
    result = replace(overlap.prefetch, quick=size)("quick", device="cpu")
    assert steps == [1.0] * 8 + [2.0], "a batch's share of the load, then twice that"
    assert {row["way"]: (row["simulated, s"], row["times faster"]) for row in result.rows} == {
        "plain loop": (12, 1),
        "thread, depth 1": (11, 2),  # asked for at 4 s, when the fifth is taken
        "thread, depth 2": (10, 3),
        "thread, depth 4": (8, 4),
        "2 threads, depth 4": (8, 6),
        "DataLoader, 1 worker": (10, 1.5),
        "DataLoader, 2 workers": (8, 2.4),
    }
    for row in result.rows:
        assert (row["load and compute at once, s"], row["waiting, s"], row["start-up, s"]) == (1, 1.75, 0.125)
    assert result.arrays["limits"] == [
        {"compute / load": 1.0, "simulated": 1.2, "measured": 1.2, "seconds": 10.0, "bound": 6.0},
        {"compute / load": 2.0, "simulated": 18 / 14, "measured": 18 / last, "seconds": last, "bound": 12.0},
    ]
    assert [claim.holds for claim in result.claims if "no epoch is faster" in claim.text] == [sound]
    told = ("load, s", "plain loop, s", "one thread ahead, times faster", "best, times faster")
    assert [result.quantities[name] for name in told] == [6, 12, 3, 6]


def test_with_planted_epochs_num_workers_tells_where_the_time_goes(monkeypatch):
    """Four batches that take the lecture's 114.07 s to load, and its 15.10 s to compute."""
    took = {0: [200.0], 4: [60.0, 40.0], 8: [30.0, 20.0]}
    parts = {200.0: {}, 60.0: {}, 40.0: {}, 30.0: {"start-up": 10.0, "waiting": 4.0}}
    parts[20.0] = {"compute": 16.0, "waiting": 2.0, "collate": 0.5, "queue": 1.5}
    cheap = {(0, False): 4.0, (0, True): 0.5, (1, False): 6.0, (1, True): 0.75, (8, False): 9.0, (8, True): 1.25}
    one, asked = overlap.LECTURE_LOAD / 4, []

    def run_epoch(loader, accelerator):
        assert accelerator.seconds == pytest.approx(overlap.LECTURE_COMPUTE / 4), "of a batch"
        seconds = took[loader.num_workers].pop(0)
        return planted_epoch(seconds, **parts[seconds])

    def batch_loads(storage, batches, batch_size):
        asked.append((storage.scale, batches, batch_size))
        return [one] * batches

    def cheap_epoch(images, batch_size, workers):
        return cheap[workers, isinstance(images, overlap.BatchedImages)], len(images)

    for planted in (run_epoch, batch_loads, cheap_epoch):
        monkeypatch.setattr(overlap, planted.__name__, planted)
    size = dict(workers=(0, 4, 8), batches=4, batch_size=1, scale=0.5, cheap=10, cheap_workers=(0, 1, 8))
    result = replace(overlap.num_workers, quick=size)("quick", device="cpu")
    assert asked == [(0.5, 4, 1), (1.0, 21, 32)], "the second at the lecture's own latencies"
    none, four, eight = result.rows
    assert [(row["cold, s"], row["warm, s"], row["times faster (warm)"]) for row in result.rows] == [
        (200, 200, 1),
        (60, 40, 5),
        (30, 20, 10),
    ]
    assert none["simulated, s"] == pytest.approx(129.17) and none["bound, s"] == pytest.approx(129.17)
    assert four["bound, s"] == pytest.approx(one) and four["bound + first batch, s"] == pytest.approx(2 * one)
    assert four["lecture's formula, s"] == pytest.approx(129.17 / 4)
    assert (eight["simulated, s"], eight["bound + first batch, s"]) == pytest.approx((one + 15.1, one + 15.1))
    assert (eight["bound, s"], eight["lecture's formula, s"]) == pytest.approx((15.1, 129.17 / 8))
    assert (eight["start-up (cold), s"], none["start-up (cold), s"]) == (10, 0)
    assert [eight[f"{part} (warm), s"] for part in ("waiting", "collate", "queue")] == [2, 0.5, 1.5]
    found = result.quantities
    assert found["8 workers, times faster"] == 10
    assert found["8 workers: waiting over computing, ratio"] == 0.25
    assert found["8 workers, share of the epoch beyond the bound"] == pytest.approx(4.9 / 20)
    assert found["workers' worth that 8 workers delivered there"] == pytest.approx(114.07 / 20.17)
    assert found["16 workers: simulated over the lecture's formula, ratio"] == pytest.approx((one + 15.1) / (129.17 / 16))
    # Three rounds of loading; then the five batches of the third are computed on.
    lectures = "8 workers, 21 batches of 32 simulated at the lecture's latencies, s"
    assert found[lectures] == pytest.approx(3 * one + 5 * 15.1 / 21)
    assert [found[f"cheap images, {n}, s"] for n in ("0 workers", "1 worker", "8 workers")] == [4, 6, 9]
    assert found["cheap images, 8 workers, whole batches, s"] == 1.25
    assert [(one["workers"], one["one by one"], one["whole batches"]) for one in result.arrays["cheap"]][1] == (1, 6, 0.75)


def test_num_workers_redoes_the_lectures_arithmetic():
    result = overlap.num_workers("quick", device="cpu")
    assert result.quantities["lecture's formula for 8 workers, s"] == 16.15
    assert result.quantities["lecture's ideal overhead for 8 workers, s"] == 0.82
    assert result.quantities["bound for 8 workers with the lecture's figures, s"] == 15.1
    assert result.quantities["workers that suffice"] == 8
    for which in ("cold", "warm"):
        for row, parts in zip(result.rows, result.arrays["parts"][which], strict=True):
            assert sum(parts.values()) == pytest.approx(row[f"{which}, s"], rel=0.01, abs=0.02)
    bounds = [one["bound"] for one in result.arrays["theory"]]
    assert bounds[-1] == bounds[-2]  # 16 workers are no faster than 8


def test_without_a_gpu_a_row_says_so_and_makes_nothing_up():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    pinned = overlap.pinned_memory("quick")
    assert not any("pinned" in column for row in pinned.rows for column in row)
    copied = overlap.gpu_prefetcher("quick")
    assert all("emulated" in row["schedule"] for row in copied.rows)
    assert all("emulated" in name for name in copied.quantities)
    for result in (pinned, copied):
        assert any(f"hpml-lab run {result.slug} --size full" in note for note in result.notes)


# --- the thread prefetcher ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("threads", "depth"), [(1, 1), (1, 3), (3, 3), (4, 9)])
def test_batches_come_in_order_whatever_the_threads(threads, depth):
    def fetch(number):
        time.sleep(0.004 if number % 3 == 0 else 0.0)
        return number * number

    prefetcher = ThreadPrefetcher(fetch, range(20), threads=threads, depth=depth)
    assert len(prefetcher) == 20
    assert list(prefetcher) == list(prefetcher) == [number**2 for number in range(20)]
    assert not loader_threads()


@pytest.mark.parametrize(("threads", "depth"), [(1, 1), (1, 3), (2, 4)])
def test_it_is_never_further_ahead_than_its_depth(threads, depth):
    begun = []
    most = 0
    for taken, _ in enumerate(
        ThreadPrefetcher(lambda number: begun.append(number), range(30), threads=threads, depth=depth), 1
    ):
        time.sleep(0.002)  # time enough to run ahead
        most = max(most, len(begun) - taken)
    assert most == depth and sorted(begun) == list(range(30))


def test_threads_fetch_at_once():
    meet = threading.Barrier(3)
    fetched = list(ThreadPrefetcher(lambda number: (meet.wait(10), number)[1], range(6), threads=3))
    assert fetched == list(range(6))  # each fetch waits for two others: one thread alone would break the barrier


def test_an_error_comes_at_its_batchs_place_and_no_thread_is_left():
    def fetch(number):
        if number == 3:
            raise OSError("disk on fire")
        return number

    got = []
    with pytest.raises(OSError, match="disk on fire"):
        for number in ThreadPrefetcher(fetch, range(100), threads=2, depth=8):
            got.append(number)
    assert got == [0, 1, 2] and not loader_threads()


def test_leaving_early_stops_the_threads():
    begun = []
    for number in ThreadPrefetcher(lambda number: (begun.append(number), number)[1], range(1000), threads=2, depth=4):
        if number == 5:
            break
    assert not loader_threads() and len(begun) <= 6 + 4


def test_threads_without_a_batch_each_are_refused():
    for threads, depth in ((0, 1), (2, 1)):
        with pytest.raises(ValueError, match=f"threads={threads}, depth={depth}"):
            ThreadPrefetcher(abs, [1], threads=threads, depth=depth)


# --- the device prefetcher ---------------------------------------------------------------------------------------------------


def batches(pin=False):
    made = [(torch.full((256, 1024), float(number)), torch.tensor([number])) for number in range(12)]
    return [tuple(tensor.pin_memory() for tensor in one) for one in made] if pin else made


def test_on_the_cpu_the_batches_pass_through():
    given = batches()
    got = list(DevicePrefetcher(given, torch.device("cpu")))
    assert len(got) == 12 and all(
        torch.equal(a, b) for one, other in zip(given, got, strict=True) for a, b in zip(one, other, strict=True)
    )
    assert list(DevicePrefetcher([], torch.device("cpu"))) == []
    assert isinstance(got[0], tuple)
    named = namedtuple("Batch", "image label")(*given[0])  # as default_collate makes of samples that are named tuples
    assert next(iter(DevicePrefetcher([named], torch.device("cpu")))).label.item() == 0


def events(kernels):
    """A trace as the profiler exports it: times in µs, copies both ways, `kernels` kernels of 10 µs."""
    copies = [{"cat": "gpu_memcpy", "name": f"Memcpy {way} (Pinned)", "ts": 5.0, "dur": 20.0} for way in ("HtoD", "DtoH")]
    return [*copies, *({"cat": "kernel", "name": "gemm", "ts": 100.0 + 12 * k, "dur": 10.0} for k in range(kernels))]


def test_a_trace_gives_the_copies_to_the_gpu_and_the_steps_on_it():
    copy, first, second = overlap.traced(events(kernels=6), steps=2)
    assert (copy.lane, copy.start, copy.end) == ("copy", pytest.approx(5e-6), pytest.approx(25e-6))
    assert (first.start, first.end) == (pytest.approx(100e-6), pytest.approx(134e-6))
    assert second.start == pytest.approx(136e-6) and second.lane == "compute"


@pytest.mark.parametrize("kernels", [0, 5])
def test_a_trace_that_lacks_kernels_is_refused(kernels):
    with pytest.raises(LabError, match=f"{kernels} kernels for 2 equal steps"):
        overlap.traced(events(kernels), steps=2)


@pytest.mark.cuda
def test_on_a_gpu_no_batch_is_overwritten_before_it_is_read():
    device = torch.device("cuda:0")
    weight = torch.eye(1024, device=device)
    sums = []
    prefetcher = DevicePrefetcher(batches(pin=True), device)
    for images, label in prefetcher:
        work = images
        for _ in range(20):  # long work, queued while later copies want memory
            work = work @ weight
        sums.append((work.mean(), label))
        del images, work
    assert [(round(float(mean)), int(label)) for mean, label in sums] == [(number, number) for number in range(12)]


@pytest.mark.cuda
@pytest.mark.parametrize(
    "row", [overlap.pinned_memory, overlap.gpu_prefetcher, overlap.io_vs_compute], ids=lambda row: row.slug
)
def test_on_a_gpu_the_exact_claims_hold(row):
    result = row("quick", device="cuda")
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []
