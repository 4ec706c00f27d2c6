"""Answers to `largest-batch`: double until it fails, then bisect."""


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


def one_too_many(fits):
    return solution(fits) + 1


def assumes_one_fits(fits):
    return max(1, solution(fits))


def one_by_one(fits):
    batch = 0
    while fits(batch + 1):
        batch += 1
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


def with_fractions(fits):
    low, high = 0.0, 8192.0
    while high - low > 0.5:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return int(low)


WRONG = [
    ("stops-at-a-power-of-two", only_doubling),
    ("first-that-fails", one_too_many),
    ("nothing-fits", assumes_one_fits),
    ("too-many-tries", one_by_one),
    ("never-ends", never_ends),
    ("asks-nonsense", with_fractions),
    ("wrong-limit", lambda fits: 64),
    ("returns-nothing", lambda fits: None),
]
