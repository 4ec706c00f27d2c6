"""Slim notebooks for nbgrader: exercises, checks and what both refer to. nbgrader takes the solutions out for the students.

A cell that an exercise refers to is tagged `needed-by:<exercise>`; cells that define what it uses are found by their code.
A stub keeps its signature and its docstring: the solution stands inside the function. A check is one graded cell that shows the
verdict, with the named mistake, and ends in the points, so that a notebook runs to its end whatever is solved.
"""

import ast
import dis
import re
import textwrap
from collections.abc import Container, Sequence
from pathlib import Path
from types import CodeType

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

from hpml_lab.core.experiment.catalogue import notebook_file
from hpml_lab.core.judge.exercises import find_exercise
from hpml_lab.core.judge.help import answers_file, solution_source
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write

CHECK = re.compile(r'check\("([\w-]+)", (\w+)\)')
EFFORT = re.compile(r"\*\*Difficulty\*\* (●+)○* · (\d+) minutes")
LOADS = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS")  # the last: annotations in classes, from Python 3.14 on
LINK = re.compile(r"\[([^\]]+)\]\(\w+\.ipynb[^)]*\)")
TITLE = """\
{title}: exercises

{count} exercises, about {minutes} minutes. Replace each `...`, then run the check of the exercise: it names the mistake.
A right answer gives 1, 2 or 3 points, by difficulty (●○○, ●●○, ●●●).

After `from hpml_lab.core import hint`, `hint("{first}")` says one thing more at each call."""
CONFIG = """\
c = get_config()
c.CourseDirectory.course_id = "hpml"
c.CourseDirectory.root = {root!r}
c.ExecutePreprocessor.timeout = 120  # for a cell: a check ends an endless loop by itself, after 10 s of computing
c.ClearSolutions.code_stub = {{"python": ""}}  # a stub has its own `...`
c.ClearSolutions.enforce_metadata = True
c.Autograde.exclude_overwriting = {{f"lab{{n}}": ["report.json", "lab_training.py"] for n in range(1, 7)}}  # the students' own
"""


def write_assignments(names: Sequence[str], course: Path) -> list[tuple[Path, int]]:
    """Write `source/<topic>/<notebook>.ipynb` of an nbgrader course for each notebook, and its configuration if there is none.

    Returns (file, number of exercises) for each. Raises LabError for a notebook that is not there or has no exercises.
    """
    written = []
    for path in [notebook_file(name) for name in names]:
        notebook = nbformat.read(path, as_version=4)
        count = slim(notebook)
        if not count:
            raise LabError(f"{path.stem} has no exercises.", "Choose another notebook.")
        topic = path.stem.split("_", 1)[1]
        written.append((write_source(course, topic, path.stem, notebook), count))
    return written


def write_source(course: Path, assignment: str, name: str, notebook: NotebookNode) -> Path:
    """Write a notebook of an assignment into an nbgrader course, and the course's configuration if there is none.

    Raises LabError where another notebook of that name is there: it may have questions of the instructor's own.
    """
    config = course / "nbgrader_config.py"
    if not config.exists():
        atomic_write(config, CONFIG.format(root=str(course.resolve())))
    return write_once(course / "source" / assignment / f"{name}.ipynb", nbformat.writes(notebook))


def write_once(path: Path, content: str) -> Path:
    """Write a file of a course. Raises LabError where it is there with another content, as after an edit."""
    if path.exists() and path.read_bytes() != content.encode():
        raise LabError(f"{path} is there, with another content.", "It is kept. Delete it for a new one, or name another --out.")
    return atomic_write(path, content)


def exercise_cells(notebook: NotebookNode, only: Container[str] | None = None) -> list[NotebookNode]:
    """Title, exercises, checks and context of a notebook, and the cells that define what their code uses.

    only   the exercises of these names; all of them otherwise
    """
    cells, kept, exercise = notebook.cells, {0}, []
    for number, cell in enumerate(cells):
        tags = cell.metadata.get("tags", [])
        if exercise or cell.cell_type == "markdown" and cell.source.startswith("### Exercise"):
            exercise.append(number)
        if any(only is None or tag.removeprefix("needed-by:") in only for tag in tags if tag.startswith("needed-by:")):
            kept.add(number)
        if exercise and "exercise-check" in tags:
            if only is None or CHECK.match(cell.source)[1] in only:
                kept.update(exercise)
            exercise = []
    codes = [_loaded_and_stored(_compiled(cell)) if cell.cell_type == "code" else (set(), set()) for cell in cells]
    for number in sorted(kept, reverse=True):
        _keep_definitions(codes, number, kept)
    return [cells[number] for number in sorted(kept)]


