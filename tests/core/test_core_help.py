"""Hints go from general to nearly the line; solutions are shown on purpose only."""

import pytest

from hpml_lab.core import check, hint, solution
from hpml_lab.core.judge import help as helping
from hpml_lab.core.judge.exercises import all_exercises
from hpml_lab.core.system.errors import LabError


@pytest.fixture(autouse=True)
def nothing_asked(monkeypatch):
    monkeypatch.setattr(helping, "_asked", type(helping._asked)())
    monkeypatch.delenv("HPML_SOLUTIONS", raising=False)


def test_each_call_says_one_thing_more_and_the_last_is_a_line_with_a_gap():
    known = helping.hints(helping.find_exercise("write-adam"))
    said = [hint("write-adam") for _ in range(len(known) + 1)]
    assert [one.text for one in said] == [*known, known[-1]]
    assert said[0].text.startswith("Both moments as running averages") and said[0].title == f"Hint 1 of {len(known)}"
    assert "…" in known[-1] and "`" in known[-1] and "bias correction" in known[1]
    assert len(set(known)) == len(known) >= 5


def test_every_exercise_has_hints_and_none_is_the_solution():
    for found in all_exercises():
        known = helping.hints(found)
        whole = helping.solution_source(helping.answers_file(found))[-1]
        assert known and all(text and whole not in text for text in known), found.name


def test_a_solution_is_right_and_explained():
    shown = solution("outer-sum")
    names = {}
    exec(shown.code, names)
    assert check("outer-sum", names["solution"]).state == "right"
    assert "outer-sum" in repr(shown) and len(shown.text) > 10
    assert "<pre" in shown._repr_html_()


def test_solutions_can_be_closed(monkeypatch):
    monkeypatch.setenv("HPML_SOLUTIONS", "closed")
    with pytest.raises(LabError, match=r"closed in this course.*hint\("):
        solution("outer-sum")


def test_an_installed_package_has_hints_and_no_solutions(monkeypatch):
    monkeypatch.setattr(helping, "CHECKOUT", False)
    assert hint("outer-sum").text
    with pytest.raises(LabError, match="tests/tensors/answers"):
        solution("outer-sum")


def test_an_unknown_exercise_names_the_nearest():
    for ask in (hint, solution):
        with pytest.raises(LabError, match="outer-sum"):
            ask("outer-sums")
