"""The code for a GPU, run on the CPU: streams, events and the profiler are stand-ins that only take note of their use."""

import contextlib
import itertools

import pytest
import torch

from hpml_lab.core.timing.clock import PLACEBO, Timing
from hpml_lab.loading.experiments import gpu_prefetcher
from hpml_lab.loading.experiments.gpu_prefetcher import AGAIN, AHEAD, IN_TURN, on_gpu
from hpml_lab.loading.experiments.pinned_memory import device_copies
from hpml_lab.loading.experiments.pinned_memory.device_copies import copy_during_compute, copy_times

CPU = torch.device("cpu")


class Stream:
    """A stream that notes what it waits for."""

    def __init__(self, name, noted):
        self.name, self.noted = name, noted

    def wait_stream(self, other):
        self.noted.append(f"{self.name} waits for {other.name}")


class Event:
    def record(self):
        pass

    def synchronize(self):
        pass


@pytest.fixture
def noted(monkeypatch):
    """What streams were asked to do, in order; every other call of torch.cuda does nothing."""
    noted = []
    current, side = Stream("current", noted), Stream("side", noted)

    @contextlib.contextmanager
    def on(stream):
        noted.append(f"on {stream.name}")
        yield

    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: side)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: current)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor.clone())
    return noted


def known_times(seconds, calls):
    """Stands for `interleaved`: calls each work once, notes the calls, and gives the times that are known by name."""

    def interleaved(works, *, samples, gpu, placebo=None):
        assert gpu is CPU
        calls.append(tuple(works))
        for work in works.values():
            work()
        found = {name: Timing((seconds[name],) * samples, 1) for name in works}
        return found | ({PLACEBO: found[placebo]} if placebo else {})

    return interleaved


def test_copies_from_pageable_and_pinned_memory_take_turns_by_events(noted, monkeypatch):
    calls = []
    monkeypatch.setattr(device_copies, "interleaved", known_times({"pageable": 4.0, "pinned": 1.0}, calls))
    times = copy_times(torch.ones(8), CPU, samples=5)
    assert calls == [("pageable", "pinned")]
    assert (times.pageable, times.pinned, times.gain.ratio) == (4, 1, 4) and times.gain.faster
    assert times.pageable_call > 0 and times.pinned_call > 0


def test_a_copy_begins_with_its_turn_and_the_turn_ends_after_it(noted, monkeypatch):
    calls = []
    seconds = {"copy": 8.0, "products": 20.0, "compute": 8.0, "both": 9.0}
    monkeypatch.setattr(device_copies, "SIDE", 4)
    monkeypatch.setattr(device_copies, "interleaved", known_times(seconds, calls))
    products = []
    monkeypatch.setattr(torch, "mm", lambda a, b, out: products.append("product") or noted.append("product"))
    turns = copy_during_compute(torch.ones(8), CPU, samples=5)
    assert calls == [("copy", "products"), ("copy", "compute", "both")]
    copy = ["side waits for current", "on side"]
    both = [*copy, *["product"] * 8, "current waits for side"]
    assert noted[-len(both) :] == both, "the products are queued between the copy and the wait for it"
    assert len(products) == 20 + 8 + 8, "as many products as take the time of a copy"
    assert turns.hidden == (7 / 8,) * 5


def test_both_schedules_are_timed_in_turns_and_give_the_same_batches(noted, monkeypatch):
    asked = []
    trace = [{"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "ts": 10.0 * n, "dur": 5.0} for n in range(3)]
    trace += [{"cat": "kernel", "name": "gemm", "ts": 10.0 * n + 5, "dur": 4.0} for n in range(6)]

    def event_seconds(work, device):
        asked.append(work())
        return float(len(asked))

    monkeypatch.setattr(gpu_prefetcher, "interleaved", known_times({"copy": 2.0, "step": 10.0}, []))
    monkeypatch.setattr(gpu_prefetcher, "event_seconds", event_seconds)
    monkeypatch.setattr(gpu_prefetcher, "profiled", lambda work, device: work())
    monkeypatch.setattr(gpu_prefetcher, "trace_events", lambda profile: trace)
    runs = on_gpu(batches=3, megabytes=1, device=CPU, rounds=2)
    assert {name: run.samples for name, run in runs.items()} == {IN_TURN: [1, 4], AHEAD: [2, 5], AGAIN: [3, 6]}
    assert all(run.order == [0, 1, 2] for run in runs.values())
    assert [len(run.of("copy")) for run in runs.values()] == [3, 3, 0] and len(runs[AHEAD].of("compute")) == 3


def test_a_pinned_buffer_is_written_again_only_when_the_step_that_reads_it_is_over(monkeypatch, noted):
    """A pinned copy of every batch took 3.9 GB of the host's memory."""
    given, recorded, last_over, readers, pinned = itertools.count(), itertools.count(), [-1], {}, []

    class Event:  # of a step: the first is on the batch that was given first, and so on
        def record(self):
            self.number = next(recorded)

        def synchronize(self):
            last_over[0] = max(last_over[0], self.number)

    class Watched(gpu_prefetcher.NumberedBatches):
        def __iter__(self):
            for batch in super().__iter__():
                assert readers.get(id(batch), -1) <= last_over[0], "the step that reads this buffer may not be over"
                readers[id(batch)] = next(given)
                yield batch

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(1) or tensor)
    monkeypatch.setattr(gpu_prefetcher, "NumberedBatches", Watched)
    monkeypatch.setattr(gpu_prefetcher, "interleaved", known_times({"copy": 2.0, "step": 10.0}, []))
    monkeypatch.setattr(gpu_prefetcher, "event_seconds", lambda work, device: bool(work()) + 1.0)
    monkeypatch.setattr(gpu_prefetcher, "profiled", lambda work, device: work())
    monkeypatch.setattr(gpu_prefetcher, "trace_events", lambda profile: [])
    monkeypatch.setattr(gpu_prefetcher, "spans_of_trace", lambda events, steps: [])
    runs = on_gpu(batches=7, megabytes=1, device=CPU, rounds=2)
    assert all(run.order == list(range(7)) for run in runs.values()) and len(pinned) == 3
