"""The experiments on hiding the time to load: prefetch, num-workers, pinned-memory, gpu-prefetcher."""

import multiprocessing
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

from hpml_lab.core.experiment import Result
from hpml_lab.core.experiment.registry import load_result
from hpml_lab.core.show import style
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.workers import child_pids
from hpml_lab.core.timing.clock import Timing
from hpml_lab.core.timing.noise import speed_up_of
from hpml_lab.core.timing.timeline import Span
from hpml_lab.loading import (
    BatchedImages,
    cheap_images,
    core_bound_workers,
    gpu_prefetcher,
    num_workers,
    pinned_memory,
    prefetch,
    prefetch_gain,
    tune_loader,
)
from hpml_lab.loading.experiments import num_workers as num_workers_module
from hpml_lab.loading.experiments import pinned_memory as pinned_memory_module
from hpml_lab.loading.experiments import prefetch as prefetch_module
from hpml_lab.loading.experiments.gpu_prefetcher import CopySchedule, spans_of_trace
from hpml_lab.loading.experiments.num_workers import EpochParts, WorkerCount, cheap_epochs, computed_epochs
from hpml_lab.loading.experiments.num_workers.cheap_epochs import CheapEpoch
from hpml_lab.loading.experiments.num_workers.computed_epochs import ComputedEpoch, ComputedRun, measure_computed
from hpml_lab.loading.experiments.pinned_memory import DeviceCopy, HostCopy
from hpml_lab.loading.experiments.pinned_memory.device_copies import CopyDuringCompute, CopyTimes
from hpml_lab.loading.experiments.prefetch import LoopTime, RatioGain
from hpml_lab.loading.lessons.epoch_bounds import LECTURE_COMPUTE, LECTURE_LOAD
from hpml_lab.loading.tools.epochs import PARTS, Epoch
from hpml_lab.loading.tools.known_datasets import Computed

EXPERIMENTS = (prefetch, num_workers, pinned_memory, gpu_prefetcher)
# Smaller than quick, at which the notebook runs them: the exact claims hold at any size. The numbers of workers that claims
# and figures name are kept.
SMALL = {
    "prefetch": dict(batches=6, batch_size=2, scale=0.02, depths=(1, 2), workers=(2,), ratios=(0.5, 1.0), rounds=1),
    "num-workers": dict(
        workers=(0, 1, 4, 8), batches=9, batch_size=2, scale=0.02, rounds=1, cheap=130, cheap_workers=(0, 1), work=0.001
    ),
    "pinned-memory": dict(kilobytes=(64, 1024)),
    "gpu-prefetcher": dict(batches=12, megabytes=1, seconds=0.01, rounds=2),
}


@pytest.fixture(scope="module")
def runs():
    """(experiment) -> its small run, and the processes that were there before: each runs once for all tests."""
    made = {}

    def once(experiment):
        if experiment.slug not in made:
            before = child_pids()
            made[experiment.slug] = replace(experiment, quick=SMALL[experiment.slug])("quick", device="cpu"), before
        return made[experiment.slug]

    return once


@pytest.fixture(params=EXPERIMENTS, ids=lambda experiment: experiment.slug)
def run(request, runs):
    return request.param, *runs(request.param)


def loader_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("thread_")]


def test_the_exact_claims_hold_and_nothing_is_left(run):
    _, result, before = run
    assert result.rows() and any(claim.exact for claim in result.claims)
    exact = [claim for claim in [*result.claims, *result.checks] if claim.exact]
    assert [claim.text for claim in exact if not claim.holds] == []
    assert child_pids() <= before and not loader_threads()


def test_the_figures_are_drawn_from_a_saved_result(run, tmp_path):
    experiment, result, _ = run
    loaded = load_result(result.save(tmp_path))
    further = {"prefetch": [prefetch_gain], "num-workers": [cheap_images, core_bound_workers]}.get(experiment.slug, [])
    for figure in (experiment.figure(loaded), *(draw(loaded).figure for draw in further)):
        assert len(style.png(figure)) > 5000 and 1 <= len(figure.axes) <= 4
        assert all(axes.get_xlabel() or axes.get_title() or axes.get_ylabel() for axes in figure.axes)


