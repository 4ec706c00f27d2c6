"""Every exercise: the stub is not yet an answer, the solution is right, and each known wrong answer is rejected by its name.

`tests/<topic>/answers/<exercise>.py` holds `solution` and `WRONG`, pairs of (name of the mistake, answer); `ALSO_RIGHT` holds
other right answers that a check once refused. The rows of an exercise's rubric are wrong answers, too: WRONG does not repeat
them, and holds what is written in another way or what no row describes.
"""

import ast
import copy
import functools
import importlib.util
import inspect
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import nbformat
import numpy as np
import plan
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from hpml_lab.core.experiment.topics import import_topics
from hpml_lab.core.judge import asked
from hpml_lab.core.judge.declared import promise
from hpml_lab.core.judge.exercises import SHOWN_BY_A_CALL, all_exercises, check
from hpml_lab.core.judge.help import hints
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.prediction import predicted
from hpml_lab.core.judge.rubric import UNKNOWN, Rubric
from hpml_lab.core.judge.same import same
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import NOTEBOOKS
from hpml_lab.course.assignment import exercise_cells

TESTS = Path(__file__).resolve().parent
EXERCISES = [found for found in all_exercises() if plan.CHOSEN.runs_exercises(found.notebook)]
NOTEBOOKS_WITH_EXERCISES = sorted({exercise.notebook for exercise in EXERCISES})


