"""`hpml-lab new experiment NAME --notebook NN` and `hpml-lab new exercise NAME --notebook NN`: skeletons in a clone.

What they write runs and passes the tests as it stands, but for what is marked TODO and the points that they print at the end.
The texts are in skeletons/; CONTRIBUTING.md says what belongs where.
"""

import argparse
import ast
import contextlib
import keyword
import re
import string
from pathlib import Path
from typing import Any

from hpml_lab.cli.shared import FINE
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import CHECKOUT, ROOT

SKELETONS = Path(__file__).with_name("skeletons")
LINE = 128  # columns
EXERCISE_MINUTES = 10  # of a new exercise, until its author knows better
QUESTIONS = "## Five questions"  # what stands after the last section of a notebook
# A point to fill in, and the tests that fail until that is done.
MARKED = ("replace what is marked TODO", ["test_nothing_is_left_to_fill_in"])
MORE_MISTAKES = (
    "at least five wrong answers with four names, as rows of the rubric or in the answers",
    ["test_every_exercise_has_at_least_five_wrong_answers_with_several_names"],
)
NOT_RUN = [
    *("test_a_notebook_is_clean", "test_the_line_on_a_lid_says_nothing"),
    "test_notebooks_store_what_a_check_and_a_prediction_say_now",
]
# The same, of an experiment.
NOT_TIMED = "test_each_experiment_is_stored_with_its_seconds"
NOT_READ = "test_the_stored_run_and_the_recorded_one_say_what_the_sentences_do"


def add_parser(commands) -> None:
    parser = commands.add_parser("new", help="skeletons of a new experiment or exercise, in a clone")
    parser.add_argument("kind", choices=("experiment", "exercise"))
    parser.add_argument("name", metavar="NAME", help="such as warm-restarts")
    parser.add_argument("--notebook", required=True, metavar="NN", help="its number, such as 15")
    parser.set_defaults(command=write_skeletons)


def write_skeletons(chosen: argparse.Namespace) -> int:
    if not CHECKOUT:
        raise LabError(
            "an installed package has no notebooks and tests to add to.",
            "Clone the project, run `python bootstrap.py` there, and use the hpml-lab of its .venv.",
        )
    files, to_fill_in = planned(ROOT, chosen.kind, chosen.name, chosen.notebook)
    there = {path for path in files if path.exists()}
    write_all(files)
    for path in files:
        print(f"{'changed' if path in there else 'written'}  {path.relative_to(ROOT)}")
    print("\nTo fill in; until then these tests fail:")
    for point, tests in to_fill_in:
        print(f"  {point}\n      {', '.join(tests)}")
    return FINE


def planned(root: Path, kind: str, name: str, notebook: str) -> tuple[dict[Path, str], list[tuple[str, list[str]]]]:
    """({file: its new text}, [(a point to fill in, the tests that fail until then)]) of a new experiment or exercise.

    Nothing is written. Raises LabError for a name that is taken or not valid, and for a notebook that is not there.
    """
    path = find_notebook(root, notebook)
    topic = path.stem.split("_", 1)[1]
    names = {"slug": name, "name": name.replace("-", "_"), "notebook": path.stem, "topic": topic}
    names |= {"row": f"{''.join(map(str.capitalize, name.split('-')))}Row", "minutes": EXERCISE_MINUTES}
    require_free(root, kind, topic, name, names["name"])
    folder, tests = root / "hpml_lab" / topic, root / "tests" / topic
    until_run = [*NOT_RUN, NOT_TIMED, NOT_READ] if kind == "experiment" else NOT_RUN
    points = [MARKED, (f"make outputs ARGS=notebooks/{path.name}, once, at the end", until_run)]
    if kind == "experiment":
        files = {
            folder / "experiments" / f"{names['name']}.py": filled("experiment", names),
            folder / "__init__.py": with_name_in_front_door(folder / "__init__.py", topic, names["name"]),
            tests / f"test_{topic}_{names['name']}.py": filled("test_experiment", names),
            path: with_cells(path, filled("section", names)),
        }
        return files, points
    files = {
        folder / "exercises" / f"{names['name']}.py": filled("exercise", names),
        tests / "answers" / f"{names['name']}.py": filled("answers", names),
        path: with_cells(path, filled("task", names), EXERCISE_MINUTES),
    }
    if not (front := folder / "exercises" / "__init__.py").exists():
        files[front] = f'"""The checks of notebook {path.stem[:2]}\'s exercises, one per module."""\n'
    return files, [points[0], MORE_MISTAKES, points[1]]


def find_notebook(root: Path, notebook: str) -> Path:
    """The file of a notebook by its number or its name; LabError, which lists them, where there is none."""
    found = sorted((root / "notebooks").glob("[0-9]*.ipynb"))
    for path in found:
        if notebook.removesuffix(".ipynb").zfill(2) in (path.stem, path.stem[:2]):
            return path
    raise LabError(f"there is no notebook {notebook!r}.", f"Name one of {', '.join(path.stem for path in found)}.")


