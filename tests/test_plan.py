"""The test plan: a change runs what can break by it, and nothing that is needed is left out."""

import subprocess

import plan
import pytest
from plan import Plan, affected, changed_since, group_of, planned

NOTEBOOKS = [plan.relative(path) for path in sorted((plan.ROOT / "notebooks").glob("*.ipynb"))]
MODULES = [path for path in plan.python_files(plan.PACKAGE) if path != "hpml_lab/__init__.py"]


def notebooks_of(changed):
    return [path for path in NOTEBOOKS if path in affected({changed})]


def test_a_lesson_runs_its_topic_and_no_other():
    found = affected({"hpml_lab/nets/lessons/networks.py"})
    assert {"notebooks/03_nets.ipynb", "exercises:nets", "tests/nets/test_nets_networks.py"} <= found
    runs = notebooks_of("hpml_lab/nets/lessons/networks.py")
    assert runs == ["notebooks/03_nets.ipynb", "notebooks/21_your_script.ipynb"], "the last one uses the front door of nets"


def test_a_judge_runs_every_exercise_and_no_notebook():
    found = affected({"hpml_lab/core/judge/expect.py"})
    topics = {path.parts[-3] for path in plan.PACKAGE.glob("*/exercises/*.py")}
    assert {f"exercises:{topic}" for topic in topics} <= found
    assert notebooks_of("hpml_lab/core/judge/expect.py") in ([], ["notebooks/11_tuning.ipynb"])  # which judges kernels itself


def test_what_reads_notebooks_as_files_runs_with_each():
    """A new section has minutes in the syllabus, blocks that are typed, and a copy for Colab."""
    readers = {"tests/course/test_course_syllabus.py", "tests/test_notebook_code.py", "tests/colab/test_colab.py"}
    for notebook in NOTEBOOKS:
        found = affected({notebook})
        assert readers <= found and notebooks_of(notebook) == [notebook]
        assert {name for name in found if name.startswith("exercises:")} <= {f"exercises:{plan.topic_of(notebook)}"}


def test_what_answers_are_made_with_runs_their_exercises():
    assert "exercises:nets" in affected({"tests/edited_source.py"})


def test_the_tests_of_a_topic_are_those_of_its_folder():
    for notebook in NOTEBOOKS:
        topic = plan.topic_of(notebook)
        own = {path for path in plan.python_files(plan.ROOT / "tests" / topic) if "/answers/" not in path}
        assert own <= plan.of_topics({topic}), f"make topic T={topic} leaves out tests of tests/{topic}"


def test_what_everything_builds_on_runs_every_notebook():
    assert notebooks_of("hpml_lab/core/system/errors.py") == NOTEBOOKS
    assert notebooks_of("hpml_lab/core/experiment/registry.py") == NOTEBOOKS


def test_an_optimizer_runs_the_topics_that_use_it():
    found = notebooks_of("hpml_lab/optim/adam.py")
    assert "notebooks/05_adaptive.ipynb" in found and "notebooks/01_tensors.ipynb" not in found


def test_a_front_door_runs_what_takes_a_name_from_it():
    assert "tests/loading/test_loading_epochs.py" in affected({"hpml_lab/loading/__init__.py"})
    assert notebooks_of("hpml_lab/loading/__init__.py")[:1] == ["notebooks/08_loading.ipynb"]


def test_what_belongs_to_a_topic_without_being_imported_runs_it_too():
    assert notebooks_of("data/reference/xor.json") == ["notebooks/03_nets.ipynb"]
    assert "exercises:nets" in affected({"tests/nets/answers/sgd_step.py"})
    assert "exercises:nets" in affected({"notebooks/03_nets.ipynb"})
    assert "tests/test_environment.py" in affected({"environment.yml"})
    assert "tests/browser/test_browser_site.py" in affected({"docs/build.py"})


def test_a_string_that_names_an_experiment_or_a_module_counts_as_an_import():
    tree = plan.ast.parse('run("xor")\nrun_in_child("hpml_lab.core.show.source:source")\nsay("xor and more")')
    assert plan.used(tree) == set()
    assert plan.used(tree, strings=True) == {"hpml_lab/nets/experiments/xor.py", "hpml_lab/core/show/source.py"}


