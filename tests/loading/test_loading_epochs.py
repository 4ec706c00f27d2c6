"""The predictions against a simulation by events; the account of a loop against loops whose times are known."""

import heapq
import multiprocessing
import random

import pytest
import torch
from torch.utils.data import DataLoader

from hpml_lab.core.system.workers import allow_oversubscription
from hpml_lab.core.timing.timeline import Span
from hpml_lab.loading.experiments.slow_clips import Clips, StorageModel, make_clips
from hpml_lab.loading.lessons.epoch_bounds import (
    LECTURE_COMPUTE,
    LECTURE_LOAD,
    expected_time,
    lecture_time,
    lower_bound,
    simulate,
)
from hpml_lab.loading.lessons.prefetchers import ThreadPrefetcher
from hpml_lab.loading.lessons.whole_batches import BatchedImages, ready_made
from hpml_lab.loading.tools import epochs
from hpml_lab.loading.tools.epochs import Accelerator, Fetch, checksum, run_epoch, stamped_loader


def by_events(loads, compute, workers, prefetch):
    """DataLoader's protocol played event by event: queues of the workers, a main loop, a heap of what ends next."""
    queues = [[] for _ in range(workers)]
    busy, ready, events = [False] * workers, set(), []
    asked = taken = 0
    computing, now = False, 0.0

    def ask():
        nonlocal asked
        if asked < len(loads):
            queues[asked % workers].append(asked)
            asked += 1

    for _ in range(workers * prefetch):
        ask()
    while True:
        for worker in range(workers):
            if not busy[worker] and queues[worker]:
                batch = queues[worker].pop(0)
                busy[worker] = True
                heapq.heappush(events, (now + loads[batch], "loaded", worker, batch))
        if not computing and taken in ready:
            ready.discard(taken)
            taken += 1
            computing = True
            ask()
            heapq.heappush(events, (now + compute, "computed", -1, -1))
            continue
        if not events:
            assert taken == len(loads)
            return now
        now, what, worker, batch = heapq.heappop(events)
        if what == "loaded":
            busy[worker] = False
            ready.add(batch)
        else:
            computing = False


def test_the_simulation_agrees_with_one_by_events():
    draw = random.Random(0)
    for _ in range(300):
        loads = [draw.lognormvariate(0, 1) for _ in range(draw.randrange(1, 30))]
        compute, workers, prefetch = draw.uniform(0, 2), draw.randrange(1, 9), draw.randrange(1, 5)
        assert simulate(loads, compute, workers, prefetch) == pytest.approx(by_events(loads, compute, workers, prefetch))


def test_without_workers_everything_takes_its_turn():
    assert (
        simulate([1, 2, 3], 0.5, 0) == lower_bound(6, 1.5, 0) == expected_time(6, 1.5, 0, 3) == lecture_time(6, 1.5, 0) == 7.5
    )


def test_no_simulated_epoch_is_faster_than_the_bound():
    draw = random.Random(1)
    for _ in range(300):
        loads = [draw.lognormvariate(0, 1) for _ in range(draw.randrange(1, 30))]
        compute, workers = draw.uniform(0, 2), draw.randrange(0, 9)
        bound = lower_bound(sum(loads), compute * len(loads), workers)
        assert simulate(loads, compute, workers) >= bound - 1e-9


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
@pytest.mark.parametrize("compute", [0.01, 0.1, 0.5, 1.0, 3.0])
def test_even_batches_take_the_bound_and_at_most_a_first_batch_and_a_last_step_more(workers, compute):
    loads = [1.0] * 24
    simulated = simulate(loads, compute, workers)
    assert lower_bound(24, 24 * compute, workers) <= simulated <= expected_time(24, 24 * compute, workers, 24) + compute + 1e-9


def test_the_lectures_arithmetic():
    assert round(lecture_time(LECTURE_LOAD, LECTURE_COMPUTE, 8), 2) == 16.15
    assert round(lecture_time(LECTURE_LOAD, LECTURE_COMPUTE, 8) - 15.33, 2) == 0.82
    assert lower_bound(LECTURE_LOAD, LECTURE_COMPUTE, 8) == 15.10  # the compute; 114.07 / 8 is 14.26
    assert lower_bound(LECTURE_LOAD, LECTURE_COMPUTE, 7) == LECTURE_LOAD / 7
    assert lecture_time(LECTURE_LOAD, LECTURE_COMPUTE, 16) < LECTURE_COMPUTE  # promises less than the compute alone


def test_a_loop_with_known_stamps_is_split_as_they_say(monkeypatch):
    moments = iter([0.0, 1.0, 10.0, 14.0, 15.0, 19.0, 19.5, 20.0])
    monkeypatch.setattr(epochs, "CLOCK", lambda: next(moments))
    # wall, iter; batch 0 got at 10, computed until 14; batch 1 got at 15, computed until 19; no more at 19.5
    first = [Span("worker 0", "load", 3.0, 6.0), Span("worker 0", "collate", 6.5, 8.0)]
    second = [Span("worker 0", "load", 8.0, 14.25), Span("worker 0", "collate", 14.25, 14.5)]
    epoch = run_epoch([("a", first), ("b", second)], lambda batch: None)
    # start-up: 1 s of iter() and 2 s until the load; waiting: 3.0 to 6.5 and 14.0 to 14.25
    assert epoch.parts == {"compute": 8, "waiting": 3.75, "collate": 1.75, "queue": 2.5, "start-up": 3, "end": 0.5}
    assert epoch.seconds == 19.5 == sum(epoch.parts.values())