def require_free(root: Path, kind: str, topic: str, slug: str, name: str) -> None:
    """LabError if a name cannot be used for a new experiment or exercise, because of its form or because it is taken."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", slug) or keyword.iskeyword(name):
        raise LabError(f"{slug!r} is not a valid name.", "Use small letters, digits and single hyphens: warm-restarts.")
    package, tests = root / "hpml_lab", root / "tests"
    if not (package / topic / "experiments").is_dir():
        raise LabError(f"hpml_lab.{topic} has no experiments: what it runs is the reader's script.", "Choose another notebook.")
    test = f"*/answers/{name}.py" if kind == "exercise" else f"{topic}/test_{topic}_{name}.py"
    taken = [*package.glob(f"*/{kind}s/{name}"), *package.glob(f"*/{kind}s/{name}.py"), *tests.glob(test)]
    sources = package.glob(f"*/{kind}s/**/*.py")
    taken += [path for path in sources if f'@{kind}("{slug}"' in path.read_text(encoding="utf-8")]
    if taken:
        raise LabError(f"the name {slug} is taken by {taken[0].relative_to(root)}.", "Choose another one.")
    offered = re.findall(r" as (\w+)", (package / topic / "__init__.py").read_text(encoding="utf-8"))
    if kind == "experiment" and name in [*offered, *(path.name for path in (package / topic).iterdir())]:
        raise LabError(f"hpml_lab.{topic} has something else that is called {name}.", "Choose another name.")


def filled(skeleton: str, names: dict[str, Any]) -> str:
    """The text of a skeleton with its names."""
    return string.Template((SKELETONS / f"{skeleton}.txt").read_text(encoding="utf-8")).substitute(names)


def with_name_in_front_door(path: Path, topic: str, name: str) -> str:
    """The front door with one experiment more, behind the others: in the docstring and among the imports."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    imports = [node for node in ast.walk(ast.parse("".join(lines))) if isinstance(node, ast.ImportFrom)]
    own = [node for node in imports if re.fullmatch(rf"hpml_lab\.{topic}\.experiments\.(\w+)", node.module or "")]
    last = [node for node in own if node.module.rsplit(".", 1)[1] in [alias.asname for alias in node.names]][-1]
    line = f"    from hpml_lab.{topic}.experiments.{name} import {name} as {name}\n"
    if len(line) > LINE + 1:
        line = line.replace("import ", "import (\n        ").replace(f"as {name}\n", f"as {name},\n    )\n")
    lines.insert(last.end_lineno, line)
    before = last.module.rsplit(".", 1)[1]
    at = next(i for i, text in enumerate(lines) if re.match(rf"    {before}\b", text))
    column = re.match(r" {4}\S+(?:, \S+)* +", lines[at])
    while re.match(r" {5,}\S", lines[at + 1]):  # its description goes on
        at += 1
    lines.insert(at + 1, f"    {name}".ljust(column.end() - 2 if column else 0) + "  TODO: what it shows\n")
    return "".join(lines)


def with_cells(path: Path, text: str, exercise_minutes: int = 0) -> str:
    """The notebook with further cells before its five questions, not run yet; `exercise_minutes` are added to its header."""
    from hpml_lab.core.system.installed import need

    nbformat = need("nbformat")
    notebook = nbformat.read(path, as_version=4)
    cells, ids = notebook.cells, {cell.id for cell in notebook.cells}
    at = next((i for i, cell in enumerate(cells) if cell.source.startswith(QUESTIONS)), None)
    if at is None:
        raise LabError(f"{path.name} has no cell that begins with {QUESTIONS!r}.", "New cells go in front of it: write one.")
    new = []
    for kind, id, source in re.findall(r"^=== (\w+) (\S+)\n(.*?)\n(?=^===|\Z)", text, flags=re.DOTALL | re.MULTILINE):
        if id in ids:
            raise LabError(f"{path.name} has a cell {id} already.", "Choose another name.")
        make = nbformat.v4.new_markdown_cell if kind == "markdown" else nbformat.v4.new_code_cell
        metadata = {
            "collapsed": {"jupyter": {"outputs_hidden": True}},  # what a guess asks for, until the reader runs the cell
            "stub": {"hpml": {"exercise": id.removesuffix("-stub")}, "tags": ["exercise"]},
            "check": {"tags": ["exercise-check"]},
            "reading": {"jupyter": {"source_hidden": True}, "tags": ["reading"]},
        }
        new.append(make(source, id=id, metadata=metadata.get(kind, {})))
    cells[at:at] = new
    cells[0].source = re.sub(
        r"(\*\*Time:\*\* reading \d+ minutes, exercises )(\d+)",
        lambda found: f"{found[1]}{int(found[2]) + exercise_minutes}",
        cells[0].source,
    )
    return nbformat.writes(notebook) + "\n"


def write_all(files: dict[Path, str]) -> None:
    """Write every file, or leave all as they were: an error or an interruption undoes what was written."""
    from hpml_lab.core.system.files import atomic_write

    before = {path: path.read_bytes() if path.exists() else None for path in files}
    try:
        for path, text in files.items():
            atomic_write(path, text)
    except BaseException:
        for path, content in before.items():
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True) if content is None else path.write_bytes(content)
        raise