def answers(exercise):
    """The module of answers to an exercise, found by the exercise's name."""
    [path] = TESTS.glob(f"*/answers/{exercise.name.replace('-', '_')}.py")
    spec = importlib.util.spec_from_file_location(f"answers_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wrong_answers():
    return [
        pytest.param(exercise, mistake, answer, id=f"{exercise.name}-{number}-{mistake}")
        for exercise in EXERCISES
        for number, (mistake, answer) in enumerate(answers(exercise).WRONG)
    ]


def cells(notebook, tag):
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def read(name):
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


@pytest.fixture(autouse=True)
def nothing_is_drawn_anew(monkeypatch):
    """What a check draws for itself is the same in each run of these tests; one test below draws it many times."""
    monkeypatch.setattr(asked, "hidden_seed", lambda: 0)


def judged(exercise, answer):
    """The verdict on an answer. The check has changed neither the answer nor the random state."""
    kept = None if inspect.isfunction(answer) or isinstance(answer, MappingProxyType) else copy.deepcopy(answer)
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    verdict = check(exercise.name, answer)
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert torch.equal(torch.get_rng_state(), states[2])
    assert kept is None or same(answer, kept) or repr(answer) == repr(kept)
    return verdict


def test_every_topics_exercises_load():
    assert import_topics("exercises") == {}, "an exercise that does not load would be missing below without a word"
    assert len(all_exercises()) >= 86, (
        "an exercise is missing: is it registered by @exercise in a module of its topic's exercises/?"
    )


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_the_solution_is_right(exercise):
    given = answers(exercise)
    for answer in [given.solution, *getattr(given, "ALSO_RIGHT", [])]:
        verdict = judged(exercise, answer)
        assert verdict.state == "right", verdict


def first_hint_after(exercise, verdict):
    """The first hint after a verdict that names a mistake. What follows it is a rule, and not what the check has just said."""
    first, *following = hints(exercise, verdict)
    rules = hints(exercise)
    if verdict.mistake in UNKNOWN:
        assert [first, *following] == rules, "nothing was named"
    else:
        assert f"`{verdict.mistake}`" in first
        assert set(following) <= set(rules) and not any(rule in verdict.message for rule in following)
    return first


@pytest.mark.parametrize("exercise, mistake, answer", wrong_answers())
def test_a_wrong_answer_is_named(exercise, mistake, answer):
    verdict = judged(exercise, answer)
    assert (verdict.state, verdict.mistake) == ("mistake", mistake), verdict
    assert len(verdict.message) > 20, "a hint says something"
    # What a call returns that returns a function shows nothing yet.
    if mistake in SHOWN_BY_A_CALL and exercise.takes is not None and exercise.returns is not Callable:
        assert verdict.given is not None and "*verdict.given)" in verdict.message, "what to run"
    first_hint_after(exercise, verdict)


def in_one_buffer(answer):
    """The answer, which returns its tensors and arrays in memory that it keeps for all calls, one for each shape and dtype."""
    kept = {}

    def moved(value):
        if isinstance(value, torch.Tensor | np.ndarray):
            found = kept.setdefault((type(value), tuple(value.shape), str(value.dtype)), value)
            found[...] = value.detach() if isinstance(value, torch.Tensor) else value
            return found
        return type(value)(map(moved, value)) if type(value) in (list, tuple) else value

    return functools.wraps(answer)(lambda *arguments, **options: moved(answer(*arguments, **options)))


RETURNS_ARRAYS = [found for found in EXERCISES if found.takes is not None and promise(found.returns)]


@pytest.mark.parametrize("exercise", RETURNS_ARRAYS, ids=lambda exercise: exercise.name)
def test_a_buffer_for_all_calls_shows(exercise):
    verdict = judged(exercise, in_one_buffer(answers(exercise).solution))
    assert verdict.state == "mistake", verdict


DRAWS = re.compile(r"drawn\(\)|judge_rule\(")  # a judge of update rules draws all numbers
DRAWING = [found for found in EXERCISES if DRAWS.search(inspect.getsource(inspect.getmodule(found.judge)))]


@pytest.mark.parametrize("name", ["momentum-step", "overlap-one-parameter", "loss-scaler"])
def test_what_a_check_draws_is_not_that_of_another(name, monkeypatch):
    [exercise] = [found for found in all_exercises() if found.name == name]
    solution = answers(exercise).solution

    def numbers_seen(seed):
        seen = []

        def recorded(*arguments, **options):
            shown = [value for value in (*arguments, *options.values()) if isinstance(value, list | int | float)]
            seen.append(repr(shown))
            return solution(*arguments, **options)

        monkeypatch.setattr(asked, "hidden_seed", lambda: seed)
        assert judged(exercise, recorded)
        return tuple(seen)

    assert len(set(map(numbers_seen, range(4)))) > 1


@pytest.mark.nightly("60 draws of each check")
@pytest.mark.parametrize("exercise", DRAWING, ids=lambda exercise: exercise.name)
def test_a_verdict_does_not_depend_on_what_is_drawn(exercise, monkeypatch):
    """A right answer that is refused once in 60 checks is refused to a student of a course of 60."""
    for seed in range(1, 61):
        given = answers(exercise)  # anew: what a wrong answer keeps is not that of the check before
        rights = [("", answer) for answer in [given.solution, *getattr(given, "ALSO_RIGHT", [])]]
        monkeypatch.setattr(asked, "hidden_seed", lambda seed=seed: seed)
        for mistake, answer in rights if seed > 6 else [*rights, *given.WRONG]:
            verdict = judged(exercise, answer)
            assert verdict.mistake == mistake, (seed, answer, verdict)


def rubrics_of(exercise):
    """{name: rubric} of the module that judges an exercise."""
    return {name: found for name, found in vars(sys.modules[exercise.judge.__module__]).items() if isinstance(found, Rubric)}


def rubrics():
    return [
        pytest.param(exercise, rubric, id=f"{exercise.name}-{name}")
        for exercise in EXERCISES
        for name, rubric in rubrics_of(exercise).items()
    ]


@pytest.mark.parametrize("exercise, rubric", rubrics())
def test_every_row_of_a_rubric_runs_and_is_named(exercise, rubric):
    def verdict_on(function):
        return judged(exercise, function if rubric.given is None else function(*rubric.given))

    assert verdict_on(rubric.right).state == "right"
    lines = [line.strip() for line in rubric.source.splitlines()]
    for number, (name, answer, hint) in enumerate(rubric.single()):
        verdict = verdict_on(answer)
        assert (verdict.state, verdict.mistake) == ("mistake", name), (hint, verdict)
        first = first_hint_after(exercise, verdict)
        if number < len(rubric.edits) and verdict.message == Mistake(name, hint).hint:
            same_name = [fragment for fragment, row in rubric.edits if (row.name, row.hint) == (name, hint)]
            places = [line.replace(fragment, "…") for fragment in same_name for line in lines if fragment in line]
            assert any(place in first for place in places) or set(places) <= {"…", "return …"}, (first, places)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_each_name_that_a_judge_writes_out_is_reached(exercise):
    """By a wrong answer, or by a row that the test above runs: those of errors and of single cases are not among them."""
    tables = rubrics_of(exercise).values()
    said = {row.name for rubric in tables for row in [*rubric.errors, *rubric.only]}
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[exercise.judge.__module__]))):
        names = []
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Mistake":
            names = [node.args[0].body, node.args[0].orelse] if isinstance(node.args[0], ast.IfExp) else node.args[:1]
        elif isinstance(node, ast.keyword) and node.arg == "mistakes" and isinstance(node.value, ast.Dict):
            names = node.value.keys
        said |= {name.value.split(",")[0] for name in names if isinstance(name, ast.Constant)}
    run = {mistake for mistake, _ in answers(exercise).WRONG} | {name for rubric in tables for name, _, _ in rubric.single()}
    missing = said - run - {*UNKNOWN}
    assert not missing, (
        f"{exercise.name}: no wrong answer reaches {sorted(missing)}: write one into WRONG of its answers, "
        "or take the name out of its judge where no student gets there"
    )


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_every_exercise_has_at_least_five_wrong_answers_with_several_names(exercise):
    """The rows of its rubrics and those written by hand."""
    names = [mistake for mistake, _ in answers(exercise).WRONG]
    names += [mistake for rubric in rubrics_of(exercise).values() for mistake, _, _ in rubric.single()]
    assert len(names) >= 5 and len(set(names)) >= 4, (
        f"{exercise.name} has {len(names)} wrong answers with {len(set(names))} names: add rows to its rubric, or entries to "
        "WRONG of its answers, until it has at least 5 with 4 names"
    )


