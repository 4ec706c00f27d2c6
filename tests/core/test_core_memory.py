"""A wrong answer that is right call by call is said to remember: in a default argument, or in a global."""

import pytest

from hpml_lab.core.judge.exercises import check, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistake import Mistake

KEPT: list[float] = []
COUNT = 0


@pytest.fixture(autouse=True)
def sum_exercise(monkeypatch):
    """An exercise `sum-of-a-list` whose judge does not know that anything could be kept."""
    from hpml_lab.core.judge import exercises

    exercises.all_exercises()
    monkeypatch.setattr(exercises, "_REGISTRY", dict(exercises._REGISTRY))

    @exercise("sum-of-a-list", notebook="01_tensors", takes="values", returns=float)
    def judge(answer):
        try:
            expect_function(answer, sum, {"[1, 2]": ([1.0, 2.0],), "[4]": ([4.0],), "[1]": ([1.0],)})
        except Mistake as mistake:
            raise Mistake("first-element", "You leave out all but the first.") from mistake


def in_a_default(values, kept=[]):  # noqa: B006
    kept += values
    return sum(kept)


def in_an_option(values, *, kept=[]):  # noqa: B006
    kept += values
    return sum(kept)


def in_a_global_list(values):
    KEPT.extend(values)
    return sum(KEPT)


def in_a_global_number(values):
    global COUNT
    COUNT += 1
    return sum(values) if COUNT < 3 else 0.0


@pytest.mark.parametrize("answer", [in_a_default, in_an_option, in_a_global_list, in_a_global_number])
def test_what_an_answer_keeps_between_calls_is_named(answer):
    verdict = check("sum-of-a-list", answer)
    assert verdict.mistake == "remembers-calls"
    assert {"in_a_global_list": "`KEPT`", "in_a_global_number": "`COUNT`"}.get(answer.__name__, "`kept`") in verdict.message


def test_after_the_check_nothing_of_it_is_kept():
    check("sum-of-a-list", in_a_default)
    check("sum-of-a-list", in_a_global_list)
    assert in_a_default.__defaults__ == ([],)
    assert KEPT == []


def test_an_answer_that_is_wrong_call_by_call_keeps_its_mistake():
    def counted(values, calls=[]):  # noqa: B006
        calls.append(1)
        return values[0]

    assert check("sum-of-a-list", counted).mistake == "first-element"


def test_a_right_answer_may_keep_what_it_likes():
    def cached(values, known={}):  # noqa: B006
        return known.setdefault(tuple(values), sum(values))

    assert check("sum-of-a-list", cached)