@pytest.mark.parametrize("path", plan.EVERYTHING)
def test_what_decides_how_tests_run_runs_all(path):
    assert (plan.ROOT / path).is_file(), f"{path} was renamed: say so in EVERYTHING of tests/plan.py"
    assert affected({path, "README.md"}) is None
    assert Plan(None).runs(plan.ROOT / "tests" / "nets" / "test_nets_sgd.py")


def test_every_module_has_a_test_or_a_notebook_that_its_change_runs():
    def runs_one(path):
        return any(found.startswith(("notebooks/", "exercises:", "tests/")) for found in affected({path}))

    alone = [path for path in MODULES if not path.endswith(("__init__.py", "__main__.py")) and not runs_one(path)]
    assert alone == [], f"no test and no notebook uses {alone}: write one, or remove the module"


@pytest.mark.parametrize("path", plan.ALWAYS)
def test_the_house_runs_with_every_choice(path):
    assert (plan.ROOT / path).is_file(), f"{path} was renamed: say so in ALWAYS of tests/plan.py"
    assert Plan(set()).runs(plan.ROOT / path)


def test_topics_are_chosen_by_name():
    chosen = planned("nets,race", "")
    assert chosen.runs(plan.ROOT / "notebooks" / "03_nets.ipynb") and chosen.runs_exercises("06_race")
    assert chosen.runs(plan.ROOT / "tests" / "race" / "test_race_words.py") and chosen.runs(
        plan.ROOT / "tests/test_exercises.py"
    )
    assert not chosen.runs(plan.ROOT / "notebooks" / "01_tensors.ipynb") and not chosen.runs_exercises("01_tensors")
    assert not chosen.runs(plan.ROOT / "tests" / "core" / "test_core_errors.py")
    with pytest.raises(ValueError, match="no topic optics; there are adaptive, autograd"):
        planned("optics", "")


def test_a_change_is_found_in_new_and_in_edited_files(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "ROOT", tmp_path)

    def git(*command):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command], cwd=tmp_path, check=True)

    git("init", "-q")
    for name in ("kept.py", "edited.py", "gone.py"):
        (tmp_path / name).write_text("1", encoding="utf-8")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    (tmp_path / "edited.py").write_text("2", encoding="utf-8")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "new.py").write_text("1", encoding="utf-8")
    assert changed_since("HEAD") == {"edited.py", "gone.py", "new.py"}
    with pytest.raises(ValueError, match="(?s)no-such-revision.*HEAD~1"):
        changed_since("no-such-revision")


def test_an_environment_test_runs_where_one_of_its_files_changed():
    changed = Plan(set(), {"docs/conf.py"})
    assert changed.touches(("docs",)) and changed.touches(("docs/conf.py",)) and not changed.touches(("doc", "README.md"))
    assert Plan(set(), {"pyproject.toml"}).touches(("docs",))
    assert not Plan().touches(("docs",))


def test_a_plan_is_read_as_it_was_written(tmp_path):
    for written in (Plan(), Plan({"exercises:nets"}, {"a.py"})):
        written.write(tmp_path / "plan.json")
        read = Plan.read(tmp_path / "plan.json")
        assert (read.chosen, read.changed) == (written.chosen, set(written.changed))


def test_a_topics_notebook_tests_and_exercises_have_their_groups():
    assert group_of("notebooks/03_nets.ipynb::Cell 2") == group_of("tests/nets/test_nets_sgd.py::test_a[1]") == "nets"
    name = "tests/test_exercises.py::test_the_solution_is_right[sgd-step]"
    assert group_of(name) == group_of("tests/test_exercises.py::test_a_wrong_answer_is_named[sgd-step-3-no-minus]")
    assert group_of(name) == "exercises of nets"
    assert group_of("tests/core/test_noise.py::test_a") == "tests/core/test_noise.py"


def test_the_longest_name_of_an_exercise_counts():
    names = list(plan.exercise_topics())
    assert len(names) >= 86 and all(len(a) >= len(b) for a, b in zip(names, names[1:], strict=False))
