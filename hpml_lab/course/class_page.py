"""One page of a class: exercise × named mistake × how often, from the notebooks that nbgrader has run.

A notebook is somebody else's: whatever is wrong with one is said in a row of its student, and costs no other student anything.
"""

import itertools
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Template

from hpml_lab.core.system.errors import LabError, UnreadableFile
from hpml_lab.core.system.readers import RECORD, text_of

VERDICT = re.compile(r": (right|not yet|mistake \(([\w-]+)\))\. ?(.*)")
PAGE = Template(
    """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>What the class found hard</title>
<style>
:root { color-scheme: light dark }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0 }
tr { border-bottom: 1px solid #8888 } td.n { text-align: right }
</style>
<h1>What the class found hard</h1>
<p>{{ students }} students. An exercise is right or not; a named mistake says what to teach again.</p>
{% for assignment, rows in page.items() %}<h2>{{ assignment }}</h2>
<table><tr><th>exercise</th><th>right</th><th>not yet</th><th>mistakes, the most frequent first</th><th>no verdict</th></tr>
{% for row in rows %}<tr><td>{{ row.exercise }}</td><td class="n">{{ row.right }}</td><td class="n">{{ row.open }}</td><td>
{% for name, count in row.mistakes.most_common() %}{{ count }} × <b>{{ name }}</b>: {{ row.hints[name] }}<br>{% endfor %}</td>
<td>{{ row.none | join(", ") }}</td></tr>
{% endfor %}</table>
{% if incomplete[assignment] %}<h3>Not complete</h3>
<table><tr><th>student</th><th>verdicts</th><th>what is wrong</th></tr>
{% for row in incomplete[assignment] %}<tr><td>{{ row.student }}</td><td>{{ row.verdicts }} of {{ rows | length }}</td>
<td>{{ row.problem }}</td></tr>
{% endfor %}</table>{% endif %}
{% endfor %}</html>
""",
    autoescape=True,
)


@dataclass
class ExerciseRow:
    """What a class made of one exercise; `none` names the students whose check gave no verdict."""

    exercise: str
    right: int = 0
    open: int = 0
    mistakes: Counter[str] = field(default_factory=Counter)
    hints: dict[str, str] = field(default_factory=dict)
    none: list[str] = field(default_factory=list)


@dataclass
class IncompleteRow:
    """A student of whom not everything is known: how many verdicts there are, and why there are not more."""

    student: str
    verdicts: int
    problem: str


