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


def no_return(work, device):
    samples_of(work, device)


WRONG = [
    ("no-synchronise", never_waits),
    ("no-synchronise", waits_only_before),
    ("optimised-away", throws_away),
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
    ("returns-nothing", no_return),
]
