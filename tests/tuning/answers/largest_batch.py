"""Answers to `largest-batch`: double until it fails, then bisect."""

from edited_source import wrong_answers


def solution(fits):
    if not fits(1):
        return 0
    low = 1
    while fits(2 * low):
        low *= 2
    high = 2 * low  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def only_doubling(fits):
    batch = 1
    while fits(2 * batch):
        batch *= 2
    return batch


def never_ends(fits):
    low, high = 0, 1 << 13
    while low < high:
        middle = (low + high) // 2
        if middle and fits(middle):
            low = middle
        else:
            high = middle if middle else 1
            fits(1)
    return low


def from_a_fixed_top(fits):
    low, high = 0, 1 << 13
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def counts_tries(fits):
    tries = []
    solution(lambda batch: tries.append(batch) or fits(batch))
    return len(tries)


def grows_by_half(fits):
    batch = 1
    while fits(batch):
        batch = batch * 3 // 2 + 1
    return batch * 2 // 3


IF_ONE_FITS = ("return batch", "return batch if fits(1) else 0")
HALF = "(middle, high) if fits(middle) else (low, middle)"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("stops-at-a-cap", ("while fits(2 * low)", "while 2 * low < 5000 and fits(2 * low)")),
            ("last-tried", ("while high", "middle = low\n    while high"), ("return low", "return middle")),
            ("returns-what-failed", (HALF, "(low, middle) if fits(middle) else (middle, high)")),
        ],
    ),
    *wrong_answers(
        only_doubling,
        [
            ("too-many-tries", ("return", "while fits(batch + 1):\n        batch += 1\n    return"), IF_ONE_FITS),
            ("stops-too-early", ("2", "10"), IF_ONE_FITS),
            ("stops-at-a-power-of-two", IF_ONE_FITS),
        ],
    ),
    *wrong_answers(
        from_a_fixed_top,
        [
            ("stops-at-a-cap", ("1 << 13", "1025")),
            ("asks-nonsense", ("0, 1 << 13", "0.0, 8192.0"), ("> 1", "> 0.5"), ("//", "/"), ("return low", "return int(low)")),
        ],
    ),
    ("first-that-fails", lambda fits: solution(fits) + 1),
    ("nothing-fits", lambda fits: max(1, solution(fits))),
    ("never-ends", never_ends),
    ("never-tries", lambda fits: 64),
    ("one-forgotten", lambda fits: solution(fits) if fits(2) else 0),
    ("counts-tries", counts_tries),
    ("stops-too-early", grows_by_half),
    ("last-tried", lambda fits: 2 * only_doubling(fits)),
    ("not-a-number", lambda fits: fits(1)),
    ("forgets-what-fitted", lambda fits: solution(fits) // 4 * 4),
    ("one-too-few", lambda fits: max(0, solution(fits) - 1)),
    ("wrong-limit", lambda fits: solution(fits) if fits(3) else 2),
]


def whole_tensors(fits):
    import torch

    low, high = torch.tensor(0), torch.tensor(1)
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def numpy_integers(fits):
    import numpy as np

    return np.int64(solution(lambda batch: fits(np.int64(batch))))


def bit_by_bit(fits):
    bit, found = 1, 0
    while fits(2 * bit):
        bit *= 2
    while bit:
        if fits(found + bit):
            found += bit
        bit //= 2
    return found


def recursive(fits):
    def between(low, high):
        if high - low == 1:
            return low
        middle = (low + high) // 2
        return between(middle, high) if fits(middle) else between(low, middle)

    def bracket(high):
        return bracket(2 * high) if fits(high) else between(high // 2, high)

    return bracket(1)


def with_the_library(fits):
    from bisect import bisect_left

    high = 1
    while fits(high):
        high *= 4
    return bisect_left(range(high), True, lo=high // 4, key=lambda batch: batch > 0 and not fits(batch)) - 1


ALSO_RIGHT = [whole_tensors, numpy_integers, bit_by_bit, recursive, with_the_library]