@dataclass
class Work:
    """What is known of one student's assignment: {exercise: its verdict, or None}, and what is wrong with which file."""

    verdicts: dict[str, re.Match[str] | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def class_rows(course: Path) -> dict[str, list[ExerciseRow]]:
    """{assignment: its exercises} from `autograded/<student>/<assignment>/*.ipynb`. Raises LabError where there is none."""
    return _rows(_works(course))[0]


def class_page(course: Path) -> str:
    """The page as HTML."""
    works = _works(course)
    page, incomplete = _rows(works)
    students = {student for _, student in works}
    text = PAGE.render(page=page, incomplete=incomplete, students=len(students))
    return text.encode("utf-8", "backslashreplace").decode()  # a notebook may hold half a character


def _works(course: Path) -> dict[tuple[str, str], Work]:
    """{(assignment, student): work}. What was handed in counts where nbgrader has left nothing: a cell may end the kernel."""
    closed: dict[str, str] = {}
    graded, submitted = (list(_assignments(course / stage, closed)) for stage in ("autograded", "submitted"))
    if not any(name.endswith(".ipynb") for _, _, names in os.walk(course / "autograded") for name in names):
        raise LabError(f"{course} has no autograded notebooks.", "Run `nbgrader autograde ASSIGNMENT` in it first.")
    works: dict[tuple[str, str], Work] = {}
    for path in graded:
        works[_named(path)] = _read_folder(path, course)
    for path in submitted:
        graded_work = works.get(_named(path)) or Work()
        if not graded_work.verdicts:
            works[_named(path)] = work = _read_folder(path, course)
            why = graded_work.problems or ["not graded: a cell may have ended the kernel"]
            work.problems = [*why, "these verdicts are those of the notebook that was handed in", *work.problems]
    for assignment, (student, why) in itertools.product({assignment for assignment, _ in works}, closed.items()):
        works.setdefault((assignment, student), Work()).problems.append(why)
    return works


def _assignments(stage: Path, closed: dict[str, str]) -> Iterator[Path]:
    """`<stage>/<student>/<assignment>` for each that there is, in order; `closed` gets {student: why not} for the others."""
    try:
        students = _folders(stage)
    except FileNotFoundError:
        return
    except OSError as error:
        raise LabError(f"{stage} cannot be read ({error.strerror}).", "Check its permissions.") from error
    for student in students:
        try:
            yield from _folders(student)
        except OSError as error:
            name = _text(student.name)
            closed[name] = f"{stage.name}/{name} cannot be read ({error.strerror})"


def _folders(parent: Path) -> list[Path]:
    """The folders in a folder, in order, without hidden ones. Raises OSError where it cannot be read."""
    with os.scandir(parent) as entries:
        return sorted(Path(entry) for entry in entries if not entry.name.startswith(".") and _is_folder(entry))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads nowhere
        return False


def _named(path: Path) -> tuple[str, str]:
    """(assignment, student) of a folder; names that are no UTF-8 with their bytes."""
    return _text(path.name), _text(path.parent.name)


def _text(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _read_folder(folder: Path, course: Path) -> Work:
    """The verdicts of all notebooks of one student's assignment; any error is a problem of its file."""
    work = Work()
    try:
        paths = sorted(folder / name for name in os.listdir(folder) if name.endswith(".ipynb"))
    except OSError as error:
        work.problems.append(f"{_text(str(folder.relative_to(course)))} cannot be read ({error.strerror})")
        return work
    for path in paths:
        try:
            verdicts, problems = _read(path)
        except Exception as error:  # whatever json and nbformat make of a file that is none of theirs
            verdicts, problems = {}, [_said(error, path)]
        work.verdicts |= {name: found for name, found in verdicts.items() if found or name not in work.verdicts}
        work.problems += [f"{_text(str(path.relative_to(course)))}: {problem}" for problem in problems]
    if not paths:
        work.problems.append(f"{_text(str(folder.relative_to(course)))} has no notebook")
    return work


def _said(error: Exception, path: Path) -> str:
    if isinstance(error, UnreadableFile):
        return error.problem.replace(str(path), "it").rstrip(".")
    if isinstance(error, OSError):
        return f"it cannot be read ({error.strerror or error})"
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return f"it is not a whole notebook: empty, cut off, or with the marks of a merge ({error})"
    return f"it is not a notebook that can be read ({type(error).__name__}: {error})"[:300]


def _read(path: Path) -> tuple[dict[str, re.Match[str] | None], list[str]]:
    """{exercise: verdict} of a notebook, and what is to be said of checks without one."""
    content = json.loads(text_of(path, RECORD, "utf-8-sig"))
    if not isinstance(content, dict) or content.get("nbformat") not in (3, 4):
        raise ValueError("it names no format of notebooks that is known")
    if content["nbformat"] == 3:
        import nbformat  # here: it takes longer to load than a class to read

        content = nbformat.convert(nbformat.from_dict(content), 4)
    verdicts, without = {}, defaultdict(list)
    for cell in filter(_is_dict, content["cells"]):
        about = (cell.get("metadata") or {}).get("nbgrader") or {}
        name = about.get("grade_id") if _is_dict(about) else None
        if isinstance(name, str) and name.startswith("check-"):
            name = name.removeprefix("check-")
            found, why = _verdict(cell)
            verdicts[name] = found or verdicts.get(name)
            if found is None:
                without[why].append(name)
    return verdicts, [f"{why}: {', '.join(names)}" for why, names in without.items()]


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _verdict(cell: dict[str, Any]) -> tuple[re.Match[str] | None, str]:
    """What a check says, or why it says nothing."""
    outputs = [output for output in cell.get("outputs") or [] if _is_dict(output)]
    said = []
    for output in outputs:
        if output.get("output_type") == "display_data":
            text = (output.get("data") or {}).get("text/plain", "")
            said.append("".join(map(str, text)) if isinstance(text, list) else str(text))
    found = VERDICT.search(" ".join(said).replace("\n", " "))
    if found or outputs:
        names = [str(output.get("ename")) for output in outputs if output.get("output_type") == "error"]
        return found, f"ended by {names[0]}" if names else "no verdict"
    return None, "not run" if cell.get("execution_count") is None else "no output"


def _rows(works: dict[tuple[str, str], Work]) -> tuple[dict[str, list[ExerciseRow]], dict[str, list[IncompleteRow]]]:
    """The exercises of each assignment, and its students of whom not everything is known."""
    found: dict[str, dict[str, ExerciseRow]] = {assignment: {} for assignment, _ in works}
    incomplete = defaultdict(list)
    for (assignment, _), work in works.items():
        for name in work.verdicts:
            found[assignment].setdefault(name, ExerciseRow(name))
    for (assignment, student), work in works.items():
        for name, row in found[assignment].items():
            verdict = work.verdicts.get(name)
            if verdict is None:
                row.none.append(student)
            elif verdict[2]:
                row.mistakes[verdict[2]] += 1
                row.hints.setdefault(verdict[2], verdict[3])
            else:
                row.right += verdict[1] == "right"
                row.open += verdict[1] == "not yet"
        if absent := [name for name in found[assignment] if name not in work.verdicts]:
            if not work.problems:
                work.problems.append(f"no check of {', '.join(absent)} is in the notebook")
        if work.problems:
            count = sum(verdict is not None for verdict in work.verdicts.values())
            incomplete[assignment].append(IncompleteRow(student, count, "; ".join(work.problems)))
    return {assignment: list(rows.values()) for assignment, rows in found.items()}, incomplete
