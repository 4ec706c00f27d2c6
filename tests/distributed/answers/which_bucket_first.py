"""Answers to `which-bucket-first`: which parameters share a bucket, and in which order the buckets leave."""

from itertools import accumulate

import numpy as np
import torch
from edited_source import wrong_answers


def solution(sizes, cap):
    buckets, bucket, held = [], [], 0
    for number in reversed(range(len(sizes))):
        bucket.append(number)
        held += sizes[number]
        if held >= cap:
            buckets.append(bucket)
            bucket, held = [], 0
    if bucket:
        buckets.append(bucket)
    return buckets


def never_above(sizes, cap):
    buckets, bucket = [], []
    for number in reversed(range(len(sizes))):
        if bucket and sum(sizes[i] for i in bucket) + sizes[number] > cap:
            buckets.append(bucket)
            bucket = []
        bucket.append(number)
    return [*buckets, bucket]


def forward(sizes, cap):
    return [[len(sizes) - 1 - number for number in bucket] for bucket in solution(sizes[::-1], cap)]


def reversed_at_the_end(sizes, cap):
    return list(reversed(forward(sizes, cap)))


def reversed_inside_too(sizes, cap):
    return [bucket[::-1] for bucket in reversed(forward(sizes, cap))]


def equal_parts(sizes, cap):
    count = -(-sum(sizes) // cap)
    return [part.tolist() for part in np.array_split(np.arange(len(sizes))[::-1], count)]


def clears_the_bucket_only(sizes, cap):
    """What exceeds the cap counts for the next bucket."""
    buckets, bucket, held = [], [], 0
    for number in reversed(range(len(sizes))):
        bucket.append(number)
        held += sizes[number]
        if held >= cap:
            buckets.append(bucket)
            bucket, held = [], held - cap
    return [*buckets, bucket] if bucket else buckets


def fills_pairs(sizes, cap):
    """A full bucket takes one parameter more."""
    numbers, buckets = list(reversed(range(len(sizes)))), []
    while numbers:
        count = len(solution(sizes[: len(numbers)], cap)[0]) + 1
        buckets.append(numbers[:count])
        numbers = numbers[count:]
    return buckets


def large_ones_alone(sizes, cap):
    found, waiting = [], []
    for number in reversed(range(len(sizes))):
        if sizes[number] >= cap:
            found += [waiting, [number]]
            waiting = []
            continue
        waiting.append(number)
        if sum(sizes[i] for i in waiting) >= cap:
            found.append(waiting)
            waiting = []
    return [bucket for bucket in [*found, waiting] if bucket]


def rest_to_the_last(sizes, cap):
    *found, last = solution(sizes, cap)
    if found and sum(sizes[i] for i in last) < cap:
        found[-1] += last
        return found
    return [*found, last]


WRONG = [
    ("wrong-order", lambda sizes, cap: [sorted(bucket, key=str, reverse=True) for bucket in solution(sizes, cap)]),
    ("never-above-the-cap", never_above),
    ("filled-forward-then-reversed", reversed_at_the_end),
    ("filled-forward-then-reversed", reversed_inside_too),
    ("one-bucket-per-parameter", lambda sizes, cap: [[number] for number in range(len(sizes) - 1, -1, -1)]),
    ("one-bucket-for-all", lambda sizes, cap: [list(range(len(sizes)))[::-1]]),
    ("empty-bucket", lambda sizes, cap: [*solution(sizes, cap), []]),
    ("wrong-type", lambda sizes, cap: len(solution(sizes, cap))),
    ("parameters-missing", lambda sizes, cap: solution(sizes, cap)[:1]),
    ("empty-bucket", equal_parts),
    ("closed-too-early", clears_the_bucket_only),
    ("closed-too-late", fills_pairs),
    ("wrong-order", lambda sizes, cap: solution(sorted(sizes), cap)[::2] + solution(sorted(sizes), cap)[1::2]),
    ("listed-twice", lambda sizes, cap: [*solution(sizes, cap), [0]]),
    ("no-such-parameter", lambda sizes, cap: [[len(sizes), *bucket] for bucket in solution(sizes, cap)]),
    ("returns-nothing", lambda sizes, cap: None),
    *wrong_answers(
        solution,
        [
            ("closed-too-early", ("bucket, held = [], 0\n    if", "bucket = []\n    if")),
            ("parameters-missing", ("reversed(range(len(sizes)))", "range(len(sizes) - 1, 0, -1)")),
        ],
    ),
    ("large-ones-alone", large_ones_alone),
    ("rest-joins-the-last", rest_to_the_last),
]


def by_recursion(sizes, cap):
    if not sizes:
        return []
    for count, held in enumerate(accumulate(reversed(sizes)), start=1):
        if held >= cap or count == len(sizes):
            last = len(sizes)
            return [[last - 1 - i for i in range(count)], *by_recursion(sizes[: last - count], cap)]


def by_generator(sizes, cap):
    bucket = []
    for number, size in list(enumerate(sizes))[::-1]:
        bucket.append((number, size))
        if sum(size for _, size in bucket) >= cap:
            yield [number for number, _ in bucket]
            bucket = []
    if bucket:
        yield [number for number, _ in bucket]


def by_a_dictionary(sizes, cap):
    found, held, key = {}, 0, 0
    for number in range(len(sizes) - 1, -1, -1):
        found.setdefault(key, []).append(number)
        held += sizes[number]
        if held >= cap:
            key, held = key + 1, 0
    return found.values()


ALSO_RIGHT = [
    by_recursion,
    lambda sizes, cap: tuple(tuple(bucket) for bucket in solution(sizes, cap)),
    lambda sizes, cap: [np.array(bucket) for bucket in solution(sizes, cap)],
    lambda sizes, cap: [torch.tensor(bucket) for bucket in solution(sizes, cap)],
    lambda sizes, cap: [[np.int64(number) for number in bucket] for bucket in solution(sizes, cap)],
]


WRONG += [  # right numbers in another kind than the exercise asks for
    ("runs-nothing", by_generator),
    ("wrong-type", by_a_dictionary),
]
