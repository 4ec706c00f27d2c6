"""Answers to `fix-the-timing`: warm up, wait, then the median of calls that were each waited for."""

import statistics
import time  # noqa: F401  in an edit

from edited_source import wrong_answers


def solution(work, device):
    from statistics import median

    kept = work()
    samples = []
    for _ in range(7):
        device.synchronize()
        begin = device.clock()
        kept = work()
        device.synchronize()
        samples.append(device.clock() - begin)
    del kept
    return median(samples)


WRONG = wrong_answers(
    solution,
    [
        ("no-synchronize", ("        device.synchronize()\n", "")),
        ("no-synchronize", ("        device.synchronize()\n        samples", "        samples")),
        ("optimized-away", ("        kept = work()\n        device", "        work()\n        device")),
        (
            "warm-up-counted",
            ("    kept = work()\n    samples = []", "    samples = []"),
            ("return median", "return statistics.mean"),
        ),
        ("mean-not-median", ("return median", "return statistics.mean")),
        ("minimum-not-median", ("return median", "return min")),
        ("maximum-not-median", ("return median", "return max")),
        ("milliseconds", ("return median", "return 1e3 * median")),
        ("microseconds", ("return median", "return 1e6 * median")),
        ("negative", ("return median", "return -median")),
        ("wrong-value", ("return median", "return 2 * median")),
        ("total-not-per-call", ("return median", "return sum")),
        ("wrong-count", ("median(samples)", "sum(samples) / 8")),
        ("constant", ("median(samples)", "0.01")),
        ("wrong-value", ("median(samples)", "sum(sorted(samples)[:4]) / 4")),
        ("never-ends", ("range(7)", "iter(int, 1)")),
        ("too-few-samples", ("range(7)", "range(1)")),
        ("too-few-samples", ("range(7)", "range(2)")),
        ("another-clock", ("device.clock()", "time.perf_counter()")),
    ],
)


def samples_of(work, device, *, warm=1, calls=7):
    kept = [work() for _ in range(warm)]
    samples = []
    for _ in range(calls):
        device.synchronize()
        begin = device.clock()
        kept = work()
        device.synchronize()
        samples.append(device.clock() - begin)
    del kept
    return samples


def one_clock_for_all(work, device):
    kept = [work()]
    device.synchronize()
    begin = device.clock()
    kept += [work() for _ in range(10)]
    device.synchronize()
    return (device.clock() - begin) / 10


def busy_at_the_start(work, device):
    begin = device.clock()
    kept = [work() for _ in range(10)]
    device.synchronize()
    del kept
    return (device.clock() - begin) / 10


def most_of_the_middle(work, device):
    return sorted(samples_of(work, device, calls=9))[-2]


def the_original(work, device):
    begin = device.clock()
    for _ in range(10):
        work()
    return (device.clock() - begin) / 10


def the_original_with_one_synchronize(work, device):
    begin = device.clock()
    for _ in range(10):
        work()
    device.synchronize()
    return (device.clock() - begin) / 10


def the_original_with_the_results_kept(work, device):
    device.synchronize()
    begin = device.clock()
    kept = [work() for _ in range(10)]
    device.synchronize()
    return (device.clock() - begin) / len(kept)


def warm_up_in_the_queue(work, device):
    kept, samples = [work()], []
    for _ in range(5):
        begin = device.clock()
        kept.append(work())
        device.synchronize()
        samples.append(device.clock() - begin)
    return statistics.mean(samples)


WRONG += [
    ("the-original", the_original),
    ("optimized-away", the_original_with_one_synchronize),
    ("warm-up-counted", the_original_with_the_results_kept),
    ("mean-not-median", one_clock_for_all),
    ("starts-on-a-busy-device", busy_at_the_start),
    ("starts-on-a-busy-device", warm_up_in_the_queue),
    ("maximum-not-median", most_of_the_middle),
    ("never-called", lambda work, device: 0.01),
]


def with_numpy(work, device):
    import numpy as np

    return np.median(samples_of(work, device, warm=2, calls=21))


def with_torch(work, device):
    import torch

    return torch.tensor(samples_of(work, device, calls=11), dtype=torch.float64).quantile(0.5)


def stamps(work, device):
    kept, times = [work()], []
    device.synchronize()
    for _ in range(9):
        times.append(device.clock())
        kept.append(work())
        device.synchronize()
    times.append(device.clock())
    return sorted(b - a for a, b in zip(times, times[1:], strict=False))[4]


def warm_up_as_a_sample_that_is_left_out(work, device):
    return statistics.median_low(samples_of(work, device, warm=0, calls=8)[1:])


def one_usual_call(work, device):
    samples = sorted(samples_of(work, device, warm=3, calls=12))
    middle = samples[4:8]
    return sum(middle) / len(middle)


ALSO_RIGHT = [with_numpy, with_torch, stamps, warm_up_as_a_sample_that_is_left_out, one_usual_call]


def as_many_as_the_first_allows(work, device):
    kept, times = [work()], []
    device.synchronize()
    start = device.clock()
    kept.append(work())
    device.synchronize()
    first = device.clock() - start
    for _ in range(1 if first > 0.2 else 7):
        start = device.clock()
        kept.append(work())
        device.synchronize()
        times.append(device.clock() - start)
    return first if first > 0.2 else statistics.median(times)


WRONG += [("mean-not-median", as_many_as_the_first_allows)]
