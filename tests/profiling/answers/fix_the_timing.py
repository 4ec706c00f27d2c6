"""Answers to `fix-the-timing`: warm up, wait, then the median of calls that were each waited for."""

import statistics
import time


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


def samples_of(work, device, *, warm=1, before=True, after=True, keep=True, calls=7):
    kept = [work() for _ in range(warm)]
    samples = []
    for _ in range(calls):
        if before:
            device.synchronize()
        begin = device.clock()
        if keep:
            kept = work()
        else:
            work()
        if after:
            device.synchronize()
        samples.append(device.clock() - begin)
    del kept
    return samples


def never_waits(work, device):
    return statistics.median(samples_of(work, device, before=False, after=False))


def waits_only_before(work, device):
    return statistics.median(samples_of(work, device, after=False))


def throws_away(work, device):
    return statistics.median(samples_of(work, device, keep=False))


def warm_up_in_the_mean(work, device):
    return statistics.mean(samples_of(work, device, warm=0))


def mean_of_samples(work, device):
    return statistics.mean(samples_of(work, device))


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


def least(work, device):
    return min(samples_of(work, device))


def most_of_the_middle(work, device):
    return sorted(samples_of(work, device, calls=9))[-2]


def in_milliseconds(work, device):
    return 1e3 * statistics.median(samples_of(work, device))


def all_together(work, device):
    return sum(samples_of(work, device))


def real_clock(work, device):
    begin = time.perf_counter()
    kept = work()
    device.synchronize()
    del kept
    return time.perf_counter() - begin


def one_sample(work, device):
    return samples_of(work, device, calls=1)[0]


def no_work(work, device):
    return 0.01


def a_constant(work, device):
    kept = samples_of(work, device)
    return 0.01 if kept else 0.0


def no_return(work, device):
    samples_of(work, device)


WRONG = [
    ("no-synchronize", never_waits),
    ("no-synchronize", waits_only_before),
    ("optimized-away", throws_away),
    ("warm-up-counted", warm_up_in_the_mean),
    ("mean-not-median", mean_of_samples),
    ("mean-not-median", one_clock_for_all),
    ("starts-on-a-busy-device", busy_at_the_start),
    ("minimum-not-median", least),
    ("maximum-not-median", most_of_the_middle),
    ("milliseconds", in_milliseconds),
    ("total-not-per-call", all_together),
    ("another-clock", real_clock),
    ("too-few-samples", one_sample),
    ("never-called", no_work),
    ("constant", a_constant),
    ("returns-nothing", no_return),
]


# ---- more wrong answers, and right ones that do it in another way ----------------------------------------------------------


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


def mean_without_the_longest(work, device):
    return statistics.mean(sorted(samples_of(work, device))[:-1])


def begin_minus_end(work, device):
    return -statistics.median(samples_of(work, device))


def synchronize_outside(work, device):
    kept, samples = [work()], []
    device.synchronize()
    for _ in range(7):
        begin = device.clock()
        kept.append(work())
        samples.append(device.clock() - begin)
    device.synchronize()
    return statistics.median(samples)


def warm_up_in_the_queue(work, device):
    kept, samples = [work()], []
    for _ in range(5):
        begin = device.clock()
        kept.append(work())
        device.synchronize()
        samples.append(device.clock() - begin)
    return statistics.mean(samples)


def two_samples(work, device):
    return statistics.median(samples_of(work, device, calls=2))


def divided_by_one_more(work, device):
    samples = samples_of(work, device)
    return sum(samples) / (len(samples) + 1)


WRONG += [
    ("the-original", the_original),
    ("optimized-away", the_original_with_one_synchronize),
    ("warm-up-counted", the_original_with_the_results_kept),
    ("no-synchronize", synchronize_outside),
    ("starts-on-a-busy-device", warm_up_in_the_queue),
    ("too-few-samples", two_samples),
    ("negative", begin_minus_end),
    ("microseconds", lambda work, device: 1e6 * statistics.median(samples_of(work, device))),
    ("samples-not-median", samples_of),
    ("samples-not-median", lambda work, device: tuple(samples_of(work, device))),
    ("wrong-count", divided_by_one_more),
    ("maximum-not-median", lambda work, device: max(samples_of(work, device))),
    ("wrong-value", lambda work, device: 2 * statistics.median(samples_of(work, device))),
    ("minimum-not-median", lambda work, device: sorted(samples_of(work, device, calls=20))[0]),
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
