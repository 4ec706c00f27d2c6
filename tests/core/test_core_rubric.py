"""Rubrics: what they understand, and that every row of every exercise's rubric is code."""

import sys

import pytest

from hpml_lab.core.judge.exercises import all_exercises
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric


def mean(a, b):
    total = a + b
    return total / 2


TABLE = """
a + b
    difference :: a - b :: You subtract.
/ 2
    not-halved :: / 1 :: The mean of two
        is half of their sum.
whole answer
    nothing :: lambda a, b: 0 :: $ZERO
error
    no-number :: must be :: Both are numbers.
only in cases
    negative :: below 0 :: Only numbers below 0 are wrong.
"""
CASES = {"3 and 1": (3, 1), "numbers below 0": (-5, -2)}


def fails(a, b):
    raise TypeError("it must be a string")


@pytest.mark.parametrize(
    "answer, name, hint",
    [
        (lambda a, b: (a - b) / 2, "difference", "You subtract."),
        (lambda a, b: a + b, "not-halved", "The mean of two is half of their sum."),
        (lambda a, b: a - b, "difference", "You subtract. And it is not the only mistake."),
        (lambda a, b: 0, "nothing", "It is not 0."),
        (fails, "no-number", "Both are numbers."),
        (lambda a, b: (a + b) / 2 if a > 0 else 7, "negative", "Only numbers below 0 are wrong."),
        (lambda a, b: 7, "wrong-value", "For 3 and 1 the answer should be 2; yours is 7."),
    ],
)
def test_a_mistake_is_named(answer, name, hint):
    with pytest.raises(Mistake) as found:
        Rubric(mean, TABLE, ZERO="It is not 0.").expect(answer, CASES)
    assert (found.value.name, found.value.hint) == (name, hint)


def test_a_right_answer_is_right():
    Rubric(mean, TABLE, ZERO="").expect(lambda a, b: b / 2 + a / 2, CASES)
    Rubric(mean, TABLE, given=(3, 1), ZERO="").expect_value(2.0, case="3 and 1")


def test_a_value_is_judged_without_giving_it_away():
    rubric = Rubric(mean, TABLE, given=(3, 1), ZERO="")
    for value, name in [(1.0, "difference"), (4.0, "not-halved"), (0, "nothing"), (9.0, "wrong-value")]:
        with pytest.raises(Mistake) as found:
            rubric.expect_value(value, case="3 and 1")
        assert found.value.name == name and "2" not in found.value.hint


def test_an_answer_is_wrapped_before_it_is_called():
    doubled = Rubric(mean, TABLE, ZERO="", wrap=lambda answer: lambda a, b: answer(2 * a, 2 * b))
    doubled.expect(mean, CASES)
    with pytest.raises(Mistake, match="difference"):
        doubled.expect(lambda a, b: (a - b) / 2, CASES)


@pytest.mark.parametrize("text, why", [("c + d\n    stale :: c :: no", r"c \+ d"), ("a + b\n    half a row", "half a row")])
def test_a_fragment_that_is_not_in_the_source_and_a_row_with_parts_missing_are_errors(text, why):
    with pytest.raises(ValueError, match=why):
        Rubric(mean, text)


def test_every_row_of_every_exercise_is_code():
    modules = {sys.modules[exercise.judge.__module__] for exercise in all_exercises()}
    rubrics = [found for module in modules for found in vars(module).values() if isinstance(found, Rubric)]
    assert rubrics
    for rubric in rubrics:
        for _, (function, hint) in rubric.items():
            assert callable(function) and hint
