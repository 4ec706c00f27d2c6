"""Answers to `staleness`: updates between the reading of the weights and the gradient's own update."""

import heapq

import numpy as np
from edited_source import wrong_answers


def solution(durations):
    events = []
    for worker, seconds in enumerate(durations):
        clock = 0.0
        for each in seconds:
            clock += each
            events.append((clock, worker))
    ages, read = [], {}
    for version, (_, worker) in enumerate(sorted(events)):
        ages.append(version - read.get(worker, 0))
        read[worker] = version + 1
    return ages


def by_heap(durations):
    underway = [(seconds[0], worker, 0, 0) for worker, seconds in enumerate(durations) if seconds]
    heapq.heapify(underway)
    ages = []
    while underway:
        clock, worker, number, read = heapq.heappop(underway)
        ages.append(len(ages) - read)
        if number + 1 < len(durations[worker]):
            heapq.heappush(underway, (clock + durations[worker][number + 1], worker, number + 1, len(ages)))
    return ages


def by_arrays(durations):
    ends = [np.cumsum(seconds) for seconds in durations if len(seconds)]
    begins = [np.append(0.0, end[:-1]) for end in ends]
    if not ends:
        return []
    begin, end = np.concatenate(begins), np.concatenate(ends)
    order = end.argsort()
    inside = (end[None] > begin[order, None]) & (end[None] < end[order, None])
    return inside.sum(1).tolist()


def by_subtraction(durations):
    works = []
    for seconds in durations:
        clock = 0.0
        for each in seconds:
            clock += each
            works.append((clock, clock - each))
    works.sort()
    return [sum(begin < other < end for other, _ in works) for end, begin in works]


WRONG = [
    *wrong_answers(
        solution,
        [("own-update-counted", ("= version + 1", "= version")), ("read-at-the-start", ("read[worker] = version + 1", "pass"))],
    ),
    ("wrong-type", lambda durations: max(solution(durations), default=0)),
    ("wrong-value", lambda durations: sorted(solution(durations))),
    ("wrong-value", lambda durations: solution([[round(x) for x in seconds] for seconds in durations])),
]
ALSO_RIGHT = [by_heap, by_arrays, by_subtraction]
