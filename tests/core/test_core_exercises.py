"""A function is judged over cases: known mistakes are functions, and are named only if they explain every case."""

import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import hpml_lab
from hpml_lab.core.judge import exercises
from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import all_exercises, check
from hpml_lab.core.judge.expect import expect_function, expect_keys, expect_no_autograd, expect_no_loop, expect_truths
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.watch import watch

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


@pytest.mark.parametrize(
    "factor, unit", [(100, "percent"), (1000, "ms"), (2.0**-20, "MiB"), (8, "bits"), (0.4342944819, "log10")]
)
def test_an_answer_in_another_unit_is_named(factor, unit):
    name, hint = name_of(lambda x: [factor * value for value in right(x)])
    assert name == "another-unit" and unit in hint and f"{factor:.4g} times" in hint


def test_a_factor_that_is_no_units_or_not_in_every_case_names_no_unit():
    name, hint = name_of(lambda x: [7 * value for value in right(x)])
    assert name == "same-factor-off" and "7 times" in hint
    assert name_of(lambda x: [1000 * value for value in right(x)] if len(x) > 1 else [9.5])[0] == "wrong-value"
    with pytest.raises(Mistake, match="wrong-value"):  # of one number alone nothing can be told
        expect_function(lambda x: 300.0, sum, {"[3]": ([3.0],), "[1, 2]": ([1.0, 2.0],)})


def mean_of_rows(x, scale):
    return scale * x.mean(0)


ROWS = {f"{n} rows": (torch.arange(1.0, 2 * n + 1).reshape(n, 2) / 7, scale) for n, scale in ((2, 0.5), (3, 2.0), (5, 3.0))}


def verdict_on(answer):
    def judge(answer):
        expect_function(answer, mean_of_rows, ROWS)

    found = exercises.Exercise("mean-of-rows", "", judge, takes=("x", "scale"), returns=like("x"))
    return exercises._judged(found, answer)


@pytest.mark.parametrize(
    "name, answer",
    [
        ("opposite-sign", lambda x, scale: -mean_of_rows(x, scale)),
        ("same-factor-off", lambda x, scale: 1.5 * mean_of_rows(x, scale)),
        ("off-by-a-size", lambda x, scale: scale * x.sum(0)),
        ("off-by-a-size", lambda x, scale: scale * x.mean(0) / len(x)),
        ("all-rounded", lambda x, scale: mean_of_rows(x.double(), scale).round(decimals=3).to(x.dtype)),
        ("argument-ignored", lambda x, scale: x.mean(0)),
        ("float32-on-the-way", lambda x, scale: mean_of_rows(x.float(), scale).to(x.dtype)),
        ("wrong-value", lambda x, scale: mean_of_rows(x, scale) + 1),
    ],
)
def test_what_is_the_same_in_every_case_is_named(name, answer):
    assert verdict_on(answer).mistake == name


def test_float64_results_by_another_way_are_right():
    assert verdict_on(lambda x, scale: torch.ones(len(x), dtype=x.dtype) @ x * (scale / len(x)))


def test_a_shape_inside_a_pair_is_compared():
    with pytest.raises(Mistake, match=r"wrong-shape: .* shape at \[1\] should be \(1,\); yours is \(\)"):
        expect_function(lambda x: (x, x[0]), lambda x: (x, x), {"one": (torch.ones(1),)})


def test_what_was_seen_and_the_rule_are_one_sentence_after_the_other_in_a_verdict():
    mistake = Mistake("halved", "Your mean is right. || The sum is over all rows.")
    assert mistake.hint == "Your mean is right. The sum is over all rows." and str(mistake) == f"halved: {mistake.hint}"


def test_the_first_case_that_differs_is_shown():
    name, hint = name_of(lambda x: [1.0, 4.0] if len(x) == 2 else [0.0])
    assert name == "wrong-value" and "For x = [3]" in hint and "[9]" in hint and "[0]" in hint


def test_truth_values_are_judged_like_other_values():
    expect_function(lambda x: x > 2, lambda x: x >= 3, {"1": (1,), "3": (3,)})
    with pytest.raises(Mistake, match="For 3 the answer should be True; yours is False"):
        expect_function(lambda x: False, lambda x: x >= 3, {"1": (1,), "3": (3,)})
    assert name_of(lambda x: True)[0] == "wrong-value"


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


def test_what_is_wrong_is_said_by_its_kind():
    assert name_of(lambda x: len) == ("wrong-type", name_of(lambda x: len)[1]) and "not called" in name_of(lambda x: len)[1]
    name, hint = name_of(lambda x: [1.0, 4.0] if len(x) == 2 else "nine")
    assert name == "wrong-type" and "a str" in hint


JUDGE = """
def judge(answer: Callable):
    expect_function(answer, right, CASES)
    float(answer([1.0])[0])  # what a judge does with an answer that it cannot use
"""