def accounted(epoch):
    """Whether the parts are seconds, none negative, that add up to the wall time, and each batch was loaded, then collated."""
    ordered = all(load.end <= collate.start <= collate.end for load, collate, _ in zip(*[iter(epoch.spans)] * 3, strict=True))
    gap = abs(sum(epoch.parts.values()) - epoch.seconds)
    return ordered and min(epoch.parts.values()) >= 0 and gap <= 0.01 * epoch.seconds + 0.02


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    return Clips(make_clips(tmp_path_factory.mktemp("clips"), 24), StorageModel(scale=0.02))


def test_every_number_of_workers_and_threads_gives_the_same_bits(clips):
    indices = [list(range(b, b + 4)) for b in range(0, 24, 4)]
    plain = [checksum(torch.utils.data.default_collate([clips[i] for i in batch])) for batch in indices]
    assert len(set(plain)) == 6
    with allow_oversubscription():
        ways = [stamped_loader(clips, 4, workers) for workers in (0, 1, 2, 3)]
        ways += [ThreadPrefetcher(indices, Fetch(clips), threads=threads, depth=4) for threads in (1, 2, 4)]
        for batches in ways:
            accelerator = Accelerator(0.001)
            epoch = run_epoch(batches, accelerator)
            assert accelerator.checksums == plain
            assert accounted(epoch) and epoch.parts["compute"] >= 0.006
    assert not multiprocessing.active_children()


def test_spans_name_who_loaded(clips):
    with allow_oversubscription():
        for workers, lanes in ((0, {"main"}), (2, {"worker 0", "worker 1"})):
            epoch = run_epoch(stamped_loader(clips, 4, workers), Accelerator(0.0))
            assert {span.lane for span in epoch.spans if span.what == "load"} == lanes
            assert [span.what for span in epoch.spans].count("compute") == 6


def test_a_data_set_that_fetches_whole_batches_keeps_its_way():
    images = BatchedImages(64)
    loader = stamped_loader(images, 16, 0, collate=ready_made)
    batches = [batch for batch, _ in loader]
    assert len(batches) == 4 and torch.equal(batches[1][0], images.__getitems__(list(range(16, 32)))[0])


def test_an_error_in_a_worker_reaches_the_loop_and_leaves_no_process(tmp_path):
    broken = Clips(make_clips(tmp_path, 8))
    broken.clips[5] += "_gone"
    with allow_oversubscription(), pytest.raises(FileNotFoundError, match="_gone"):
        run_epoch(stamped_loader(broken, 2, 2), Accelerator(0.0))
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("persistent", [False, True])
def test_an_error_of_the_step_ends_the_workers(clips, persistent):
    def step(batch):
        raise KeyboardInterrupt

    loader = stamped_loader(clips, 4, 2, persistent_workers=persistent)
    with allow_oversubscription(), pytest.raises(KeyboardInterrupt):
        run_epoch(loader, step)
    assert not multiprocessing.active_children()


def test_a_checksum_sees_one_bit():
    first, second = torch.zeros(4), torch.zeros(4)
    assert checksum((first, torch.ones(2))) == checksum([second, torch.ones(2)])
    second[3] = 1e-30
    assert checksum((first, torch.ones(2))) != checksum((second, torch.ones(2)))


def test_a_step_ends_when_the_gpu_has_done_it(monkeypatch):
    """By a clock that only the step and the wait for its GPU move."""
    now = [0.0]

    def pass_by(seconds):
        now[0] += seconds

    monkeypatch.setattr(epochs, "CLOCK", lambda: now[0])
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: pass_by(5.0))
    for used, expected in ((True, 12.0), (False, 2.0)):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda used=used: used)
        found = run_epoch(["a", "b"], lambda batch: pass_by(1.0))
        assert (found.parts["compute"], found.parts["waiting"], found.seconds) == (expected, 0.0, expected)


def test_a_plain_loader_is_run_and_its_wait_is_not_divided(clips):
    """Batches of a plain DataLoader carry no time stamps; they used to fail with "not enough values to unpack"."""
    batches = []
    with allow_oversubscription():
        for workers in (0, 2):
            epoch = run_epoch(DataLoader(clips, 4, num_workers=workers), batches.append)
            assert sum(epoch.parts.values()) == pytest.approx(epoch.seconds, rel=0.01, abs=0.02)
            assert epoch.parts["waiting"] > 0 == epoch.parts["collate"] == epoch.parts["queue"]
            assert [span.what for span in epoch.spans] == ["compute"] * 6
    assert len(batches) == 12 and all(torch.equal(a[0], b[0]) for a, b in zip(batches[:6], batches[6:], strict=True))
    assert run_epoch([{"image": 1}, [2, 3], 4], lambda batch: None).parts["compute"] >= 0
