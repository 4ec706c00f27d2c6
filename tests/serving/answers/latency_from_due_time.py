"""Answers to `latency-from-due-time`: percentiles from the moment sent and from the moment due."""

import itertools
import math
import statistics

import numpy as np
import torch


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


def after(due, service, share, percentile=percentile, first=None, second=None):
    sent, done = client(due, service)
    records = list(zip(due, sent, done, strict=True))
    first = first or (lambda due, sent, done: done - sent)
    second = second or (lambda due, sent, done: done - due)
    return percentile([first(*record) for record in records], share), percentile([second(*record) for record in records], share)


def open_client(due, service, share):
    latencies = list(service)
    return percentile(latencies, share), percentile(latencies, share)


def eager(due, service, share):
    moment, first, second = due[0], [], []
    for i in range(len(due)):
        first.append(service[i])
        moment += service[i]
        second.append(moment - due[i])
    return percentile(first, share), percentile(second, share)


def pauses(due, service, share):
    done, first, second = None, [], []
    for i in range(len(due)):
        sent = due[0] if done is None else done + due[i] - due[i - 1]
        done = sent + service[i]
        first.append(done - sent)
        second.append(done - due[i])
    return percentile(first, share), percentile(second, share)


def shifts(due, service, share):
    sent = done = None
    second = []
    for i in range(len(due)):
        sent = due[0] if done is None else max(done, sent + due[i] - due[i - 1])
        done = sent + service[i]
        second.append(done - due[i])
    return percentile(service, share), percentile(second, share)


def one_back(due, service, share):
    second = []
    for i in range(len(due)):
        sent = due[i] if i == 0 else max(due[i], due[i - 1] + service[i - 1])
        second.append(sent + service[i] - due[i])
    return percentile(service, share), percentile(second, share)


def both_sent(due, service, share):
    return after(due, service, share, second=lambda due, sent, done: done - sent)


def both_due(due, service, share):
    return after(due, service, share, first=lambda due, sent, done: done - due)


def waiting(due, service, share):
    return after(due, service, share, second=lambda due, sent, done: sent - due)


def waiting_twice(due, service, share):
    return after(due, service, share, second=lambda due, sent, done: done - due + sent - due)


def numpys(method):
    def answer(due, service, share):
        return after(due, service, share, lambda latencies, share: np.percentile(latencies, share, method=method))

    return answer


def index_too_high(due, service, share):
    return after(
        due, service, share, lambda values, share: sorted(values)[min(int(share * len(values) / 100), len(values) - 1)]
    )


def index_too_low(due, service, share):
    return after(due, service, share, lambda values, share: sorted(values)[max(int(share * len(values) / 100) - 1, 0)])


def unsorted(due, service, share):
    return after(due, service, share, lambda values, share: values[max(math.ceil(share * len(values) / 100), 1) - 1])


def from_the_top(due, service, share):
    return after(due, service, share, lambda values, share: percentile(values, 100 - share))


def mean(due, service, share):
    return after(due, service, share, lambda values, share: statistics.mean(values))


def largest(due, service, share):
    return after(due, service, share, lambda values, share: max(values))


def median_always(due, service, share):
    return after(due, service, share, lambda values, share: percentile(values, 50))


def share_of_one(due, service, share):
    return after(due, service, share, lambda values, share: np.quantile(values, share))


def fraction_as_percent(due, service, share):
    return after(due, service, share, lambda values, share: np.percentile(values, share / 100, method="inverted_cdf"))


def sum_of_percentiles(due, service, share):
    sent, done = client(due, service)
    late = [b - a for a, b in zip(due, sent, strict=True)]
    return percentile(service, share), percentile(service, share) + percentile(late, share)


def swapped(due, service, share):
    return solution(due, service, share)[::-1]


def sorts_the_services(due, service, share):
    service.sort()
    return solution(due, service, share)


def all_latencies(due, service, share):
    sent, done = client(due, service)
    return np.subtract(done, sent), np.subtract(done, due)


def without_the_first(due, service, share):
    return solution(due[1:] or due, service[1:] or service, share)


def sixty_percent_more(due, service, share):
    first, second = solution(due, service, share)
    return first, 1.6 * second


def with_ranks(percentile_of_sorted):
    def answer(due, service, share):
        sent, done = client(due, service)
        times = ([b - a for a, b in zip(start, done, strict=True)] for start in (sent, due))
        return tuple(percentile_of_sorted(sorted(latencies), share) for latencies in times)

    return answer


