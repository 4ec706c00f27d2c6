"""A function is judged over cases: known mistakes are functions, and are named only if they explain every case."""

import pytest

from hpml_lab.core.exercises import Mistake, expect_function

CASES = {"x = [1, 2]": ([1.0, 2.0],), "x = [3]": ([3.0],)}


def right(x):
    return [value * value for value in x]


def judge(answer, **options):
    expect_function(answer, right, CASES, **options)


def name_of(answer, **options):
    with pytest.raises(Mistake) as caught:
        judge(answer, **options)
    return caught.value.name, caught.value.hint


def test_a_right_answer_passes_whatever_its_form():
    judge(right)
    judge(lambda x: tuple(value**2 for value in x))


def test_a_known_mistake_is_named_if_it_explains_every_case():
    doubled = {"doubles": (lambda x: [2 * value for value in x], "Multiply by itself.")}
    assert name_of(lambda x: [value + value for value in x], mistakes=doubled) == ("doubles", "Multiply by itself.")
    assert name_of(lambda x: [2.0, 4.0], mistakes=doubled)[0] == "wrong-value", "it explains the first case only"


def test_the_first_case_that_differs_is_shown():
    name, hint = name_of(lambda x: [1.0, 4.0] if len(x) == 2 else [0.0])
    assert name == "wrong-value" and "For x = [3]" in hint and "[9.0]" in hint and "[0.0]" in hint


def test_a_mistake_that_cannot_be_computed_for_a_case_is_not_named():
    second = {"second": (lambda x: [x[1]], "…")}
    assert name_of(lambda x: [2.0], mistakes=second)[0] == "wrong-value"


def test_an_error_with_a_known_text_is_a_mistake_and_another_one_escapes():
    errors = {"unsupported operand": ("adds-a-list", "Add the elements.")}
    assert name_of(lambda x: x - 1, errors=errors)[0] == "adds-a-list"
    with pytest.raises(ZeroDivisionError):
        judge(lambda x: 1 / 0, errors=errors)


def test_changed_arguments_are_a_mistake_of_a_right_answer_only():
    def squares_in_place(x):
        for i, value in enumerate(x):
            x[i] = value * value
        return x

    assert name_of(squares_in_place)[0] == "inputs-changed"
    assert CASES["x = [3]"] == ([3.0],), "every call gets copies of its own"

    def clears(x):
        x.clear()
        return [0.0]

    assert name_of(clears)[0] == "wrong-value"
