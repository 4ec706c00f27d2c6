"""Answers to `wall-time`: rounds of as many tasks as really run at the same time."""

import math
from fractions import Fraction

import numpy as np


def solution(tasks, seconds, workers, cores, kind, on):
    import math

    if kind == "wait":
        at_once = workers
    elif kind == "python" and on == "threads":
        at_once = 1
    else:
        at_once = min(workers, cores)
    return math.ceil(tasks / at_once) * seconds


def at_once(kind, on, workers, cores):
    return workers if kind == "wait" else 1 if kind == "python" and on == "threads" else min(workers, cores)


def as_many_cores_as_workers(tasks, seconds, workers, cores, kind, on):
    return math.ceil(tasks / (1 if kind == "python" and on == "threads" else workers)) * seconds


WRONG = [
    ("cores-forgotten", as_many_cores_as_workers),
    ("argument-ignored", lambda tasks, seconds, workers, cores, kind, on: max(seconds, tasks * seconds / workers)),
    ("wrong-value", lambda tasks, *rest: solution(tasks - 1, *rest)),
    ("wrong-value", lambda *case: solution(*case[:2], min(case[2], 4 * case[3]), *case[3:])),
    ("wrong-value", lambda tasks, seconds, *rest: solution(tasks, max(seconds, 0.1), *rest)),
    ("raises", lambda tasks, seconds, workers, cores, kind, on: solution(tasks, seconds, workers // cores, cores, "wait", on)),
    ("another-unit", lambda *case: 1000 * solution(*case)),
]
WRONG += [("all-rounded", lambda *case, digits=digits: round(solution(*case), digits)) for digits in (1, 2, 3, 4)]


def simulated(tasks, seconds, workers, cores, kind, on):
    free = [0.0] * at_once(kind, on, workers, cores)
    for _ in range(tasks):
        free[free.index(min(free))] += seconds
    return max(free)


ALSO_RIGHT = [
    simulated,
    lambda tasks, seconds, *rest: -(-tasks // at_once(*rest[2:], *rest[:2])) * seconds,
    lambda tasks, seconds, w, c, kind, on: np.ceil(tasks / at_once(kind, on, w, c)) * seconds,
    lambda tasks, seconds, w, c, kind, on: Fraction(-(-tasks // at_once(kind, on, min(w, tasks), c))) * Fraction(seconds),
    lambda tasks, seconds, w, c, kind, on: ((tasks - 1) // at_once(kind, on, w, c) + 1) * seconds,
]
