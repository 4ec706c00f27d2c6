"""Answers to `one-f-one-b`: the order of a stage's tasks in the 1F1B schedule."""

import numpy as np
from edited_source import wrong_answers


def solution(stage, stages, micro_batches):
    ahead = min(stages - 1 - stage, micro_batches)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(ahead, micro_batches):
        tasks += [("F", i), ("B", i - ahead)]
    return tasks + [("B", i) for i in range(micro_batches - ahead, micro_batches)]


# ---- unusual, and right -------------------------------------------------------------------------------------------------


def with_numpy(stage, stages, micro_batches):
    return [[kind, np.int64(i)] for kind, i in solution(stage, stages, micro_batches)]


def sorted_by_time(stage, stages, micro_batches):
    """By the moment in which each task can start: forward passes on even ones, backward passes on odd ones."""
    ahead = stages - 1 - stage
    tasks = [(2 * (i - ahead), "F", i) for i in range(micro_batches)]
    tasks += [(2 * i + 1, "B", i) for i in range(micro_batches)]
    return [(kind, i) for _, kind, i in sorted(tasks)]


ALSO_RIGHT = [with_numpy, sorted_by_time]


def two_and_two(stage, stages, micro_batches):
    """Two forward and then two backward passes in turns."""
    ahead = min(stages - 1 - stage, micro_batches)
    tasks = [("F", i) for i in range(ahead)]
    for first in range(ahead, micro_batches, 2):
        both = range(first, min(first + 2, micro_batches))
        tasks += [("F", i) for i in both] + [("B", i - ahead) for i in both]
    return tasks + [("B", i) for i in range(micro_batches - ahead, micro_batches)]


WRONG = [
    *wrong_answers(
        solution, [("not-each-once", ("for i in range(ahead, micro_batches)", "for i in range(ahead, micro_batches - 1)"))]
    ),
    ("waits-forever", lambda stage, stages, m: solution(stage, stages, m)[:: -1 if stage == stages - 1 else 1]),
    ("keeps-too-many", two_and_two),
]