def test_two_threads_load_in_lanes_of_their_own(runs):
    result, _ = runs(prefetch)
    timeline = result.arrays["timelines"]["2 threads, depth 4"]
    assert {row["lane"] for row in timeline if row["what"] == "load"} == {"thread 0", "thread 1"}
    assert {row["lane"] for row in timeline if row["what"] == "compute"} == {"main"}
    assert [axes.get_title() for axes in result.figure().axes][2] == "2 threads, depth 4"


def test_key_figures_answer_the_lecture(run):
    _, result, _ = run
    missing = {figure.label for figure in result.key_figures if figure.lecture is not None and figure.here is None}
    need_a_gpu = {
        "pinned over pageable",
        "cheap images, 1 worker, training on a GPU",
        "cheap images, 8 workers, training on a GPU",
    }
    assert missing <= need_a_gpu


def test_with_known_times_a_copys_bandwidth_is_what_they_say(monkeypatch):
    monkeypatch.setattr(pinned_memory_module, "measure", lambda *_, **__: Timing((0.5,), 1))
    result = replace(pinned_memory, quick=dict(kilobytes=(64, 1024)))("quick", device="cpu")
    assert [row.megabytes for row in result.rows(HostCopy)] == [1 / 16, 1]
    assert [row.gb_per_s for row in result.rows(HostCopy)] == [64 * 1024 / 0.5 / 1e9, 2**20 / 0.5 / 1e9]
    assert result.here("host to host, largest copy") == 2**20 / 0.5 / 1e9


def test_with_known_copies_the_gpus_figures_are_what_they_say(monkeypatch):
    """A GPU to which 1 MiB takes 8 ms from pageable and 2 ms from pinned memory; the copy hides for three quarters."""
    gain = speed_up_of([8e-3] * 5, [2e-3] * 5, [8e-3] * 5)
    times = CopyTimes(8e-3, 2e-3, 7e-3, 1e-5, gain)
    turns = CopyDuringCompute((4.0,) * 5, (4.0,) * 5, (5.0,) * 5)
    assert turns.hidden == (0.75,) * 5
    monkeypatch.setattr(pinned_memory_module, "copy_times", lambda *_: times)
    monkeypatch.setattr(pinned_memory_module, "copy_during_compute", lambda *_: turns)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(pinned_memory_module, "pinned_or_warned", lambda: (True, ""))
    gpu = SimpleNamespace(is_cuda=True, torch=torch.device("cuda"))
    result = pinned_memory.function(SimpleNamespace(device=gpu, kilobytes=(1024,)))
    [row] = result.rows(DeviceCopy)
    assert (row.pageable, row.pinned) == (2**20 / 8e-3 / 1e9, 2**20 / 2e-3 / 1e9)
    assert (row.gain, row.verdict, row.pinned_call) == (4, "faster", pytest.approx(10))
    assert result.here("share of a copy hidden behind compute") == 0.75
    assert all(claim.holds for claim in result.claims), [claim for claim in result.claims if not claim.holds]


def known_epoch(seconds, **parts):
    """An epoch in which a batch is loaded from 0 to 3 s and computed on from 2 to 7 s."""
    spans = [Span("main", "load", 0.0, 3.0), Span("main", "compute", 2.0, 7.0)]
    return Epoch(seconds, dict.fromkeys(PARTS, 0.0) | parts, spans)


