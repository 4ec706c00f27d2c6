"""Answers to `handle-or-copy`: the fixed cost that a handle must win back, over the copies that it saves."""

import math

import numpy as np


def solution(pickled, handed, copies, rate, shared):
    moved = 0 if shared else 1
    return (handed - pickled) * rate / (copies - moved)


WRONG = [
    ("first-copy-forgotten", lambda pickled, handed, copies, rate, shared: (handed - pickled) * rate / copies),
    ("always-copied", lambda pickled, handed, copies, rate, shared: (handed - pickled) * rate / (copies - 1)),
    ("shared-upside-down", lambda pickled, handed, copies, rate, shared: (handed - pickled) * rate / (copies - int(shared))),
    ("one-copy-only", lambda pickled, handed, copies, rate, shared: (handed - pickled) * rate),
    ("pickling-costs-nothing", lambda pickled, handed, copies, rate, shared: handed * rate / (copies - (not shared))),
    ("costs-add", lambda pickled, handed, copies, rate, shared: (handed + pickled) * rate / (copies - (not shared))),
    ("upside-down", lambda pickled, handed, copies, rate, shared: (copies - (not shared)) / (rate * (handed - pickled))),
    ("seconds-for-bytes", lambda pickled, handed, copies, rate, shared: (handed - pickled) / (copies - (not shared))),
    ("wrong-sign", lambda pickled, handed, copies, rate, shared: (pickled - handed) * rate / (copies - (not shared))),
    ("wrong-value", lambda pickled, handed, copies, rate, shared: 1e6),
    ("returns-nothing", lambda pickled, handed, copies, rate, shared: None),
]


def size(fixed=lambda pickled, handed: handed - pickled, moved=lambda copies, shared: copies - (not shared), unit=1):
    return lambda pickled, handed, copies, rate, shared: fixed(pickled, handed) * rate / moved(copies, shared) / unit


WRONG += [
    ("a-copy-too-many", size(moved=lambda copies, shared: copies + (not shared))),
    ("times-the-copies", lambda pickled, handed, copies, rate, shared: (handed - pickled) * rate * (copies - (not shared))),
    ("divided-by-the-rate", lambda pickled, handed, copies, rate, shared: (handed - pickled) / rate / (copies - (not shared))),
    ("in-kilobytes", size(unit=1e3)),
    ("in-kilobytes", size(unit=1024)),
    ("in-bits", size(unit=1 / 8)),
    ("handle-costs-nothing", size(fixed=lambda pickled, handed: pickled)),
    ("pickling-costs-nothing", size(fixed=lambda pickled, handed: handed)),
    ("wrong-sign", size(fixed=lambda pickled, handed: pickled - handed)),
    ("wrong-value", lambda pickled, handed, copies, rate, shared: 450_000),
    ("wrong-value", size(moved=lambda copies, shared: 6)),
    ("wrong-value", size(fixed=lambda pickled, handed: 450e-6)),
    ("wrong-value", size(fixed=lambda pickled, handed: handed / pickled)),
]
ALSO_RIGHT = [
    lambda *case: round(solution(*case)),
    lambda *case: int(solution(*case)),
    lambda *case: np.float64(solution(*case)),
    lambda *case: math.ceil(solution(*case)),
    lambda p, h, copies, rate, shared: (h - p) / (copies / rate - int(not shared) / rate),
]


def bisected(pickled, handed, copies, rate, shared):
    low, high = 0.0, 1e15
    for _ in range(200):
        middle = (low + high) / 2
        if pickled + copies * middle / rate > handed + (0 if shared else middle / rate):
            high = middle
        else:
            low = middle
    return high


def solved(pickled, handed, copies, rate, shared):
    both = np.array([[1.0, -copies / rate], [1.0, -(0 if shared else 1 / rate)]])
    return np.linalg.solve(both, [pickled, handed])[1]


ALSO_RIGHT += [bisected, solved]
WRONG += [("another-unit", lambda *case: solution(*case) / 1e6), ("another-unit", lambda *case: solution(*case) / 2**20)]
