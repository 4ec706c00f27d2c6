"""Hints follow the last verdict, and go from general to nearly the line; solutions are shown on purpose only."""

from collections import defaultdict

import pytest

from hpml_lab.core import check, hint, solution
from hpml_lab.core.judge import exercises
from hpml_lab.core.judge import help as helping
from hpml_lab.core.judge.exercises import all_exercises
from hpml_lab.core.judge.rubric import MORE
from hpml_lab.core.system.errors import LabError


@pytest.fixture(autouse=True)
def nothing_asked(monkeypatch):
    monkeypatch.setattr(helping, "_read", defaultdict(set))
    monkeypatch.setattr(helping, "_about", {})
    monkeypatch.setattr(exercises, "_last_verdicts", {})
    monkeypatch.delenv("HPML_SOLUTIONS", raising=False)


def adam(update):
    """Adam with another last line."""
    names = {}
    lines = """
def adam_step(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.get(i, (0 * p, 0 * p))
        m, v = state[i] = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        m, v = m / (1 - beta1**t), v / (1 - beta2**t)
        """
    exec(lines + update, names)
    return names["adam_step"]


def test_each_call_says_one_thing_more_and_the_last_is_a_line_with_a_gap():
    known = helping.hints(helping.find_exercise("write-adam"))
    said = [hint("write-adam") for _ in range(len(known) + 1)]
    assert [one.text for one in said] == [*known, known[-1]]
    assert said[0].text.startswith("Both moments as running averages") and said[0].title == f"Hint 1 of {len(known)}"
    assert "…" in known[-1] and "`" in known[-1] and "bias correction" in known[1]
    assert len(set(known)) == len(known) >= 5


def test_no_hint_speaks_of_an_answer_that_nobody_has_seen():
    said = {found.name: helping.hints(found) for found in all_exercises()}
    assert sum(map(len, said.values())) > 400
    accusing = [
        (name, text, why) for name, texts in said.items() for text in texts if (why := helping.speaks_of_an_answer(text))
    ]
    assert accusing == []


@pytest.mark.parametrize(
    "text",
    [
        "ε stands under the root in yours; Adam adds it to the root.",
        "That is the mean absolute error: square the differences.",
        "The step is right, but the gradient is still there.",
        "Almost: what does the compute do until the first batch is there?",
        "Only weights: b is missing.",
        "The net has not changed: where is backward?",
    ],
)
def test_the_words_that_speak_of_an_answer_are_found(text):
    assert helping.speaks_of_an_answer(text)


def test_hints_follow_the_last_verdict():
    rules = helping.hints(helping.find_exercise("write-adam"))
    assert check("write-adam", ...).state == "not yet"
    assert [hint("write-adam").text, hint("write-adam").text] == rules[:2]
    inside = check("write-adam", adam("p -= lr * m / (v + eps).sqrt()"))
    assert inside.mistake == "eps-inside-root"
    first = hint("write-adam")
    assert first.text == "Last check: `eps-inside-root`. Its place in a right answer: `p -= …`"
    following = [hint("write-adam").text for _ in rules]
    assert following[0] == rules[2], "what was read is not said again"
    assert not any(text in inside.message for text in following), "nor is what the check said"
    assert check("write-adam", adam("p -= lr * m / (v.sqrt() + eps)"))
    assert "right" in hint("write-adam").text and hint("write-adam").title == "Nothing to add"
    check("write-adam", ...)
    assert hint("write-adam").text in rules, "the stub again: nothing was seen in it"


def test_a_mistake_that_comes_back_after_another_is_the_next_hint_again():
    said = []
    for root in ("(v + eps) ** 0.5", "v**0.5", "(v + eps) ** 0.5"):
        check("write-adam", adam(f"p -= lr * m / ({root})"))
        said += [hint("write-adam").text, hint("write-adam").text]
    assert said[0] == said[4] and "eps-inside-root" in said[0]
    assert len(set(said)) == 5, "and then it goes on"


def test_a_verdict_that_names_nothing_leaves_the_rules_as_they_are():
    verdict = check("write-adam", adam("p -= 1.1 * lr * m / (v.sqrt() + eps)"))
    assert verdict.mistake == "wrong-value"
    assert hint("write-adam").text == helping.hints(helping.find_exercise("write-adam"))[0]


def test_two_mistakes_together_lead_to_the_idea_and_not_to_a_line_that_is_half_wrong():
    def swapped_and_in_percent(load, compute, batches, workers):
        """Two mistakes of predict-speed-up: in percent, and the compute divided too."""
        return tuple(100 * (load + compute) / ((load + compute) / n) for n in workers)

    verdict = check("predict-speed-up", swapped_and_in_percent(120.0, 20.0, 60, (2, 4, 8, 16)))
    assert verdict.message.endswith(MORE)
    idea = helping.hints(helping.find_exercise("predict-speed-up"))[0]
    assert hint("predict-speed-up").text == f"Last check: `{verdict.mistake}`. {idea}"


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