@pytest.mark.parametrize("last, sound", [(14.0, True), (11.0, False)])
def test_with_known_epochs_prefetch_says_who_gains_how_much(monkeypatch, last, sound):
    """Five batches are there at once and the sixth takes 6 s: how early it is asked for is all that counts."""
    by_way = [12.0, 6.0, 10.0, 3.0, 2.0, 8.0, 5.0, 12.0]
    seconds = iter([*(2 * by_way), *(2 * [18.0, last, 15.0])])
    parts = {"compute": 50.0, "waiting": 1.0, "collate": 0.5, "queue": 0.25, "start-up": 0.125}
    steps = []

    def run_epoch(batches, accelerator):
        steps.append(accelerator.seconds)
        return known_epoch(next(seconds), **parts)

    monkeypatch.setattr(prefetch_module, "run_epoch", run_epoch)
    monkeypatch.setattr(prefetch_module, "batch_loads", lambda *_: [0.0] * 5 + [6.0])
    size = dict(batches=6, batch_size=1, scale=0.0, depths=(1, 2, 4), workers=(1, 2), ratios=(1, 2), rounds=2)
    result = replace(prefetch, quick=size)("quick", device="cpu")
    assert steps == [1.0] * 16 + [2.0] * 6, "a batch's share of the load, then twice that"
    assert {row.way: (row.simulated, row.gain) for row in result.rows(LoopTime)} == {
        "plain loop": (12, 1),
        "thread, depth 1": (11, 2),  # asked for at 4 s, when the fifth is taken
        "thread, depth 2": (10, 1.2),
        "thread, depth 4": (8, 4),
        "2 threads, depth 4": (8, 6),
        "DataLoader, 1 worker": (10, 1.5),
        "DataLoader, 2 workers": (8, 2.4),
    }
    for row in result.rows(LoopTime):
        assert (row.both, row.waiting, row.start_up) == (1, 1.75, 0.125)
    even, twice = result.rows(RatioGain)
    assert (even.ratio, even.simulated, even.gain, even.seconds, even.bound) == (1, 1.2, 1.2, 10, 6)
    assert twice.simulated == 18 / 14, "simulated over simulated"
    assert twice.gain == 15 / last, "measured over measured, against the half of the placebo that is nearer"
    assert (twice.seconds, twice.bound) == (last, 12)
    assert [claim.holds for claim in result.claims if "no epoch is faster" in claim.text] == [sound]
    labels = ("loading", "plain loop", "one thread ahead", "best way")
    assert [result.here(label) for label in labels] == [6, 12, 1.2, 6]


def test_with_known_epochs_num_workers_says_where_the_time_goes(monkeypatch):
    """Four batches that take the lecture's 114.07 s to load, and its 15.10 s to compute: a cold epoch each, then two warm."""
    took = {0: [200.0] * 6, 4: [60.0, 40.0, 40.0], 8: [30.0, 20.0, 20.0]}
    parts = {200.0: {}, 60.0: {}, 40.0: {}, 30.0: {"start-up": 10.0, "waiting": 4.0}}
    parts[20.0] = {"compute": 16.0, "waiting": 2.0, "collate": 0.5, "queue": 1.5}
    cheap = {(0, False): 4.0, (0, True): 0.5, (1, False): 6.0, (1, True): 0.75, (8, False): 9.0, (8, True): 1.25}
    batch, asked = LECTURE_LOAD / 4, []

    def run_epoch(loader, accelerator):
        assert accelerator.seconds == pytest.approx(LECTURE_COMPUTE / 4), "of a batch"
        seconds = took[loader.num_workers].pop(0)
        return known_epoch(seconds, **parts[seconds])

    def batch_loads(storage, batches, batch_size):
        asked.append((storage.scale, batches, batch_size))
        return [batch] * batches

    def cheap_epoch(images, batch_size, workers, train):
        assert train is None, "without a GPU"
        return cheap[workers, isinstance(images, BatchedImages)]

    for known in (run_epoch, batch_loads):
        monkeypatch.setattr(num_workers_module, known.__name__, known)
    monkeypatch.setattr(cheap_epochs, "cheap_epoch", cheap_epoch)
    computing = {0: 4.0, 4: 2.0, 8: 2.0}
    gains = {count: speed_up_of([4.0] * 2, [seconds] * 2, [4.0] * 2) for count, seconds in computing.items()}
    computed = [ComputedEpoch(count, computing[count], gain.ratio, "", "") for count, gain in gains.items()]
    monkeypatch.setattr(num_workers_module, "measure_computed", lambda *_: ComputedRun(computed, gains))
    monkeypatch.setattr(computed_epochs.machine, "cores", lambda: 2)
    size = dict(workers=(0, 4, 8), batches=4, batch_size=1, scale=0.5, rounds=2, cheap=10, cheap_workers=(0, 1, 8), work=0.0)
    result = replace(num_workers, quick=size)("quick", device="cpu")
    assert asked == [(0.5, 4, 1), (1.0, 21, 32)], "the second at the lecture's own latencies"
    none, four, eight = rows = result.rows(WorkerCount)
    assert [(row.cold, row.warm, row.gain) for row in rows] == [(200, 200, 1), (60, 40, 5), (30, 20, 10)]
    assert none.simulated == pytest.approx(129.17) and none.bound == pytest.approx(129.17)
    assert four.bound == pytest.approx(batch) and four.expected == pytest.approx(2 * batch)
    assert four.lecture == pytest.approx(129.17 / 4)
    assert (eight.simulated, eight.expected) == pytest.approx((batch + 15.1, batch + 15.1))
    assert (eight.bound, eight.lecture) == pytest.approx((15.1, 129.17 / 8))
    epochs = {(parts.workers, parts.which): parts for parts in result.rows(EpochParts)}
    assert (epochs[8, "cold"].start_up, epochs[0, "cold"].start_up) == (10, 0)
    warm = epochs[8, "warm"]
    assert (warm.waiting, warm.collate, warm.queue) == (2, 0.5, 1.5)
    assert result.here("8 workers") == 10
    assert result.here("8 workers, waiting over computing") == 0.25
    assert result.here("8 workers, share of the epoch beyond the bound") == pytest.approx(4.9 / 20)
    assert result.here("the lecture's 8 workers, effective number") == pytest.approx(114.07 / 20.17)
    ratio = result.here("16 workers, simulated over the lecture's formula")
    assert ratio == pytest.approx((batch + 15.1) / (129.17 / 16))
    # Three rounds of loading; then the five batches of the third are computed on.
    assert result.here("8 workers simulated at the lecture's latencies") == pytest.approx(3 * batch + 5 * 15.1 / 21)
    assert [result.here(f"cheap images, {n}") for n in ("0 workers", "1 worker", "8 workers")] == [4, 6, 9]
    assert result.here("cheap images, 8 workers, whole batches") == 1.25
    one = result.rows(CheapEpoch)[1]
    assert (one.workers, one.one_by_one, one.whole_batches) == (1, 6, 0.75)
    assert [row.waiting_gain for row in result.rows(ComputedEpoch)] == [1, 5, 10]
    holds = {claim.text: claim.holds for claim in result.claims}
    assert holds["4 workers are faster than none, and 8 gain more than 4"]
    assert holds["With more workers than cores, samples that wait gain more than samples that compute"]
    assert holds["A worker makes cheap images slower"]
    assert holds["Whole batches in the main process beat every number of workers that fetch one by one"]