def slim(notebook: NotebookNode, only: Container[str] | None = None) -> int:
    """Leave the exercises, or those of `only`, with their solutions between nbgrader's marks; returns how many there are."""
    notebook.cells = exercise_cells(notebook, only)
    points, minutes, names = 0, 0, []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = LINK.sub(r"\1", cell.source)  # to a notebook that students may not have
            if found := EFFORT.search(cell.source):
                points, minutes = len(found[1]), minutes + int(found[2])
            continue
        name = cell.metadata.get("hpml", {}).get("exercise")
        cell.update(outputs=[], execution_count=None, metadata={})
        if name:
            names.append(name)
            cell.source = with_solution(cell.source, name)
            cell.metadata = graded(name, solution=True)
        elif found := CHECK.match(cell.source):
            cell.source = f"verdict = {found[0]}\ndisplay(verdict)\n{points} * bool(verdict)  # your points"
            cell.metadata = graded(f"check-{found[1]}", grade=True, locked=True, points=points)
    title = notebook.cells[0].source.splitlines()[0]
    notebook.cells[0].source = TITLE.format(title=title, count=len(names), minutes=minutes, first=names[0]) if names else title
    return len(names)


def _keep_definitions(codes: list[tuple[set[str], set[str]]], number: int, kept: set[int]) -> None:
    """Add the nearest cell above cell `number` that makes each name it uses, and what that cell uses in turn."""
    for name in codes[number][0]:
        made = next((earlier for earlier in reversed(range(number)) if name in codes[earlier][1]), None)
        if made is not None and made not in kept:
            kept.add(made)
            _keep_definitions(codes, made, kept)


def _compiled(cell: NotebookNode) -> CodeType:
    return compile(TransformerManager().transform_cell(cell.source), "cell", "exec")  # a cell may hold magics


def _loaded_and_stored(code: CodeType) -> tuple[set[str], set[str]]:
    """The names that a cell uses and does not make before, and the names that it makes.

    Read from its bytecode, which tells a global name from a local one, and what comes first.
    """
    loaded, stored = set(), set()
    for step in dis.get_instructions(code):
        if step.opname == "STORE_NAME":
            stored.add(step.argval)
        elif step.opname in LOADS and step.argval not in stored:
            loaded.add(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            loaded |= _loaded_and_stored(inner)[0] - stored
    return loaded, stored


def with_solution(stub: str, slug: str) -> str:
    """A stub with its solution behind it, between nbgrader's marks; inside the function if it is one."""
    *before, answer = solution_source(answers_file(find_exercise(slug)))
    wanted, given = ast.parse(stub).body[-1], ast.parse(answer).body[0]
    if isinstance(wanted, ast.FunctionDef) and isinstance(given, ast.FunctionDef):
        body = given.body[bool(ast.get_docstring(given)) :]
        lines = answer.splitlines()[body[0].lineno - 1 : body[-1].end_lineno]
        pairs = zip(given.args.args, wanted.args.args, strict=False)
        renamed = [f"{own.arg} = {theirs.arg}" for own, theirs in pairs if own.arg != theirs.arg]
        inside = "\n".join([*before, *renamed, textwrap.dedent("\n".join(lines))])
        return f"{stub.rstrip()}\n{textwrap.indent(marked(inside), '    ')}"
    name = wanted.name if isinstance(wanted, ast.FunctionDef | ast.ClassDef) else wanted.targets[0].id
    return f"{stub.rstrip()}\n" + marked("\n".join([*before, answer, f"{name} = solution"]))


def marked(code: str) -> str:
    """Code between the marks at which nbgrader takes solutions out."""
    return f"### BEGIN SOLUTION\n{code}\n### END SOLUTION"


def graded(grade_id: str, **given: object) -> dict:
    """A cell's metadata for nbgrader: `solution=True`, `grade=True` and `task=True` say what it is."""
    flags = {"grade": False, "solution": False, "locked": False, "task": False, **given}
    return {"nbgrader": {"schema_version": 3, "grade_id": grade_id, **flags}}
