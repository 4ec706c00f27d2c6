"""Slim notebooks for nbgrader: imports, exercises and checks. Students get them without a solution, which nbgrader takes out.

A stub keeps its signature and its docstring: the solution stands inside the function. A check is one graded cell that shows the
verdict, with the named mistake, and asserts it.
"""

import ast
import re
import textwrap
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

from hpml_lab.core.judge.exercises import find_exercise
from hpml_lab.core.judge.help import answers_file, solution_source
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.paths import NOTEBOOKS

CHECK = re.compile(r'check\("([\w-]+)", (\w+)\)')
CONFIG = """\
c = get_config()
c.CourseDirectory.course_id = "hpml"
c.CourseDirectory.root = {root!r}
c.ExecutePreprocessor.timeout = 120  # for a cell: a check ends an endless loop by itself, after 10 s of computing
c.ClearSolutions.code_stub = {{"python": "..."}}
c.ClearSolutions.enforce_metadata = True
"""


def write_assignments(names: list[str], course: Path) -> list[tuple[Path, int]]:
    """Write `source/<topic>/<notebook>.ipynb` of an nbgrader course for each notebook, and its configuration if there is none.

    Returns (file, number of exercises) for each. Raises LabError for a notebook that is not there or has no exercises.
    """
    written = []
    for name in names:
        path = NOTEBOOKS / f"{Path(name).stem}.ipynb"
        if not path.is_file():
            known = ", ".join(other.stem for other in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")))
            raise LabError(f"no notebook is called {name!r}.", f"There are {known}.")
        notebook = nbformat.read(path, as_version=4)
        count = slim(notebook)
        if not count:
            raise LabError(f"{path.stem} has no exercises.", "Choose another notebook.")
        topic = path.stem.split("_", 1)[1]
        target = course / "source" / topic / path.name
        written.append((atomic_write(target, nbformat.writes(notebook)), count))
    config = course / "nbgrader_config.py"
    if not config.exists():
        atomic_write(config, CONFIG.format(root=str(course.resolve())))
    return written


def exercise_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Title, exercises and checks of a notebook, and the cells that define what they use."""
    cells, kept, in_exercise = notebook.cells, {0}, False
    for number, cell in enumerate(cells):
        in_exercise |= cell.cell_type == "markdown" and cell.source.startswith("### Exercise")
        if in_exercise:
            kept.add(number)
        in_exercise &= "exercise-check" not in cell.metadata.get("tags", [])
    for number in sorted(kept, reverse=True):
        _keep_definitions(cells, number, kept)
    return [cells[number] for number in sorted(kept)]


def slim(notebook: NotebookNode) -> int:
    """Leave the exercises, with their solutions between nbgrader's marks; returns how many there are."""
    notebook.cells = exercise_cells(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
        if slug := cell.metadata.get("hpml", {}).get("exercise"):
            cell.source = with_solution(cell.source, slug)
            cell.metadata = _graded(slug, solution=True)
        elif cell.cell_type == "code" and (found := CHECK.match(cell.source)):
            cell.source = f"verdict = {found[0]}\ndisplay(verdict)\nassert verdict, verdict"
            cell.metadata = _graded(f"check-{found[1]}", grade=True, locked=True, points=1)
    return sum(cell.metadata.get("nbgrader", {}).get("grade", False) for cell in notebook.cells)


def _keep_definitions(cells: list[NotebookNode], number: int, kept: set[int]) -> None:
    """Add the code cells above cell `number` that make the names it uses, and what those use in turn."""
    if cells[number].cell_type != "code":
        return
    nodes = list(ast.walk(_parsed(cells[number])))
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    used = {node.id for node in nodes if isinstance(node, ast.Name)} - own
    for earlier in range(number):
        if earlier not in kept and cells[earlier].cell_type == "code" and used & _made(cells[earlier]):
            kept.add(earlier)
            _keep_definitions(cells, earlier, kept)


def _parsed(cell: NotebookNode) -> ast.Module:
    return ast.parse(TransformerManager().transform_cell(cell.source))  # a cell may hold magics


def _made(cell: NotebookNode) -> set[str]:
    """The names that a cell defines at its top level."""
    names = set()
    for node in _parsed(cell).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        else:
            names |= {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}
    return names


def with_solution(stub: str, slug: str) -> str:
    """A stub with its solution between nbgrader's marks, inside the function if it is one."""
    *before, answer = solution_source(answers_file(find_exercise(slug)))
    wanted, given = ast.parse(stub).body[-1], ast.parse(answer).body[0]
    if isinstance(wanted, ast.FunctionDef) and isinstance(given, ast.FunctionDef):
        body = given.body[bool(ast.get_docstring(given)) :]
        lines = answer.splitlines()[body[0].lineno - 1 : body[-1].end_lineno]
        pairs = zip(given.args.args, wanted.args.args, strict=False)
        renamed = [f"{own.arg} = {theirs.arg}" for own, theirs in pairs if own.arg != theirs.arg]
        inside = "\n".join([*before, *renamed, textwrap.dedent("\n".join(lines))])
        head = stub.rstrip().removesuffix("...").rstrip()
        return f"{head}\n{textwrap.indent(_marked(inside), '    ')}"
    name = wanted.name if isinstance(wanted, ast.FunctionDef | ast.ClassDef) else wanted.targets[0].id
    return f"{stub.rstrip()}\n" + _marked("\n".join([*before, answer, f"{name} = solution"]))


def _marked(code: str) -> str:
    return f"### BEGIN SOLUTION\n{code}\n### END SOLUTION"


def _graded(grade_id: str, **given: object) -> dict:
    flags = {"grade": False, "solution": False, "locked": False, "task": False, **given}
    return {"nbgrader": {"schema_version": 3, "grade_id": grade_id, **flags}}
