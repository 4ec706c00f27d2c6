"""Answers to `handle-or-copy`: the fixed cost that a handle must win back, over the copies that it saves."""

import math

import numpy as np


def solution(pickled, handed, copies, rate, shared):
    moved = 0 if shared else 1
    return (handed - pickled) * rate / (copies - moved)


WRONG = [
    ("argument-ignored", lambda pickled, handed, copies, rate, shared: 450_000),
    ("argument-ignored", lambda pickled, handed, copies, rate, shared: solution(pickled, handed, 7, rate, shared)),
    ("wrong-value", lambda pickled, handed, copies, rate, shared: 450e-6 * rate / (copies - (not shared))),
    ("wrong-value", lambda pickled, handed, copies, rate, shared: handed / pickled * rate / (copies - (not shared))),
    ("another-unit", lambda *case: solution(*case) / 1e6),
    ("another-unit", lambda *case: solution(*case) / 2**20),
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


ALSO_RIGHT = [
    lambda *case: int(solution(*case)),
    lambda *case: math.ceil(solution(*case)),
    lambda p, h, copies, rate, shared: (h - p) / (copies / rate - int(not shared) / rate),
    bisected,
    solved,
]
