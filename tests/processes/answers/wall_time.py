"""Answers to `wall-time`: rounds of as many tasks as really run at once."""

import math


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


def cores_for_all(tasks, seconds, workers, cores, kind, on):
    return solution(tasks, seconds, min(workers, cores), cores, kind, on)


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
    ("waiting-needs-cores", cores_for_all),
    ("part-of-a-round", no_rounds),
    ("full-rounds-only", whole_rounds),
    ("wrong-value", lambda tasks, seconds, workers, cores, kind, on: tasks * seconds),
    ("returns-nothing", lambda tasks, seconds, workers, cores, kind, on: None),
]
