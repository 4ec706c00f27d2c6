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


def without_gil(tasks, seconds, workers, cores, kind, on):
    at_once = workers if kind == "wait" else min(workers, cores)
    return math.ceil(tasks / at_once) * seconds


def threads_take_turns(tasks, seconds, workers, cores, kind, on):
    return tasks * seconds if on == "threads" else solution(tasks, seconds, workers, cores, kind, on)


def waits_take_turns(tasks, seconds, workers, cores, kind, on):
    return tasks * seconds if on == "threads" and kind == "wait" else solution(tasks, seconds, workers, cores, kind, on)


def products_take_turns(tasks, seconds, workers, cores, kind, on):
    return tasks * seconds if on == "threads" and kind == "numpy" else solution(tasks, seconds, workers, cores, kind, on)


def as_many_cores_as_workers(tasks, seconds, workers, cores, kind, on):
    return math.ceil(tasks / (1 if kind == "python" and on == "threads" else workers)) * seconds


def no_rounds(tasks, seconds, workers, cores, kind, on):
    at_once = workers if kind == "wait" else min(workers, cores)
    return tasks / (1 if kind == "python" and on == "threads" else at_once) * seconds


def whole_rounds(tasks, seconds, workers, cores, kind, on):
    at_once = workers if kind == "wait" else min(workers, cores)
    return tasks // (1 if kind == "python" and on == "threads" else at_once) * seconds


WRONG = [
    ("gil-forgotten", without_gil),
    ("threads-never-help", threads_take_turns),
    ("gil-while-waiting", waits_take_turns),
    ("gil-in-numpy", products_take_turns),
    ("cores-forgotten", as_many_cores_as_workers),
    ("part-of-a-round", no_rounds),
    ("full-rounds-only", whole_rounds),
    ("one-after-the-other", lambda tasks, seconds, workers, cores, kind, on: tasks * seconds),
    ("returns-nothing", lambda tasks, seconds, workers, cores, kind, on: None),
]


def at_once(kind, on, workers, cores):
    return workers if kind == "wait" else 1 if kind == "python" and on == "threads" else min(workers, cores)


def timed(count, rounds=math.ceil):
    return lambda tasks, seconds, workers, cores, kind, on: rounds(tasks / count(kind, on, workers, cores)) * seconds


def simulated(tasks, seconds, workers, cores, kind, on):
    free = [0.0] * at_once(kind, on, workers, cores)
    for _ in range(tasks):
        free[free.index(min(free))] += seconds
    return max(free)


WRONG += [
    (
        "workers-forgotten",
        timed(lambda kind, on, w, c: w if kind == "wait" else 1 if (kind, on) == ("python", "threads") else c),
    ),
    ("gil-between-processes", timed(lambda kind, on, w, c: 1 if kind == "python" else at_once(kind, on, w, c))),
    (
        "threads-and-processes-swapped",
        timed(lambda kind, on, w, c: at_once(kind, "threads" if on == "processes" else "processes", w, c)),
    ),
    ("product-needs-no-core", timed(lambda kind, on, w, c: w if kind != "python" else at_once(kind, on, w, c))),
    ("processes-never-limited", timed(lambda kind, on, w, c: w if on == "processes" else at_once(kind, on, w, c))),
    ("one-after-the-other", lambda tasks, seconds, workers, cores, kind, on: seconds * tasks),
    ("one-round-too-many", timed(at_once, lambda rounds: int(rounds) + 1)),
    ("all-in-one-round", lambda tasks, seconds, workers, cores, kind, on: seconds),
    ("rounded-to-the-nearest", timed(at_once, round)),
    ("wrong-value", lambda tasks, seconds, workers, cores, kind, on: max(seconds, tasks * seconds / workers)),
    ("wrong-value", lambda tasks, *rest: solution(tasks - 1, *rest)),
    ("raises", lambda tasks, seconds, workers, cores, kind, on: solution(tasks, seconds, workers // cores, cores, "wait", on)),
]
ALSO_RIGHT = [
    simulated,
    lambda tasks, seconds, *rest: -(-tasks // at_once(*rest[2:], *rest[:2])) * seconds,
    lambda tasks, seconds, w, c, kind, on: np.ceil(tasks / at_once(kind, on, w, c)) * seconds,
    lambda tasks, seconds, w, c, kind, on: Fraction(-(-tasks // at_once(kind, on, min(w, tasks), c))) * Fraction(seconds),
    lambda tasks, seconds, w, c, kind, on: ((tasks - 1) // at_once(kind, on, w, c) + 1) * seconds,
]


def a_round_more(tasks, seconds, workers, cores, kind, on):
    if kind == "python" and on == "threads":
        return tasks * seconds
    return (tasks // (workers if kind == "wait" else min(workers, cores)) + 1) * seconds


WRONG += [("one-round-too-many", a_round_more)]

WRONG += [
    ("wrong-value", lambda *case: round(solution(*case), 1)),
    ("wrong-value", lambda *case: solution(*case[:2], min(case[2], 4 * case[3]), *case[3:])),
]
WRONG += [("wrong-value", lambda *case, digits=digits: round(solution(*case), digits)) for digits in (2, 3, 4)]
WRONG += [("wrong-value", lambda tasks, seconds, *rest: solution(tasks, max(seconds, 0.1), *rest))]


def processes_on_cores(tasks, seconds, workers, cores, kind, on):
    return solution(tasks, seconds, min(workers, cores) if on == "processes" else workers, cores, kind, on)


def workers_in_turns(tasks, seconds, workers, cores, kind, on):
    if kind == "python" and on == "threads":
        return tasks * seconds
    turns = math.ceil(workers / at_once(kind, on, workers, cores))
    return math.ceil(tasks / workers) * turns * seconds


def at_least_one_task(tasks, seconds, workers, cores, kind, on):
    return max(seconds, tasks * seconds / at_once(kind, on, workers, cores))


WRONG += [
    ("waiting-needs-cores", processes_on_cores),
    ("rounds-of-workers", workers_in_turns),
    ("part-of-a-round", at_least_one_task),
]
WRONG += [("another-unit", lambda *case: 1000 * solution(*case))]
