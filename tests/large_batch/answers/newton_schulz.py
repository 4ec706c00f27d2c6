"""Answers to `newton-schulz`: TODO: what a right answer shows."""


def solution(values):
    total = sum(values)
    return total / len(values)


def not_divided(values):
    total = 0.0
    for value in values:
        total += value
    return total


def from_the_second_on(values):
    total = 0.0
    for i in range(1, len(values)):
        total += values[i]
    return total / len(values)


# TODO: answers that are no row of the rubric: written in another way, or wrong in another.
WRONG = [("not-divided", not_divided), ("first-left-out", from_the_second_on)]