@pytest.mark.parametrize("name", NOTEBOOKS_WITH_EXERCISES)
def test_notebook_and_checks_name_the_same_exercises(name):
    notebook = read(name)
    stubs = [cell.metadata["hpml"]["exercise"] for cell in cells(notebook, "exercise")]
    checked = [re.search(r'check\("([\w-]+)"', cell.source)[1] for cell in cells(notebook, "exercise-check")]
    registered = [exercise.name for exercise in EXERCISES if exercise.notebook == name]
    assert stubs == checked, f'{name}: behind each stub stands its check: a cell `check("name", …)` with the tag exercise-check'
    assert sorted(stubs) == sorted(registered), (
        f"{name} has stubs for {sorted(stubs)}, hpml_lab has checks for {sorted(registered)}: add what is missing; a stub's "
        'metadata are {"hpml": {"exercise": "name"}, "tags": ["exercise"]}'
    )
    assert len(stubs) >= 2, f"{name} has one exercise: write a second"
    headings = [c.source for c in notebook.cells if c.cell_type == "markdown" and c.source.startswith("### Exercise")]
    assert len(headings) == len(stubs), (
        f"{name} has {len(headings)} headings `### Exercise: …` for {len(stubs)} stubs: one each"
    )
    for heading in headings:
        stated = "●" in heading and re.search(r"\d+ minutes", heading)
        assert stated, f"{name}, {heading.splitlines()[0]!r}: say `**Difficulty** ●●○ · 15 minutes` below it"


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_no_notebook_gives_a_solution_away(exercise):
    solution = answers(exercise).solution
    if inspect.isfunction(solution):
        lines = [line.strip() for line in inspect.getsource(solution).splitlines()[1:]]
        body = [line for line in lines if line and not line.startswith(("#", '"""'))]
    else:
        body = [repr(solution)]
    stored = "\n".join(cell.source for cell in read(exercise.notebook).cells)
    given_away = all(line in stored for line in body)
    assert not given_away, f"{exercise.notebook} holds the solution of {exercise.name}: take out what gives it away, {body}"


def solved(name):
    """The exercises of a notebook and what they use, with every stub replaced by its solution. The rest is run by nbval."""
    notebook = read(name)
    notebook.cells = exercise_cells(notebook)
    by_name = {exercise.name: exercise for exercise in EXERCISES}
    for stub, checking in zip(cells(notebook, "exercise"), cells(notebook, "exercise-check"), strict=True):
        variable = re.search(r'check\("[\w-]+", (\w+)\)', checking.source)[1]
        solution = answers(by_name[stub.metadata["hpml"]["exercise"]]).solution
        if inspect.isfunction(solution):
            stub.source = inspect.getsource(solution).replace(f"def {solution.__name__}(", f"def {variable}(", 1)
        else:
            stub.source = f"{variable} = {solution!r}"
    return notebook


@pytest.mark.parametrize("name", NOTEBOOKS_WITH_EXERCISES)
def test_the_notebook_is_green_with_everything_solved(name, monkeypatch):
    """In a shell of its own in this process: a kernel for each would spend most of its time on importing torch."""
    monkeypatch.chdir(NOTEBOOKS)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # the shell puts its own in its place
    shell = InteractiveShell()
    for cell in solved(name).cells:
        if cell.cell_type == "code":
            done = shell.run_cell(cell.source)
            done.raise_error()
            assert "exercise-check" not in cell.metadata.get("tags", []) or ": right." in repr(done.result), cell.source


