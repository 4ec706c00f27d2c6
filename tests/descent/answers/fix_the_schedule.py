"""Answers to `fix-the-schedule`: α for N steps, α / 10 for M more, α / 100 from then on."""

from fractions import Fraction

import numpy as np


def solution(t, lr, first, then):
    if t <= first:
        return lr
    return lr / 10 if t <= first + then else lr / 100


def untouched(t, lr, first, then):
    for step in range(1, t + 1):
        if step > first:
            lr = lr / 10
        if step > first + then:
            lr = lr / 10
    return lr


def forgets_the_rest(t, lr, first, then):
    if t <= first:
        return lr
    if t <= first + then:
        return lr / 10


def with_a_counter():
    calls = {}

    def rate(t, lr, first, then):
        calls[lr] = calls.get(lr, 0) + 1
        return solution(calls[lr], lr, first, then)

    return rate


WRONG = [
    ("drops-in-every-step", untouched),
    ("returns-nothing", forgets_the_rest),
    ("rate-rises-again", lambda t, lr, first, then: lr / 10 if first < t <= first + then else lr),
    ("second-drop-counted-from-zero", lambda t, lr, first, then: lr if t <= first else lr / 10 if t <= then else lr / 100),
    ("first-drop-early", lambda t, lr, first, then: lr if t < first else lr / 10 if t <= first + then else lr / 100),
    ("argument-ignored", with_a_counter()),
    ("argument-ignored", lambda t, lr, first, then: solution(t, lr, 5, 3)),
    ("argument-ignored", lambda t, lr, first, then: lr * 0.1 ** (t / first)),
    ("argument-ignored", lambda t, lr, first, then: lr / t),
    ("all-rounded", lambda t, lr, first, then: round(solution(t, lr, first, then), 4)),
    ("wrong-value", lambda t, lr, first, then: float(f"{solution(t, lr, first, then):.0e}")),  # as the example is printed
]


def by_a_loop(t, lr, first, then):
    for step in range(1, t + 1):
        if step in (first + 1, first + then + 1):
            lr /= 10
    return lr


ALSO_RIGHT = [
    by_a_loop,
    lambda t, lr, first, then: lr * 10.0 ** -((t > first) + (t > first + then)),
    lambda t, lr, first, then: np.float32(solution(t, lr, first, then)),
    lambda t, lr, first, then: [lr, lr / 10, lr / 100][np.searchsorted([first, first + then], t)],
    lambda t, lr, first, then: round(solution(t, lr, first, then), 12),
    lambda t, lr, first, then: Fraction(lr) / 10 ** ((t > first) + (t > first + then)),
]
