"""Answers to `latency-from-due-time`: percentiles from the moment sent and from the moment due."""

import itertools
import math

import numpy as np
import torch
from edited_source import wrong_answers


def percentile(latencies, share):
    ordered = sorted(latencies)
    return ordered[max(math.ceil(share * len(ordered) / 100), 1) - 1]


def client(due, service):
    sent, done, free = [], [], 0.0
    for moment, seconds in zip(due, service, strict=True):
        sent.append(max(moment, free))
        free = sent[-1] + seconds
        done.append(free)
    return sent, done


def solution(due, service, share):
    import math  # a solution stands alone

    ordered = []
    free = -math.inf
    from_sent, from_due = [], []
    for moment, seconds in zip(due, service, strict=True):
        sent = max(moment, free)
        free = sent + seconds
        from_sent.append(free - sent)
        from_due.append(free - moment)
    rank = max(math.ceil(share * len(from_due) / 100), 1) - 1
    for latencies in (from_sent, from_due):
        ordered.append(sorted(latencies)[rank])
    return tuple(ordered)


RANKED, RESULT = "sorted(latencies)[rank]", "tuple(ordered)"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("not-one-of-the-latencies", (RANKED, f"float(np.float16({RANKED}))")),
            ("share-in-percent", (RANKED, "np.quantile(latencies, share)")),
            ("other-percentile-from-sent", (RANKED, 'np.percentile(latencies, share / 100, method="inverted_cdf")')),
            ("negative-latency", ("free - moment", "moment - free")),
            ("due-below-sent", (RESULT, "(ordered[0], 0.5 * ordered[1])")),
            ("another-rank-from-due", (RESULT, "sorted(zip(from_sent, from_due))[rank]")),
            ("other-percentile-from-due", (RESULT, "(ordered[0], 1.6 * ordered[1])")),
        ],
    )
]


def by_numpy(due, service, share):
    due, service = np.array(due), np.array(service)
    before = np.concatenate([[0.0], service.cumsum()[:-1]])
    sent = before + np.maximum.accumulate(due - before)
    done = sent + service
    return tuple(np.percentile(times, share, method="inverted_cdf") for times in (done - sent, done - due))


def by_torch(due, service, share):
    due, service = torch.tensor(due, dtype=torch.float64), torch.tensor(service, dtype=torch.float64)
    before = service.cumsum(0) - service
    done = before + (due - before).cummax(0).values + service
    rank = max(-(-share * len(due) // 100), 1)
    return torch.stack([service.kthvalue(rank).values, (done - due).kthvalue(rank).values])


def by_accumulate(due, service, share):
    pairs = zip(due, service, strict=True)
    done = list(itertools.accumulate(pairs, lambda free, pair: max(free, pair[0]) + pair[1], initial=-math.inf))[1:]
    return [percentile(service, share), percentile([b - a for a, b in zip(due, done, strict=True)], share)]


def by_counting(due, service, share):
    sent, done = client(due, service)

    def smallest(values):
        return min(x for x in values if 100 * sum(value <= x for value in values) >= share * len(values))

    return smallest([b - a for a, b in zip(sent, done, strict=True)]), smallest([b - a for a, b in zip(due, done, strict=True)])


def by_recursion(due, service, share):
    def done(i):
        return due[i] + service[i] if i == 0 else max(due[i], done(i - 1)) + service[i]

    latencies = [done(i) - due[i] for i in range(len(due))]
    return percentile(service, share), percentile(latencies, share)


def by_quantile(due, service, share):
    sent, done = map(np.array, client(due, service))
    return (
        float(np.quantile(done - sent, share / 100, method="inverted_cdf")),
        float(np.quantile(done - np.array(due), share / 100, method="inverted_cdf")),
    )


def with_the_library(due, service, share):
    from hpml_lab.serving.lessons.traffic import percentiles

    sent, done = client(due, service)
    times = ([b - a for a, b in zip(start, done, strict=True)] for start in (sent, due))
    return tuple(percentiles(latencies, (share,))[0] for latencies in times)


ALSO_RIGHT = [by_numpy, by_torch, by_accumulate, by_counting, by_recursion, by_quantile, with_the_library]