def moments(due, service, share):
    return percentile(service, share), percentile(client(due, service)[1], share)


def latency_of_one_request(due, service, share):
    latencies = np.subtract(client(due, service)[1], due)
    at = np.argsort(service, kind="stable")[max(math.ceil(share * len(due) / 100), 1) - 1]
    return service[at], latencies[at]


def request_at_the_second_percentile(due, service, share):
    sent, done = client(due, service)
    late = [end - moment for moment, end in zip(due, done, strict=True)]
    i = sorted(range(len(due)), key=late.__getitem__)[max(math.ceil(share * len(due) / 100), 1) - 1]
    return service[i], late[i]


def since_the_first_moment(due, service, share):
    done = client(due, service)[1]
    return percentile(service, share), percentile([end - due[0] for end in done], share)


def unsorted_from_due(due, service, share):
    sent, done = client(due, service)
    late = [end - moment for moment, end in zip(due, done, strict=True)]
    return percentile(service, share), late[max(math.ceil(share * len(late) / 100), 1) - 1]


WRONG = [
    ("not-sorted", unsorted_from_due),
    ("same-request", request_at_the_second_percentile),
    ("moment-instead-of-latency", since_the_first_moment),
    ("no-waiting", open_client),
    ("sends-too-early", eager),
    ("gap-after-the-answer", pauses),
    ("schedule-shifts", shifts),
    ("waiting-does-not-add-up", one_back),
    ("no-waiting", both_sent),
    ("both-from-due", both_due),
    ("waiting-instead-of-latency", waiting),
    ("twice-the-waiting", waiting_twice),
    ("interpolated", numpys("linear")),
    ("rank-too-high", index_too_high),
    ("rank-too-low", index_too_low),
    ("not-sorted", unsorted),
    ("from-the-top", from_the_top),
    ("mean", mean),
    ("largest", largest),
    ("median", median_always),
    ("share-in-percent", share_of_one),
    ("other-percentile-from-sent", fraction_as_percent),
    ("not-one-of-the-latencies", numpys("midpoint")),
    ("other-percentile-from-due", sum_of_percentiles),
    ("swapped", swapped),
    ("services-sorted", sorts_the_services),
    ("all-latencies", all_latencies),
    ("other-percentile-from-sent", without_the_first),
    ("other-percentile-from-due", sixty_percent_more),
    ("one-number", lambda due, service, share: solution(due, service, share)[1]),
    ("difference", lambda due, service, share: np.subtract(*solution(due, service, share)[::-1])),
    ("returns-nothing", lambda due, service, share: None),
    ("rank-0", with_ranks(lambda ordered, share: ordered[math.ceil(share * len(ordered) / 100) - 1])),
    ("rank-too-high", with_ranks(lambda ordered, share: ordered[int(share / 100 * len(ordered))])),
    ("rank-rounded", with_ranks(lambda ordered, share: ordered[round(share / 100 * len(ordered)) - 1])),
    ("rank-of-n-minus-1", numpys("lower")),
    ("rank-of-n-minus-1", numpys("higher")),
    ("rank-of-n-minus-1", numpys("nearest")),
    ("share-in-percent", with_ranks(lambda ordered, share: ordered[max(math.ceil(share * len(ordered)), 1) - 1])),
    ("from-the-top", with_ranks(lambda ordered, share: ordered[::-1][max(math.ceil(share * len(ordered) / 100), 1) - 1])),
    ("median", with_ranks(lambda ordered, share: np.median(ordered))),
    ("difference", lambda *given: (solution(*given)[0], solution(*given)[1] - solution(*given)[0])),
    ("moment-instead-of-latency", moments),
    ("same-request", latency_of_one_request),
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


def latencies_of_all_calls(due, service, share, kept=[]):  # noqa: B006
    kept += service
    return percentile(kept, share), solution(due, service, share)[1]


WRONG += [
    ("remembers-calls", latencies_of_all_calls),
    ("other-percentile-from-sent", with_ranks(lambda v, share: v[max(math.ceil(share * len(v) / 100 - 0.05), 1) - 1])),
    ("not-one-of-the-latencies", lambda *given: [float(np.float16(latency)) for latency in solution(*given)]),
    ("other-percentile-from-sent", lambda due, service, share: solution(due, service, min(share, 99))),
]
