"""Answers to `fix-the-schedule`: α for N steps, α / 10 for M more, α / 100 from then on."""

from fractions import Fraction

import numpy as np
import torch


def solution(t, lr, first, then):
    if t <= first:
        return lr
    return lr / 10 if t <= first + then else lr / 100


def drops_in_every_step(t, lr, first, then):
    for step in range(1, t + 1):
        if step > first:
            lr = lr / 10
        if step > first + then:
            lr = lr / 10
    return lr


def from_zero(t, lr, first, then):
    return lr * 0.1 ** ((t > first) + (t > then))


def early(t, lr, first, then):
    return lr * 0.1 ** ((t >= first) + (t >= first + then))


def late(t, lr, first, then):
    return lr * 0.1 ** ((t > first + 1) + (t > first + then + 1))


def once(t, lr, first, then):
    return lr if t <= first else lr / 10


def back_again(t, lr, first, then):
    return lr / 10 if first < t <= first + then else lr


def added(t, lr, first, then):
    return lr / max(1, 10 * ((t > first) + (t > first + then)))


def like_step_lr(t, lr, first, then):
    return lr * 0.1 ** ((t - 1) // first)


def forgets_the_rest(t, lr, first, then):
    if t <= first:
        return lr
    if t <= first + then:
        return lr / 10


WRONG = [
    ("drops-in-every-step", drops_in_every_step),
    ("second-drop-counted-from-zero", from_zero),
    ("one-step-early", early),
    ("one-step-late", late),
    ("second-drop-missing", once),
    ("rate-rises-again", back_again),
    ("drops-add", added),
    ("drops-for-ever", like_step_lr),
    ("returns-nothing", forgets_the_rest),
    ("wrong-value", lambda t, lr, first, then: lr / t),
]


def untouched(t, lr, first, then):
    for step in range(1, t + 1):
        if step > first:
            lr = lr / 10
        if step > first + then:
            lr = lr / 10
    return lr


def with_a_counter():
    calls = {}

    def rate(t, lr, first, then):
        calls[lr] = calls.get(lr, 0) + 1
        return solution(calls[lr], lr, first, then)

    return rate


def by_a_loop(t, lr, first, then):
    for step in range(1, t + 1):
        if step in (first + 1, first + then + 1):
            lr /= 10
    return lr


WRONG += [
    ("drops-in-every-step", untouched),
    ("second-drop-late", lambda t, lr, first, then: lr * 0.1 ** ((t > first) + (t > first + then + 1))),
    ("second-drop-early", lambda t, lr, first, then: lr * 0.1 ** ((t > first) + (t >= first + then))),
    ("first-drop-early", lambda t, lr, first, then: lr if t < first else lr / 10 if t <= first + then else lr / 100),
    ("first-drop-late", lambda t, lr, first, then: lr * 0.1 ** ((t > first + 1) + (t > first + then))),
    ("never-drops", lambda t, lr, first, then: lr),
    ("drops-to-zero", lambda t, lr, first, then: lr if t <= first else lr // 10),
    ("second-drop-by-hundred", lambda t, lr, first, then: solution(t, lr, first, then) / (10 if t > first + then else 1)),
    ("wrong-value", with_a_counter()),
    ("wrong-value", lambda t, lr, first, then: solution(t, lr, 5, 3)),
    ("wrong-value", lambda t, lr, first, then: lr * 0.1 ** (t / first)),
    ("second-drop-counted-from-zero", lambda t, lr, first, then: lr if t <= first else lr / 10 if t <= then else lr / 100),
    ("back-after-one-step", lambda t, lr, first, then: lr / {first + 1: 10, first + then + 1: 100}.get(t, 1)),
    ("drops-subtract", lambda t, lr, first, then: lr - 0.1 * lr * ((t > first) + (t > first + then))),
    ("drops-for-ever", lambda t, lr, first, then: lr / 10 ** max(0, 1 + (t - first - 1) // then)),
    ("multiplied", lambda t, lr, first, then: lr * 10 ** ((t > first) + (t > first + then))),
]
ALSO_RIGHT = [
    lambda t, lr, first, then: torch.tensor(lr) / 10 ** ((t > first) + (t > first + then)),
    by_a_loop,
    lambda t, lr, first, then: lr * 10.0 ** -((t > first) + (t > first + then)),
    lambda t, lr, first, then: np.float32(solution(t, lr, first, then)),
    lambda t, lr, first, then: [lr, lr / 10, lr / 100][np.searchsorted([first, first + then], t)],
    lambda t, lr, first, then: round(solution(t, lr, first, then), 12),
    lambda t, lr, first, then: Fraction(lr) / 10 ** ((t > first) + (t > first + then)),
]

WRONG += [
    ("wrong-value", lambda t, lr, first, then: round(solution(t, lr, first, then), 4)),
    ("wrong-value", lambda t, lr, first, then: float(f"{solution(t, lr, first, then):.0e}")),  # as the example is printed
]