def cheap_rows(**seconds):
    """Rows by the number of workers, from `_1=6.7` and the like: three rounds alike; whole batches take a tenth."""
    numbers = {int(name[1:]): value for name, value in seconds.items()}
    return [
        CheapEpoch(n, value, value / 10, {cheap_epochs.ONE: [value] * 3, cheap_epochs.WHOLE: [value / 10] * 3})
        for n, value in numbers.items()
    ]


@pytest.mark.parametrize("trained", [False, True])
def test_the_lecture_s_epochs_of_mnist_are_compared_with_those_that_train_on_a_gpu(trained):
    rows = cheap_rows(_0=9.0, _1=6.7, _4=4.1)
    rows[0].samples[cheap_epochs.AGAIN] = [9.0] * 3
    result = Result()
    cheap_epochs.compare_cheap(result, rows, trained)
    with_lecture = {figure.label: figure.here for figure in result.key_figures if figure.lecture}
    labels = [f"cheap images, {n}, training on a GPU" for n in ("1 worker", "4 workers")]
    assert with_lecture == dict(zip(labels, (6.7, 4.1) if trained else (None, None), strict=True))
    assert ("cheap images, 1 worker" in {figure.label for figure in result.key_figures}) == (not trained)


def test_on_a_gpu_every_cheap_batch_is_pinned_and_trains_there(monkeypatch):
    """The GPU is played by the CPU: what is asked of the loader and of the trainer is noted."""
    asked, trained, waited = [], [], []

    class KnownTrainer(cheap_epochs.DigitTrainer):
        def __init__(self, device):
            assert device == torch.device("cuda:0")
            super().__init__(torch.device("cpu"))

        def __call__(self, images, labels):
            super().__call__(images, labels)
            trained.append(len(labels))

    def loader(*positional, pin_memory, **options):
        asked.append(pin_memory)
        return DataLoader(*positional, **options)

    monkeypatch.setattr(cheap_epochs, "DigitTrainer", KnownTrainer)
    monkeypatch.setattr(cheap_epochs, "DataLoader", loader)
    monkeypatch.setattr(cheap_epochs, "synchronize", waited.append)
    rows = cheap_epochs.measure_cheap(100, (0, 1), 1, torch.device("cuda:0"))
    assert [row.workers for row in rows] == [0, 1]
    assert trained == [64] + 5 * [64, 36], "a first step, then five epochs"
    assert asked == [True] * 6 and len(waited) == 6, "an epoch is over when the GPU is done"