STORED_CHECK = re.compile(r'^check\("([\w-]+)", (\w+)\)', flags=re.MULTILINE)


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_store_what_a_check_and_a_prediction_say_now(path, monkeypatch):
    """nbval compares these texts too, but a change of a check alone runs no notebook."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    no_prediction, shell = repr(predicted(..., 1.0, "times")), InteractiveShell()
    for cell in read(path.stem).cells:
        stored = [output["data"]["text/plain"] for output in cell.get("outputs", []) if "text/plain" in output.get("data", {})]
        if found := STORED_CHECK.search(cell.source):
            shell.user_ns |= {found[2]: ..., "check": check}  # 00 defines the answer in the cell itself
            said = repr(shell.run_cell(cell.source).result)
            assert stored == [said], f"{path.name}, cell {cell.id}: make outputs ARGS=notebooks/{path.name}"
        elif re.search(r"^predicted\(", cell.source, flags=re.MULTILINE):
            assert stored == [no_prediction], f"{path.name}, cell {cell.id}: make outputs ARGS=notebooks/{path.name}"


def test_an_untouched_stub_is_not_yet_an_answer():
    def stub(a):
        """Write me."""
        ...

    for untouched in (stub, ..., (1, ...), [...], {"a": ...}):
        assert check("outer-sum", untouched).state == "not yet"


def test_an_answer_that_raises_anything_is_told_so_and_nothing_escapes():
    def careless(*arguments):
        raise ZeroDivisionError("by hand")

    def leaves(*arguments):
        raise SystemExit(3)

    for exercise in EXERCISES:
        for answer in (careless, leaves):
            verdict = check(exercise.name, answer)
            assert verdict.state == "mistake"
            assert verdict.message


def test_an_unknown_exercise_suggests_the_nearest():
    with pytest.raises(LabError, match="outer-sum"):
        check("outer-sums", 1)


def test_a_prediction_says_how_far_it_was():
    assert "No prediction yet" in repr(predicted(..., 3.0, "times"))
    assert "a factor of 2 apart" in repr(predicted(6, 3.0, "times"))
    assert "very close" in repr(predicted(3.1, 3.0, "times"))
    assert "not measured" in repr(predicted(3, float("nan"), "s"))
    assert repr(predicted(3, 0.0, "ms")) == "You predicted 3 ms; it is 0 ms."
    assert "18.9 percentage points apart" in repr(predicted(78, 96.9, "%"))
    shown = repr(predicted(1234567, 1337.4, "times"))
    assert "e+" not in shown and "it is 1340 times: a factor of 923 apart" in shown
    assert "very close" in repr(predicted(95, 96.9, "% of the time"))
    for bad in ("three", -1, 0, True, None, float("nan")):
        assert "one positive number in times, where 1 is no difference" in repr(predicted(bad, 3.0, "times"))


def test_a_guess_of_0_is_a_guess_and_a_share_ends_at_100():
    assert repr(predicted(0, 96.9, "%")) == "You predicted 0 %; it is 96.9 %: 96.9 percentage points apart."
    assert "very close" in repr(predicted(0, 0.0, "% of the nodules")) and "very close" in repr(
        predicted(100, 100.0, "% of it")
    )
    assert repr(predicted(0, 5.0, "calls")) == "You predicted 0 calls; it is 5 calls."
    assert "very close" in repr(predicted(0, 0.0, "calls"))
    assert "predicted -4 %" in repr(predicted(-4, 2.0, "%")) and "130 %" in repr(predicted(130, 104.0, "%"))
    for bad, unit, kind in (
        (101, "% of it", "one number from 0 to 100 in % of it"),
        (-1, "% of it", "one number from 0 to 100 in % of it"),
        (float("nan"), "%", "one number in %"),
        (-1, "calls", "one number in calls, 0 or more"),
        (0, "× the speed", "one positive number in × the speed, where 1 is no difference"),
    ):
        assert repr(predicted(bad, 3.0, unit)) == f"A prediction is {kind}; {bad!r} is not."


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_the_stub_has_the_declared_arguments_and_says_what_comes_back(exercise):
    [stub] = [cell for cell in cells(read(exercise.notebook), "exercise") if cell.metadata["hpml"]["exercise"] == exercise.name]
    functions = [node for node in ast.parse(stub.source).body if isinstance(node, ast.FunctionDef)]
    taken = [argument.arg for argument in functions[-1].args.args] if functions else None
    assert taken == (None if exercise.takes is None else list(exercise.takes)), "`takes` names the arguments of the stub"
    assert set(exercise.changes) <= set(exercise.takes or ())
    said = f"Returns {promise(exercise.returns)}."
    assert not promise(exercise.returns) or said in stub.source, f"write into the docstring of {exercise.name}: {said}"
