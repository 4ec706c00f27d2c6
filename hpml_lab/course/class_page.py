"""One page of a class: exercise × named mistake × how often, from the notebooks that nbgrader has run."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from jinja2 import Template

from hpml_lab.core.system.errors import LabError

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


def class_rows(course: Path) -> dict[str, list[ExerciseRow]]:
    """{assignment: its exercises} from `autograded/<student>/<assignment>/*.ipynb`. Raises LabError where there is none."""
    paths = sorted((course / "autograded").glob("*/*/*.ipynb"))
    if not paths:
        raise LabError(f"{course} has no autograded notebooks.", "Run `nbgrader autograde ASSIGNMENT` in it first.")
    found: dict[str, dict[str, ExerciseRow]] = defaultdict(dict)
    for path in paths:
        student, assignment = path.parts[-3:-1]
        for cell in nbformat.read(path, as_version=4).cells:
            name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
            if not name.startswith("check-"):
                continue
            row = found[assignment].setdefault(name, ExerciseRow(name.removeprefix("check-")))
            shown = (output for output in cell.outputs if output.output_type == "display_data")
            said = " ".join(output.data.get("text/plain", "") for output in shown)
            verdict = VERDICT.search(said.replace("\n", " "))
            if verdict is None:
                row.none.append(student)
            elif verdict[2]:
                row.mistakes[verdict[2]] += 1
                row.hints.setdefault(verdict[2], verdict[3])
            else:
                row.right += verdict[1] == "right"
                row.open += verdict[1] == "not yet"
    return {assignment: list(rows.values()) for assignment, rows in found.items()}


def class_page(course: Path) -> str:
    """The page as HTML."""
    students = {path.parts[-3] for path in (course / "autograded").glob("*/*/*.ipynb")}
    return PAGE.render(page=class_rows(course), students=len(students))