@pytest.fixture
def judged(monkeypatch):
    """Checks an answer by a judge whose code lies in the package."""
    names = {"Callable": Callable, "expect_function": expect_function, "right": right, "CASES": CASES}
    exec(compile(JUDGE, str(Path(hpml_lab.__file__).parent / "judge.py"), "exec"), names)
    all_exercises()
    monkeypatch.setitem(exercises._REGISTRY, "squares", exercises.Exercise("squares", "01_tensors", names["judge"], ("x",)))
    return lambda answer: check("squares", answer)


def test_an_error_is_the_students_only_if_their_code_was_running(judged):
    def mean_of_none(x):
        return [value / 0 for value in x]

    def odd(x):
        return right(x) if x and x != [1.0] else None

    verdict = judged(mean_of_none)
    assert verdict.mistake == "raises" and "for x = [1, 2]" in verdict.message and "value / 0" in verdict.message
    assert judged(lambda: 1).mistake == "wrong-arguments"
    verdict = judged(odd)
    assert verdict.mistake == "cannot-be-checked" and "Your code raised" not in verdict.message
    assert judged([1.0]).mistake == "not-a-function"
    assert judged(right)


def test_a_loop_without_an_end_is_named_with_its_line(judged, monkeypatch):
    def endless(x):
        while True:
            try:
                len(x)
            except Exception:
                return x

    monkeypatch.setattr(exercises, "CPU_SECONDS", 0.2)
    verdict = judged(endless)
    assert verdict.mistake == "does-not-end" and "line: " in verdict.message
    assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] == 0


def test_a_watched_call_computes_what_it_would_unwatched():
    seen = watch(lambda: torch.ones(2, 3).sum(dim=1, keepdim=True) * torch.tensor(2.0))
    assert seen.result.tolist() == [[6.0], [6.0]] and len(seen.calls) >= 2


def test_values_of_numpy_and_torch_are_taken_for_pythons():
    given = {"a": np.bool_(True), "b": torch.tensor(False)}
    assert expect_keys(given, "ab") == {"a": True, "b": False}
    with pytest.raises(Mistake, match="wrong-keys"):
        expect_keys({"a": True}, "ab")


@pytest.mark.parametrize(
    "given, says",
    [
        ({"a": 0, "b": np.bool_(True), "c": False}, "all-reversed: Each one is wrong. True means that it floats."),
        ({"a": True, "b": torch.tensor(True), "c": 1}, "heavy: b: Stones sink.$"),
        ({"a": False, "b": True, "c": True}, r"heavy: b: Stones sink. \(1 more is wrong, too.\)"),
    ],
)
def test_wrong_truth_values_are_named_and_the_others_counted(given, says):
    right, mistakes = {"a": True, "b": False, "c": True}, {"heavy": ({"b", "c"}, "Stones sink."), "light": ({"a"}, "Wood?")}
    with pytest.raises(Mistake, match=says):
        expect_truths(given, right, mistakes, "it floats")
    expect_truths(right, right, mistakes, "it floats")


def slope(x):
    return 2 * x


def slope_by_autograd(x):
    x = x.clone().requires_grad_()
    (x * x).sum().backward()
    return x.grad


def slope_by_another_autograd(x):
    return torch.autograd.functional.jacobian(lambda x: (x * x).sum(), x)


def test_autograd_is_noticed():
    expect_no_autograd(slope, torch.ones(3))
    expect_no_autograd(lambda x: slope(x.requires_grad_()).detach(), torch.ones(3))
    for answer in (
        slope_by_autograd,
        slope_by_another_autograd,
        lambda x: torch.autograd.grad((x.requires_grad_() ** 2).sum(), x)[0],
    ):
        with pytest.raises(Mistake, match="uses-autograd"):
            expect_no_autograd(answer, torch.ones(3))


def test_loops_are_noticed_in_torch_and_in_python():
    few, many = (torch.ones(3),), (torch.ones(40),)

    def judged_loop(answer):
        expect_no_loop(answer, few, many, more=37, over="elements", hint="Multiply them all at once.")

    judged_loop(slope)
    judged_loop(lambda x: np.multiply(x.numpy(), 2))
    judged_loop(lambda x: [torch.mul(x, 2) for _ in range(5)][0])
    judged_loop(torch.vmap(lambda value: 2 * value))
    for answer in (
        lambda x: torch.stack([2 * value for value in x]),
        lambda x: torch.tensor([2 * value for value in x.tolist()]),
        lambda x: torch.stack(list(map(torch.neg, x))),
        lambda x: np.vectorize(lambda value: 2 * value)(x.numpy()),
    ):
        with pytest.raises(Mistake, match="loops.*37 more elements"):
            judged_loop(answer)


def test_an_answer_that_fails_in_one_case_is_named_by_a_mistake_that_fails_there_too():
    first_two = {"first-two": (lambda x: [x[0] ** 2 + 1, x[1] ** 2], "…")}
    assert name_of(lambda x: [x[0] * x[0] + 1, x[1] * x[1]], mistakes=first_two)[0] == "first-two"
    with pytest.raises(IndexError):
        judge(lambda x: [x[0] ** 2, x[1] ** 2], mistakes=first_two)