def test_samples_that_compute_take_processor_time():
    samples = Computed(4, 0.01)
    begin = time.thread_time()
    index, used = samples[3]
    assert index == 3 and 0.01 <= used <= time.thread_time() - begin
    run = measure_computed((0, 1), 2, 0.001)
    assert [row.workers for row in run.rows] == [0, 1] and run.gains[0].ratio == 1
    assert not multiprocessing.active_children()


def test_num_workers_redoes_the_lectures_arithmetic(runs):
    result, _ = runs(num_workers)
    assert result.here("lecture's formula for 8 workers") == 16.15
    assert result.here("lecture's ideal overhead for 8 workers") == 0.82
    assert result.here("bound for 8 workers with the lecture's figures") == 15.1
    assert result.here("workers that suffice") == 8
    walls = {(row.workers, which): getattr(row, which) for row in result.rows(WorkerCount) for which in ("cold", "warm")}
    assert len(result.rows(EpochParts)) == len(walls)
    for parts in result.rows(EpochParts):
        total = sum(parts.part(name) for name in PARTS)
        assert total == pytest.approx(walls[parts.workers, parts.which], rel=0.01, abs=0.02)
    bounds = [entry["bound"] for entry in result.arrays["theory"]]
    assert bounds[-1] == bounds[-2]  # 16 workers are no faster than 8


def test_without_a_gpu_the_experiments_say_so_and_make_nothing_up(runs):
    (pinned, _), (copied, _) = runs(pinned_memory), runs(gpu_prefetcher)
    assert pinned.rows(HostCopy) and not pinned.rows(DeviceCopy)
    assert all("emulated" in row.schedule for row in copied.rows(CopySchedule))
    recorded = {figure.label for figure in gpu_prefetcher.reference().key_figures}
    assert {figure.label for figure in copied.key_figures} == recorded, "step times stand next to those of a GPU"
    for result in (pinned, copied):
        assert any(f"hpml-lab run {result.slug} --size full" in note for note in result.notes)


def events(kernels):
    """A trace as the profiler exports it: times in µs, copies both ways, `kernels` kernels of 10 µs."""
    copies = [{"cat": "gpu_memcpy", "name": f"Memcpy {way} (Pinned)", "ts": 5.0, "dur": 20.0} for way in ("HtoD", "DtoH")]
    return [*copies, *({"cat": "kernel", "name": "gemm", "ts": 100.0 + 12 * k, "dur": 10.0} for k in range(kernels))]


def test_a_trace_gives_the_copies_to_the_gpu_and_the_steps_on_it():
    copy, first, second = spans_of_trace(events(kernels=6), steps=2)
    assert (copy.lane, copy.start, copy.end) == ("copy", pytest.approx(5e-6), pytest.approx(25e-6))
    assert (first.start, first.end) == (pytest.approx(100e-6), pytest.approx(134e-6))
    assert second.start == pytest.approx(136e-6) and second.lane == "compute"


@pytest.mark.parametrize("kernels", [0, 5])
def test_a_trace_that_lacks_kernels_is_refused(kernels):
    with pytest.raises(LabError, match=f"{kernels} kernels for 2 equal steps"):
        spans_of_trace(events(kernels), steps=2)


@pytest.mark.cuda
@pytest.mark.parametrize(
    "experiment", [pinned_memory, gpu_prefetcher, num_workers, tune_loader], ids=lambda experiment: experiment.slug
)
def test_on_a_gpu_the_exact_claims_hold(experiment):
    result = experiment("quick", device="cuda")
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []
