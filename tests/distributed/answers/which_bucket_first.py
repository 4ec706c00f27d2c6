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


def fills_pairs(sizes, cap):
    """A full bucket takes one parameter more."""
    numbers, buckets = list(reversed(range(len(sizes)))), []
    while numbers:
        count = len(solution(sizes[: len(numbers)], cap)[0]) + 1
        buckets.append(numbers[:count])
        numbers = numbers[count:]
    return buckets


WRONG = [
    ("wrong-order", lambda sizes, cap: [sorted(bucket, key=str, reverse=True) for bucket in solution(sizes, cap)]),
    ("empty-bucket", lambda sizes, cap: [*solution(sizes, cap), []]),
    ("closed-too-late", fills_pairs),
    ("listed-twice", lambda sizes, cap: [*solution(sizes, cap), [0]]),
    ("no-such-parameter", lambda sizes, cap: [[len(sizes), *bucket] for bucket in solution(sizes, cap)]),
    *wrong_answers(
        solution,
        [
            ("closed-too-early", ("bucket, held = [], 0\n    if", "bucket = []\n    if")),
            ("parameters-missing", ("reversed(range(len(sizes)))", "range(len(sizes) - 1, 0, -1)")),
        ],
    ),
]


def by_recursion(sizes, cap):
    if not sizes:
        return []
    for count, held in enumerate(accumulate(reversed(sizes)), start=1):
        if held >= cap or count == len(sizes):
            last = len(sizes)
            return [[last - 1 - i for i in range(count)], *by_recursion(sizes[: last - count], cap)]


ALSO_RIGHT = [
    by_recursion,
    lambda sizes, cap: tuple(tuple(bucket) for bucket in solution(sizes, cap)),
    lambda sizes, cap: [np.array(bucket) for bucket in solution(sizes, cap)],
    lambda sizes, cap: [torch.tensor(bucket) for bucket in solution(sizes, cap)],
    lambda sizes, cap: [[np.int64(number) for number in bucket] for bucket in solution(sizes, cap)],
]
