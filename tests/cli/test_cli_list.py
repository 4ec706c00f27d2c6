"""Names come from the sources: the same as the registries', in their order, without torch, which takes seconds to import."""

import subprocess
import sys

import pytest

from hpml_lab.core.experiment.catalogue import catalogue, exercise_modules
from hpml_lab.core.experiment.registry import all_experiments
from hpml_lab.core.judge.exercises import all_exercises


def test_the_sources_say_what_the_registry_knows():
    experiments = [row for row in all_experiments() if row.topic != "test"]
    registered = [(row.slug, row.notebook, row.lecture, row.title, row.function.__module__) for row in experiments]
    assert [(row.slug, row.notebook, row.lecture, row.title, row.module) for row in catalogue()] == registered
    modules = {found.name: (found.notebook, found.judge.__module__) for found in all_exercises()}
    assert [*exercise_modules().items()] == [*modules.items()]


def test_the_list_needs_no_torch():
    code = "import sys; from hpml_lab.cli import main; main(['list']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    head, *rows = done.stdout.splitlines()
    assert done.returncode == 0 and head.split() == ["slug", "notebook", "lectures", "reference", "title"]
    at = head.index("reference")
    assert {row[at : at + 3].strip() for row in rows} == {"yes", "no"} and len(rows) == len(catalogue())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run", "xor", "xro"], 2, "no experiment is called 'xro'.\n  Did you mean xor"),
        (["run", "all", "zzzzzz"], 2, "no experiment is called 'zzzzzz'"),
        (["run", "xor", "--size", "huge", "--out", "made"], 2, "Use quick or full"),
        (["reference", "--size", "huge"], 2, "Use quick or full"),
        (["reference", "xro"], 2, "Did you mean xor"),
        (["report", "no/such"], 2, "no/such is not a folder"),
        (["assignment", "05_adaptive", "05_adaptiv", "--out", "course"], 2, "no notebook is called '05_adaptiv'"),
        (["class-page", "."], 2, "no autograded notebooks"),
        (["progress", "no/such"], 0, ""),
    ],
)
def test_a_wrong_name_is_refused_without_torch(tmp_path, arguments, code, said):
    imports = "print([name for name in ('torch', 'matplotlib', 'IPython', 'nbformat') if name in sys.modules]); sys.exit(code)"
    program = f"import sys; from hpml_lab.cli import main; code = main({arguments!r}); {imports}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (code, "[]") and said in done.stderr
    assert not list(tmp_path.iterdir()), "nothing was written before the last name was checked"


def test_the_first_check_and_a_run_import_only_what_they_name():
    program = (
        "import sys; from hpml_lab.core import check, find; check('outer-sum', ...); find('xor')\n"
        "parts = [name.split('.') for name in sys.modules]\n"
        "print(*('.'.join(part) for part in parts if part[2:3] in (['exercises'], ['experiments']) and len(part) == 4))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = done.stdout.split()
    assert {"hpml_lab.tensors.exercises.outer_sum", "hpml_lab.nets.experiments.xor"} <= {*loaded} and len(loaded) <= 4, loaded
